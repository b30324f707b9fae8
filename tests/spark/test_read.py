"""Ranges, splits and damage: Spark returns the rows of `kolumn.read`, with any division of the bytes into splits."""

import re
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import kolumn
from kit.plain_spark import load
from kit.wrong_records import cases
from kolumn.spark_plugin import DamageSource, RecordSource

pytestmark = pytest.mark.spark


@pytest.fixture
def damaged(segment: Path, tmp_path: Path) -> Path:
    """A copy of a segment with one bit of its fourth batch flipped."""
    copy = tmp_path / segment.parent.name / segment.name
    copy.parent.mkdir()
    shutil.copyfile(segment, copy)
    fourth = kolumn.batches(copy).slice(3, 1).to_pylist()[0]
    with copy.open("r+b") as file:
        file.seek(fourth["position"] + fourth["size"] - 1)
        last = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([last ^ 0x10]))
    return copy


@pytest.mark.parametrize(
    ("in_spark", "in_python"),
    [
        ({"startOffset": 500, "endOffset": 777}, {"start_offset": 500, "end_offset": 777}),
        ({"columns": "offset,segment,position"}, {"columns": ["offset", "segment", "position"]}),
        ({"topic": "t", "partition": 9}, {"topic": "t", "partition": 9}),
    ],
)
def test_options_reach_the_decoder(segment: Path, in_spark: dict[str, object], in_python: dict[str, object]) -> None:
    table = kolumn.read(segment, **in_python)
    assert table.num_rows > 0
    assert load(segment, **in_spark).toArrow().equals(table)


def test_a_range_of_time(segment: Path) -> None:
    times = pc.unique(kolumn.read(segment, columns=["timestamp"])["timestamp"].drop_null()).sort()
    start, end = times[len(times) // 4].as_py(), times[len(times) // 2].as_py()
    table = kolumn.read(segment, start_timestamp=start, end_timestamp=end)
    assert 0 < table.num_rows < kolumn.read(segment).num_rows
    for spelled in (lambda time: time.isoformat(), lambda time: round(time.timestamp() * 1000)):
        assert load(segment, startTimestamp=spelled(start), endTimestamp=spelled(end)).toArrow().equals(table)


def test_many_splits_give_the_same_rows(spark: SparkSession, segment: Path) -> None:
    frame = spark.read.format("kolumn").option("splitBytes", 20_000).load(str(segment))
    assert frame.rdd.getNumPartitions() > 3
    assert frame.toArrow().equals(kolumn.read(segment))


def test_one_load_of_several_paths(segment: Path, small_segments: Path) -> None:
    assert load([segment, f"{small_segments}/*.log"]).count() == kolumn.read([segment, small_segments]).num_rows


def test_sql(spark: SparkSession, segment: Path) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW log USING kolumn OPTIONS (path '{segment}', includeHeaders true)")
    try:
        (row,) = spark.sql("SELECT max(offset) last, count(*) n, sum(size(headers)) headers FROM log").collect()
    finally:
        spark.catalog.dropTempView("log")
    table = kolumn.read(segment, include_headers=True)
    headers = len(table["headers"].combine_chunks().flatten())
    assert (row.last, row.n, row.headers) == (pc.max(table["offset"]).as_py(), table.num_rows, headers)


def test_damage_fails_the_task_with_the_message_of_python(spark: SparkSession, damaged: Path) -> None:
    with pytest.raises(kolumn.CorruptBatchError) as in_python:
        kolumn.read(damaged)
    with pytest.raises(PySparkException) as in_spark:
        spark.read.format("kolumn").load(str(damaged)).toArrow()
    assert f"kolumn.core.errors.{type(in_python.value).__name__}: {in_python.value}" in str(in_spark.value)


def test_damage_is_skipped_and_counted(spark: SparkSession, damaged: Path, segment: Path) -> None:
    frame = spark.read.format("kolumn").option("errors", "skip").load(str(damaged))
    table = kolumn.read(damaged, errors="skip")
    assert frame.toArrow().equals(table)
    damage = spark.read.format("kolumn-damage").load(str(damaged))
    assert damage.toArrow().equals(kolumn.verify(damaged).damage)
    (row,) = damage.collect()
    assert row.segment == str(damaged)
    assert row.recordsLost == kolumn.read(segment).num_rows - table.num_rows


def test_one_wrong_record_is_skipped_and_counted(tmp_path: Path) -> None:
    (case,) = (case for case in cases() if case.name == "2 1 first")
    (tmp_path / "0.log").write_bytes(case.data)
    assert [row.offset for row in load(tmp_path / "0.log", errors="skip").collect()] == case.offsets
    (row,) = load(tmp_path / "0.log", "kolumn-damage").collect()
    assert (row.recordsLost, row.baseOffset, row.lastOffset) == (1, 3, 3)


def test_a_sound_segment_has_no_damage(segment: Path) -> None:
    assert load(segment, "kolumn-damage").count() == 0


@pytest.mark.parametrize("source", [RecordSource, DamageSource])
def test_sources_travel_by_name(source: type) -> None:
    """Workers have the package, so the name of the class is sent to them, and not a copy of it."""
    assert len(cloudpickle.dumps(source)) < 200


# The schema of Spark's Kafka source, projections of it, and schemas and options that are refused.


# The value of `spark.read.format("kafka").load().schema` in spark-sql-kafka-0-10.
KAFKA = StructType(
    [
        StructField("key", BinaryType(), True),
        StructField("value", BinaryType(), True),
        StructField("topic", StringType(), True),
        StructField("partition", IntegerType(), True),
        StructField("offset", LongType(), True),
        StructField("timestamp", TimestampType(), True),
        StructField("timestampType", IntegerType(), True),
    ]
)
HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType(), True), StructField("value", BinaryType(), True)]), True),
    True,
)


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    """A directory with an empty segment."""
    directory = tmp_path / "orders-3"
    directory.mkdir()
    (directory / "00000000000000000000.log").touch()
    return directory


def test_default_is_that_of_the_kafka_source(spark: SparkSession, topic: Path) -> None:
    assert spark.read.format("kolumn").load(str(topic)).schema == KAFKA


def test_headers_come_last(topic: Path) -> None:
    assert load(topic, includeHeaders=True).schema == StructType([*KAFKA.fields, HEADERS])


def test_columns_by_name(topic: Path) -> None:
    types = {"offset": LongType(), "magic": ByteType(), "producerEpoch": ShortType(), "value": BinaryType()}
    fields = [StructField(name, kind, True) for name, kind in types.items()]
    assert load(topic, columns="offset, magic,producerEpoch ,value").schema == StructType(fields)


def test_a_schema_given_by_the_user_projects(spark: SparkSession, segment: Path) -> None:
    frame = spark.read.schema("value binary, offset bigint").format("kolumn").load(str(segment))
    assert frame.columns == ["value", "offset"]
    table = kolumn.read(segment, columns=["value", "offset"])
    assert frame.toArrow().equals(table)


OFFSET = StructField("offset", LongType())


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ([StructField("offset", IntegerType())], {}, "column offset is bigint, not int"),
        ([OFFSET, StructField("vaule", BinaryType())], {}, "unknown column 'vaule', did you mean 'value'?"),
        ([StructField("offset", LongType(), False)], {}, "column offset is nullable: leave out NOT NULL"),
        ([StructField("headers", ArrayType(KAFKA))], {}, "column headers is array<struct<key:string,value:binary>>"),
        ([OFFSET], {"columns": "offset,value"}, "the schema has the columns offset, the options ask for offset, value"),
    ],
)
def test_a_wrong_schema_is_refused(topic: Path, fields: list[StructField], options: dict[str, str], message: str) -> None:
    with pytest.raises(kolumn.ArgumentError, match=re.escape(message)):
        load(topic, schema=StructType(fields), **options)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("startOfset", "1", "unknown option 'startofset', did you mean 'startOffset'?"),
        ("startOffset", "one", "option startOffset: expected an integer, found 'one'"),
        ("includeHeaders", "yes", "option includeHeaders: expected true or false, found 'yes'"),
        (
            "startTimestamp",
            "now",
            "option startTimestamp: expected milliseconds since 1970, or a time in ISO 8601, found 'now'",
        ),
        ("splitBytes", "0", "option splitBytes: expected at least 1, found 0"),
        ("isolationLevel", "committed", "isolation_level='committed': expected one of read_uncommitted, read_committed"),
        ("errors", "ignore", "errors='ignore': expected one of raise, skip"),
        ("columns", "offset,vaule", "unknown column 'vaule', did you mean 'value'?"),
    ],
)
def test_a_wrong_option_is_refused(topic: Path, option: str, value: str, message: str) -> None:
    # Spark hands a source in Python the names of options with small letters.
    with pytest.raises(kolumn.ArgumentError, match=f"(?i){re.escape(message)}"):
        load(topic, **{option: value})


def test_load_refuses_a_wrong_option(spark: SparkSession, topic: Path) -> None:
    with pytest.raises(AnalysisException, match="ArgumentError: unknown option 'startofset', did you mean 'startOffset'"):
        spark.read.format("kolumn").option("startOfset", "1").load(str(topic))
    with pytest.raises(AnalysisException, match=r"no path: name a segment file"):
        spark.read.format("kolumn").load()


def test_the_path_has_to_exist(tmp_path: Path) -> None:
    with pytest.raises(kolumn.KolumnError, match="no such file or directory"):
        load(tmp_path / "gone")


def test_options_in_any_case(spark: SparkSession, topic: Path) -> None:
    frame = spark.read.format("KOLUMN").option("INCLUDEHEADERS", "True").load(f"file://{topic}")
    assert frame.columns[-1] == "headers"
    assert frame.collect() == []
