"""Checksums of entries are compared with their bytes. On a GPU: `kolumn.kernels.check`."""

from kolumn.cpu_fallback.machine.arrays import Table
from kolumn.cpu_fallback.machine.scalars import compiled
from kolumn.errors import Code
from kolumn.formats import crc, layouts, table

_OK, _BAD_CRC = int(Code.OK), int(Code.BAD_CRC)
_POSITION, _SIZE, _CODE, _LAYOUT = table.POSITION, table.SIZE, table.CODE, table.LAYOUT
_CRC, _CRC_FROM = table.CRC, table.CRC_FROM


@compiled
def check(buf: int, origin: int, rows: Table) -> int:
    """Set BAD_CRC in every row without a code whose checksum differs from its bytes; returns how many rows have a code."""
    bad = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        if row[_CODE] == _OK:
            start, end = row[_POSITION], row[_POSITION] + row[_SIZE]
            if layouts.has_castagnoli(row[_LAYOUT]):
                found = crc.crc32c(buf - origin, start + row[_CRC_FROM], end)
            else:
                found = crc.crc32(buf - origin, start + row[_CRC_FROM], end)
            if found != row[_CRC]:
                row[_CODE] = _BAD_CRC
        if row[_CODE] != _OK:
            bad += 1
    return bad
