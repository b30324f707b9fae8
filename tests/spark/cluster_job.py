"""Run by test_cluster.py in a process of its own, because Spark allows one context in each: ``cluster_job.py <corpus> <target>``."""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import kolumn.spark_plugin as plugin
from kolumn.spark_plugin.session.java import use_java
from kolumn.spark_plugin.write import export as parquet_export
from kolumn.spark_plugin.write.staged import ExportJob, ExportLayout, write_job


def session(
    master: str,
    home: Path,
    settings: Mapping[str, str],
    configure: Callable[[Any], Any] = lambda builder: builder,
    python: str = sys.executable,
) -> SparkSession:
    """A session with a driver and executors, each in a JVM of its own; ``python`` is that of the executors."""
    use_java()
    # Workers write files to a folder in Spark's home, so the home is a folder of links to the one in the environment.
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    os.environ["SPARK_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = python
    builder = configure(SparkSession.builder.master(master))
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **settings,
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def kill_once(marker: str) -> None:
    """Kill the executor that runs this task, the first time that any task calls this."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    os.kill(executor, signal.SIGKILL)
    signal.pause()


def main(source: str, target: str, package: str) -> None:
    marks = tempfile.mkdtemp(dir=Path(target).parent)
    # A lost executor does not count as a failure of the task.
    settings = {"spark.submit.pyFiles": package, "spark.task.maxFailures": "8"}
    spark = session("local-cluster[2,1,1024]", Path(target).with_name("spark"), settings)

    def digest(batch: pa.RecordBatch) -> pa.RecordBatch:
        import kolumn

        if batch.column("offset")[-1].as_py() > 0:
            kill_once(f"{marks}/read")
        size = pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
        values = {"file": kolumn.__file__, "topic": batch.column("topic")[0].as_py(), "rows": batch.num_rows, "bytes": size}
        return pa.RecordBatch.from_pylist([values])

    def writes_then_dies(job: ExportJob, layout: ExportLayout) -> Iterator[dict[str, Any]]:
        found = list(write_job(job, layout))
        kill_once(f"{marks}/export")
        yield from found

    options = {"columns": ["value", "topic", "offset"], "split_bytes": 100_000}
    frame = plugin.read_segments(spark, source, transform=digest, schema="file string, topic string, rows long, bytes long", **options)
    topics = frame.groupBy("topic").agg(sql.sum("rows"), sql.sum("bytes"), sql.first("file")).collect()
    plugin.register(spark)
    rows = spark.read.format("kolumn").option("splitBytes", "100000").load(source).select("topic", "offset", "key", "value")
    pq.write_table(rows.toArrow(), f"{target}.rows.parquet")
    parquet_export.write_job = writes_then_dies
    manifest = plugin.export(spark, source, target, split_bytes=100_000)
    killed = sorted(os.listdir(marks))
    spark.stop()
    print(json.dumps({"topics": [tuple(row) for row in topics], "killed": killed, "files": len(manifest.files)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
