"""Run by test_jobs.py: ``kill_loop_job.py <log> <scratch> <seconds>``.

Separate executors read a log by the connector, again and again, while executors, workers, queries and streams are killed or stopped at
random moments. Each answer has to be the one of an undisturbed read.
"""

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

from jobs import on_cluster, tell  # type: ignore[import-not-found]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from kit.plain_spark import soon
from kolumn.spark_plugin import configure

MARK = "KOLUMN_KILL_LOOP"
"""In the environment of every process of this job."""


def processes(part: str = "") -> list[int]:
    """The processes of this job with a part of their command, found by their environment: also those whose parents are gone."""
    found, mark = [], f"{MARK}={os.environ[MARK]}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):
                if part.encode() in (folder / "cmdline").read_bytes() and mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


EXECUTOR, WORKER = "CoarseGrainedExecutorBackend", "kolumn.spark_plugin.connector.worker"


def orphans() -> list[int]:
    """Workers whose parent is no Java."""
    found = []
    for pid in processes(WORKER):
        with suppress(OSError):
            parent = re.search(r"\) \S (\d+)", Path(f"/proc/{pid}/stat").read_text())
            if parent is None or b"java" not in Path(f"/proc/{parent[1]}/cmdline").read_bytes():
                found.append(pid)
    return found


def open_files(pid: int) -> int:
    with suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


def mapped(pid: int) -> int:
    """Mappings of workers' memory in a process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/maps").read_text().count("memfd:kolumn")
    return 0


class Loop:
    def __init__(self, spark: SparkSession, log: str, scratch: Path, chance: random.Random) -> None:
        self.spark, self.log, self.scratch, self.chance = spark, log, scratch, chance
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

    def kill(self, part: str) -> bool:
        with suppress(ProcessLookupError, IndexError):
            os.kill(self.chance.choice(processes(part)), signal.SIGKILL)
            return True
        return False

    def a_killed_executor(self) -> None:
        with self.meanwhile("executor", lambda: self.kill(EXECUTOR)):
            assert self.answer(self.slowly(self.rows())) == self.expected

    def a_killed_worker(self) -> None:
        """A worker of the driver has no task that Spark would run again: the query says what happened."""
        with self.meanwhile("worker", lambda: self.kill(WORKER)):
            try:
                found = self.answer(self.slowly(self.rows()))
            except Exception as error:
                if "Python worker" not in str(error):
                    raise
                self.done["said so"] += 1
                found = self.answer(self.slowly(self.rows()))
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
        reader = self.chance.choice(["columnar", "python"])

        def started(**trigger: Any) -> Any:
            options = {"reader": reader, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "15000", "splitBytes": "300000"}
            frame = self.slowly(self.spark.readStream.format("kolumn").options(**options).load(self.log))
            writer = frame.select("topic", "partition", "offset", "key", "value").writeStream.format("parquet")
            return writer.option("checkpointLocation", f"{folder}/state").trigger(**trigger).start(f"{folder}/rows")

        for _ in range(2):
            query = started(processingTime="10 milliseconds")
            act = self.chance.choice([lambda: False, lambda: self.kill(EXECUTOR)])
            with self.meanwhile("executor", act):
                time.sleep(self.chance.uniform(0.2, 4))
            query.stop()
            assert query.exception() is None, query.exception()
            self.done["stopped"] += 1
        started(availableNow=True).awaitTermination()
        assert self.answer(self.spark.read.parquet(f"{folder}/rows")) == self.expected

    def run(self, seconds: float) -> dict[str, Any]:
        rounds = [self.a_killed_executor, *[self.a_killed_worker] * 2, self.a_cancelled_query, self.a_limit, self.a_stopped_stream]
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
    # Neither the tasks of killed workers nor killed executors end the application.
    settings = {"spark.task.maxFailures": "50", "spark.deploy.maxExecutorRetries": "-1", "spark.sql.shuffle.partitions": "4"}
    settings |= {"spark.kolumn.worker.idleSeconds": "5", "spark.kolumn.reader": "columnar"}
    spark = on_cluster("local-cluster[2,2,1024]", Path(scratch) / "spark", settings, configure)
    found = Loop(spark, log, Path(scratch), random.Random(int(seed))).run(float(seconds))
    driver = spark._jvm.ProcessHandle.current().pid()  # type: ignore[union-attr]
    java = [*processes(EXECUTOR), driver]
    soon(lambda: not orphans())
    found["orphans"], found["files"] = len(orphans()), max(map(open_files, processes(WORKER)), default=0)
    # Nobody needs the workers any more: memory that an executor maps is theirs.
    soon(lambda: not processes(WORKER), 30), soon(lambda: not any(map(mapped, java)), 30)
    found["workers"], found["mapped"] = len(processes(WORKER)), max(map(mapped, java))
    spark.stop()
    # The driver's Java ends with this process.
    soon(lambda: processes() == [driver], 30)
    found["left"] = len(processes()) - 1
    tell(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
