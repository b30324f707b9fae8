"""Run by test_connector_killed.py, since Spark allows one context in each process: ``kill_loop_job.py <log> <scratch> <seconds>``.

Separate executors read a log by the connector, again and again, while executors, workers, queries and streams are killed or stopped at
random moments. Each answer has to be the one of an undisturbed read.
"""

import json
import os
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cluster_job import session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from kolumn.spark_plugin import configure

MARK = "KOLUMN_KILL_LOOP"
"""In the environment of every process of this job."""


class Processes:
    """The processes of this job, found by their environment: also those whose parents are gone."""

    def __init__(self, mark: str) -> None:
        self.mark = f"{MARK}={mark}".encode()

    def named(self, part: str) -> list[int]:
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                with suppress(OSError):
                    command = (folder / "cmdline").read_bytes()
                    if part.encode() in command and self.mark in (folder / "environ").read_bytes().split(b"\0"):
                        found.append(int(folder.name))
        return found

    @property
    def executors(self) -> list[int]:
        return self.named("CoarseGrainedExecutorBackend")

    @property
    def workers(self) -> list[int]:
        return self.named("kolumn.spark_plugin.connector.worker")

    def orphans(self) -> list[int]:
        """Workers whose parent is no Java."""

        def is_orphan(pid: int) -> bool:
            try:
                parent = re.search(r"\) \S (\d+)", Path(f"/proc/{pid}/stat").read_text())
                return parent is None or b"java" not in Path(f"/proc/{parent[1]}/cmdline").read_bytes()
            except OSError:
                return False

        return [pid for pid in self.workers if is_orphan(pid)]


def soon(ask: Callable[[], bool], seconds: float = 30) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if ask():
            return True
        time.sleep(0.1)
    return ask()


def open_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def mapped(pid: int) -> int:
    """Mappings of workers' memory in a process."""
    try:
        return Path(f"/proc/{pid}/maps").read_text().count("memfd:kolumn")
    except OSError:
        return 0


class Loop:
    def __init__(self, spark: SparkSession, log: str, scratch: Path, chance: random.Random, processes: Processes) -> None:
        self.spark, self.log, self.scratch, self.chance, self.processes = spark, log, scratch, chance, processes
        self.done: Counter[str] = Counter()
        self.expected = self.answer(self.rows())

    def rows(self) -> DataFrame:
        options = {"splitBytes": "300000", "chunkBytes": str(self.chance.choice([20_000, 200_000]))}
        return self.spark.read.format("kolumn").options(**options).load(self.log)

    @staticmethod
    def slowly(frame: DataFrame) -> DataFrame:
        """So that queries take some seconds, and are met in their middle."""
        return frame.where("aggregate(sequence(1, 60), 0L, (a, x) -> a + hash(value, x)) IS NOT NULL")

    @staticmethod
    def answer(frame: DataFrame) -> list[tuple[Any, ...]]:
        once = (sql.count("*"), sql.count_distinct("offset"), sql.sum("offset"), sql.expr("bit_xor(xxhash64(offset, key, value))"))
        return sorted(map(tuple, frame.groupBy("topic", "partition").agg(*once).collect()))

    @contextmanager
    def meanwhile(self, name: str, act: Callable[[], bool]) -> Iterator[None]:
        """Do something at a random moment of the block."""
        over = threading.Event()

        def run() -> None:
            if not over.wait(self.chance.uniform(0.1, 2.5)) and act():
                self.done[name] += 1

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def kill(self, pids: list[int]) -> bool:
        if not pids:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.chance.choice(pids), signal.SIGKILL)
            return True
        return False

    def a_killed_executor(self) -> None:
        with self.meanwhile("executor", lambda: self.kill(self.processes.executors)):
            assert self.answer(self.slowly(self.rows())) == self.expected

    def a_killed_worker(self) -> None:
        with self.meanwhile("worker", lambda: self.kill(self.processes.workers)):
            self.retried(lambda: self.answer(self.slowly(self.rows())))

    def retried(self, ask: Callable[[], Any]) -> None:
        """A worker of the driver has no task that Spark would run again: the query says what happened."""
        try:
            found = ask()
        except Exception as error:
            if "Python worker" not in str(error):
                raise
            self.done["said so"] += 1
            found = ask()
        assert found == self.expected

    def a_cancelled_query(self) -> None:
        context = self.spark.sparkContext
        context.setJobGroup("cancelled", "", interruptOnCancel=self.chance.random() < 0.7)
        try:
            with self.meanwhile("cancelled", lambda: context.cancelJobGroup("cancelled") is None):
                found = self.answer(self.slowly(self.rows()))
            assert found == self.expected
        except Exception as error:
            if isinstance(error, AssertionError) or "cancel" not in str(error).lower():
                raise
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)

    def a_limit(self) -> None:
        """Tasks that end before their input does."""
        assert len(self.rows().select("offset", "value").limit(500).collect()) == 500

    def a_stopped_stream(self) -> None:
        """A stream that is stopped, or meets a killed executor or worker, and goes on from its checkpoint until it has all."""
        folder = self.scratch / f"stream-{sum(self.done.values())}-{self.chance.randrange(10**9)}"

        def started(**trigger: Any) -> Any:
            options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "15000", "splitBytes": "300000"}
            frame = self.slowly(self.spark.readStream.format("kolumn").options(**options).load(self.log))
            writer = frame.select("topic", "partition", "offset", "key", "value").writeStream.format("parquet")
            return writer.option("checkpointLocation", f"{folder}/state").trigger(**trigger).start(f"{folder}/rows")

        for _ in range(2):
            query = started(processingTime="10 milliseconds")
            act = self.chance.choice([lambda: False, lambda: self.kill(self.processes.executors)])
            with self.meanwhile("executor", act):
                time.sleep(self.chance.uniform(0.2, 4))
            query.stop()
            assert query.exception() is None, query.exception()
            self.done["stopped"] += 1
        started(availableNow=True).awaitTermination()
        assert self.answer(self.spark.read.parquet(f"{folder}/rows")) == self.expected

    def run(self, seconds: float) -> dict[str, Any]:
        rounds = [
            self.a_killed_executor,
            self.a_killed_worker,
            self.a_killed_worker,
            self.a_cancelled_query,
            self.a_limit,
            self.a_stopped_stream,
        ]
        until = time.monotonic() + seconds
        while time.monotonic() < until or not {"executor", "worker", "cancelled", "stopped"} <= self.done.keys():
            self.chance.shuffle(rounds)
            for one in rounds:
                print(f"{until - time.monotonic():.0f} s left, {one.__name__}, {dict(self.done)}", file=sys.stderr, flush=True)
                one()
        assert self.answer(self.rows()) == self.expected
        return {"rows": [list(row) for row in self.expected], "done": dict(self.done)}


def main(log: str, scratch: str, seconds: str) -> None:
    seed = os.environ.get("KOLUMN_FUZZ_SEED", "0")
    os.environ[MARK] = scratch
    processes = Processes(scratch)
    settings = {
        "spark.sql.shuffle.partitions": "4",
        # Neither the tasks of killed workers nor killed executors end the application.
        "spark.task.maxFailures": "50",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.kolumn.worker.idleSeconds": "5",
        "spark.kolumn.reader": "columnar",
    }
    spark = session("local-cluster[2,2,1024]", Path(scratch) / "spark", settings, configure)
    loop = Loop(spark, log, Path(scratch), random.Random(int(seed)), processes)
    found = loop.run(float(seconds))
    driver = spark._jvm.ProcessHandle.current().pid()  # type: ignore[union-attr]
    java = [*processes.executors, driver]
    found["orphans"] = 0 if soon(lambda: not processes.orphans()) else len(processes.orphans())
    found["files"] = max(map(open_files, processes.workers), default=0)
    # Nobody needs the workers any more: memory that an executor maps is theirs.
    found["workers"] = 0 if soon(lambda: not processes.workers) else len(processes.workers)
    found["mapped"] = max(map(mapped, java)) if not soon(lambda: not any(map(mapped, java))) else 0
    spark.stop()
    # The driver's Java ends with this process.
    found["left"] = 0 if soon(lambda: processes.named("") == [driver]) else len(processes.named("")) - 1
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
