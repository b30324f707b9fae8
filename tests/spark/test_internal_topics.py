"""Internal topics in Spark: the option `decode` returns the structs of `kolumn.read`, and SQL reaches into them."""

import pytest
from pyspark.sql import SparkSession

import kolumn
from kit.corpus import HERE
from kit.plain_spark import load

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


def test_snapshots_and_control_records() -> None:
    source = str(INTERNAL / "__cluster_metadata-0")
    rows = load(source, decode="internal", includeSnapshots=True, includeControl=True, columns="key,value").collect()
    expected = kolumn.read(source, decode="internal", include_snapshots=True, include_control=True, columns=["offset"]).num_rows
    assert len(rows) == expected
    snapshots = len(list((INTERNAL / "__cluster_metadata-0").glob("*.checkpoint")))
    assert sum(row.key is not None and row.key["type"] == "SNAPSHOT_FOOTER" for row in rows) == snapshots


def test_other_topics_are_refused() -> None:
    with pytest.raises(kolumn.ArgumentError, match="expected one of __consumer_offsets"):
        load(HERE / "transactional" / "txn-open-0", decode="internal").count()
