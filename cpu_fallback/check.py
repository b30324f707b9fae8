"""Stage 1 on the CPU: entries are framed by their headers, checksums are compared, and entries are selected by the requested ranges.

Also searches damaged bytes for entries, and guesses where batches begin, so that several threads can each decode a part of a segment.
A guess is no evidence, because a value can hold whole batches: whoever uses one has to find that the chain of entries before it ends
there.
"""

from typing import NamedTuple

from kolumn.core.deferred import register_jitable
from kolumn.core.errors import Code
from kolumn.cpu_fallback.machine.address import fetch
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import crc, layouts, legacy, memory, redpanda, table, v2, v3_compact
from kolumn.formats.codecs import LZ4, NONE
from kolumn.formats.entry import OVERHEAD, entry, magic_at

_OK, _TRUNCATED, _BAD_CRC = int(Code.OK), int(Code.TRUNCATED), int(Code.BAD_CRC)


@register_jitable
def checksum(layout: int, buf: int, start: int, end: int) -> int:
    """CRC-32C or CRC-32 of bytes [start, end), depending on the layout."""
    return crc.crc32c(buf, start, end) if layouts.has_castagnoli(layout) else crc.crc32(buf, start, end)


@register_jitable
def is_intact(row: Int64s, entry: int) -> bool:
    """Whether the bytes of a batch at an address match its CRC-32C."""
    return crc.crc32c_from(row[table.CRC_SEED] ^ 0xFFFFFFFF, entry, row[table.CRC_FROM], row[table.SIZE]) == row[table.CRC]


@compiled
def check(buf: int, origin: int, rows: Table) -> int:
    """Set BAD_CRC in every row without a code whose bytes do not match the checksum; returns how many rows have a code."""
    bad = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        if row[table.CODE] == _OK:
            entry = buf - origin + row[table.POSITION]
            if layouts.has_castagnoli(row[table.LAYOUT]):
                good = is_intact(row, entry)
            else:
                good = crc.crc32(entry, row[table.CRC_FROM], row[table.SIZE]) == row[table.CRC]
            if not good:
                row[table.CODE] = _BAD_CRC
        if row[table.CODE] != _OK:
            bad += 1
    return bad


@compiled
def gather(file: int, rows: Table, window: int) -> int:
    """Read entries to an address, one directly after the other; returns how many could be read before one could not. ``file`` is as for
    `fetch`. Each entry must end before the segment does."""
    for i in range(rows.shape[0]):
        size = rows[i, table.SIZE]
        if fetch(file, window, size, rows[i, table.POSITION]) != size:
            return i
        window += size
    return rows.shape[0]


@compiled
def candidate(
    buf: int, origin: int, position: int, stop: int, loaded: int, end: int, floor: int, ceiling: int, format: int, budget: int
) -> tuple[int, int]:
    """First position in [position, stop) whose bytes could be the header of an entry with the right checksum.

    `HEADERS` bytes after each position must be readable; they may be padding. An entry must end at or before ``end``, its offset
    must be above ``floor`` and below ``ceiling``, and bits that no writer sets must be clear. The caller has to compare the checksums of
    entries that end after ``loaded``, and those of formats with frames of their own.

    Returns the position, ``stop`` if there is none, and what is left of ``budget``, the bytes that may be checksummed; entries that are
    larger than the rest are skipped."""
    base = buf - origin
    while position < stop:
        if plausible(buf, origin, position, end, floor, format) and layouts.offset_at(format, base, position) < ceiling:
            if layouts.has_own_frame(format):
                return position, budget
            size = memory.i32_at(base, position + 8) + OVERHEAD
            if size <= budget:
                if position + size > loaded:
                    return position, budget
                budget -= size
                if _intact(base, position, size, format):
                    return position, budget
        position += 1
    return stop, budget


@register_jitable
def _intact(base: int, position: int, size: int, format: int) -> bool:
    layout = layouts.layout_of(format, memory.load8(base, position + 16))
    stored = memory.u32_at(base, position + layouts.crc_at(layout))
    return checksum(layout, base, position + layouts.crc_from(layout), position + size) == stored


@compiled
def plausible(buf: int, origin: int, position: int, end: int, floor: int, format: int) -> bool:
    """Whether an entry with an offset above ``floor`` could begin at ``position``, by its header, and end at or before ``end``."""
    base = buf - origin
    if layouts.has_own_frame(format):
        code, size = layouts.own_frame(format, base, position, end)
        if code == _OK or layouts.has_no_magics(format):
            fits = code == _OK and layouts.offset_at(format, base, position) > floor
            return fits and layouts.plausible(layouts.own_layout(format), base, position, size)
    layout, size = layouts.layout_of(format, memory.load8(base, position + 16)), memory.i32_at(base, position + 8)
    if layout == layouts.NO_LAYOUT or size < legacy.SMALLEST_V0 or size > end - position - OVERHEAD:
        return False
    return memory.i64_at(base, position) > floor and layouts.plausible(layout, base, position, size)


@compiled
def wrapped(buf: int, origin: int, position: int, stop: int, floor: int, ceiling: int, end: int) -> tuple[int, int]:
    """Highest offset, above ``floor`` and up to ``ceiling``, of what could be headers of format 0 or 1 wrappers in [position, stop), and
    where the messages of that wrapper end; ``floor`` and ``end`` if there is no such header. Its checksum is not compared, because this
    search is for damaged wrappers, whose codec may have stored messages uncompressed, with right checksums of their own."""
    base, highest = buf - origin, floor
    while position < stop:
        offset, magic, attributes = memory.i64_at(base, position), memory.load8(base, position + 16), memory.load8(base, position + 17)
        if highest < offset <= ceiling and magic <= 1 and attributes < 16 and 0 < attributes & 7 <= LZ4:
            key_at = position + legacy.HEADER + 8 * magic
            size = memory.i32_at(base, key_at + 4)
            if memory.i32_at(base, key_at) == -1 and size > 0:
                highest, end = offset, key_at + 8 + size
        position += 1
    return highest, end


@compiled
def crc_match(buf: int, origin: int, position: int, stop: int, register: int, wanted: int, castagnoli: bool) -> tuple[int, int]:
    """Add bytes from ``position`` on to a CRC register until the CRC is ``wanted``. Returns the position after the byte at which it is, or
    -1 if there is no such byte before ``stop``; and the register, to be passed to the next call."""
    table, target = crc.CRC32C if castagnoli else crc.CRC32, wanted ^ 0xFFFFFFFF
    while position < stop:
        register = table[0, (register ^ memory.load8(buf - origin, position)) & 0xFF] ^ (register >> 8)
        position += 1
        if register == target:
            return position, register
    return -1, register


HEADERS = v3_compact.LARGEST_HEADER
"""Bytes of an entry that `walk` needs to fill its row; some enriched messages need more."""
MORE, FULL = -1, -2
_V2, _LEGACY, _REDPANDA = v2.LAYOUT.number, legacy.LAYOUT.number, redpanda.LAYOUT.number


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
    if layouts.has_no_magics(format):
        code, size = layouts.own_frame(format, buf, pos, end)
        return code, size, layouts.own_layout(format)
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

    ``buf``: address; the byte at position p of the segment is at ``buf + p - origin``.
    ``pos``, ``loaded``, ``stop``, ``end``, ``origin``: positions in the segment: of the first entry, of the end of the loaded bytes,
        where to stop (an entry boundary), of the segment's end, of the first byte of ``buf``.
    ``format``: index into `layouts.FORMATS`.
    ``whole``: whether entries must be loaded to their end; otherwise headers are enough.
    ``decide``: whether checksums decide between layouts; only with ``whole``.
    ``rows``: int64 array of shape (n, `table.WIDTH`).
    Returns ``count``: rows filled.
    ``pos``: where the walk stopped.
    ``code``: OK at ``stop``; MORE or FULL if the buffer or the table ended first; else the reason why the chain of entries ends at
        ``pos``.
    ``size``: of the entry at ``pos``, or 0 if it is not known.
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
def boundary(file: int, start: int, end: int, floor: int, window: int, room: int, format: int) -> int:
    """First position from ``start`` on where two streamed batches seem to follow one another, or -1 if ``room`` bytes have none.

    ``file``: as for `fetch`.
    ``start``, ``end``: positions: of the first byte to look at, and of the end of the file.
    ``floor``: their offsets are above it.
    ``window``, ``room``: address and size of memory for the bytes.
    ``format``: index into `layouts.FORMATS`.
    """
    size = min(room, end - start)
    if fetch(file, window, size, start) != size:
        return -1
    buf, loaded = window - start, start + size
    for position in range(start, loaded - v2.HEADER):
        following = _end(buf, position, end, floor, format)
        last = layouts.offset_at(format, buf, position)
        if following > 0 and following + v2.HEADER <= loaded and _end(buf, following, end, last, format) > 0:
            return position
    return -1


@register_jitable
def _end(buf: int, position: int, end: int, floor: int, format: int) -> int:
    """Where the batch ends whose header seems to be at ``position``; 0 if none is there."""
    code, size, layout = frame(buf, position, end, end, False, format)
    if code != _OK or not layouts.is_streamed(layout) or not plausible(buf, 0, position, end, floor, format):
        return 0
    return position + size


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
    """Whether the entry of a row can hold records within the limits, as far as its header is believed. A wrapper's header says nothing of
    the offsets in it, which need not grow. The largest timestamp of a batch may be unset, or too low, unless it is the time of all records
    (LogAppendTime)."""
    layout = row[table.LAYOUT]
    is_opaque = layout == _REDPANDA and redpanda.is_opaque(row[table.BATCH_TYPE])
    if row[table.CONTROL] != 0 and (is_opaque or not limit.include_control):
        return False
    tells = layouts.holds_records(layout) or (layout == _LEGACY and row[table.CODEC] == NONE)
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
