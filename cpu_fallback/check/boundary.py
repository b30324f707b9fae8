"""Guesses where batches begin, so that several threads can each decode a part of a segment.

A guess is no evidence: a value can hold whole batches. Whoever uses one has to find that the chain of entries before it ends there.
"""

from kolumn.cpu_fallback.check.search import is_plausible
from kolumn.cpu_fallback.machine.address import fetch
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import layouts, memory, v2
from kolumn.formats.entry import OVERHEAD, SIZE_AT, magic_at
from kolumn.machine_code.deferred import register_jitable


@compiled
def boundary(file: int, start: int, end: int, floor: int, window: int, room: int) -> int:
    """First position from ``start`` on where two format 2 batches seem to follow one another, or -1 if ``room`` bytes have none.

    Parameters
    ----------
    file : int
        As for `fetch`.
    start, end : int
        Positions: of the first byte to look at, and of the end of the file.
    floor : int
        Their offsets are above it.
    window, room : int
        Address and size of memory for the bytes.
    """
    size = min(room, end - start)
    if fetch(file, window, size, start) != size:
        return -1
    buf, loaded = window - start, start + size
    for at in range(start, loaded - v2.HEADER):
        following = _end(buf, at, end, floor)
        if following > 0 and following + v2.HEADER <= loaded:
            last = memory.i64_at(buf, at) + memory.i32_at(buf, at + 23)
            if _end(buf, following, end, last) > 0:
                return at
    return -1


@register_jitable
def _end(buf: int, at: int, end: int, floor: int) -> int:
    """Where the batch ends whose header seems to be at ``at``; 0 if none is there."""
    if magic_at(buf, at) != v2.MAGIC or not is_plausible(buf, at, end, floor, layouts.KAFKA):
        return 0
    return at + OVERHEAD + memory.i32_at(buf, at + SIZE_AT)
