"""A Spark program, in a process of its own, with a fault: ``fault_job.py <what> <log> <target> [<where>]``.

* ``failing``: each task of an export and of a write fails once, after it has written.
* ``slow``: two hosts and speculation; the first attempt of a task runs for longer than the job.
* ``append``, ``overwrite``, ``export``: the driver, Java and the process that commits are killed at a step of the commit.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from jobs import session, tell  # type: ignore[import-not-found]
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

import kolumn.spark_plugin as plugin
from kit.dying_writer import GROUP, WHERE, DyingSource, end_of_all
from kolumn.spark_plugin.session.java import use_java
from kolumn.spark_plugin.write import export as parquet_export
from kolumn.spark_plugin.write.export import ExportJob, ExportLayout, write_job
from kolumn.writers.commit.manifest import ExportTarget

ROWS, TASKS = 60, 3
SLOW = 120
"""Seconds, more than a job takes."""


def registered(master: str, **settings: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark: SparkSession = session(master, settings)
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
    commands = [f"master.Master --host 127.0.0.1 --port {port} --webui-port 0".split()]
    for host in ("127.0.0.2", "127.0.0.3"):
        commands.append([*f"worker.Worker --host {host} -c 1 -m 1g --webui-port 0 -d".split(), str(folder / host), master])
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
    with suppress(FileExistsError):
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        return True
    return False


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
    tell(sorted(os.listdir(marks)))


class EndingFiles(fs.LocalFileSystem):
    """Kills all processes after the move that gives a second file, or the manifest, its name."""

    moves = 0

    def move(self, source: str, place: str) -> None:
        super().move(source, place)
        self.moves += 1
        manifest = place.endswith(".json") and not place.endswith(".intent.json")
        if self.moves == 3 if os.environ[WHERE] == "names" else manifest:
            end_of_all()


def main(what: str, log: str, target: str, where: str = "") -> None:
    os.environ |= {GROUP: str(os.getpgid(0)), WHERE: where}
    if what == "failing":
        run(registered("local[2,4]"), log, target, fails)
    elif what == "slow":
        names = {"interval": "100ms", "quantile": "0.3", "multiplier": "0.1", "minTaskRuntime": "1s"}
        settings = {"spark.speculation": "true", "spark.executor.memory": "1g"} | {f"spark.speculation.{k}": v for k, v in names.items()}
        with two_hosts(Path(f"{target}.home")) as master:
            run(registered(master, **settings), log, target, takes_long)
    elif what == "export":
        parquet_export._target = lambda target, filesystem: ExportTarget(EndingFiles(), os.path.abspath(target))
        plugin.export(registered("local[2]"), log, target, split_bytes=1)
    else:
        spark = registered("local[2]")
        spark.dataSource.register(DyingSource)
        records(spark).write.format("dying").mode(what).option("topic", "t").save(target)
    Path(f"{target}.done").touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
