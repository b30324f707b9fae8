"""The schema of Spark's Kafka source, projections of it, and schemas and options that are refused."""

from pathlib import Path

import pytest
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


def test_headers_come_last(spark: SparkSession, topic: Path) -> None:
    frame = spark.read.format("kolumn").option("includeHeaders", "true").load(str(topic))
    assert frame.schema == StructType([*KAFKA.fields, HEADERS])


def test_columns_by_name(spark: SparkSession, topic: Path) -> None:
    frame = spark.read.format("kolumn").option("columns", "offset, magic,producerEpoch ,value").load(str(topic))
    assert frame.schema == StructType(
        [
            StructField("offset", LongType(), True),
            StructField("magic", ByteType(), True),
            StructField("producerEpoch", ShortType(), True),
            StructField("value", BinaryType(), True),
        ]
    )


def test_a_schema_given_by_the_user_projects(spark: SparkSession, segment: Path) -> None:
    frame = spark.read.schema("value binary, offset bigint").format("kolumn").load(str(segment))
    assert frame.columns == ["value", "offset"]
    table = kolumn.read(segment, columns=["value", "offset"])
    assert frame.toArrow().equals(table)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("offset int", "column offset is bigint, not int"),
        ("offset bigint, vaule binary", "unknown column 'vaule', did you mean 'value'?"),
        ("offset bigint NOT NULL", "column offset is nullable: leave out NOT NULL"),
        ("headers array<struct<key:string,value:string>>", "column headers is array<struct<key:string,value:binary>>"),
    ],
)
def test_a_wrong_schema_is_refused(spark: SparkSession, topic: Path, schema: str, message: str) -> None:
    with pytest.raises(PySparkException, match="ArgumentError") as caught:
        spark.read.schema(schema).format("kolumn").load(str(topic)).collect()
    assert message in str(caught.value)


def test_columns_and_schema_have_to_agree(spark: SparkSession, topic: Path) -> None:
    frame = spark.read.schema("offset bigint").format("kolumn").option("columns", "offset,value").load(str(topic))
    with pytest.raises(PySparkException, match="the schema has the columns offset, the options ask for offset, value"):
        frame.collect()


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
def test_a_wrong_option_is_refused_by_load(spark: SparkSession, topic: Path, option: str, value: str, message: str) -> None:
    with pytest.raises(AnalysisException, match="ArgumentError") as caught:
        spark.read.format("kolumn").option(option, value).load(str(topic))
    # Only the connector sees capital letters of options.
    assert message.lower() in str(caught.value).lower()


def test_a_path_is_needed(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match=r"no path: name a segment file"):
        spark.read.format("kolumn").load()


def test_the_path_has_to_exist(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="no such file or directory"):
        spark.read.format("kolumn").load(str(tmp_path / "gone")).collect()


def test_options_in_any_case(spark: SparkSession, topic: Path) -> None:
    frame = spark.read.format("KOLUMN").option("INCLUDEHEADERS", "True").load(f"file://{topic}")
    assert frame.columns[-1] == "headers"
    assert frame.collect() == []
