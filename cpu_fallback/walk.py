"""Entries of a buffer become rows of the batch table; checksums are compared."""

from typing import Any

from numba.extending import register_jitable

from kolumn.cpu_fallback.scalars import compiled
from kolumn.errors import Code
from kolumn.formats import crc, legacy, memory, table, v2
from kolumn.formats.entry import entry, magic_at

HEADERS = v2.HEADER
"""Bytes of an entry that `walk` has to see to fill its row."""

_OK, _BAD_MAGIC, _BAD_CRC = int(Code.OK), int(Code.BAD_MAGIC), int(Code.BAD_CRC)
_TRUNCATED, _UNKNOWN = int(Code.TRUNCATED), table.UNKNOWN
MORE = -1
FULL = -2
_V2_CRC, _LEGACY_CRC = v2.CRC_FROM, legacy.CRC_FROM
_POSITION, _SIZE, _MAGIC, _CRC = table.POSITION, table.SIZE, table.MAGIC, table.CRC
_CODE, _RECORD, _WHERE, _COUNT = table.CODE, table.RECORD, table.WHERE, table.COUNT
_BASE_OFFSET, _LAST_OFFSET = table.BASE_OFFSET, table.LAST_OFFSET


@register_jitable
def fill(buf: int, pos: int, size: int, row: Any) -> None:
    """Fill a row of the batch table from the header of the entry at ``pos``."""
    row[:] = 0
    magic = magic_at(buf, pos)
    row[_POSITION], row[_SIZE], row[_MAGIC], row[_RECORD], row[_WHERE] = pos, size, magic, -1, -1
    if magic == 2:
        row[_CODE] = v2.header(buf, pos, size, row)
    elif magic < 2:
        row[_CODE] = legacy.header(buf, pos, size, row)
    else:
        row[_CODE] = _BAD_MAGIC
        row[_BASE_OFFSET] = row[_LAST_OFFSET] = memory.i64_at(buf, pos)
        row[_COUNT] = _UNKNOWN


@compiled
def walk(buf: int, pos: int, loaded: int, stop: int, end: int, origin: int, whole: bool, rows: Any) -> tuple[int, int, int, int]:
    """Fill the batch table from the entries at ``pos``, ``pos + size``, … of a buffer.

    Parameters
    ----------
    buf : int
        Address; the byte at position p of the segment is at ``buf + p - origin``.
    pos, loaded, stop, end, origin : int
        Positions in the segment: of the first entry, where the loaded bytes end, where to stop (an entry boundary), where
        the segment ends, of ``buf``.
    whole : bool
        Whether entries must be loaded to their end, or headers are enough.
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
        code, size = entry(buf - origin, pos, end)
        if code != _OK:
            return count, pos, code, size
        if whole and pos + size > loaded:
            return count, pos, MORE, size
        if count == rows.shape[0]:
            return count, pos, FULL, size
        fill(buf - origin, pos, size, rows[count])
        count += 1
        pos += size
    return count, pos, _OK, 0


@compiled
def check(buf: int, origin: int, rows: Any) -> int:
    """Set BAD_CRC in every row without a code whose checksum differs from its bytes; returns how many rows have a code."""
    bad = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        if row[_CODE] == _OK:
            start, end = row[_POSITION], row[_POSITION] + row[_SIZE]
            if row[_MAGIC] == 2:
                found = crc.crc32c(buf - origin, start + _V2_CRC, end)
            else:
                found = crc.crc32(buf - origin, start + _LEGACY_CRC, end)
            if found != row[_CRC]:
                row[_CODE] = _BAD_CRC
        if row[_CODE] != _OK:
            bad += 1
    return bad
