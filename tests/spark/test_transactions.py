"""Committed reads in Spark: transactions that span splits and segments, and streams and exports that wait for markers."""

import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kit.plain_spark import load
from kolumn.core.schema import record_schema
from kolumn.spark_plugin import export, read_segments
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.spark_plugin.source import with_columns
from kolumn.spark_plugin.stream.reader import RecordStream

pytestmark = pytest.mark.spark

CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"
CONSUMED = sorted(CORPUS.glob("*/*.committed.parquet"))
FOLDERS = [str(path).removesuffix(".committed.parquet") for path in CONSUMED]
ABORT, COMMIT = 0, 1


def same_as_consumed(found: pa.Table) -> None:
    assert {"topic", "offset", "value"} <= set(found.column_names)
    for path in CONSUMED:
        topic = Path(path.name.removesuffix(".committed.parquet")).name.rpartition("-")[0]
        mine = found.filter(pa.compute.equal(found["topic"], topic)).sort_by("offset")
        expected = pq.read_table(path).sort_by("offset")
        assert mine["offset"].to_pylist() == expected["offset"].to_pylist()
        assert mine["value"].to_pylist() == expected["value"].to_pylist()


def test_the_source_reads_what_a_consumer_was_given() -> None:
    frame = load(FOLDERS, **{"kafka.isolation.level": "read_committed", "splitBytes": 2000})
    assert len(frame.splits) > 4 * len(FOLDERS)
    same_as_consumed(frame.toArrow())


def test_read_segments_reads_what_a_consumer_was_given(spark: SparkSession) -> None:
    frame = read_segments(
        spark, FOLDERS, isolation_level="read_committed", split_bytes=2000, columns=["topic", "offset", "value", "transaction"]
    )
    same_as_consumed(frame.toArrow())
    assert {row["transaction"] for row in frame.select("transaction").distinct().collect()} == {"none", "committed"}


def data(offset: int) -> bytes:
    return batch([Record(offset, None, struct.pack(">q", offset), 0)], flags=TRANSACTIONAL, producer_id=7)


def plain(offset: int) -> bytes:
    return batch([Record(offset, None, struct.pack(">q", offset), 0)])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log whose last stable offset is 1."""
    path = tmp_path / "log" / "t-0" / f"{0:020}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(plain(0) + data(1) + plain(2))
    return path


def append(path: Path, *entries: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(entries))


def test_a_stream_waits_for_the_marker(log: Path) -> None:
    schema = spark_schema(record_schema(("offset",)))
    options = {"path": str(log.parent), "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}

    def offsets(start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[int]:
        reader = RecordStream(with_columns(LoadOptions.of(options), schema), schema)
        assert reader.latestOffset(start, None) == end
        parts = (part for split in reader.partitions(start, end) for part in reader.read(split))
        return [row["offset"] for part in parts for row in part.to_pylist()]

    at = [{"t": {"0": offset}} for offset in range(10)]
    assert offsets(at[0], at[1]) == [0]
    append(log, data(3))
    assert offsets(at[1], at[1]) == []
    append(log, control_batch(4, COMMIT), data(5), plain(6))
    assert offsets(at[1], at[5]) == [1, 2, 3]
    append(log, control_batch(7, ABORT), plain(8))
    assert offsets(at[5], at[9]) == [6, 8]


def test_a_committed_stream_starts_at_the_last_stable_offset(log: Path) -> None:
    options = LoadOptions.of({"path": str(log.parent), "columns": "offset", "isolationLevel": "read_committed"})
    assert RecordStream(options, spark_schema(record_schema(("offset",)))).initialOffset() == {"t": {"0": 1}}


def test_an_export_takes_every_committed_record_once(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    target = tmp_path / "lake"

    def exported() -> list[int]:
        export(spark, log.parent, str(target), isolation_level="read_committed", columns=["offset", "value"])
        return sorted(ds.dataset(target, partitioning="hive").to_table()["offset"].to_pylist())

    assert exported() == [0]
    append(log, control_batch(3, COMMIT), data(4), plain(5))
    assert exported() == [0, 1, 2]
    append(log, control_batch(6, ABORT), plain(7))
    assert exported() == [0, 1, 2, 5, 7]
