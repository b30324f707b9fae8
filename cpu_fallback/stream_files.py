"""Reads and decodes several small segments in one call, format 2 batches only, into the same columns.

A segment of some 100 KB takes less time in loops than the calls of Python that a segment costs. So this opens the files, compares them with
the identities that were found when the source was listed, and reads, checks and decodes them, without Python. At a segment with anything
unusual it stops; `kolumn.decode.small_segments` decodes that one alone, and explains what is wrong with it.
"""

from typing import NamedTuple

from kolumn.core.deferred import register_jitable
from kolumn.cpu_fallback.check import Limits
from kolumn.cpu_fallback.fields.target import Target
from kolumn.cpu_fallback.machine.address import PAD, call, fetch, load8, load32, load64
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.cpu_fallback.stream import DONE, Room, Source, Span, hop, stream
from kolumn.formats import table

LOOK_BYTES = 256
"""Bytes of a ``struct statx``."""
SIZE, INODE, MODIFIED, MODIFIED_NS, BORN, BORN_NS, DEVICE, PATH, TAIL, TAIL_BYTES = range(10)
"""Columns of a file that is to be read: its identity; addresses of its path, with a 0 at the end, and of its last bytes; how many they are.
The device is its minor number above its major number. `BORN` and `DEVICE` are -1 if they are not known."""
WIDTH = 10
TAIL_AT = 64
"""How many bytes before the end of a file the bytes begin that `Identity.tail` has."""
_READ_ONLY, _AT_EMPTY_PATH, _BASIC, _BORN = 0o2000000, 0x1000, 0x7FF, 0x800
_NEGATIVE, _WORD = 0x80000000, 0xFFFFFFFF


class Calls(NamedTuple):
    """Addresses of functions of the C library, and of memory for one ``struct statx`` and for an empty path."""

    open: int
    statx: int
    close: int
    look: int
    empty: int


@compiled
def stream_files(
    calls: Calls, files: Table, source: Source, span: Span, limits: Limits, rows: Table, records: Int64s, ends: Int64s, written: Table,
    to: Target, slots: Int64s, room: Room,
) -> int:  # fmt: skip
    """Decode segments one after the other; returns how many were decoded as a whole.

    ``files``: int64 array of shape (n, `WIDTH`).
    ``source``: its window has room for the largest file; its ``file`` is not used.
    ``span``: its ``inflates`` and ``format`` are used.
    ``rows``, ``records``: out: entries of all segments, with positions in their segments, and the number of records of each.
    ``ends``: int64 array of n; out: number of entries up to and including each segment.
    ``written``: int64 array of shape (n, number of slots); out: ``slots`` after each segment.
    ``to``, ``slots``, ``room``: as for `stream`. After the call ``slots`` is that after the last segment that was decoded as a whole.
    """
    first = 0
    for i in range(files.shape[0]):
        size = files[i, SIZE]
        if first == rows.shape[0] or size > source.room or not _read(calls, files[i], source.window):
            return _back(written, i, slots)
        here = Span(size, size + PAD, 1.0, span.inflates, span.format)
        last = Span(size, size + PAD, 1e18, span.inflates, span.format)
        memory = Source(
            -source.window, source.views, source.arena, source.arena, source.room, source.block, False, False, source.libraries,
        )  # fmt: skip
        count, _ = hop(-source.window, 0, here, calls.look, rows[first : first + 1])
        if count == 0:
            return _back(written, i, slots)
        row, state, _, known = stream(memory, last, limits, rows[first:], 1, 0, 0, records[first:], to, slots, room)
        done = first + row
        if state != DONE or row != known or rows[done - 1, table.POSITION] + rows[done - 1, table.SIZE] != size:
            return _back(written, i, slots)
        first = ends[i] = done
        # One by one here and below: an assignment of arrays takes memory, which loops do not have.
        for slot in range(len(slots)):
            written[i, slot] = slots[slot]
    return files.shape[0]


@register_jitable
def _back(written: Table, done: int, slots: Int64s) -> int:
    """Take back what was written of a segment that is not decoded as a whole; nulls of later rows stay, so no row may follow."""
    for slot in range(len(slots)):
        slots[slot] = written[done - 1, slot] if done > 0 else 0
    return done


@register_jitable
def _read(calls: Calls, file: Int64s, window: int) -> bool:
    """Read a file; False if it is not the one that was listed. What has its identity after the read had it before."""
    opened = call(calls.open, (file[PATH], _READ_ONLY)) & _WORD
    if opened >= _NEGATIVE:
        return False
    size = file[SIZE]
    whole = fetch(opened, window, size, 0) == size and _is_same(calls, file, opened)
    call(calls.close, (opened,))
    if whole:
        end = window + max(size - TAIL_AT, 0)
        for i in range(file[TAIL_BYTES]):
            whole = whole and load8(end + i) == load8(file[TAIL] + i)
    return whole


@register_jitable
def _is_same(calls: Calls, file: Int64s, opened: int) -> bool:
    """Whether an open file has the identity of the one that was listed, and was not modified since."""
    look = calls.look
    if call(calls.statx, (opened, calls.empty, _AT_EMPTY_PATH, _BASIC | _BORN, look)) & _WORD != 0:
        return False
    mask = load32(look)
    if mask & _BASIC != _BASIC or load64(look + 40) != file[SIZE] or load64(look + 32) != file[INODE]:
        return False
    if load64(look + 112) != file[MODIFIED] or load32(look + 120) != file[MODIFIED_NS]:
        return False
    if file[DEVICE] >= 0 and (load32(look + 136) | (load32(look + 140) << 32)) != file[DEVICE]:
        return False
    if mask & _BORN and file[BORN] >= 0:
        return load64(look + 80) == file[BORN] and load32(look + 88) == file[BORN_NS]
    return True
