"""Entries of a segment as rows of the batch table, chunk by chunk."""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kolumn.arrays import Row, Rows
from kolumn.arrow.recycle import take
from kolumn.cpu_fallback.check.walk import FULL, HEADERS, MORE, walk
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.cpu_fallback.stream import Span, hop
from kolumn.errors import Code
from kolumn.formats import layouts, table, v2
from kolumn.source.segment_file import SegmentFile

ROWS = 16384
"""Entries in a chunk at most."""

PACKED_BYTES = 2 << 20
"""Bytes of other entries in a chunk where format 2 batches have chunks of their own: they grow when they are inflated."""

STREAMED_BYTES = 1 << 16
"""Where runs of format 2 batches are shorter, the entries that follow are taken from memory, whatever they are."""

HEADER_WINDOW = 1 << 16
"""Bytes read at a time where only headers are wanted."""


@dataclass(frozen=True)
class Chunk:
    """Some entries in a row.

    Attributes
    ----------
    source : uint8 array, optional
        Bytes of the segment from ``origin`` on, padded; headers only, where the plan was made without payloads. None where the chunk
        `is_unread`.
    origin : int
    rows : int64 array of shape (n, `table.WIDTH`)
        The entries, at least one.
    span : Span, optional
        Of a chunk that `is_unread`. Where its ``stop`` lies after the last of the rows, more entries may belong to the chunk: its decoder
        finds them, and returns how far it got.
    """

    source: Any
    origin: int
    rows: Any
    span: Span | None = None

    @property
    def is_unread(self) -> bool:
        """Whether its decoder reads the bytes itself: format 2 batches alone."""
        return self.source is None

    @property
    def end(self) -> int:
        """Position after the last entry."""
        return int(self.rows[-1, table.POSITION] + self.rows[-1, table.SIZE])

    def after(self, count: int) -> "Chunk":
        """The entries after the first ``count``, and no others."""
        rows = self.rows[count:]
        if self.span is None:
            return replace(self, rows=rows)
        return replace(self, rows=rows, origin=int(rows[0, table.POSITION]), span=self.span._replace(stop=self.end))

    def reaching(self, rows: Rows) -> "Chunk":
        """The chunk with what its decoder found: ``rows`` are its own and those that follow."""
        return replace(self, rows=rows) if len(rows) > len(self.rows) else self

    def bytes_of(self, file: SegmentFile, row: Row) -> tuple[Any, int]:
        """Bytes in which an entry is, given its row of the batch table, and the position of the first of them."""
        if not self.is_unread:
            return self.source, self.origin
        start = int(row[table.POSITION])
        return file.read(start, start + int(row[table.SIZE])), start

    def loaded(self, file: SegmentFile, locked: bool = False) -> "Chunk":
        """The chunk with its bytes in memory, page-locked for a copy to a GPU if asked for."""
        return replace(self, source=file.read(self.origin, self.end, locked), span=None) if self.is_unread else self


@dataclass(frozen=True)
class Stop:
    """Where and why the chain of entries ended; ``size`` is what the entry there claims."""

    position: int
    code: Code
    size: int


def chunks(
    file: SegmentFile,
    start: int,
    stop: int,
    chunk_bytes: int,
    payloads: bool = True,
    streamed: bool = False,
    ahead: bool = True,
    check_crcs: bool = True,
    as_stored: bool = False,
) -> Generator[Chunk, int | None, Stop]:
    """Walk the entries from ``start`` to ``stop`` and return how the walk ended.

    With ``payloads`` every entry of a chunk is loaded whole (one larger than ``chunk_bytes`` makes a chunk of its own, and its
    claimed size is never more than the file has); without, the bytes between headers are not read. With ``streamed``, runs of
    format 2 batches come without their bytes. Unless the walk is to go ``ahead`` of their decoder, such a chunk has its first entry alone:
    the decoder finds the others, and the position that it reached (`Decoded.reached`) has to be sent to the generator, which goes on from
    there. With ``check_crcs`` checksums may tell formats apart. Chunks that are streamed have about ``chunk_bytes`` when they are
    decompressed; with ``as_stored`` they have them in the file, and so have chunks of other entries.
    """
    position, size, pays = start, 0, streamed and file.format == layouts.KAFKA and file.is_local
    streamed = pays
    step = min(chunk_bytes, PACKED_BYTES) if streamed and not as_stored else chunk_bytes
    while position < stop:
        if pays and (chunk := _streamed(file, position, stop, chunk_bytes, ahead, as_stored)) is not None:
            reached = yield chunk
            before, position, size = position, chunk.end if reached is None else reached, 0
            pays = position - before >= STREAMED_BYTES
            continue
        beyond = max(stop + HEADERS, position + size)
        loaded = min(position + max(step, size, HEADERS), beyond, file.size)
        source, origin = file.read(position, loaded), position
        while True:
            rows = np.empty((min(ROWS, (loaded - position) // 26 + 1), table.WIDTH), np.int64)
            count, position, code, size = walk(
                source.ctypes.data, position, loaded, stop, file.size, origin, file.format, payloads, check_crcs, rows
            )
            if count:
                yield Chunk(source, origin, rows[:count])
            if code != FULL:
                break
        if code not in (Code.OK, MORE):
            return Stop(position, Code(code), size)
        pays = streamed
    return Stop(position, Code.OK, 0)


def _streamed(file: SegmentFile, start: int, stop: int, chunk_bytes: int, ahead: bool, as_stored: bool) -> Chunk | None:
    """The format 2 batches from ``start`` on, or None where another entry is there."""
    room, _ = take(v2.HEADER + PAD)
    rows = np.empty((ROWS if ahead else 1, table.WIDTH), np.int64)
    span = Span(stop, file.size, float(chunk_bytes), 1.0 if as_stored else file.inflates)
    count, position = hop(file.descriptor, start, span, room.address, rows)
    if not count:
        return None
    return Chunk(None, start, rows[:count], span._replace(stop=position) if ahead else span)
