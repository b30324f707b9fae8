"""Streams of a growing log directory, by the source written in Python and by the connector: limits, restarts, half-written batches.

Segments are deleted, replaced and compacted meanwhile, and queries are killed: each row is read once, or the query fails.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from kit.encoder import Record, batch
from kit.faults import killed_after
from kit.fuzz import FIRST
from kit.plain_spark import soon, stream_rows
from kit.stream_query import StreamedLog, batches, upto, write
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.core.schema import record_schema
from kolumn.spark_plugin.connector.questions import answer
from kolumn.spark_plugin.connector.work import Work, unpacked
from kolumn.spark_plugin.connector.worker import Task
from kolumn.spark_plugin.read.options import LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema, with_columns
from kolumn.spark_plugin.read.splits import Split
from kolumn.spark_plugin.read.stream import RecordStream

pytestmark = pytest.mark.spark


def stream(root: Path, **texts: object) -> RecordStream:
    options = LoadOptions.of({"path": str(root), "startingOffsets": "earliest"} | {name: str(text) for name, text in texts.items()})
    schema = spark_schema(record_schema(("partition", "offset")))
    return RecordStream(with_columns(options, schema), schema)


def rows(reader: RecordStream, start: object, end: object) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in stream_rows(reader, start, end)]


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        ({}, [(30, 10)]),
        ({"maxOffsetsPerTrigger": 20}, [(15, 5), (30, 10)]),
        ({"maxOffsetsPerTrigger": 1}, [(1, 0), (2, 0)]),
        ({"maxFilesPerTrigger": 1}, [(20, 0), (30, 0), (30, 10)]),
        ({"maxFilesPerTrigger": 2}, [(20, 10), (30, 10)]),
        ({"maxBytesPerTrigger": 1}, [(5, 5), (10, 10), (15, 10)]),
        ({"maxFilesPerTrigger": 2, "maxOffsetsPerTrigger": 1000}, [(20, 10), (30, 10)]),
    ],
)
def test_limits(tmp_path: Path, limits: dict[str, int], steps: list[tuple[int, int]]) -> None:
    write(tmp_path, 0, 0, 20), write(tmp_path, 0, 20, 30), write(tmp_path, 1, 0, 10)
    reader = stream(tmp_path, **limits)
    start = reader.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}}
    for zero, one in steps:
        following = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert following == {"t": {"0": zero, "1": one}}
        assert rows(reader, start, following) == upto(0, start["t"]["0"], zero) + upto(1, start["t"]["1"], one)
        start = following


@pytest.mark.parametrize("preallocated", [False, True])
def test_a_half_written_batch_waits(tmp_path: Path, preallocated: bool) -> None:
    path = write(tmp_path, 0, 0, 20)
    whole = path.read_bytes()
    for size in range(len(whole) * 3 // 4, len(whole)):
        path.write_bytes(whole[:size] + bytes(300 * preallocated))
        reader = stream(tmp_path)
        end = reader.latestOffset(reader.initialOffset(), None)
        # Zeros at the end of the allocated file look like zeros at the end of the batch.
        assert end in ({"t": {"0": 15}}, {"t": {"0": 20}}) if preallocated else end == {"t": {"0": 15}}
        assert rows(reader, {"t": {"0": 0}}, end) == upto(0, 0, end["t"]["0"])
    path.write_bytes(whole)
    assert rows(reader, end, reader.latestOffset(end, None)) == upto(0, end["t"]["0"], 20)


def test_segments_that_are_gone(tmp_path: Path) -> None:
    first = write(tmp_path, 0, 0, 20)
    write(tmp_path, 0, 20, 30)
    first.unlink()
    loses = stream(tmp_path, failOnDataLoss="false")
    for reader in (stream(tmp_path, failOnDataLoss="true"), stream(tmp_path)):
        with pytest.raises(KolumnError, match="t-0: offset 5 was to be read, and the log begins at 20"):
            reader.partitions({"t": {"0": 5}}, {"t": {"0": 30}})
    assert rows(loses, {"t": {"0": 5}}, {"t": {"0": 30}}) == upto(0, 20, 30)
    # all requested records are gone, or the partition is
    assert rows(loses, {"t": {"0": 5}}, {"t": {"0": 10}}) == []
    for read, message in (
        ({"0": 30, "1": 7}, "t-1: read up to offset 7, and the partition no longer exists"),
        ({"0": 31}, "t-0: read up to offset 31, and the log ends at 30"),
    ):
        with pytest.raises(KolumnError, match=message):
            stream(tmp_path).latestOffset({"t": read}, None)
    # pyspark 4.0 and 4.1 do not say what was read when they ask where the log ends.
    for read, message in (
        ({"0": 30, "1": 7}, "t-1: read up to offset 7, and the part"),
        ({"0": 31}, "t-0: read up to offset 31, and the log"),
    ):
        with pytest.raises(KolumnError, match=message):
            stream(tmp_path).partitions({"t": read}, {"t": {"0": 30}})
    with pytest.raises(KolumnError, match="t-1: offsets 3 to 6 were to be read, and the partition no longer exists"):
        stream(tmp_path).partitions({"t": {"1": 3}}, {"t": {"1": 7}})
    # What follows where the log was cut off is new.
    assert loses.latestOffset({"t": {"0": 31, "1": 7}}, None) == {"t": {"0": 30, "1": 7}}
    assert rows(loses, {"t": {"0": 31}}, {"t": {"0": 30}}) == []


def test_a_log_that_shrinks_while_a_run_reads_what_was_available(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 0, 30)
    for fails in (False, True):
        reader = stream(tmp_path, maxOffsetsPerTrigger=20, failOnDataLoss=str(fails).lower())
        reader.prepareForTriggerAvailableNow()
        os.truncate(path, path.stat().st_size - len(batches(range(25, 30))[0]))
        assert reader.latestOffset({"t": {"0": 20}}, reader.getDefaultReadLimit()) == {"t": {"0": 25 - 5 * fails}}
    with pytest.raises(KolumnError, match="t-0: read up to offset 25, and the log ends at 20"):
        reader.latestOffset({"t": {"0": 25}}, reader.getDefaultReadLimit())


def test_tasks_read_only_the_files_that_were_planned(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 0, 20)
    reader = stream(tmp_path)
    (split,) = reader.partitions({"t": {"0": 0}}, {"t": {"0": 20}})
    options = {"path": str(tmp_path), "columns": "offset", "startingOffsets": "earliest"}
    schema = answer({"op": "schema", "options": options})["schema"]
    begun = answer({"op": "stream", "options": options, "schema": schema, "asked": schema, "slots": 2})
    found: Any = answer({"op": "batch", "stream": begun["stream"], "start": '{"t": {"0": 5}}', "end": '{"t": {"0": 15}}'})
    ((text,), work) = found["splits"], unpacked(begun["work"], Work)
    assert Task(unpacked(text, Split), work).next().to_pydict() == {"offset": list(range(5, 15))}  # type: ignore[union-attr]
    kept = path.rename(tmp_path / "kept")
    for read in (lambda: list(reader.read(split)), lambda: Task(unpacked(text, Split), work).next()):
        with pytest.raises(KolumnError, match="is gone since this micro-batch was planned"):
            read()
    path.write_bytes(kept.read_bytes())
    with pytest.raises(KolumnError, match=r"has been replaced since this micro-batch was planned\. Start the query again"):
        list(reader.read(split))
    assert rows(reader, {"t": {"0": 0}}, {"t": {"0": 20}}) == upto(0, 0, 20)


OLD, NEW = "CB7H1K6OSfK1-BrQJPzEKQ", "gMf8SHNYTfiX_aTsKKMsbQ"


def test_a_topic_that_was_created_anew(tmp_path: Path) -> None:
    """The new topic has as many records as were read, or more, so that only its id differs."""
    write(tmp_path, 0, 0, 20)
    metadata = tmp_path / "t-0" / "partition.metadata"
    metadata.write_text(f"version: 0\ntopic_id: {OLD}\n")
    reader = stream(tmp_path)
    end, following = ({"@ids": {"t": OLD}, "t": {"0": stop}} for stop in (20, 30))
    assert reader.latestOffset(reader.initialOffset(), None) == end
    assert rows(reader, reader.initialOffset(), end) == upto(0, 0, 20)
    write(tmp_path, 0, 20, 30, base=0)
    assert reader.latestOffset(end, None) == following
    metadata.write_text(f"version: 0\ntopic_id: {NEW}\n")
    for ask in (lambda: reader.latestOffset(end, None), lambda: reader.partitions(end, following)):
        with pytest.raises(KolumnError, match=f"topic t: its id was {OLD} and is {NEW}: it was deleted and created anew"):
            ask()
    # What was planned is gone, and the new topic is read from its beginning: in parts, and after pyspark 4.1 has not noticed.
    on, anew = stream(tmp_path, failOnDataLoss="false", maxOffsetsPerTrigger=12), {"@ids": {"t": NEW}, "t": {"0": 12}}
    assert rows(on, end, following) == []
    assert on.latestOffset(end, on.getDefaultReadLimit()) == anew
    assert rows(on, end, anew) == upto(0, 0, 12)
    assert rows(on, anew, on.latestOffset(anew, None)) == upto(0, 12, 24)
    with pytest.raises(KolumnError, match="it was deleted and created anew"):
        stream(tmp_path).partitions(end, anew)
    # A checkpoint from before ids were stored, and a log without an id.
    assert stream(tmp_path).latestOffset({"t": {"0": 20}}, None) == {"@ids": {"t": NEW}, "t": {"0": 30}}
    metadata.write_text("version: 0\n")
    assert stream(tmp_path).latestOffset(end, None) == following


def test_a_stream_starts_at_the_end_and_needs_kafkas_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, 0, 0, 20)
    options = LoadOptions.of({"path": str(tmp_path), "columns": "offset"})
    reader = RecordStream(options, spark_schema(record_schema(("offset",))))
    assert reader.initialOffset() == {"t": {"0": 20}}
    assert "begins at the end of the log, as Spark's Kafka source does: 20 offsets that are there already are not read" in caplog.text
    # Spark asks once more when it plans the first micro-batch.
    write(tmp_path, 0, 20, 30, base=0)
    assert reader.initialOffset() == {"t": {"0": 20}}
    with pytest.raises(ArgumentError, match="option endingOffsets: a stream has no end"):
        stream(tmp_path, endingOffsets="latest")
    (tmp_path / "t-0" / "copy.log").touch()
    with pytest.raises(ArgumentError, match="a stream needs"):
        stream(tmp_path).initialOffset()


def test_a_micro_batch_waits_for_offsets(tmp_path: Path) -> None:
    """As in Spark's Kafka source, the first one comes at once. Later ones have a minimum of offsets, or come when the delay is over."""
    write(tmp_path, 0, 0, 5)
    reader = stream(tmp_path, minOffsetsPerTrigger=10, maxTriggerDelay="1h")
    start = reader.latestOffset(reader.initialOffset(), None)
    assert start == {"t": {"0": 5}}
    write(tmp_path, 0, 5, 10, base=0)
    assert reader.latestOffset(start, None) == start
    write(tmp_path, 0, 10, 15, base=0)
    assert reader.latestOffset(start, None) == {"t": {"0": 15}}
    assert stream(tmp_path, minOffsetsPerTrigger=100, maxTriggerDelay="0ms").latestOffset(start, None) == {"t": {"0": 15}}
    now = stream(tmp_path, minOffsetsPerTrigger=100)
    now.triggered = float("inf")
    assert now.latestOffset(start, None) == start
    now.prepareForTriggerAvailableNow()
    assert now.latestOffset(start, None) == {"t": {"0": 15}}
    for name, wrong, expected in (("maxTriggerDelay", "soon", "a time such as 15m"), ("minOffsetsPerTrigger", 0, "at least 1")):
        with pytest.raises(ArgumentError, match=f"{name}: expected {expected}"):
            stream(tmp_path, **{name: wrong})


@pytest.fixture
def columnar(spark: SparkSession, tmp_path: Path) -> StreamedLog:
    return StreamedLog(spark, tmp_path, "columnar")


@pytest.mark.parametrize("reader", [pytest.param("python", marks=pytest.mark.slow), "columnar"])
def test_a_query_goes_on_from_its_checkpoint(spark: SparkSession, tmp_path: Path, reader: str) -> None:
    query, other = StreamedLog(spark, tmp_path, reader), {"python": "columnar", "columnar": "python"}[reader]
    write(query.log, 0, 0, 20)
    assert query.run(maxOffsetsPerTrigger=8) == [8, 8, 4]
    active = write(query.log, 0, 20, 30)
    write(query.log, 1, 0, 5)
    with active.open("ab") as file:
        file.write(batch([Record(30, None, b"half")])[:40])
    query.run()
    assert query.rows() == upto(0, 0, 30) + upto(1, 0, 5)
    # the broker that wrote the half batch restarts and truncates it; the first segment is deleted after all of it has been read
    os.truncate(active, active.stat().st_size - 40)
    (query.log / "t-0" / f"{0:020}.log").unlink()
    write(query.log, 0, 40, 50)
    # either way of reading goes on from a checkpoint of the other
    query.reader = other
    assert query.run(maxOffsetsPerTrigger=8) == [6, 4]
    assert query.rows() == upto(0, 0, 30) + upto(0, 40, 50) + upto(1, 0, 5)
    for path in (query.log / "t-0").glob("*.log"):
        path.unlink()
    write(query.log, 0, 60, 65)
    query.reader = reader
    with pytest.raises(StreamingQueryException, match="the log begins at 60"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.rows() == upto(0, 0, 30) + upto(0, 40, 50) + upto(0, 60, 65) + upto(1, 0, 5)


def test_a_first_micro_batch_that_fails_starts_at_the_same_offset_again(columnar: StreamedLog, tmp_path: Path) -> None:
    """The default start is the end of the log, which has moved on when the query is started again."""
    write(columnar.log, 0, 0, 20)
    seen: list[int] = []

    def fail(rows: DataFrame, _: int) -> None:
        if rows.count():
            raise ValueError("the sink is full")

    query = columnar.start(columnar.frame(startingOffsets=None), fail, processingTime="50 milliseconds")
    assert soon(lambda: list((tmp_path / "checkpoint").glob("sources/0/initialOffset")), 60)
    write(columnar.log, 0, 20, 30, base=0)
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        query.awaitTermination()
    write(columnar.log, 0, 30, 45, base=0)
    frame = columnar.frame(startingOffsets=None)
    columnar.start(frame, lambda rows, _: seen.extend(row.offset for row in rows.collect()), availableNow=True).awaitTermination()
    assert seen == list(range(20, 45))


def test_typed_values_progress_and_plan(columnar: StreamedLog) -> None:
    write(columnar.log, 0, 0, 30), write(columnar.log, 1, 0, 10)
    options = {"valueFormat": "json", "valueSchema": '{"n": "int64", "s": "string"}', "includeHeaders": "true"}
    totals, frame = list[int](), columnar.frame(maxOffsetsPerTrigger=16, **options)
    query = columnar.start(frame, lambda rows, _: totals.extend(row.n for row in rows.select("value.n").collect()), availableNow=True)
    query.awaitTermination()
    assert sum(totals) == sum(range(30)) + sum(range(10))
    first, *_, last = (progress.sources[0] for progress in query.recentProgress)
    assert [progress.numInputRows for progress in query.recentProgress] == [16, 16, 8]
    assert (first.metrics["minOffsetsBehindLatest"], first.metrics["maxOffsetsBehindLatest"]) == ("6", "18")
    assert last.metrics["maxOffsetsBehindLatest"] == "0"
    assert "columns: key, value, topic" in last.description
    assert json.loads(last.json)["latestOffset"] == {"t": {"0": 30, "1": 10}}


def test_queries_that_are_stopped_have_not_failed_and_others_say_why(columnar: StreamedLog) -> None:
    path = write(columnar.log, 0, 0, 20)
    for moment in (0.0, 0.1, 0.5):
        query = columnar.frame().writeStream.format("noop").start()
        time.sleep(moment)
        query.stop()
        assert query.exception() is None
    columnar.fails("a stream has no end", endingOffsets="latest")
    data = bytearray(path.read_bytes())
    data[100] ^= 255
    path.write_bytes(data)
    columnar.fails(r"CorruptBatchError: .*t-0")


KILLS = int(os.environ.get("KOLUMN_STREAM_KILLS", "3"))
PER_ROUND = 200


def growing(folder: Path) -> Iterator[int]:
    """A partition that gets a segment each round; the last batch of the newest one is half written until the next. Yields its end."""
    folder.mkdir(parents=True)
    path, rest, end = folder / "none", b"", 0
    while True:
        if rest:
            with path.open("ab") as file:
                file.write(rest)
        *whole, last = batches(range(end, end + PER_ROUND))
        path, rest = folder / f"{end:020}.log", last[len(last) // 2 :]
        path.write_bytes(b"".join(whole) + last[: len(last) // 2])
        end += PER_ROUND
        yield end


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_and_started_again(spark: SparkSession, tmp_path: Path) -> None:
    dice, killed, rounds = random.Random(FIRST), 0, growing(tmp_path / "log" / "t-0")

    def commits() -> int:
        return len([path for path in (tmp_path / "checkpoint").glob("commits/*") if path.name.isdigit()])

    def start(offsets: int, reader: str) -> "subprocess.Popen[bytes]":
        # It has a process group of its own, so that Java and the Python workers are killed with it.
        folders, null = (str(tmp_path / name) for name in ("log", "out", "checkpoint")), subprocess.DEVNULL
        job = [sys.executable, str(Path(__file__).with_name("jobs.py")), "streaming", *folders, str(offsets), reader]
        return subprocess.Popen(job, start_new_session=True, stdin=null, stdout=null, stderr=null)

    while killed < KILLS:
        end, before, wanted = next(rounds), commits(), dice.randint(0, 8)
        job = start(PER_ROUND // 20, dice.choice(["columnar", "python"]))
        # It is killed after its first write, at any point of a micro-batch.
        killed += killed_after(job, commits, before + wanted, dice.random() * 0.5)
    # The last run reads the rest at once: some thousand offsets, for which small micro-batches would take minutes.
    assert start(KILLS * PER_ROUND, "columnar").wait(timeout=600) == 0
    found = sorted(row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert found == list(range(end - 5))
