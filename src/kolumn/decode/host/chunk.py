"""A chunk of entries on the CPU."""

from collections.abc import Iterator
from itertools import starmap
from typing import Self

from kolumn.core.paths import MESSAGES, STREAMED, is_on
from kolumn.cpu_fallback.check.checksums import check
from kolumn.cpu_fallback.inflate.arena import Share
from kolumn.cpu_fallback.stream import Span
from kolumn.decode.host.record_batch import HostPart
from kolumn.decode.host.run import runs
from kolumn.decode.host.streamed import Streamed, stream_runs
from kolumn.decode.host.streamed_messages import stream_message_runs
from kolumn.formats import legacy, table, v2
from kolumn.formats.entries import Entries
from kolumn.log.aborted import Transactions, to_decode
from kolumn.log.chunks import Chunk
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile

STREAMED_BATCH = 16 << 20
"""Larger batches are loaded first: streaming would keep their bytes in memory twice."""


class HostChunk:
    """Bytes of a segment in host memory."""

    on_gpu = False
    inflated_by_cpu = 0

    def __init__(self, file: SegmentFile, chunk: Chunk, options: Options) -> None:
        self.source, self.origin, self.options = chunk.loaded(file).source, chunk.origin, options

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @staticmethod
    def streamed(file: SegmentFile, chunk: Chunk, options: Options, alone: bool) -> Streamed | None:
        """As `decode.decoder.ChunkDecoder.streamed`: chunks whose bytes were not read, unless they have very large batches.

        So are those of a file far away, whose bytes were read, if all entries are of format 2: columns are then made in one pass too.
        """
        first = chunk.entries.array[0].tolist()
        if not is_on(STREAMED if first[table.LAYOUT] == v2.LAYOUT.number else MESSAGES):
            return None
        share = Share(options.inflated_bytes, alone)
        if chunk.span is None:
            far = not (file.is_local or options.binary == "view" or "headers" in options.columns)
            return stream_loaded(file, chunk, options, share) if far else None
        if first[table.LAYOUT] == legacy.LAYOUT.number:
            return stream_message_runs(file, chunk, options, "controlType" in options.columns, share)
        largest = first[table.SIZE] if len(chunk.entries) == 1 else int(chunk.entries.size.max())
        if largest > STREAMED_BATCH:
            return None
        return stream_runs(file, chunk.entries, chunk.span, options, "controlType" in options.columns, share)

    def check(self, entries: Entries) -> None:
        """Set BAD_CRC in every entry without a code whose checksum differs from its bytes."""
        check(self.source.ctypes.data, self.origin, entries.array)

    @staticmethod
    def settled(options: Options, transactions: Transactions | None) -> tuple[Options, Transactions | None]:
        """As `decode.decoder.ChunkDecoder.settled`."""
        return options if transactions is None else to_decode(options, transactions), transactions

    def runs(self, entries: Entries, need_key: bool, alone: bool = True) -> Iterator[HostPart]:
        """As `decode.decoder.ChunkDecoder.runs`."""
        share = Share(self.options.inflated_bytes, alone)
        return starmap(HostPart, runs(self.source, self.origin, entries, self.options, need_key, share, in_parts=self.options.in_parts))


def stream_loaded(file: SegmentFile, chunk: Chunk, options: Options, share: Share) -> Streamed | None:
    """Decode a chunk of format 2 batches from memory; None if it has others."""
    entries = chunk.entries
    if not is_on(STREAMED) or (entries.layout != v2.LAYOUT.number).any() or int(entries.size.max()) > STREAMED_BATCH:
        return None
    span = Span(chunk.end, chunk.end, float(options.chunk_bytes), file.sizes.inflates)
    descriptor = chunk.origin - chunk.source.ctypes.data
    return stream_runs(file, entries, span, options, "controlType" in options.columns, share, descriptor)
