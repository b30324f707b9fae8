"""Entries of a buffer become rows of the batch table."""

from typing import Any

from numba.extending import register_jitable

from kolumn.cpu_fallback.machine.arrays import Table
from kolumn.cpu_fallback.machine.scalars import compiled
from kolumn.errors import Code
from kolumn.formats import crc, enriched, kip98_draft, layouts, legacy, memory, table, v2, v3_compact, varint
from kolumn.formats.entry import entry, magic_at

HEADERS = v3_compact.LARGEST_HEADER
"""Bytes of an entry that `walk` needs to fill its row; some enriched messages need more."""

_OK, _BAD_MAGIC, _BAD_CRC = int(Code.OK), int(Code.BAD_MAGIC), int(Code.BAD_CRC)
_TRUNCATED, _BAD_LENGTH, _UNKNOWN = int(Code.TRUNCATED), int(Code.BAD_LENGTH), table.UNKNOWN
MORE = -1
FULL = -2
_POSITION, _SIZE, _MAGIC, _CRC = table.POSITION, table.SIZE, table.MAGIC, table.CRC
_CODE, _RECORD, _WHERE, _COUNT = table.CODE, table.RECORD, table.WHERE, table.COUNT
_BASE_OFFSET, _LAST_OFFSET = table.BASE_OFFSET, table.LAST_OFFSET
_LAYOUT, _CRC_FROM = table.LAYOUT, table.CRC_FROM
_V3_FORMAT, _V2, _V3, _ENRICHED, _KIP98, _NONE = (
    layouts.V3_FORMAT,
    layouts.V2,
    layouts.V3,
    layouts.ENRICHED,
    layouts.KIP98,
    layouts.NONE,
)
_COMPACT_MAGIC, _ENRICHED_HEADER = v3_compact.MAGIC, enriched.HEADER


@register_jitable
def fill(buf: int, pos: int, size: int, layout: int, row: Any) -> None:
    """Fill a row of the batch table from the header of the entry at ``pos``."""
    row[:] = 0
    magic = _COMPACT_MAGIC if layout == _V3 else magic_at(buf, pos)
    row[_POSITION], row[_SIZE], row[_MAGIC], row[_RECORD], row[_WHERE] = pos, size, magic, -1, -1
    row[_LAYOUT] = layout
    if layout == _V2:
        row[_CODE] = v2.header(buf, pos, size, row)
    elif layout == _NONE:
        row[_CODE] = _BAD_MAGIC
        row[_BASE_OFFSET] = row[_LAST_OFFSET] = memory.i64_at(buf, pos)
        row[_COUNT] = _UNKNOWN
    elif layout == _V3:
        row[_CODE] = v3_compact.header(buf, pos, size, row)
    elif layout == _KIP98:
        row[_CODE] = kip98_draft.header(buf, pos, size, row)
    elif layout == _ENRICHED:
        row[_CODE] = enriched.header(buf, pos, size, row)
    else:
        row[_CODE] = legacy.header(buf, pos, size, row)


@register_jitable
def frame(buf: int, pos: int, loaded: int, end: int, decide: bool, format: int) -> tuple[int, int, int]:
    """Frame the entry at ``pos``: code, size, layout. With ``decide``, checksums tell compact format 3 from shipped formats."""
    code, size = entry(buf, pos, end)
    if format == _V3_FORMAT:
        compact, compact_size = v3_compact.entry(buf, pos, end)
        if compact == _OK:
            both = max(size, compact_size)
            if code != _OK or not decide:
                return _OK, compact_size, _V3
            if pos + both > loaded:
                return _OK, both, _V3
            if _is_compact(buf, pos, compact_size, size):
                return _OK, compact_size, _V3
        if compact == _TRUNCATED and code != _OK:
            return _TRUNCATED, compact_size, _V3
    if code != _OK:
        return code, size, _NONE
    return code, size, layouts.layout_of(format, magic_at(buf, pos))


@register_jitable
def _is_compact(buf: int, pos: int, compact_size: int, size: int) -> bool:
    """Whether an entry with the structure of both is one of format 3: its checksum is right, or the other one's is wrong too."""
    _, at = varint.uvarint32(buf, pos + 8, pos + 13)
    crc_at = at + 5
    if crc.crc32c(buf, crc_at + 4, pos + compact_size) == memory.u32_at(buf, crc_at):
        return True
    if magic_at(buf, pos) == v2.MAGIC:
        return crc.crc32c(buf, pos + v2.CRC_FROM, pos + size) != memory.u32_at(buf, pos + 17)
    return crc.crc32(buf, pos + legacy.CRC_FROM, pos + size) != memory.u32_at(buf, pos + 12)


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
        Positions in the segment: of the first entry, where the loaded bytes end, where to stop (an entry boundary), where
        the segment ends, of ``buf``.
    format : int
        Of `layouts`.
    whole : bool
        Whether entries must be loaded to their end, or headers are enough.
    decide : bool
        Whether checksums may tell layouts apart; only with ``whole``.
    rows : int64 array of shape (n, `table.WIDTH`)

    Returns
    -------
    count : int
        Rows filled.
    pos : int
        Where the walk stopped.
    code : int
        OK at ``stop``; MORE or FULL where the buffer or the table ended first; else why the chain of entries ends here.
    size : int
        Of the entry at ``pos``, where it is known.
    """
    count = 0
    while pos < stop:
        if loaded < end and pos + HEADERS > loaded:
            return count, pos, MORE, 0
        code, size, layout = frame(buf - origin, pos, loaded, end, whole and decide, format)
        if code != _OK:
            return count, pos, code, size
        if (whole and pos + size > loaded) or (layout == _ENRICHED and _cut(buf - origin, pos, size, loaded)):
            return count, pos, MORE, size
        if count == rows.shape[0]:
            return count, pos, FULL, size
        fill(buf - origin, pos, size, layout, rows[count])
        count += 1
        pos += size
    return count, pos, _OK, 0


@register_jitable
def _cut(buf: int, pos: int, size: int, loaded: int) -> bool:
    return size >= _ENRICHED_HEADER and pos + enriched.header_bytes(buf, pos, size) > loaded
