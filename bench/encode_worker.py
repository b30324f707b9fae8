"""Kolumn's side of `encode_vs_java`, line for line the protocol of Encode.java: encode_worker SEGMENT encode|decode SECONDS.

"encode" makes batches of a table that lies in memory, in memory; "decode" makes that table from the file, as `bench.worker` does.
"""

import sys
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import kolumn
from bench.worker import race
from kolumn.writers.entries import Encoded
from kolumn.writers.write import Writer, cut_into_pieces, settings

COLUMNS = ["key", "value", "offset", "timestampMs"]


class Sink:
    """Takes batches and keeps none, but counts them, or their bytes for a checksum."""

    def __init__(self, keep: bool = False) -> None:
        self.bytes, self.crc, self.keep = 0, 0, keep

    def append(self, encoded: Encoded) -> None:
        """Takes the place of the files of `kolumn.write`."""
        self.bytes += len(encoded.data)
        if self.keep:
            self.crc = zlib.crc32(encoded.data.data, self.crc)


def encode(table: pa.Table, sink: Sink) -> None:
    """All batches of a table."""
    writer = Writer(sink, settings("kafka", 2, "none", None, 16384, None), 0)  # type: ignore[arg-type]
    for piece in cut_into_pieces(table.to_reader()):
        writer.add(piece, last=False)
    writer.add(table.schema.empty_table(), last=True)


def main(segment: str, mode: str, seconds: str) -> None:
    def decode() -> pa.Table:
        return kolumn.read(segment, columns=COLUMNS, threads=1)

    table, checked = decode(), Sink(keep=True)
    encode(table, checked)
    run: Callable[[], Any] = decode if mode == "decode" else lambda: encode(table, Sink())
    race(run, {"records": len(table), "bytes": checked.bytes, "crc": checked.crc}, float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
