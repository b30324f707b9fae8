"""Where a segment is cut into pieces for threads: at a guess, which whoever decodes the piece before it confirms.

A walk over all headers to the end of a piece would find the same places, but costs a call of the system for each batch, and only one thread
can do it.
"""

from math import ceil

import pyarrow as pa

from kolumn.arrow.recycle import memory
from kolumn.codecs import NONE
from kolumn.cpu_fallback.check.boundary import boundary
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.cpu_fallback.stream import Span, hop
from kolumn.formats import layouts
from kolumn.formats.entries import Entries, Entry
from kolumn.formats.v2 import HEADER
from kolumn.plan.chunks import MOST_ENTRIES
from kolumn.source.segment_file import SegmentFile

WINDOW = 1 << 17
"""Bytes in which a border is looked for."""
LARGE = WINDOW // 4
"""Bytes of a batch from which on headers are walked: they are few, and the window could hold no two batches."""
LEAST = 8 << 20
"""Bytes of a piece from which on it is worth the Python around it; half of that, decompressed, if it is compressed."""
_MORE = 1 / 8
"""By how much a piece may be larger than it should be, so that none of a few bytes is left."""


def next_border(file: SegmentFile, start: int, stop: int, piece_bytes: int, threads: int = 1, before: int = 0) -> int | None:
    """Where the piece that begins at ``start`` ends: probably at a batch, at the latest at ``stop``; None if no format 2 batch is there.

    Parameters
    ----------
    file : SegmentFile
    start, stop : int
        Positions of entries.
    piece_bytes : int
        How many bytes a piece has at most, about, when it is decompressed.
    threads, before : int
        The number of pieces will be a multiple of ``threads``, if they are not too small for that; there are ``before`` ones already.
    """
    room = memory(WINDOW + PAD)
    one = _first(file, start, stop, room)
    if one is None:
        return None
    weight, least = (stop - start, LEAST) if one.codec == NONE else ((stop - start) * file.sizes.inflates, LEAST // 2)
    size = max((stop - start) // _pieces(weight, piece_bytes, min(least, max(piece_bytes // 2, 1)), threads, before), 1)
    if max(start + size, one.end) >= stop:
        return stop
    if one.size < LARGE:
        found = boundary(file.descriptor, max(start + size, one.end), file.size, one.last_offset, room.address, WINDOW)
        if found > 0:
            return min(found, stop)
    span = Span(start + size, file.size, float("inf"), 1.0)
    return int(hop(file.descriptor, start, span, room.address, Entries.room(MOST_ENTRIES).array)[1])


def is_packed(file: SegmentFile, start: int, stop: int) -> bool:
    """Whether a compressed format 2 batch begins at ``start``."""
    one = _first(file, start, stop, memory(HEADER + PAD))
    return one is not None and one.codec != NONE


def _first(file: SegmentFile, start: int, stop: int, room: pa.Buffer) -> Entry | None:
    """The format 2 batch at a position; its header is read to ``room``."""
    if file.format != layouts.KAFKA or not file.is_local:
        return None
    first = Entries.room(1)
    count, _ = hop(file.descriptor, start, Span(stop, file.size, 1.0, 1.0), room.address, first.array)
    return first[0] if count else None


def _pieces(weight: float, most: int, least: int, threads: int, before: int) -> int:
    """Into how many pieces of equal size so many decompressed bytes are cut."""
    count = max(ceil(weight / most - _MORE), 1)
    count += -(before + count) % threads
    return max(min(count, ceil(weight / least - _MORE)), 1)
