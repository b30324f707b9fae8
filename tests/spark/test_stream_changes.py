"""A streaming query while the cleaner runs: each retained row is read once, or the query fails and continues after a restart."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from kit.encoder import Record, batch
from kolumn.spark_plugin.source import RecordSource, with_columns
from kolumn.spark_plugin.stream.reader import RecordStream

pytestmark = pytest.mark.spark

PER_SEGMENT = 20


def entries(offsets: range) -> bytes:
    """Batches of four records."""
    numbers = list(offsets)
    return b"".join(batch([Record(i, None, b"%d" % i, i) for i in numbers[at : at + 4]]) for at in range(0, len(numbers), 4))


def make(root: Path, segments: int) -> list[Path]:
    folder = root / "log" / "t-0"
    folder.mkdir(parents=True)
    paths = [folder / f"{first:020}.log" for first in range(0, segments * PER_SEGMENT, PER_SEGMENT)]
    for number, path in enumerate(paths):
        path.write_bytes(entries(range(number * PER_SEGMENT, (number + 1) * PER_SEGMENT)))
    return paths


def compact(path: str) -> None:
    """Replace a segment in the way of Kafka's cleaner; every third record stays."""
    first = int(os.path.basename(path).partition(".")[0])
    with open(f"{path}.cleaned", "wb") as file:
        file.write(entries(range(first, first + PER_SEGMENT, 3)))
    os.rename(f"{path}.cleaned", f"{path}.swap")
    os.rename(path, f"{path}.deleted")
    os.rename(f"{path}.swap", path)


def kept(number: int) -> list[int]:
    return list(range(number * PER_SEGMENT, (number + 1) * PER_SEGMENT, 3))


def whole(number: int) -> list[int]:
    return list(range(number * PER_SEGMENT, (number + 1) * PER_SEGMENT))


def run(frame: DataFrame, root: Path, done: Callable[[int], None] = lambda number: None) -> None:
    """Read all available records, one segment in each micro-batch, whose offsets are written to a file of its own."""
    (root / "out").mkdir(exist_ok=True)

    def take(rows: DataFrame, number: int) -> None:
        offsets = [row.offset for row in rows.select("offset").collect()]
        (root / "out" / str(number)).write_text("\n".join(map(str, offsets)))
        done(number)

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(root / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def found(root: Path) -> list[int]:
    return [int(line) for file in sorted((root / "out").iterdir(), key=lambda one: int(one.name)) for line in file.read_text().split()]


def load(spark: SparkSession, root: Path, format: str = "kolumn") -> DataFrame:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": PER_SEGMENT, "columns": "offset"}
    return spark.readStream.format(format).options(**options).load(str(root / "log"))


def test_compacted_between_micro_batches(spark: SparkSession, tmp_path: Path) -> None:
    """A segment that was read is compacted, and two that were not, of which one is the next."""
    paths = make(tmp_path, 4)

    def done(number: int) -> None:
        if number == 0:
            for path in paths[:3]:
                compact(str(path))

    run(load(spark, tmp_path), tmp_path, done)
    assert found(tmp_path) == whole(0) + kept(1) + kept(2) + whole(3)


def test_compacted_between_plan_and_read(spark: SparkSession, tmp_path: Path) -> None:
    paths = make(tmp_path, 3)
    second, mark = str(paths[1]), str(tmp_path / "mark")

    class CleanedStream(RecordStream):
        """The cleaner runs after the tasks of the second micro-batch are planned."""

        def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
            if any(one.segment.path == second for one in partition.ranges) and not os.path.exists(mark):
                open(mark, "x").close()
                compact(second)
            yield from super().read(partition)

    class CleanedSource(RecordSource):
        @classmethod
        def name(cls) -> str:
            return "cleaned"

        def streamReader(self, schema: Any) -> CleanedStream:  # noqa: N802
            return CleanedStream(with_columns(self.read_options, schema), schema)

    spark.dataSource.register(CleanedSource)
    with pytest.raises(StreamingQueryException, match=r"has been replaced since this micro-batch was planned\. Start the query again"):
        run(load(spark, tmp_path, "cleaned"), tmp_path)
    assert found(tmp_path) == whole(0)
    run(load(spark, tmp_path, "cleaned"), tmp_path)
    assert found(tmp_path) == whole(0) + kept(1) + whole(2)
