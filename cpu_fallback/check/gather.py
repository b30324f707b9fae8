"""Reads some entries of a segment that are not next to each other, such as transaction markers."""

from kolumn.cpu_fallback.machine.address import fetch
from kolumn.cpu_fallback.machine.arrays import Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import table


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
