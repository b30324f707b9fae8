"""Segments of real brokers, read by Spark: every row and column is what Kafka's own classes read."""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# Column of Kolumn -> column of the expected file.
SAME = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestampMs": "timestamp_ms",
    "timestampType": "timestamp_type",
    "headers": "headers",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "sequence": "sequence",
    "leaderEpoch": "leader_epoch",
    "isTransactional": "is_transactional",
    "isControl": "is_control",
    "magic": "magic",
    "codec": "codec",
    "position": "batch_position",
}
COLUMNS = [*SAME, "segment", "topic", "partition", "timestamp"]


def directories() -> list[Path]:
    """Topic-partition directories of the repository's corpus and of the one that KOLUMN_CORPUS names; of two with one name, the latter."""
    roots = [Path(__file__).resolve().parents[1] / "data" / "corpus"]
    if more := os.environ.get("KOLUMN_CORPUS"):
        roots.append(Path(more).resolve())
    suffix = ".expected.parquet"
    found = {path.name: path.with_name(path.name.removesuffix(suffix)) for root in roots for path in sorted(root.glob(f"*/*{suffix}"))}
    return list(found.values())


def expected_segments(directory: Path) -> Iterator[tuple[str, pa.Table]]:
    """The path of each segment that has rows, and its expected rows."""
    table = pq.read_table(directory.with_name(directory.name + ".expected.parquet"))
    for name in pc.unique(table["segment"]).to_pylist():
        yield str(directory / name), table.filter(pc.equal(table["segment"], name))


@pytest.fixture(scope="module")
def expected() -> dict[str, pa.Table]:
    return {path: table for directory in directories() for path, table in expected_segments(directory)}


@pytest.fixture(scope="module")
def read(spark: SparkSession, expected: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The same rows from one load of all segments, which is far quicker than a load of each."""
    checkpoints = [path for path in expected if path.endswith(".checkpoint")]
    frame = spark.read.format("kolumn").option("includeControl", "true").option("columns", ",".join(COLUMNS))
    table = frame.load([*map(str, directories()), *checkpoints]).toArrow()
    runs = pc.run_end_encode(table["segment"].combine_chunks())
    starts = [0, *runs.run_ends.to_pylist()]
    return {path: table.slice(a, b - a) for path, (a, b) in zip(runs.values.to_pylist(), pairwise(starts), strict=True)}


def test_there_is_something_to_read(expected: dict[str, pa.Table]) -> None:
    assert len(expected) > 10
    assert {"0", "1", "2"} <= {str(magic) for table in expected.values() for magic in pc.unique(table["magic"]).to_pylist()}


def test_segments(read: dict[str, pa.Table], expected: dict[str, pa.Table]) -> None:
    assert set(read) == set(expected)


@pytest.mark.parametrize("column", SAME)
def test_column(read: dict[str, pa.Table], expected: dict[str, pa.Table], column: str) -> None:
    for path, table in expected.items():
        found = read[path][column].combine_chunks()
        assert found.equals(table[SAME[column]].combine_chunks().cast(found.type)), path


def test_topic_and_partition(read: dict[str, pa.Table]) -> None:
    for path, table in read.items():
        topic, _, partition = Path(path).parent.name.rpartition("-")
        assert pc.unique(table["topic"]).to_pylist() == [topic]
        assert pc.unique(table["partition"]).to_pylist() == [int(partition)]


def test_timestamp(read: dict[str, pa.Table]) -> None:
    for path, table in read.items():
        raw = table["timestampMs"]
        times = pc.if_else(pc.equal(raw, -1), None, raw).cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
        assert table["timestamp"].equals(times), path
