"""Where a segment is cut into pieces for threads: at a guess, which whoever decodes the piece before it confirms.

A walk over all headers to the end of a piece would find the same places, but costs a call of the system for each batch, and only one thread
can do it.
"""

from kolumn.arrow.recycle import memory
from kolumn.codecs import NONE
from kolumn.cpu_fallback.check.boundary import boundary
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.cpu_fallback.stream import Span, hop
from kolumn.formats import layouts
from kolumn.formats.entries import Entries
from kolumn.plan.chunks import MOST_ENTRIES
from kolumn.source.segment_file import SegmentFile

WINDOW = 1 << 17
"""Bytes in which a border is looked for."""
LARGE = WINDOW // 4
"""Bytes of a batch from which on headers are walked: they are few, and the window could hold no two batches."""
_LEAST = 0.5
"""A rest of less than this part of a piece belongs to the piece before it."""


def next_border(file: SegmentFile, start: int, stop: int, piece_bytes: int) -> int | None:
    """Where the piece that begins at ``start`` ends: probably at a batch, at the latest at ``stop``; None if no format 2 batch is there.

    Parameters
    ----------
    file : SegmentFile
    start, stop : int
        Positions of entries.
    piece_bytes : int
        How many bytes a piece has about, when it is decompressed.
    """
    if file.format != layouts.KAFKA or not file.is_local:
        return None
    room, first = memory(WINDOW + PAD), Entries.room(1)
    count, _ = hop(file.descriptor, start, Span(stop, file.size, 1.0, 1.0), room.address, first.array)
    if not count:
        return None
    one = first[0]
    size = piece_bytes if one.codec == NONE else max(int(piece_bytes / file.inflates), 1)
    if stop - one.end <= (1 + _LEAST) * size:
        return stop
    if one.size < LARGE:
        found = boundary(file.descriptor, max(start + size, one.end), file.size, one.last_offset, room.address, WINDOW)
        if found > 0:
            return min(found, stop)
    span = Span(min(start + size, stop), file.size, float("inf"), 1.0)
    return int(hop(file.descriptor, start, span, room.address, Entries.room(MOST_ENTRIES).array)[1])
