"""Frames the entries of a buffer and fills their rows of the batch table.

Guesses where batches begin, so that several threads can each decode a part of a segment.

A guess is no evidence: a value can hold whole batches. Whoever uses one has to find that the chain of entries before it ends there.

Selects, by their headers alone, the entries that can have records in the requested ranges.
"""

from typing import NamedTuple

from kolumn.core.errors import Code
from kolumn.cpu_fallback.check.checksums import checksum
from kolumn.cpu_fallback.check.search import is_plausible
from kolumn.cpu_fallback.machine.address import fetch
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import crc, layouts, legacy, memory, table, v2, v3_compact
from kolumn.formats.codecs import NONE
from kolumn.formats.entry import OVERHEAD, SIZE_AT, entry, magic_at
from kolumn.formats.machine_code.deferred import register_jitable

HEADERS = v3_compact.LARGEST_HEADER
"""Bytes of an entry that `walk` needs to fill its row; some enriched messages need more."""

_OK, _TRUNCATED = int(Code.OK), int(Code.TRUNCATED)
MORE = -1
FULL = -2
_V2, _LEGACY = v2.LAYOUT.number, legacy.LAYOUT.number


@register_jitable
def fill(buf: int, pos: int, size: int, layout: int, row: Int64s) -> None:
    """Fill a row of the batch table from the header of the entry at ``pos``."""
    row[:] = 0
    row[table.POSITION], row[table.SIZE], row[table.MAGIC], row[table.RECORD], row[table.WHERE] = pos, size, magic_at(buf, pos), -1, -1
    row[table.LAYOUT] = layout
    row[table.CODE] = layouts.header(layout, buf, pos, size, row)


@register_jitable
def frame(buf: int, pos: int, loaded: int, end: int, decide: bool, format: int) -> tuple[int, int, int]:
    """Frame the entry at ``pos``: code, size, layout. With ``decide``, checksums decide between a draft's own frame and the shipped one."""
    code, size = entry(buf, pos, end)
    if layouts.has_own_frame(format):
        own, own_size = layouts.own_frame(format, buf, pos, end)
        layout = layouts.own_layout(format)
        if own == _OK:
            both = max(size, own_size)
            if code != _OK or not decide:
                return _OK, own_size, layout
            if pos + both > loaded:
                return _OK, both, layout
            if _has_own_frame(buf, pos, own_size, size, format):
                return _OK, own_size, layout
        if own == _TRUNCATED and code != _OK:
            return _TRUNCATED, own_size, layout
    if code != _OK:
        return code, size, layouts.NO_LAYOUT
    return code, size, layouts.layout_of(format, magic_at(buf, pos))


@register_jitable
def _has_own_frame(buf: int, pos: int, own_size: int, size: int, format: int) -> bool:
    """Whether an entry that could have both frames has the draft's own: the own checksum is right, or both checksums are wrong."""
    crc_at = layouts.own_crc_at(format, buf, pos)
    if crc.crc32c(buf, crc_at + 4, pos + own_size) == memory.u32_at(buf, crc_at):
        return True
    layout = _V2 if magic_at(buf, pos) == v2.MAGIC else _LEGACY
    stored = memory.u32_at(buf, pos + layouts.crc_at(layout))
    return checksum(layout, buf, pos + layouts.crc_from(layout), pos + size) != stored


@compiled
def walk(
    buf: int, pos: int, loaded: int, stop: int, end: int, origin: int, format: int, whole: bool, decide: bool, rows: Table
) -> tuple[int, int, int, int]:
    """Fill the batch table from the entries at ``pos``, ``pos + size``, … of a buffer.

    Parameters
    ----------
    buf : int
        Address; the byte at position p of the segment is at ``buf + p - origin``.
    pos, loaded, stop, end, origin : int
        Positions in the segment: of the first entry, of the end of the loaded bytes, where to stop (an entry boundary), of the
        segment's end, of the first byte of ``buf``.
    format : int
        Index into `layouts.FORMATS`.
    whole : bool
        Whether entries must be loaded to their end; otherwise headers are enough.
    decide : bool
        Whether checksums decide between layouts; only with ``whole``.
    rows : int64 array of shape (n, `table.WIDTH`)

    Returns
    -------
    count : int
        Rows filled.
    pos : int
        Where the walk stopped.
    code : int
        OK at ``stop``; MORE or FULL if the buffer or the table ended first; else the reason why the chain of entries ends at ``pos``.
    size : int
        Of the entry at ``pos``, or 0 if it is not known.
    """
    count = 0
    while pos < stop:
        if loaded < end and pos + HEADERS > loaded:
            return count, pos, MORE, 0
        code, size, layout = frame(buf - origin, pos, loaded, end, whole and decide, format)
        if code != _OK:
            return count, pos, code, size
        needed = size if whole else layouts.header_bytes(layout, buf - origin, pos, size)
        if pos + needed > loaded:
            return count, pos, MORE, size
        if count == rows.shape[0]:
            return count, pos, FULL, size
        fill(buf - origin, pos, size, layout, rows[count])
        count += 1
        pos += size
    return count, pos, _OK, 0


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


LOWEST, HIGHEST = -(2**63), 2**63 - 1


class Limits(NamedTuple):
    """Options for compiled code; `LOWEST` and `HIGHEST` mean that there is no limit."""

    check_crcs: bool
    include_control: bool
    start_offset: int
    end_offset: int
    start_timestamp: int


@register_jitable
def keeps(limit: Limits, row: Int64s) -> bool:
    """Whether the entry of a row can hold records within the limits, as far as its header is believed.

    A wrapper's header says nothing of the offsets in it, which need not grow. The largest timestamp of a batch may be unset, or too low,
    unless it is the time of all records (LogAppendTime).
    """
    if row[table.CONTROL] != 0 and not limit.include_control:
        return False
    layout = row[table.LAYOUT]
    tells = layout == _V2 or (layout == _LEGACY and row[table.CODEC] == NONE)
    if tells and not in_range(limit, row[table.BASE_OFFSET], row[table.LAST_OFFSET]):
        return False
    dated = layouts.holds_records(layout) and row[table.TIMESTAMP_TYPE] == table.LOG_APPEND_TIME
    return not dated or row[table.MAX_TIMESTAMP] >= limit.start_timestamp


@register_jitable
def in_range(limit: Limits, base: int, last: int) -> bool:
    """Whether an entry whose records have these offsets can hold records within the limits."""
    return last >= limit.start_offset and (limit.end_offset == HIGHEST or base < limit.end_offset)


@compiled
def select(limit: Limits, rows: Table, wanted: Flags) -> None:
    """Set the flag of each entry that can hold records within the limits."""
    for b in range(rows.shape[0]):
        wanted[b] = keeps(limit, rows[b])
