"""Blocks of rows that are read one field of all rows after the other, Avro by `avro_walk` and JSON by `json_walk`.

The memory of a block begins with three words of each row, all rows' first words before the second ones:

    where the row is read | its end | its limit

A row never goes back, and nothing reads after its limit. Bytes are loaded before the row's end is looked at, also those of the next row.
"""

from kolumn.cpu_fallback.machine.address import load64, store64
from kolumn.machine_code.deferred import register_jitable

BLOCK = 256
"""Rows of a block."""
AT, END, LIMIT = (8 * BLOCK * k for k in range(3))
"""Where the words of the first row are in the memory."""
_PAGE = 4096


@register_jitable
def begin_rows(memory: int, ats: int, lengths: int, rows: int, more: bool, reach: int) -> None:
    """Begin the rows of a block.

    Parameters
    ----------
    memory : int
    ats, lengths : int
        Addresses of the rows' addresses and lengths, as in `kolumn.values.decoder.Bodies`.
    rows : int
    more : bool
        Whether a row comes after them.
    reach : int
        Bytes that are loaded at once.
    """
    last = rows if more else rows - 1
    after = load64(ats)
    after_end = after + load64(lengths)
    for r in range(last):
        place = 8 * r
        at, end = after, after_end
        after = load64(ats + place + 8)
        after_end = after + load64(lengths + place + 8)
        # Words are loaded that reach into the next row. So it has to lie near: then no page is between the two.
        fine = (end >= at) & (after >= end) & (after - end < _PAGE) & (end < after_end - reach)
        # A row never goes back. So one that passed its end, or has something that is not decided, goes to its limit and stays there.
        store64(memory + AT + place, at if fine else memory)
        store64(memory + END + place, end if fine else 0)
        store64(memory + LIMIT + place, after_end - reach if fine else memory)
    if not more:
        store64(memory + AT + 8 * last, memory)
        store64(memory + END + 8 * last, 0)
        store64(memory + LIMIT + 8 * last, memory)
