"""Streams by the connector: what is its own beside the source written in Python (`test_stream.py` runs queries by both)."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from kit.encoder import Record, batch
from kolumn.core.errors import KolumnError
from kolumn.spark_plugin.connector.questions import answer
from kolumn.spark_plugin.connector.task import Task
from kolumn.spark_plugin.connector.work import Work, unpacked
from kolumn.spark_plugin.read.splits import Split

pytestmark = pytest.mark.spark


def grow(root: Path, partition: int, offsets: range) -> Path:
    """Append batches of five records to a segment."""
    folder = root / "log" / f"t-{partition}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{0:020}.log"
    with path.open("ab") as file:
        for at in offsets[::5]:
            file.write(batch([Record(i, b"k", b'{"n": %d, "s": "x"}' % i, i) for i in range(at, min(at + 5, offsets.stop))]))
    return path


def load(spark: SparkSession, root: Path, **options: Any) -> DataFrame:
    return spark.readStream.format("kolumn").options(reader="columnar", **options).load(str(root / "log"))


def begun(frame: DataFrame, root: Path, take: Any, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(root / "checkpoint"))
    return writer.trigger(**trigger or {"processingTime": "50 milliseconds"}).start()


def test_a_first_micro_batch_that_fails_starts_at_the_same_offset_again(spark: SparkSession, tmp_path: Path) -> None:
    """The default start is the end of the log, which has moved on when the query is started again."""
    grow(tmp_path, 0, range(20))
    seen: list[int] = []

    def fail(rows: DataFrame, _: int) -> None:
        if rows.count():
            raise ValueError("the sink is full")

    def take(rows: DataFrame, _: int) -> None:
        seen.extend(row.offset for row in rows.collect())

    query = begun(load(spark, tmp_path), tmp_path, fail)
    until = time.monotonic() + 60
    while not list((tmp_path / "checkpoint").glob("sources/0/initialOffset")):
        assert time.monotonic() < until
        time.sleep(0.05)
    grow(tmp_path, 0, range(20, 30))
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        query.awaitTermination()
    grow(tmp_path, 0, range(30, 45))
    query = begun(load(spark, tmp_path), tmp_path, take, availableNow=True)
    query.awaitTermination()
    assert seen == list(range(20, 45))


def test_typed_values_progress_and_plan(spark: SparkSession, tmp_path: Path) -> None:
    grow(tmp_path, 0, range(30)), grow(tmp_path, 1, range(10))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 16, "includeHeaders": "true"}
    frame = load(spark, tmp_path, valueFormat="json", valueSchema='{"n": "int64", "s": "string"}', **options)
    totals: list[int] = []

    def take(rows: DataFrame, _: int) -> None:
        totals.append(rows.agg(sql.sum("value.n")).collect()[0][0])

    query = begun(frame, tmp_path, take, availableNow=True)
    query.awaitTermination()
    assert sum(totals) == sum(range(30)) + sum(range(10))
    first, *_, last = (one.sources[0] for one in query.recentProgress)
    assert [one.numInputRows for one in query.recentProgress] == [16, 16, 8]
    assert (first.metrics["minOffsetsBehindLatest"], first.metrics["maxOffsetsBehindLatest"]) == ("6", "18")
    assert last.metrics["maxOffsetsBehindLatest"] == "0"
    assert "columns: key, value, topic" in last.description
    assert json.loads(last.json)["latestOffset"] == {"t": {"0": 30, "1": 10}}


def test_a_query_that_is_stopped_has_not_failed(spark: SparkSession, tmp_path: Path) -> None:
    grow(tmp_path, 0, range(20))
    for moment in (0.0, 0.1, 0.5):
        query = load(spark, tmp_path, startingOffsets="earliest").writeStream.format("noop").start()
        time.sleep(moment)
        query.stop()
        assert query.exception() is None


def test_errors_are_those_of_the_source_in_python(spark: SparkSession, tmp_path: Path) -> None:
    path = grow(tmp_path, 0, range(20))
    for options, message in (({"endingOffsets": "latest"}, "a stream has no end"), ({"replicas": "merge"}, "a stream reads one copy")):
        query = load(spark, tmp_path, **options).writeStream.format("noop").start()
        with pytest.raises(StreamingQueryException, match=message):
            query.awaitTermination()
    data = bytearray(path.read_bytes())
    data[100] ^= 255
    path.write_bytes(data)
    query = load(spark, tmp_path, startingOffsets="earliest").writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match=r"CorruptBatchError: .*t-0"):
        query.awaitTermination()


def test_a_task_reads_only_the_files_that_were_planned(tmp_path: Path) -> None:
    path = grow(tmp_path, 0, range(20))
    options = {"path": str(tmp_path / "log"), "columns": "offset", "startingOffsets": "earliest"}
    schema = answer({"op": "schema", "options": options})["schema"]
    stream = answer({"op": "stream", "options": options, "schema": schema, "asked": schema, "slots": 2})
    found = answer({"op": "batch", "stream": stream["stream"], "start": '{"t": {"0": 5}}', "end": '{"t": {"0": 15}}'})
    (split,), work = found["splits"], unpacked(stream["work"], Work)  # type: ignore[misc]
    task = Task(unpacked(split, Split), work)
    assert task.next().to_pydict() == {"offset": list(range(5, 15))}  # type: ignore[union-attr]
    shutil.copy(path, tmp_path / "copy")
    path.unlink()
    with pytest.raises(KolumnError, match="is gone since this micro-batch was planned"):
        Task(unpacked(split, Split), work).next()
