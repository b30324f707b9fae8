"""Run by test_connector_workers.py: ``worker_job.py <log> <scratch>``. The workers of a session print, hang and lose their JVM."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from jobs import session, tell  # type: ignore[import-not-found]
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from kit.plain_spark import soon
from kit.spark_session import connector_workers
from kolumn.spark_plugin import configure, register

PRINTS = """
import os, sys, threading, time

def prints():
    while True:
        print("from Python", flush=True)
        os.write(1, b"from the process\\n")
        os.system("echo from a child; cat")
        time.sleep(0.05)

if "kolumn.spark_plugin.connector.worker" in sys.orig_argv:
    print("at the start", flush=True)
    threading.Timer(3, prints).start()
"""
TIMEOUT = "spark.kolumn.worker.timeoutSeconds"


class Workers:
    def __init__(self, spark: SparkSession, log: str) -> None:
        self.spark, self.log = spark, log
        self.conf = spark._jvm.org.apache.spark.SparkEnv.get().conf()  # type: ignore[union-attr]

    def rows(self, **options: str) -> DataFrame:
        return self.spark.read.format("kolumn").options(**options).load(self.log)

    def slow(self) -> Any:
        frame = self.rows(chunkBytes="5000")
        return frame.select(sql.sum(sql.expr("aggregate(sequence(1, 8000), 0L, (a, x) -> a + hash(value, x))"))).collect()

    def stopped(self, then: Callable[[], object]) -> threading.Thread:
        """Stop the workers of the next query in the middle of it, and do something a moment later."""

        def run() -> None:
            if soon(self.spark.sparkContext.statusTracker().getActiveJobsIds) and soon(lambda: connector_workers(self.spark)):
                time.sleep(1)
                self.stop_workers()
                time.sleep(1)
                then()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def stop_workers(self) -> None:
        for pid in connector_workers(self.spark):
            os.kill(pid, signal.SIGSTOP)

    def timed(self, query: Callable[[], object]) -> tuple[str, float]:
        start = time.monotonic()
        try:
            return str(query()), time.monotonic() - start
        except Exception as error:
            return str(error), time.monotonic() - start

    def hung_task(self) -> tuple[str, float]:
        self.conf.set(TIMEOUT, "3")
        thread = self.stopped(lambda: None)
        found = self.timed(self.slow)
        thread.join()
        return found

    def hung_question(self) -> tuple[str, float]:
        self.conf.set(TIMEOUT, "3")
        self.stop_workers()
        return self.timed(lambda: self.rows().schema)

    def cancelled(self, interrupt: bool) -> tuple[str, float, bool]:
        self.conf.set(TIMEOUT, "600")
        context = self.spark.sparkContext
        context.setJobGroup("cancelled", "", interruptOnCancel=interrupt)
        told, workers = [], []

        def cancel() -> None:
            workers.extend(connector_workers(self.spark))
            told.append(time.monotonic())
            context.cancelJobGroup("cancelled")

        thread = self.stopped(cancel)
        try:
            text, _ = self.timed(self.slow)
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
        thread.join()
        # Tasks go on after the query has its error: they hold a worker each.
        gone = soon(lambda: not set(workers) & set(connector_workers(self.spark)))
        return text, time.monotonic() - told[0], gone

    def stopped_stream(self) -> tuple[float, str]:
        """How long it takes to stop a stream whose workers hang, whatever it waits for, and its error."""
        frame = self.spark.readStream.format("kolumn").options(startingOffsets="earliest", maxOffsetsPerTrigger="10").load(self.log)
        query = frame.writeStream.format("noop").start()
        soon(lambda: query.recentProgress)
        self.stop_workers()
        time.sleep(1)
        start = time.monotonic()
        query.stop()
        return time.monotonic() - start, str(query.exception() or "")

    def doors(self) -> dict[str, Any]:
        """Which processes have the pipes of a worker, what its standard input and output are, and where it looks for modules first."""
        worker = connector_workers(self.spark)[0]
        links = {int(path.name): os.readlink(path) for path in Path(f"/proc/{worker}/fd").iterdir()}
        pipes = {links[number] for number in links if number >= 100 and links[number].startswith("pipe:")}
        java = self.spark._jvm.ProcessHandle.current().pid()  # type: ignore[union-attr]
        environment = Path(f"/proc/{worker}/environ").read_text().split("\0")
        (places,) = (one.removeprefix("PYTHONPATH=") for one in environment if one.startswith("PYTHONPATH="))
        return {
            "pipes": len(pipes),
            "have them": sorted(holders(pipes)) == sorted([java, worker]),
            "standard": [links[0], links[1] == links[2]],
            "added files": places.split(os.pathsep)[0] == SparkFiles.getRootDirectory(),
        }

    def orphaned(self, scratch: str) -> list[bool]:
        """A worker waits for a file for ever, and the JVM is killed. Whether it waited, and whether it is gone."""
        pipe = f"{scratch}/schema.avsc"
        os.mkfifo(pipe)
        asks = threading.Thread(target=lambda: self.timed(lambda: self.rows(valueFormat="avro", valueSchemas=pipe).schema), daemon=True)
        asks.start()
        # Who opens it finds it open, and waits for bytes.
        waits = soon(lambda: is_opened(pipe))
        workers = connector_workers(self.spark)
        os.kill(self.spark._jvm.ProcessHandle.current().pid(), signal.SIGKILL)  # type: ignore[union-attr]
        return [waits, bool(workers), soon(lambda: not any(map(is_worker, workers)))]


def holders(files: set[str]) -> Iterator[int]:
    """Processes that have one of these files open."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if files & {os.readlink(path) for path in (folder / "fd").iterdir()}:
                yield int(folder.name)


def is_opened(pipe: str) -> bool:
    """Whether somebody reads it; from then on it has a writer."""
    with suppress(OSError):
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        return True
    return False


def is_worker(pid: int) -> bool:
    with suppress(OSError):
        return b"kolumn.spark_plugin.connector.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def main(log: str, scratch: str) -> None:
    folder = Path(scratch, "preloaded")
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(PRINTS)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
    place = Path(
        scratch, "usercache/hadoop/appcache/application_1700000000000_0001/container_1700000000000_0001_01_000002/".ljust(140, "x")
    )
    place.mkdir(parents=True)
    os.environ["TMPDIR"] = str(place)
    # PySpark itself does not read this setting.
    os.environ.pop("PYSPARK_PYTHON", None)
    settings = {"spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={place}", "spark.sql.shuffle.partitions": "2"}
    spark = session("local[2]", settings | {"spark.pyspark.python": sys.executable}, configure)
    register(spark)
    workers = Workers(spark, log)
    found: dict[str, Any] = {"place": [spark._jvm.java.lang.System.getProperty("java.io.tmpdir"), str(place)]}  # type: ignore[union-attr]
    found["rows"] = [
        [frame.count(), frame.select("value").distinct().count()] for frame in (workers.rows(reader=how) for how in ("columnar", "python"))
    ]
    found["doors"] = workers.doors()
    spark.conf.set("spark.kolumn.handOver", "pipe")
    time.sleep(3)
    found["printing"] = [workers.rows().count(), workers.rows().select("value").distinct().count()]
    spark.conf.unset("spark.kolumn.handOver")
    found["question"], found["task"] = workers.hung_question(), workers.hung_task()
    found["cancelled"] = [workers.cancelled(interrupt) for interrupt in (True, False)]
    found["stream"] = workers.stopped_stream()
    found["after"] = workers.rows().select("value").distinct().count()
    found["orphans"] = workers.orphaned(scratch)
    found["left"] = sorted(path.name for path in place.iterdir() if "kolumn" in path.name)
    tell(found)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
