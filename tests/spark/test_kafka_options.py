"""Splits cover every batch once, at batch boundaries; the options of Spark's Kafka source select partitions, and their positions."""

import json
import logging
import os
import pickle
import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import kolumn
from kit.encoder import Record, batch
from kit.plain_spark import load
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.source.segments import Range, Segment
from kolumn.spark_plugin.read.options import LoadOptions
from kolumn.spark_plugin.read.schema import MAX_BYTES, MAX_ROWS, sized
from kolumn.spark_plugin.read.splits import pack, plan_splits
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


def test_topic_partitions(logs: Path) -> None:
    for texts, expected in (
        ({}, ["a-0", "a-1", "b-0"]),
        ({"subscribe": "b, a"}, ["a-0", "a-1", "b-0"]),
        ({"subscribePattern": "[bc]"}, ["b-0"]),
        ({"assign": '{"a": [1], "b": [0]}'}, ["a-1", "b-0"]),
    ):
        assert sorted(offsets(logs, **texts)) == expected


def test_how_many_splits_there_are(logs: Path) -> None:
    def counts(**texts: str) -> list[int]:
        splits = plan_splits(LoadOptions.of({"path": str(logs), **texts}))
        return [sum(n for path, at, n in rows if any(inside(path, at, part) for part in split.ranges)) for split in splits]

    rows = [(row["segment"], row["position"], row["count"]) for row in kolumn.batches(logs).to_pylist()]
    most_8 = counts(subscribe="a", maxRecordsPerPartition="8")
    assert (sum(most_8), max(most_8)) == (40, 8)
    # a batch is never cut
    assert set(counts(subscribe="a", maxRecordsPerPartition="1")) == {2, 4}
    assert len(counts()) == 1
    assert len(counts(minPartitions="5")) >= 5


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
def test_positions(logs: Path, texts: dict[str, object], expected: dict[str, list[int]]) -> None:
    for split_bytes in (1, 1 << 30):
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
        ({"kafka.isolation.level": "read_uncommitted", "isolationLevel": "read_committed"}, "='read_committed' contradict each other"),
        ({"startingOffset": "1"}, "unknown option 'startingOffset', did you mean 'startingOffsets'?"),
        ({"table": "rows"}, "option table: expected records, batches, damage or remarks, found 'rows'"),
    ],
)
def test_what_makes_no_sense_is_refused(logs: Path, texts: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        offsets(logs, **texts)
    assert message in str(caught.value)


def test_offsets_that_are_gone(logs: Path) -> None:
    for option, offset, message in (("starting", 7, "begins at 10"), ("ending", 41, "ends at 40")):
        texts = {"assign": '{"a": [0]}', f"{option}Offsets": json.dumps({"a": {"0": offset}})}
        with pytest.raises(KolumnError, match=f"a-0: offset {offset} was asked for, and the log {message}"):
            offsets(logs, **texts)
        assert offsets(logs, failOnDataLoss="false", **texts) == {"a-0": upto(10, 40)}


def test_a_job_for_the_kafka_source_runs(spark: SparkSession, logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    kafka = {
        "kafka.bootstrap.servers": str(logs), "kafka.security.protocol": "SSL", "kafka.isolation.level": "read_uncommitted",
        "kafkaConsumer.pollTimeoutMs": "1000", "fetchOffset.numRetries": "3", "groupIdPrefix": "job", "subscribe": "a,b",
        "startingOffsets": json.dumps({"a": {"0": 38, "1": -2}, "b": {"0": 4}}),
        "includeHeaders": "true", "failOnDataLoss": "false", "minPartitions": "2",
    }  # fmt: skip
    rows = spark.read.format("kolumn").options(**kafka).load().select("topic", "partition", "offset").collect()
    assert sorted(rows) == [("a", 0, 38), ("a", 0, 39), *(("a", 1, i) for i in range(10)), ("b", 0, 4)]
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


def test_sql_views_but_no_tables_without_the_connector(spark: SparkSession, logs: Path) -> None:
    where = f"USING kolumn OPTIONS (path '{logs}', subscribe 'a', endingOffsets '{{\"a\": {{\"0\": 12, \"1\": 1}}}}')"
    spark.sql(f"CREATE TEMPORARY VIEW log_view {where}")
    try:
        assert sorted(row.offset for row in spark.sql("SELECT offset FROM log_view").collect()) == [0, 10, 11]
    finally:
        spark.catalog.dropTempView("log_view")
    # Spark adds these names to the options of CREATE TABLE; the connector takes them off again.
    with pytest.raises(
        ArgumentError, match=r"does not pass a table's options on(?s:.*)configure\(SparkSession.builder\)(?s:.*)CREATE TEMPORARY VIEW"
    ):
        LoadOptions.of({"provider": "kolumn", "owner": "someone", "path": str(logs)})


def test_pack_fills_up_to_the_target() -> None:
    def packed(*sizes: int) -> list[list[int]]:
        ranges = [Range(Segment(f"{index}.log", "t", 0, index, size), 0, size) for index, size in enumerate(sizes)]
        return [[part.end for part in group] for group in pack(ranges, 10)]

    assert packed(4, 4, 4, 10, 1, 25, 3) == [[4, 4], [4], [10], [1], [25], [3]]
    assert packed() == []
    assert packed(0, 0, 10) == [[0, 0, 10]]


def inside(path: str, position: int, part: Range) -> bool:
    return path == part.segment.path and part.start <= position < part.end


@pytest.mark.parametrize("split_bytes", [1, 10_000, 64_000, 1 << 30])
def test_splits_cover_every_batch_once(segment: Path, small_segments: Path, split_bytes: int) -> None:
    options = LoadOptions.of({"paths": f'["{segment}", "{small_segments}"]', "splitBytes": str(split_bytes)})
    parts, seen = [part for split in plan_splits(options) for part in split.ranges], []
    batches = [(row["segment"], row["position"]) for row in kolumn.batches([segment, small_segments]).to_pylist()]
    for part in parts:
        own = [one for one in batches if inside(*one, part)]
        assert own[:1] in ([], [(part.segment.path, part.start)])
        seen += own
    assert seen == batches
    for one, other in pairwise(parts):
        assert other.start == (one.end if one.segment == other.segment else 0)


def test_sizes_of_splits(segment: Path, small_segments: Path) -> None:
    splits = plan_splits(LoadOptions.of({"path": str(segment), "splitBytes": "50000"}))
    most = 50_000 + max(kolumn.batches(segment)["size"].to_pylist())
    assert len(splits) >= segment.stat().st_size // most
    assert all(split.ranges[-1].end - split.ranges[0].start <= most for split in splits)
    # Small segments share a split, which ships no bytes.
    (split,) = plan_splits(LoadOptions.of({"path": str(small_segments)}))
    assert len(split.ranges) == len(list(small_segments.glob("*.log"))) > 3
    (split,) = plan_splits(LoadOptions.of({"path": str(segment)}))
    assert len(pickle.dumps(split)) < 1000


@pytest.mark.parametrize(
    ("start", "split_bytes"), [(0, 1 << 30), (1, 10_000), (400, 10_000), (700, 1 << 30), (899, 10_000), (5000, 1 << 30)]
)
def test_splits_leave_out_what_the_range_cannot_want(small_segments: Path, start: int, split_bytes: int) -> None:
    texts = {"path": str(small_segments), "splitBytes": str(split_bytes)}
    everything, parts = (
        [part for split in plan_splits(LoadOptions.of(texts | more)) for part in split.ranges] for more in ({}, {"startOffset": str(start)})
    )
    assert sum(part.end - part.start for part in parts) < sum(part.end - part.start for part in everything) or start < 2
    wanted = kolumn.read(small_segments, start_offset=start, columns=["segment", "position"]).to_pylist()
    assert all(any(inside(row["segment"], row["position"], part) for part in parts) for row in wanted)


def test_batches_are_cut_to_size() -> None:
    schema = pa.schema([("value", pa.binary())])
    for values, sizes in (
        ([b"x"] * (2 * MAX_ROWS + 1), [MAX_ROWS, MAX_ROWS, 1]),
        ([bytes(MAX_BYTES // 4)] * 8, [3, 3, 2]),
        ([bytes(MAX_BYTES + 1)] * 2, [1, 1]),
        ([], []),
    ):
        whole = pa.record_batch([pa.array(values, pa.binary())], schema=schema)
        assert [part.num_rows for part in sized(whole)] == sizes


@pytest.mark.parametrize(("table", "change"), [("records", "deleted"), ("batches", "replaced"), ("damage", "replaced")])
def test_tasks_read_the_files_that_were_planned(table: str, change: str, small_segments: Path, segment: Path, tmp_path: Path) -> None:
    log = tmp_path / small_segments.name
    shutil.copytree(small_segments, log)
    sent = load(log, splitBytes=50_000, table=table)
    assert len(sent.splits) > 1 or table == "batches"
    third = sorted(log.glob("*.log"))[2]
    third.rename(tmp_path / "kept")
    if change == "replaced":
        shutil.copy(segment, log / "new")
        os.replace(log / "new", third)
    with pytest.raises(KolumnError, match=f"was {change}.* after the source was listed.* Run again"):
        sent.count()
    # The original file has its name again, so it is read.
    (tmp_path / "kept").replace(third)
    expected = {"records": kolumn.read(log).num_rows, "batches": kolumn.batches(log).num_rows, "damage": 0}
    assert sent.count() == expected[table]
