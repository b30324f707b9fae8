"""Segments that are cut, emptied or missing: Spark reports the same as `kolumn.verify`."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import kolumn
from kit.partitions import INJURIES, Injury
from kolumn.schema import REMARK_SCHEMA
from kolumn.spark_plugin import export, read_segments

pytestmark = pytest.mark.spark

NAMED = {one.name: one for one in INJURIES}
CHOSEN = ["cut in a batch", "log removed", "removed", "duplicated under another offset", "text"]


@pytest.fixture(params=CHOSEN)
def injury(request: pytest.FixtureRequest) -> Injury:
    return NAMED[request.param]


@pytest.mark.parametrize("split_bytes", [pytest.param(4000, marks=pytest.mark.slow), 1 << 27])
def test_batch_reads(spark: SparkSession, injury: Injury, tmp_path: Path, split_bytes: int) -> None:
    folder = str(injury.to(tmp_path))
    reader = spark.read.option("splitBytes", split_bytes)
    report = kolumn.verify(folder)
    damage = reader.format("kolumn-damage").load(folder).toArrow().sort_by([("segment", "ascending"), ("position", "ascending")])
    assert damage.to_pylist() == report.damage.sort_by([("segment", "ascending"), ("position", "ascending")]).to_pylist()
    skipping = reader.format("kolumn").option("errors", "skip")
    assert skipping.load(folder).count() == injury.records
    remarks = skipping.option("table", "remarks").load(folder).toArrow()
    assert remarks.schema.names == REMARK_SCHEMA.names
    assert remarks.to_pylist() == report.remarks.to_pylist()
    whole = spark.read.format("kolumn").option("splitBytes", split_bytes).load(folder)
    if injury.damage:
        # Tasks run in parallel, so any of them may be the first to fail.
        damaged = {Path(name).stem for name in report.damage["segment"].to_pylist()}
        with pytest.raises(PySparkException, match="|".join(sorted(damaged))):
            whole.count()
    else:
        assert whole.count() == injury.records


@pytest.mark.slow
def test_other_doors(spark: SparkSession, injury: Injury, tmp_path: Path) -> None:
    folder, target = str(injury.to(tmp_path / "log")), tmp_path / "lake"
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
