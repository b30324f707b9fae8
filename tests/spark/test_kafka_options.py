"""The options of Spark's Kafka source that select partitions, and their first and last positions."""

import json
import logging
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import kolumn
from kit.encoder import Record, batch
from kit.plain_spark import load
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.source.segments import Range
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.splits import plan_splits
from kolumn.spark_plugin.read.task import read_split

pytestmark = pytest.mark.spark


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Partitions a-0 (offsets 10 to 39, two segments), a-1 (0 to 9) and b-0 (0 to 4); timestamps fall once in a-0."""
    times = {("a", 0): [*range(1000, 1010), *range(1020, 1040)], ("a", 1): list(range(2000, 2010)), ("b", 0): [5] * 5}
    times["a", 0][5] = 1100
    for (topic, partition), stamps in times.items():
        base = 10 if (topic, partition) == ("a", 0) else 0
        records = [Record(base + i, None, b"%d" % i, stamp) for i, stamp in enumerate(stamps)]
        folder = tmp_path / f"{topic}-{partition}"
        folder.mkdir()
        for start in range(0, len(records), 20):
            entries = [batch(records[at : min(at + 4, start + 20)]) for at in range(start, min(start + 20, len(records)), 4)]
            (folder / f"{records[start].offset:020}.log").write_bytes(b"".join(entries))
    return tmp_path


def offsets(path: Path, **texts: object) -> dict[str, list[int]]:
    """Offsets by topic-partition of all splits of a read, without a session."""
    options = LoadOptions.of({"path": str(path), "columns": "topic,partition,offset"} | {name: str(text) for name, text in texts.items()})
    options = options.for_batch()
    found: dict[str, list[int]] = {}
    for split in plan_splits(options):
        for part in read_split(split, options, pytest.fail):
            for row in part.to_pylist():
                found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    return found


def upto(first: int, stop: int) -> list[int]:
    return list(range(first, stop))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({}, ["a-0", "a-1", "b-0"]),
        ({"subscribe": "a"}, ["a-0", "a-1"]),
        ({"subscribe": "b, a"}, ["a-0", "a-1", "b-0"]),
        ({"subscribePattern": "[bc]"}, ["b-0"]),
        ({"assign": '{"a": [1], "b": [0]}'}, ["a-1", "b-0"]),
    ],
)
def test_topic_partitions(logs: Path, texts: dict[str, str], expected: list[str]) -> None:
    assert sorted(offsets(logs, **texts)) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, {"a-0": upto(10, 40), "a-1": upto(0, 10)}),
        ({"startingOffsets": '{"a": {"0": 33, "1": -2}}'}, {"a-0": upto(33, 40), "a-1": upto(0, 10)}),
        ({"endingOffsets": '{"a": {"0": 33, "1": -1}}'}, {"a-0": upto(10, 33), "a-1": upto(0, 10)}),
        ({"startingOffsets": '{"a": {"0": 12, "1": 3}}', "endingOffsets": '{"a": {"0": 12, "1": 4}}'}, {"a-1": [3]}),
        # the first record at or after the time, and all after it: 15 has 1100, later ones have less
        ({"startingTimestamp": 1030, "startingOffsetsByTimestampStrategy": "latest"}, {"a-0": upto(15, 40), "a-1": upto(0, 10)}),
        ({"startingTimestamp": 2003, "startingOffsetsByTimestampStrategy": "latest"}, {"a-1": upto(3, 10)}),
        ({"endingTimestamp": 1003}, {"a-0": upto(10, 13)}),
        ({"endingTimestamp": 2003}, {"a-0": upto(10, 40), "a-1": upto(0, 3)}),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 1003, "1": 2009}}'}, {"a-0": upto(13, 40), "a-1": [9]}),
        ({"endingOffsetsByTimestamp": '{"a": {"0": 1003, "1": 9999}}'}, {"a-0": upto(10, 13), "a-1": upto(0, 10)}),
        # Kolumn's own options are filters of the range that the others select
        ({"startingOffsets": '{"a": {"0": 12, "1": 3}}', "endOffset": 14}, {"a-0": [12, 13], "a-1": upto(3, 10)}),
        ({"startTimestamp": 1030, "endTimestamp": 1101}, {"a-0": [15, *upto(30, 40)]}),
    ],
)
@pytest.mark.parametrize("split_bytes", [1, 1 << 30])
def test_positions(logs: Path, texts: dict[str, object], expected: dict[str, list[int]], split_bytes: int) -> None:
    assert offsets(logs, subscribe="a", splitBytes=split_bytes, **texts) == expected


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"subscribe": "a,c"}, "asked for c, not found below the path; there are the topic partitions a-0, a-1, b-0"),
        ({"subscribePattern": "c.*"}, "asked for a topic like c"),
        ({"assign": '{"a": [7]}'}, "asked for a-7"),
        ({"assign": "a"}, "option assign: expected JSON like"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "options subscribe and assign contradict each other"),
        ({"subscribePattern": "("}, "option subscribePattern: expected a regular expression"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "option startingOffsets: expected earliest, latest or JSON"),
        ({"startingOffsets": '{"a": {"0": 12}}'}, "has to name every topic partition that is read, and no other: see a-1, b-0"),
        ({"startingOffsets": "latest"}, "a batch read cannot start at the end of the log"),
        ({"startingOffsets": '{"a": {"0": -1, "1": 0}}', "subscribe": "a"}, "a batch read cannot start at the end of the log"),
        ({"endingOffsets": "earliest"}, "a batch read cannot end at the beginning of the log"),
        ({"startingTimestamp": 1500}, "option startingTimestamp: a-0 has no record at or after 1500 ms"),
        ({"minPartitions": 0}, "option minPartitions: expected at least 1, found 0"),
        ({"kafka.isolation.level": "committed"}, "expected one of read_uncommitted, read_committed"),
        (
            {"kafka.isolation.level": "read_uncommitted", "isolationLevel": "read_committed"},
            "'read_uncommitted' and isolationLevel='read_committed' contradict each other",
        ),
        ({"startingOffset": "1"}, "unknown option 'startingOffset', did you mean 'startingOffsets'?"),
        ({"table": "rows"}, "option table: expected records, batches or remarks, found 'rows'"),
    ],
)
def test_what_makes_no_sense_is_refused(logs: Path, texts: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        offsets(logs, **texts)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "message", "there"),
    [
        ({"startingOffsets": '{"a": {"0": 7}}'}, "a-0: offset 7 was asked for, and the log begins at 10", upto(10, 40)),
        ({"endingOffsets": '{"a": {"0": 41}}'}, "a-0: offset 41 was asked for, and the log ends at 40", upto(10, 40)),
    ],
)
def test_offsets_that_are_gone(logs: Path, texts: dict[str, str], message: str, there: list[int]) -> None:
    only = {"assign": '{"a": [0]}'} | texts
    with pytest.raises(KolumnError, match=message):
        offsets(logs, **only)
    assert offsets(logs, failOnDataLoss="false", **only) == {"a-0": there}


def test_partitions_have_at_most_so_many_records(logs: Path) -> None:
    splits = plan_splits(LoadOptions.of({"path": str(logs), "subscribe": "a", "maxRecordsPerPartition": "8"}))
    counts = [_records(split.ranges) for split in splits]
    assert sum(counts) == 40
    assert max(counts) == 8
    # a batch is never cut
    alone = plan_splits(LoadOptions.of({"path": str(logs), "subscribe": "a", "maxRecordsPerPartition": "1"}))
    assert {_records(split.ranges) for split in alone} == {2, 4}


def _records(ranges: tuple[Range, ...]) -> int:
    table = kolumn.batches(sorted({one.segment.path for one in ranges})).select(["segment", "position", "count"]).to_pylist()
    inside = [row for row in table for one in ranges if row["segment"] == one.segment.path and one.start <= row["position"] < one.end]
    return sum(row["count"] for row in inside)


def test_there_are_at_least_so_many_partitions(logs: Path) -> None:
    assert len(plan_splits(LoadOptions.of({"path": str(logs)}))) == 1
    assert len(plan_splits(LoadOptions.of({"path": str(logs), "minPartitions": "5"}))) >= 5


def test_a_job_for_the_kafka_source_runs(spark: SparkSession, logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    kafka = {
        "kafka.bootstrap.servers": str(logs),
        "kafka.security.protocol": "SSL",
        "kafka.isolation.level": "read_uncommitted",
        "kafkaConsumer.pollTimeoutMs": "1000",
        "fetchOffset.numRetries": "3",
        "groupIdPrefix": "job",
        "subscribe": "a,b",
        "startingOffsets": json.dumps({"a": {"0": 38, "1": -2}, "b": {"0": 4}}),
        "includeHeaders": "true",
        "failOnDataLoss": "false",
        "minPartitions": "2",
    }
    frame = spark.read.format("kolumn").options(**kafka).load()
    rows = frame.selectExpr("topic", "partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [("a", 0, 38), ("a", 0, 39), *(("a", 1, i) for i in range(10)), ("b", 0, 4)]
    with caplog.at_level(logging.WARNING, "kolumn"):
        LoadOptions.of(kafka)
    (line,) = caplog.messages
    assert "kafka.security.protocol, kafkaConsumer.pollTimeoutMs" in line
    with pytest.raises(AnalysisException, match="no path"):
        spark.read.format("kolumn").options(**kafka | {"kafka.bootstrap.servers": "host:9092"}).load()


def test_the_table_of_batches(spark: SparkSession, logs: Path) -> None:
    frame = spark.read.format("kolumn").option("table", "batches").load(str(logs))
    assert frame.toArrow().equals(kolumn.batches(logs, check_crcs=False))
    assert load(logs, table="batches", checkCrcs=True).toArrow().equals(kolumn.batches(logs))
    narrow = {"subscribe": "a", "startingOffsets": '{"a": {"0": 33, "1": 0}}', "endingOffsets": '{"a": {"0": 35, "1": 1}}'}
    assert sorted(row.baseOffset for row in load(logs, table="batches", **narrow).collect()) == [0, 30, 34]
    with pytest.raises(ArgumentError, match="has columns of its own"):
        load(logs, table="batches", includeHeaders=True)


def test_sql_view(spark: SparkSession, logs: Path) -> None:
    where = f"USING kolumn OPTIONS (path '{logs}', subscribe 'a', endingOffsets '{{\"a\": {{\"0\": 12, \"1\": 1}}}}')"
    spark.sql(f"CREATE TEMPORARY VIEW log_view {where}")
    try:
        assert sorted(row.offset for row in spark.sql("SELECT offset FROM log_view").collect()) == [0, 10, 11]
    finally:
        spark.catalog.dropTempView("log_view")


def test_a_table_without_the_connector_is_refused(logs: Path) -> None:
    """Spark adds these names to the options of CREATE TABLE; the connector takes them off again."""
    with pytest.raises(ArgumentError, match=r"does not pass a table's options on(?s:.*)CREATE TEMPORARY VIEW"):
        LoadOptions.of({"provider": "kolumn", "owner": "someone", "path": str(logs)})


def test_timestamps_of_a_real_log(segment: Path, tmp_path: Path) -> None:
    shutil.copytree(segment.parent, tmp_path / segment.parent.name)
    table = kolumn.read(segment.parent, columns=["offset", "timestampMs"])
    time = pc.quantile(table["timestampMs"], 0.5, interpolation="nearest")[0].as_py()
    first = pc.min(table.filter(pc.greater_equal(table["timestampMs"], time))["offset"]).as_py()
    found = offsets(tmp_path, startingTimestamp=time)
    expected = table["offset"].filter(pc.greater_equal(table["offset"], first)).to_pylist()
    assert found == {segment.parent.name: expected}
