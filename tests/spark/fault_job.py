"""A Spark program, in a process of its own, with a fault: ``fault_job.py <what> <log> <target> [<where>]``.

* ``failing``: each task of an export and of a write fails once, after it has written.
* ``slow``: two hosts and speculation; the first attempt of a task runs for longer than the job.
* ``append``, ``overwrite``, ``export``: the driver, Java and the process that commits are killed at a step of the commit.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import kolumn.spark_plugin as plugin
from kit.faults import Steps
from kolumn.spark_plugin.options.write import WriteOptions
from kolumn.spark_plugin.session.java import use_java
from kolumn.spark_plugin.source import RecordSource
from kolumn.spark_plugin.write import export as parquet_export
from kolumn.spark_plugin.write.staged import ExportJob, ExportLayout, write_job
from kolumn.spark_plugin.write.writer import SegmentWriter
from kolumn.writers.commit.manifest import ExportTarget

ROWS, TASKS = 60, 3
SLOW = 120
"""Seconds, more than a job takes."""


def session(master: str, **settings: str) -> SparkSession:
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.driver.host", "127.0.0.1").config("spark.ui.enabled", "false")
    for name, value in {"spark.log.level": "OFF", "spark.ui.showConsoleProgress": "false", **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    plugin.register(spark)
    return spark


@contextmanager
def two_hosts(folder: Path) -> Iterator[str]:
    """A cluster with an executor on each of two hosts, because Spark makes no second attempt on the host of the first."""
    use_java()
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    master, java = f"spark://127.0.0.1:{port}", [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
    commands = [["master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0"]]
    for host in ("127.0.0.2", "127.0.0.3"):
        worker = ["worker.Worker", "--host", host, "-c", "1", "-m", "1g", "--webui-port", "0", "-d", str(folder / host), master]
        commands.append(worker)
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen([*java, f"org.apache.spark.deploy.{name}", *rest], **quiet) for name, *rest in commands]
    try:
        yield master
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.wait(60)


def is_first(mark: str) -> bool:
    """Whether this is the first call for a mark, in any process."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def records(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, TASKS).selectExpr("cast(id as string) as value")


def misbehaving(spark: SparkSession, marks: str, how: Callable[[str], None]) -> tuple[DataFrame, Callable[..., Any]]:
    """Records, and a job of an export. Both write correct rows, and then fail or wait once for each task."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = -1
        for batch in batches:
            first = batch.column("value")[0].as_py() if first == -1 else first
            yield batch
        how(f"{marks}/rows-{first}")

    def job(one: ExportJob, layout: ExportLayout) -> Iterator[dict[str, Any]]:
        done = list(write_job(one, layout))
        how(f"{marks}/job-{one.ranges[0].segment.base_offset}")
        yield from done

    return records(spark).mapInArrow(rows, "value string"), job


def fails(mark: str) -> None:
    if is_first(mark):
        raise ValueError("the first attempt fails")


def takes_long(mark: str) -> None:
    # Only one task is slow, because Spark compares it with the others.
    if mark.endswith(("rows-0", "job-0")) and is_first(mark):
        time.sleep(SLOW)
        Path(f"{mark}-waited").touch()


def run(spark: SparkSession, log: str, target: str, how: Callable[[str], None]) -> None:
    """Write segments and export a log, with tasks that misbehave."""
    marks = f"{target}.marks"
    os.mkdir(marks)
    frame, job = misbehaving(spark, marks, how)
    frame.write.format("kolumn").mode("append").option("topic", "t").save(f"{target}/log")
    parquet_export.write_job = job
    plugin.export(spark, log, f"{target}/lake", split_bytes=1)
    print(json.dumps(sorted(os.listdir(marks))))


def end_of_all() -> None:
    """Kill the driver, Java and this process."""
    os.killpg(int(os.environ["KOLUMN_TEST_GROUP"]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Ends(Steps):
    """Kills all processes when a commit has a journal, has given some names, or is about to remove the journal."""

    def __init__(self, where: str, scratch: str) -> None:
        super().__init__(0, "", scratch)
        self.where, self.journal, self.given = where, False, 0

    def _step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        path = self._path(name, args)
        if name == "unlink" and path.endswith("/redo.json") and self.where == "end":
            end_of_all()
        result = super()._step(name, function, *args, **kwargs)
        if name == "rename" and path.endswith("/redo.json"):
            self.journal = True
            if self.where == "journal":
                end_of_all()
        elif self.journal and name in ("rename", "link", "replace"):
            self.given += 1
            if self.where == "names" and self.given == 4:
                end_of_all()
        return result


class EndingWriter(SegmentWriter):
    def commit(self, messages: Any) -> None:
        Ends(os.environ["KOLUMN_TEST_WHERE"], self.options.path).install()
        super().commit(messages)


class EndingSource(RecordSource):
    @classmethod
    def name(cls) -> str:
        return "ending"

    def writer(self, schema: StructType, overwrite: bool) -> EndingWriter:
        return EndingWriter(WriteOptions.of(self.options), schema, overwrite)


class EndingFiles(fs.LocalFileSystem):
    """Kills all processes after the move that gives the intent, a record file, or the manifest its name."""

    moves = 0

    def move(self, source: str, place: str) -> None:
        super().move(source, place)
        where, self.moves = os.environ["KOLUMN_TEST_WHERE"], self.moves + 1
        intent = place.endswith(".intent.json")
        manifest = place.endswith(".json") and not intent
        if (where == "journal" and intent) or (where == "names" and self.moves == 3) or (where == "end" and manifest):
            end_of_all()


def main(what: str, log: str, target: str, where: str = "") -> None:
    os.environ["KOLUMN_TEST_GROUP"], os.environ["KOLUMN_TEST_WHERE"] = str(os.getpgid(0)), where
    if what == "failing":
        run(session("local[2,4]"), log, target, fails)
    elif what == "slow":
        names = {"interval": "100ms", "quantile": "0.3", "multiplier": "0.1", "minTaskRuntime": "1s"}
        settings = {"spark.speculation": "true", "spark.executor.memory": "1g"} | {f"spark.speculation.{k}": v for k, v in names.items()}
        with two_hosts(Path(f"{target}.home")) as master:
            run(session(master, **settings), log, target, takes_long)
    elif what == "export":
        parquet_export._target = lambda target, _: ExportTarget(EndingFiles(), os.path.abspath(target))
        plugin.export(session("local[2]"), log, target, split_bytes=1)
    else:
        spark = session("local[2]")
        spark.dataSource.register(EndingSource)
        records(spark).write.format("ending").mode(what).option("topic", "t").save(target)
    Path(f"{target}.done").touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
