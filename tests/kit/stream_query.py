"""A log that grows, and a streaming query of it that is run again and again with one checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kit.encoder import Record, batch


def batches(offsets: range) -> list[bytes]:
    return [
        batch([Record(i, None, b'{"n": %d, "s": "x"}' % i, i) for i in offsets[start : start + 5]]) for start in range(0, len(offsets), 5)
    ]


def write(root: Path, partition: int, first: int, stop: int, base: int | None = None) -> Path:
    """Append to the segment that begins at ``base``."""
    path = root / f"t-{partition}" / f"{first if base is None else base:020}.log"
    path.parent.mkdir(exist_ok=True, parents=True)
    with path.open("ab") as file:
        file.write(b"".join(batches(range(first, stop))))
    return path


def upto(partition: int, first: int, stop: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, stop)]


class StreamedLog:
    """A streaming query that may be run several times with one checkpoint, and writes Parquet unless ``take`` takes micro-batches."""

    def __init__(self, spark: SparkSession, root: Path, reader: str) -> None:
        self.spark, self.log, self.out, self.checkpoint = spark, root / "log", str(root / "out"), str(root / "checkpoint")
        self.reader = reader

    def frame(self, **options: object) -> DataFrame:
        given = {"reader": self.reader, "startingOffsets": "earliest", **options}
        return self.spark.readStream.format("kolumn").options(**{k: v for k, v in given.items() if v}).load(str(self.log))

    def start(self, frame: DataFrame, take: Callable[[DataFrame, int], None], **trigger: Any) -> StreamingQuery:
        return frame.writeStream.foreachBatch(take).option("checkpointLocation", self.checkpoint).trigger(**trigger).start()

    def run(self, **options: object) -> list[int]:
        """Read all available records; returns the sizes of the micro-batches."""
        writer = self.frame(**options).select("partition", "offset").writeStream.format("parquet")
        query = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start(self.out)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    def fails(self, message: str, **options: object) -> None:
        query = self.frame(**options).writeStream.format("noop").start()
        with pytest.raises(StreamingQueryException, match=message):
            query.awaitTermination()

    def rows(self) -> list[tuple[int, int]]:
        return sorted(map(tuple, self.spark.read.parquet(self.out).collect()))
