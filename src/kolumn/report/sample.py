"""What other codecs and batch sizes would save: a sample of the records, written with each of them."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from kolumn import keywords
from kolumn.encode.write import write

MOST_BYTES, MOST_BYTES_OF_ONE = 16 << 20, 4 << 20
"""Of all partitions, and of one."""
CODECS: tuple[keywords.Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
BATCHES = (16 << 10, 128 << 10, 1 << 20)
"""The default of Kafka's producer, 128 KiB, and 1 MiB."""
COLUMNS = ("key", "value", "headers", "timestampMs")


@dataclass
class Sample:
    """The first records of each partition, of ``partitions`` partitions; ``bytes`` are those of keys, values and headers."""

    parts: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    partitions: int = 0

    def add(self, batch: pa.RecordBatch, begun: int) -> int:
        """Add the first records of a batch, unless there are enough. Returns how many bytes of this partition there are then."""
        room = min(MOST_BYTES - self.bytes, MOST_BYTES_OF_ONE - begun)
        if room <= 0 or not batch.num_rows:
            return begun
        rows = max(1, min(batch.num_rows, batch.num_rows * room // max(batch.nbytes, 1)))
        # A slice would keep all of the batch in memory.
        part = pa.table(batch.slice(0, rows).select(list(COLUMNS))).take(pa.array(range(rows), pa.int64()))
        self.parts.append(part)
        self.partitions += not begun
        self.bytes += part.nbytes
        return begun + part.nbytes

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(part.num_rows for part in self.parts)

    def table(self) -> pa.Table:
        """The records as one table."""
        return pa.concat_tables(self.parts).combine_chunks()

    def written(self) -> Iterator[tuple[str, int, int]]:
        """Codec, largest batch, and stored bytes of the sample; offsets are counted from 0."""
        whole = self.table()
        for codec in CODECS:
            for batch_bytes in BATCHES:
                with tempfile.TemporaryDirectory(prefix="kolumn-sample-") as folder:
                    path = Path(folder, "sample.log")
                    write(whole, path, codec=codec, batch_bytes=batch_bytes)
                    yield codec, batch_bytes, path.stat().st_size
