"""The schema of Spark's Kafka source, projections of it, and schemas and options that are refused."""

import re
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
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

pytestmark = pytest.mark.spark

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
