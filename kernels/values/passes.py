"""What the kernels that write columns of a layout share: a thread per value, in two passes where values have lists.

    first pass       writes the columns of records: numbers, and where       cells | 0 |   | 3 | 0 | 7 |    a row of n + 2 int64 for each
                     each text is; counts elements and bytes                                                list and column of bytes
    flag_bits        flags of validity become bitmaps, those of all columns by one launch
    running sum      where each value begins, after all rows before          | b | b | b+3 | b+3 | …
    texts            where each row of a record's list or text ends; texts go to their columns
    second pass      writes what is in lists from there on, if there are any

The first cell of a row is what is before the row; after it comes a cell of each value, which its thread counts on. A value that is not
valid has no bytes and no elements: the first pass makes it null, and the second one passes over it.
"""

from typing import NamedTuple

import kolumn.values.wire.compiled  # noqa: F401 (the decoders as compiled functions first)
from kolumn.formats.machine_code.deferred import register_jitable
from kolumn.formats.machine_code.words import load64, store32, store64
from kolumn.formats.memory import load8
from kolumn.kernels.columns.gather import move_short
from kolumn.kernels.machine.kernel import Arguments, thread_per_item, warp_per_item
from kolumn.values.wire.columns import ColumnTables

FLAGS = 24
"""Bytes of a row of what `flag_bits` is told of columns."""
STAGED = 6144
"""Bytes of tables of which a block keeps a copy."""
TEXTS = 40
"""Bytes of a row of what `texts` is told of columns."""
_FLAGS, _TEXTS = FLAGS, TEXTS


class Cells(NamedTuple):
    """What both passes take after their own arguments.

    counts, cursors   the first cells, of level 0, which has none, and of the first column of bytes
    stride, cells     bytes of a row of cells, and how many rows there are
    valid             uint8: 1 if a value is valid
    left              int64: becomes 1 if the first pass leaves a value to the host
    """

    counts: int
    cursors: int
    stride: int
    cells: int
    valid: int
    left: int


class WriteTables(NamedTuple):
    """What a pass that writes takes last.

    tables, table_bytes        where tables begin, and their bytes; those that the kernel takes itself come first
    column_table, fill_table   places among the tables, see `kolumn.values.wire.columns`
    root, first_fill, fills    the column of the value itself, and the fills of a value
    ends, ended                int64 addresses of the ends that the second pass writes, and how many they are; the first of each is 0
    """

    tables: int
    table_bytes: int
    column_table: int
    fill_table: int
    root: int
    first_fill: int
    fills: int
    ends: int
    ended: int


@register_jitable
def counting(i: int, tables: int, a: Arguments) -> ColumnTables:
    """Where the first pass writes, and counts what value ``i`` takes."""
    own = 8 * (i + 2)
    return ColumnTables(tables + a.column_table, 0, a.counts + own, tables + a.fill_table, a.cursors + own, a.stride, 0, 1)


@register_jitable
def uncount(i: int, a: Arguments) -> None:
    """Value ``i`` takes nothing."""
    for k in range(1, a.cells + 1):
        store64(a.counts + 8 * (i + 2) + a.stride * k, 0)


@register_jitable
def writing(i: int, tables: int, a: Arguments) -> ColumnTables:
    """Where the second pass writes value ``i``, from where the sums say."""
    if i == 0:
        for k in range(a.ended):
            store32(load64(a.ends + 8 * k), 0)
    own = 8 * (i + 1)
    return ColumnTables(tables + a.column_table, 0, a.counts + own, tables + a.fill_table, a.cursors + own, a.stride, 0, 2)


class Texts(NamedTuple):
    """Arguments of `texts`: addresses of the first row and after the last one of a table.

    It has a row of int64 for each column: its sums, from the first value's on; what is before them; int32 ends; where each text is, 0 for a
    list; and where they go.
    """

    columns: int
    stop: int


@warp_per_item(Texts, lanes=4)
def texts(i: int, lane: int, lanes: int, a: Texts) -> None:
    """Write where row ``i`` of some columns of bytes and lists ends, and copy its bytes."""
    column = a.columns
    while column < a.stop:
        sums, before, sources, target = load64(column) + 8 * i, load64(column + 8), load64(column + 24), load64(column + 32)
        begin, end = load64(sums) - before, load64(sums + 8) - before
        if lane == 0:
            ends = load64(column + 16) + 4 * i
            store32(ends + 4, end)
            if i == 0:
                store32(ends, 0)
        if sources != 0:
            move_short(load64(sources + 8 * i), target + begin, target + end, lane, lanes)
        column += _TEXTS


class FlagBits(NamedTuple):
    """Arguments of `flag_bits`: 2^shift words of each column; and addresses.

    ``columns`` has a row of int64 for each: uint8 flags, how many rows they are, and where the bitmap is. ``nulls`` are int64 of each word:
    how many it has.
    """

    columns: int
    shift: int
    nulls: int


@thread_per_item(FlagBits)
def flag_bits(i: int, a: FlagBits) -> None:
    """Write 32 bits of validity: 1 where a flag is not 0, and after the last row. Columns with fewer words have no nulls in the others."""
    column = a.columns + _FLAGS * (i >> a.shift)
    word = i & ((1 << a.shift) - 1)
    flags, rows, bits, nulls = load64(column), load64(column + 8), 0, 0
    for k in range(32):
        row = 32 * word + k
        if row < rows and load8(flags, row) == 0:
            nulls += 1
        else:
            bits |= 1 << k
    if 32 * word < rows:
        store32(load64(column + 16) + 4 * word, bits)
    store64(a.nulls + 8 * i, nulls)


class EvenEnds(NamedTuple):
    """Arguments of `even_ends`: ``ends``, int32 of n, and the ``width`` of every row."""

    ends: int
    width: int


@thread_per_item(EvenEnds)
def even_ends(i: int, a: EvenEnds) -> None:
    """Write where row ``i`` begins if all have the same width."""
    store32(a.ends + 4 * i, a.width * i)
