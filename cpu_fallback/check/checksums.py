"""Checksums of entries are compared with their bytes. On a GPU: `kolumn.kernels.check`."""

from numba.extending import register_jitable

from kolumn.cpu_fallback.machine.arrays import Table
from kolumn.cpu_fallback.machine.scalars import compiled
from kolumn.errors import Code
from kolumn.formats import crc, layouts, table

_OK, _BAD_CRC = int(Code.OK), int(Code.BAD_CRC)
_POSITION, _SIZE, _CODE, _LAYOUT = table.POSITION, table.SIZE, table.CODE, table.LAYOUT
_CRC, _CRC_FROM = table.CRC, table.CRC_FROM


@register_jitable
def checksum(layout: int, buf: int, start: int, end: int) -> int:
    """Checksum of bytes [start, end), of the kind that entries of a layout have."""
    if layouts.has_castagnoli(layout):
        return crc.crc32c(buf, start, end)
    return crc.crc32(buf, start, end)


@compiled
def check(buf: int, origin: int, rows: Table) -> int:
    """Set BAD_CRC in every row without a code whose checksum differs from its bytes; returns how many rows have a code."""
    bad = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        if row[_CODE] == _OK:
            start, end = row[_POSITION], row[_POSITION] + row[_SIZE]
            if checksum(row[_LAYOUT], buf - origin, start + row[_CRC_FROM], end) != row[_CRC]:
                row[_CODE] = _BAD_CRC
        if row[_CODE] != _OK:
            bad += 1
    return bad
