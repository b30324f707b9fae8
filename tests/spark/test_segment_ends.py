"""Segments that are cut, emptied or missing: Spark reports the same as `kolumn.verify`."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import kolumn
from kit.partitions import INJURIES
from kit.plain_spark import load
from kolumn.core.schema import REMARK_SCHEMA
from kolumn.spark_plugin import export, read_segments

pytestmark = pytest.mark.spark

NAMED = {one.name: one for one in INJURIES}
CHOSEN = ["cut in a batch", "log removed", "removed", "duplicated under another offset", "text"]


@pytest.mark.parametrize("split_bytes", [4000, 1 << 27])
@pytest.mark.parametrize("name", CHOSEN)
def test_batch_reads(name: str, tmp_path: Path, split_bytes: int) -> None:
    injury = NAMED[name]
    folder = injury.to(tmp_path)
    report = kolumn.verify(folder)
    order = [("segment", "ascending"), ("position", "ascending")]
    damage = load(folder, "kolumn-damage", splitBytes=split_bytes).toArrow().sort_by(order)
    assert damage.to_pylist() == report.damage.sort_by(order).to_pylist()
    assert load(folder, errors="skip", splitBytes=split_bytes).count() == injury.records
    remarks = load(folder, errors="skip", splitBytes=split_bytes, table="remarks").toArrow()
    assert remarks.schema.names == REMARK_SCHEMA.names
    assert remarks.to_pylist() == report.remarks.to_pylist()
    if injury.damage:
        damaged = {Path(name).stem for name in report.damage["segment"].to_pylist()}
        with pytest.raises(kolumn.KolumnError, match="|".join(sorted(damaged))):
            load(folder, splitBytes=split_bytes).count()
    else:
        assert load(folder, splitBytes=split_bytes).count() == injury.records


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cut in a batch", "removed"])
def test_other_doors(spark: SparkSession, name: str, tmp_path: Path) -> None:
    injury, target = NAMED[name], tmp_path / "lake"
    folder = str(injury.to(tmp_path / "log"))
    if injury.damage:
        with pytest.raises(PySparkException):
            read_segments(spark, folder).count()
        with pytest.raises(PySparkException):
            export(spark, folder, str(target))
        assert list(target.rglob("*.parquet")) == []
    else:
        assert read_segments(spark, folder).count() == injury.records
        export(spark, folder, str(target))
        assert spark.read.parquet(str(target)).count() == injury.records


@pytest.mark.parametrize("name", ["cut in a batch", pytest.param("emptied", marks=pytest.mark.slow), "removed"])
def test_streams(spark: SparkSession, name: str, tmp_path: Path) -> None:
    injury, out = NAMED[name], tmp_path / "out"
    folder = injury.to(tmp_path / "log")
    frame = spark.readStream.format("kolumn").option("startingOffsets", "earliest").load(str(folder))

    def run() -> None:
        query = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
        query.start(str(out)).awaitTermination()

    if injury.damage:
        with pytest.raises(StreamingQueryException):
            run()
    else:
        run()
        assert spark.read.parquet(str(out)).count() == injury.records
