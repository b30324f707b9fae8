"""Compares the checksums of entries with their bytes. `kolumn.kernels.check` does it on a GPU.

Reads some entries of a segment that are not next to each other, such as transaction markers.
"""

from kolumn.core.errors import Code
from kolumn.cpu_fallback.machine.address import fetch
from kolumn.cpu_fallback.machine.arrays import Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import crc, layouts, table
from kolumn.formats.machine_code.deferred import register_jitable

_OK, _BAD_CRC = int(Code.OK), int(Code.BAD_CRC)


@register_jitable
def checksum(layout: int, buf: int, start: int, end: int) -> int:
    """CRC-32C or CRC-32 of bytes [start, end), depending on the layout."""
    if layouts.has_castagnoli(layout):
        return crc.crc32c(buf, start, end)
    return crc.crc32(buf, start, end)


@compiled
def check(buf: int, origin: int, rows: Table) -> int:
    """Set BAD_CRC in every row without a code whose bytes do not match the checksum; returns how many rows have a code."""
    bad = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        if row[table.CODE] == _OK:
            start, end = row[table.POSITION], row[table.POSITION] + row[table.SIZE]
            if checksum(row[table.LAYOUT], buf - origin, start + row[table.CRC_FROM], end) != row[table.CRC]:
                row[table.CODE] = _BAD_CRC
        if row[table.CODE] != _OK:
            bad += 1
    return bad


@compiled
def gather(file: int, rows: Table, window: int) -> int:
    """Read entries to an address, one directly after the other; returns how many could be read before one could not.

    ``file`` is as for `fetch`. Each entry must end before the segment does.
    """
    for i in range(rows.shape[0]):
        size = rows[i, table.SIZE]
        if fetch(file, window, size, rows[i, table.POSITION]) != size:
            return i
        window += size
    return rows.shape[0]
