"""Internal topics in Spark: the option `decode` returns the structs of `kolumn.read`, and SQL reaches into them."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kolumn
from kit.corpus import HERE

pytestmark = pytest.mark.spark
INTERNAL = HERE / "internal"


def test_rows_are_those_of_a_read(spark: SparkSession) -> None:
    source = str(INTERNAL / "__consumer_offsets-0")
    frame = spark.read.format("kolumn").option("decode", "internal").load(source)
    names = ("key", "value", "valueValid")
    rows = kolumn.read(source, decode="internal").select(names).to_pylist()
    assert [row.asDict(recursive=True) for row in frame.orderBy("offset").select(*names).collect()] == rows
    newest = frame.where("value.type = 'OffsetCommit'").groupBy("key.OffsetCommit.group").agg({"value.OffsetCommit.offset": "max"})
    assert "readers-0" in {row[0] for row in newest.collect()}


def test_snapshots_and_control_records(spark: SparkSession) -> None:
    source = str(INTERNAL / "__cluster_metadata-0")
    options = {"decode": "internal", "includeSnapshots": "true", "includeControl": "true", "columns": "key,value"}
    frame = spark.read.format("kolumn").options(**options).load(source)
    expected = kolumn.read(source, decode="internal", include_snapshots=True, include_control=True, columns=["offset"]).num_rows
    assert frame.count() == expected
    snapshots = len(list((INTERNAL / "__cluster_metadata-0").glob("*.checkpoint")))
    assert frame.where("key.type = 'SNAPSHOT_FOOTER'").count() == snapshots


def test_other_topics_are_refused(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="expected one of __consumer_offsets"):
        spark.read.format("kolumn").option("decode", "internal").load(str(HERE / "transactional" / "txn-open-0")).count()
