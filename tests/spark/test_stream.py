"""Streams of a growing log directory: limits, restarts, half-written batches, deleted segments."""

import os
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from kit.encoder import Record, batch
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.core.schema import record_schema
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.spark_plugin.source import with_columns
from kolumn.spark_plugin.stream.reader import RecordStream

pytestmark = pytest.mark.spark


def write(root: Path, partition: int, first: int, stop: int, base: int | None = None) -> Path:
    """Append batches of five records to the segment that begins at ``base``."""
    folder = root / f"t-{partition}"
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{first if base is None else base:020}.log"
    with path.open("ab") as file:
        for at in range(first, stop, 5):
            file.write(batch([Record(i, None, b"%d" % i, i) for i in range(at, min(at + 5, stop))]))
    return path


def stream(root: Path, **texts: object) -> RecordStream:
    options = LoadOptions.of({"path": str(root), "startingOffsets": "earliest"} | {name: str(text) for name, text in texts.items()})
    schema = spark_schema(record_schema(("partition", "offset")))
    return RecordStream(with_columns(options, schema), schema)


def rows(reader: RecordStream, start: object, end: object) -> list[tuple[int, int]]:
    found = []
    for split in reader.partitions(start, end):
        for part in reader.read(split):
            found += [(row["partition"], row["offset"]) for row in part.to_pylist()]
    return found


def upto(partition: int, first: int, stop: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, stop)]


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
    at = reader.initialOffset()
    assert at == {"t": {"0": 0, "1": 0}}
    for zero, one in steps:
        following = reader.latestOffset(at, reader.getDefaultReadLimit())
        assert following == {"t": {"0": zero, "1": one}}
        assert rows(reader, at, following) == upto(0, at["t"]["0"], zero) + upto(1, at["t"]["1"], one)
        at = following


@pytest.mark.parametrize("preallocated", [False, True])
def test_a_half_written_batch_waits(tmp_path: Path, preallocated: bool) -> None:
    path = write(tmp_path, 0, 0, 20)
    whole = path.read_bytes()
    third = len(whole) * 3 // 4
    for size in range(third, len(whole)):
        path.write_bytes(whole[:size] + bytes(300 if preallocated else 0))
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
    for reader in (stream(tmp_path, failOnDataLoss="true"), stream(tmp_path)):
        with pytest.raises(KolumnError, match="t-0: offset 5 was to be read, and the log begins at 20"):
            reader.partitions({"t": {"0": 5}}, {"t": {"0": 30}})
    assert rows(stream(tmp_path, failOnDataLoss="false"), {"t": {"0": 5}}, {"t": {"0": 30}}) == upto(0, 20, 30)
    # all requested records are gone, or the partition is
    assert rows(stream(tmp_path, failOnDataLoss="false"), {"t": {"0": 5}}, {"t": {"0": 10}}) == []
    with pytest.raises(KolumnError, match="t-1: read up to offset 7, and the partition no longer exists"):
        stream(tmp_path).latestOffset({"t": {"0": 30, "1": 7}}, None)
    with pytest.raises(KolumnError, match="t-0: read up to offset 31, and the log ends at 30"):
        stream(tmp_path).latestOffset({"t": {"0": 31}}, None)
    assert stream(tmp_path, failOnDataLoss="false").latestOffset({"t": {"0": 31}}, None) == {"t": {"0": 31}}


def test_a_file_that_was_replaced_is_not_read_by_old_positions(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 0, 20)
    reader = stream(tmp_path)
    (split,) = reader.partitions({"t": {"0": 0}}, {"t": {"0": 20}})
    kept = path.rename(tmp_path / "kept")
    with pytest.raises(KolumnError, match="is gone since this micro-batch was planned"):
        list(reader.read(split))
    path.write_bytes(kept.read_bytes())
    with pytest.raises(KolumnError, match="has been replaced since this micro-batch was planned"):
        list(reader.read(split))
    assert rows(reader, {"t": {"0": 0}}, {"t": {"0": 20}}) == upto(0, 0, 20)


OLD, NEW = "CB7H1K6OSfK1-BrQJPzEKQ", "gMf8SHNYTfiX_aTsKKMsbQ"


def test_a_topic_that_was_created_anew(tmp_path: Path) -> None:
    """The new topic has as many records as were read, or more, so that only its id differs."""
    write(tmp_path, 0, 0, 20)
    metadata = tmp_path / "t-0" / "partition.metadata"
    metadata.write_text(f"version: 0\ntopic_id: {OLD}\n")
    reader = stream(tmp_path)
    end = reader.latestOffset(reader.initialOffset(), None)
    assert end == {"@ids": {"t": OLD}, "t": {"0": 20}}
    assert rows(reader, reader.initialOffset(), end) == upto(0, 0, 20)
    write(tmp_path, 0, 20, 30, base=0)
    following = reader.latestOffset(end, None)
    assert following == {"@ids": {"t": OLD}, "t": {"0": 30}}
    metadata.write_text(f"version: 0\ntopic_id: {NEW}\n")
    message = f"topic t: its id was {OLD} and is {NEW}: it was deleted and created anew"
    with pytest.raises(KolumnError, match=message):
        reader.latestOffset(end, None)
    with pytest.raises(KolumnError, match=message):
        reader.partitions(end, following)
    on = stream(tmp_path, failOnDataLoss="false")
    assert on.latestOffset(end, None) == {"@ids": {"t": NEW}, "t": {"0": 30}}
    assert rows(on, end, following) == upto(0, 20, 30)
    # A checkpoint from before ids were stored, and a log without an id.
    assert stream(tmp_path).latestOffset({"t": {"0": 20}}, None) == {"@ids": {"t": NEW}, "t": {"0": 30}}
    metadata.write_text("version: 0\n")
    assert stream(tmp_path).latestOffset(end, None) == {"@ids": {"t": OLD}, "t": {"0": 30}}


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


class Query:
    """A streaming query that writes Parquet, which may be run several times with one checkpoint."""

    def __init__(self, spark: SparkSession, root: Path, reader: str) -> None:
        self.spark, self.log, self.out, self.checkpoint = spark, root / "log", str(root / "out"), str(root / "checkpoint")
        self.reader = reader

    def run(self, **options: object) -> list[int]:
        """Read all available records; returns the sizes of the micro-batches."""
        given = {"reader": self.reader, "startingOffsets": "earliest", **options}
        source = self.spark.readStream.format("kolumn").options(**given).load(str(self.log))
        writer = source.select("partition", "offset").writeStream.format("parquet").option("checkpointLocation", self.checkpoint)
        query = writer.trigger(availableNow=True).start(self.out)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    def rows(self) -> list[tuple[int, int]]:
        return sorted(map(tuple, self.spark.read.parquet(self.out).collect()))


@pytest.fixture(params=[pytest.param("python", marks=pytest.mark.slow), "columnar"])
def query(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Query:
    return Query(spark, tmp_path, request.param)


def test_a_query_goes_on_from_its_checkpoint(query: Query) -> None:
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
    query.run()
    assert query.rows() == upto(0, 0, 30) + upto(0, 40, 50) + upto(1, 0, 5)
    for path in (query.log / "t-0").glob("*.log"):
        path.unlink()
    write(query.log, 0, 60, 65)
    with pytest.raises(StreamingQueryException, match="the log begins at 60"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.rows() == upto(0, 0, 30) + upto(0, 40, 50) + upto(0, 60, 65) + upto(1, 0, 5)


def test_either_way_goes_on_from_a_checkpoint_of_the_other(query: Query) -> None:
    for step in range(3):
        query.reader = "python" if query.reader == "columnar" else "columnar"
        write(query.log, 0, 20 * step, 20 * step + 20)
        assert query.run(maxOffsetsPerTrigger=15) == [15, 5]
    assert query.rows() == upto(0, 0, 60)


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
    impatient = stream(tmp_path, minOffsetsPerTrigger=100, maxTriggerDelay="0ms")
    assert impatient.latestOffset(start, None) == {"t": {"0": 15}}
    now = stream(tmp_path, minOffsetsPerTrigger=100)
    now.triggered = float("inf")
    assert now.latestOffset(start, None) == start
    now.prepareForTriggerAvailableNow()
    assert now.latestOffset(start, None) == {"t": {"0": 15}}
    with pytest.raises(ArgumentError, match="maxTriggerDelay: expected a time such as 15m"):
        stream(tmp_path, maxTriggerDelay="soon")
    with pytest.raises(ArgumentError, match="minOffsetsPerTrigger: expected at least 1"):
        stream(tmp_path, minOffsetsPerTrigger=0)
