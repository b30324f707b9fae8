"""Which batches get entries in the indexes of a segment, for `kolumn.writers.write`."""

from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import table

START, TIME, TIME_OFFSET, STATE = range(4)
"""What goes on from batch to batch: the position of the last one with an entry, the largest timestamp so far, and the last offset of the
batch that had it first; the number of such words."""


@compiled
def index_entries(rows: Table, position: Int64s, interval: int, state: Int64s, due: Int64s, time: Int64s, offset: Int64s) -> int:
    """Find the batches that get entries: those that are more than ``interval`` bytes after the last one that has some; returns their
    number. ``position`` is where each batch is in the segment. ``due`` gets the numbers of these batches, ``time`` the largest timestamp up
    to each, and ``offset`` the last offset of the batch that had it first. ``state`` has `STATE` numbers from call to call."""
    count, start, newest, newest_offset = 0, state[START], state[TIME], state[TIME_OFFSET]
    for b in range(rows.shape[0]):
        if rows[b, table.MAX_TIMESTAMP] > newest:
            newest, newest_offset = rows[b, table.MAX_TIMESTAMP], rows[b, table.LAST_OFFSET]
        if position[b] > start + interval:
            start = position[b]
            due[count], time[count], offset[count] = b, newest, newest_offset
            count += 1
    state[START], state[TIME], state[TIME_OFFSET] = start, newest, newest_offset
    return count
