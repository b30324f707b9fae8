"""Sources at URLs in Spark: batch reads, streams of a prefix that gets more segments, exports.

``local://`` is a scheme of fsspec that any process can open.
"""

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

import kolumn
from kit.encoder import Record, batch
from kolumn import spark_plugin

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"


def test_batch(spark: SparkSession) -> None:
    url = f"local://{CORPUS / 'transactional'}"
    reader = spark.read.format("kolumn").option("splitBytes", "20000").option("isolationLevel", "read_committed")
    rows = reader.load(url).select("topic", "partition", "offset", "value").orderBy("topic", "partition", "offset").toArrow()
    expected = kolumn.read(CORPUS / "transactional", columns=rows.schema.names, isolation_level="read_committed")
    assert rows.equals(expected.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]).cast(rows.schema))
    assert spark.read.format("kolumn").option("table", "batches").load(url).count() == kolumn.batches(CORPUS / "transactional").num_rows
    assert spark_plugin.read_segments(spark, url).count() == kolumn.read(CORPUS / "transactional").num_rows


def test_a_prefix_that_gains_segments(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "bucket" / "t-0"
    folder.mkdir(parents=True)

    def segment(first: int) -> None:
        data = b"".join(batch([Record(at, None, b"%d" % at, at)]) for at in range(first, first + 10))
        (folder / f"{first:020}.log").write_bytes(data)

    def run() -> list[int]:
        stream = spark.readStream.format("kolumn").option("startingOffsets", "earliest").load(f"local://{tmp_path / 'bucket'}")
        query = stream.select("offset").writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
        return sorted(row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect())

    segment(0)
    assert run() == list(range(10))
    segment(10)
    segment(20)
    assert run() == list(range(30))
    # Retention deletes segments that were read before.
    (folder / f"{0:020}.log").unlink()
    segment(30)
    assert run() == list(range(40))


def test_export(spark: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(CORPUS / "upgraded", tmp_path / "log")
    done = spark_plugin.export(spark, f"local://{tmp_path / 'log'}", str(tmp_path / "lake"))
    assert sum(one["rows"] for one in done.files) == kolumn.read(CORPUS / "upgraded").num_rows
