"""Entries of a segment as rows of the batch table, chunk by chunk; and where a segment is cut into pieces for threads.

That is at a guess, which whoever decodes the piece before it confirms. A walk over all headers to the end of a piece would find the same
places, but costs a call of the system for each batch, and only one thread can do it.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Bytes
from kolumn.core.errors import Code
from kolumn.core.paths import MESSAGES, STREAMED, turned_off
from kolumn.core.recycle import memory, take
from kolumn.cpu_fallback.check import FULL, HEADERS, MORE, boundary, walk
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.cpu_fallback.stream import Span, hop
from kolumn.cpu_fallback.stream_messages import hop_messages
from kolumn.formats import layouts, table, v2
from kolumn.formats.codecs import NONE
from kolumn.formats.entries import Entries, Entry
from kolumn.source.segment_file import SegmentFile


class Loaded(NamedTuple):
    """Bytes of a segment in memory, padded; ``end`` is the position of the segment's end."""

    source: Bytes
    origin: int  # position of the first byte
    loaded: int  # position after the last byte
    end: int

    @classmethod
    def whole(cls, source: Bytes, end: int) -> "Loaded":
        return cls(source, 0, end, end)


class Walked(NamedTuple):
    entries: int  # how many were found
    position: int
    code: int  # OK at the requested stop; `MORE` or `FULL` if the bytes or the table ended first; else why the chain of entries ends there
    size: int  # of the entry at ``position``, or 0 if it is not known


def walk_entries(held: Loaded, start: int, stop: int, format: int, entries: Entries, *, whole: bool, decide: bool) -> Walked:
    """Fill the batch table, in ``entries``, from the entries that begin at positions [start, stop), which are boundaries of entries.
    ``format`` is an index into `layouts.FORMATS`. ``whole``: entries must be loaded to their end, otherwise headers are enough. ``decide``:
    checksums decide between layouts; only with ``whole``."""
    source, origin, loaded, end = held
    return Walked(*walk(source.ctypes.data, start, loaded, stop, end, origin, format, whole, decide, entries.array))


MOST_ENTRIES = 16384  # maximum number of entries in a chunk
MOST_MESSAGES = 1 << 16
"""Maximum number of messages of formats 0 and 1 in a chunk that `is_unread`: after damage each needs a row of the batch table."""
PACKED_BYTES = 2 << 20
"""Bytes of other entries in a chunk if format 2 batches have chunks of their own: those entries grow when they are decompressed."""
STREAMED_BYTES = 1 << 16  # if runs of format 2 batches are shorter, the entries that follow are decoded from memory, in any format
SMALL_ENTRY = 1 << 10
"""If only headers are wanted and entries have fewer bytes on average, many are read together, with what is between them."""
FIRST_HEADERS = 64
"""Headers that are read at first if only headers are wanted: the walk may be for one of the next entries. Each chunk has twice as many."""
HEADER_WINDOW = 1 << 16
"""Bytes read at first if only headers are needed, and are close together. Each window is twice as large, up to `LARGEST_WINDOW`."""
LARGEST_WINDOW = 1 << 20


@dataclass(frozen=True)
class Chunk:
    """Consecutive entries, at least one. ``source`` has bytes of the segment from ``origin`` on, padded; only headers, if the plan was made
    without payloads. It is None if the chunk `is_unread`, which then has a span. If the span's ``stop`` lies after the last row, more
    entries may belong to the chunk: its decoder finds them, and returns the position that it reached."""

    source: Any
    origin: int
    entries: Entries
    span: Span | None = None

    @property
    def is_unread(self) -> bool:
        """Whether its decoder reads the bytes itself. A row of formats 0 and 1 can then stand for several messages."""
        return self.source is None

    @property
    def end(self) -> int:
        return self.entries[-1].end

    def after(self, count: int) -> "Chunk":
        """A chunk with only the entries after the first ``count``."""
        entries = self.entries[count:]
        if self.span is None:
            return replace(self, entries=entries)
        return replace(self, entries=entries, origin=entries[0].position, span=self.span._replace(stop=self.end))

    def reaching(self, entries: Entries) -> "Chunk":
        """The chunk with all entries that its decoder found: ``entries`` contain its own and the following ones."""
        return replace(self, entries=entries) if len(entries) > len(self.entries) else self

    def bytes_of(self, file: SegmentFile, row: Entry) -> tuple[Any, int]:
        """Bytes that contain an entry, given its row of the batch table, and the position of the first byte."""
        if not self.is_unread:
            return self.source, self.origin
        start = row.position
        return file.read(start, start + row.size), start

    def loaded(self, file: SegmentFile, locked: bool = False) -> "Chunk":
        """The chunk with its bytes in memory, page-locked for a copy to a GPU if asked for."""
        return replace(self, source=file.read(self.origin, self.end, locked), span=None) if self.is_unread else self


class WrongChecksumsError(Exception):
    """Checksums of a chunk turned out to be wrong while its records were decoded. Their entries have a code now: decode once more."""


class Reached(NamedTuple):
    """Where a decoder ended: after the last entry of its chunk; and the format 2 batch there, if the decoder has read its header."""

    position: int
    following: Entries | None = None


@dataclass(frozen=True)
class Stop:
    """Where and why the chain of entries ended; ``size`` is the size that the entry there claims."""

    position: int
    code: Code
    size: int


def chunks(
    file: SegmentFile,
    start: int,
    stop: int,
    chunk_bytes: int,
    *,
    payloads: bool = True,
    streamed: bool = False,
    ahead: bool = True,
    check_crcs: bool = True,
    as_stored: bool = False,
) -> Generator[Chunk, Reached | None, Stop]:
    """Walk the entries from ``start`` to ``stop``; the generator's return value tells how the walk ended.

    With ``payloads`` every entry of a chunk is loaded as a whole (an entry larger than ``chunk_bytes`` has its own chunk, and its
    claimed size is never more than the file has); without it, the bytes between headers are not read, except between small entries.
    With ``streamed``, or without ``payloads``, chunks of format 2 batches have no bytes; with ``streamed``, chunks of formats 0 and 1 have
    none, unless they are ``as_stored``. Unless the walk goes ``ahead`` of their decoder, such a chunk has only its first entry: the decoder
    finds the others, and what it reached (`Decoded.reached`) must be sent to the generator, which continues there. Such a chunk has
    about ``chunk_bytes`` after decompression; with ``as_stored`` it has them in the file, and so have chunks of other entries. With
    ``check_crcs``, checksums may be used to tell formats apart.
    """
    position, size, pays = start, 0, (streamed or not payloads) and file.format in layouts.STREAMED and file.is_local
    streamed, batches = pays, not payloads or as_stored or STREAMED not in turned_off()
    takes_messages = payloads and not as_stored and file.format == layouts.KAFKA and MESSAGES not in turned_off()
    step = min(chunk_bytes, PACKED_BYTES) if streamed and not as_stored else chunk_bytes
    weight, most = (float(chunk_bytes), MOST_ENTRIES if ahead else 1) if payloads else (inf, FIRST_HEADERS)
    room, following = pa.allocate_buffer(v2.HEADER + PAD), None
    while position < stop:
        span = Span(stop, file.size, weight, 1.0 if as_stored else file.sizes.inflates, file.format)
        messages = streamed and takes_messages
        chunk: Chunk | None = None
        if following is not None:
            chunk = Chunk(None, position, following, span)
        elif pays and batches:
            rows = np.empty((most, table.WIDTH), np.int64)
            count, after = hop(file.descriptor, position, span, room.address, rows)
            if count:
                chunk = Chunk(None, position, Entries(rows[:count]), span._replace(stop=after) if ahead else span)
        if chunk is None and pays and messages:
            chunk = messages_from(file, position, span, MOST_MESSAGES if ahead else 1)
        if chunk is not None:
            before, size = position, 0
            position, following = (yield chunk) or Reached(chunk.end)
            most = most if payloads else min(2 * most, MOST_ENTRIES)
            pays = position - before >= (STREAMED_BYTES if payloads else SMALL_ENTRY * len(chunk.entries))
            following = following if pays else None
            continue
        beyond = max(stop + HEADERS, position + size)
        least = min(position + max(size, HEADERS), file.size)
        loaded = file.end_of_read(position, least, min(position + max(step, size, HEADERS), beyond, file.size))
        source, origin, total = file.read(position, loaded), position, 0
        while True:
            entries = Entries.room(min(MOST_ENTRIES, (loaded - position) // 26 + 1))
            held = Loaded(source, origin, loaded, file.size)
            count, position, code, size = walk_entries(held, position, stop, file.format, entries, whole=payloads, decide=check_crcs)
            if count:
                total += count
                yield Chunk(source, origin, entries[:count])
            if code != FULL:
                break
        # The next bytes are read without these in memory.
        del source
        if code not in (Code.OK, MORE):
            return Stop(position, Code(code), size)
        step = step if payloads else min(2 * step, max(LARGEST_WINDOW, chunk_bytes))
        pays = streamed and (payloads or position - origin >= SMALL_ENTRY * total)
    return Stop(position, Code.OK, 0)


def header_rows(file: SegmentFile, start: int, stop: int) -> Iterator[Entries]:
    """The entries that begin in bytes [start, stop), by their headers alone, up to where the chain of entries ends."""
    for chunk in chunks(file, start, stop, HEADER_WINDOW, payloads=False):
        if file.segment.term is not None:
            chunk.entries.leader_epoch = file.segment.term
        yield chunk.entries


def messages_from(file: SegmentFile, start: int, span: Span, most: int) -> Chunk | None:
    """At most ``most`` messages of formats 0 and 1 from ``start`` on, in one row; None if another entry is there. Of a single message the
    row is that of the batch table, and more messages may belong to the chunk."""
    size = HEADER_WINDOW if most > 1 else HEADERS
    room, _ = take(size + PAD)
    entries = Entries.room(1)
    count, position = hop_messages(file.descriptor, start, span, room.address, size, most, entries.array[0])
    if not count:
        return None
    if most > 1:
        entries.size = position - start
    return Chunk(None, start, entries, span._replace(stop=position) if most > 1 else span)


WINDOW = 1 << 17  # bytes in which a border is looked for
LARGE = WINDOW // 4  # bytes of a batch from which on headers are walked: they are few, and the window could hold no two batches
LEAST = 8 << 20  # bytes of a piece from which on it is worth the Python around it; half of that, decompressed, if it is compressed
_MORE = 1 / 8  # by how much a piece may be larger than it should be, so that none of a few bytes is left


def next_border(file: SegmentFile, start: int, stop: int, piece_bytes: int, threads: int = 1, before: int = 0) -> int | None:
    """Where the piece that begins at ``start`` ends: probably at a batch, at the latest at ``stop``; None if no format 2 batch is there. A
    piece has at most about ``piece_bytes`` when it is decompressed. The number of pieces, of which there are ``before`` ones already, will
    be a multiple of ``threads``, if they are not too small for that."""
    room = memory(WINDOW + PAD)
    batch = _first(file, start, stop, room)
    if batch is None:
        return None
    weight, least = (stop - start, LEAST) if batch.codec == NONE else ((stop - start) * file.sizes.inflates, LEAST // 2)
    size = max((stop - start) // _pieces(weight, piece_bytes, min(least, max(piece_bytes // 2, 1)), threads, before), 1)
    if max(start + size, batch.end) >= stop:
        return stop
    if batch.size < LARGE:
        border = boundary(file.descriptor, max(start + size, batch.end), file.size, batch.base_offset, room.address, WINDOW, file.format)
        if border > 0:
            return min(border, stop)
    span = Span(start + size, file.size, float("inf"), 1.0, file.format)
    return int(hop(file.descriptor, start, span, room.address, Entries.room(MOST_ENTRIES).array)[1])


def is_packed(file: SegmentFile, start: int, stop: int) -> bool:
    """Whether a compressed format 2 batch begins at ``start``."""
    batch = _first(file, start, stop, memory(v2.HEADER + PAD))
    return batch is not None and batch.codec != NONE


def _first(file: SegmentFile, start: int, stop: int, room: pa.Buffer) -> Entry | None:
    """The format 2 batch at a position; its header is read to ``room``."""
    if file.format not in layouts.STREAMED or not file.is_local:
        return None
    first = Entries.room(1)
    count, _ = hop(file.descriptor, start, Span(stop, file.size, 1.0, 1.0, file.format), room.address, first.array)
    return first[0] if count else None


def _pieces(weight: float, most: int, least: int, threads: int, before: int) -> int:
    """Into how many pieces of equal size so many decompressed bytes are cut."""
    count = max(ceil(weight / most - _MORE), 1)
    count += -(before + count) % threads
    return max(min(count, ceil(weight / least - _MORE)), 1)
