"""What the kernels that write columns of a layout share: a thread per value, in two passes where values have lists or text.

    first pass       adds up the elements and bytes of each value      cells | 0 |   | 3 | 0 | 7 |    a row of n + 2 int64 for each list
    running sum      where each value begins, after all rows before          | b | b | b+3 | b+3 | …  and each column of bytes
    second pass      writes the columns from there on
    flag_bits        flags of validity become bitmaps, those of all columns by one launch

The first cell of a row stays as it is, and is taken off; after it comes a cell of each value, which its thread counts on.
A value that is not valid has no bytes and no elements: the second pass makes it null.
"""

from collections import namedtuple
from typing import Any, NamedTuple

import kolumn.encodings.compiled  # noqa: F401 (the decoders as compiled functions first)
from kolumn.encodings.columns import COLUMN, ColumnTables
from kolumn.formats.memory import load8
from kolumn.kernels.machine.kernel import thread_per_item
from kolumn.machine_code.deferred import register_jitable
from kolumn.machine_code.words import load64, store32, store64

Arguments = Any
"""A named tuple that `arguments` makes: its fields are not known to mypy."""
FLAGS = 24
"""Bytes of a row of what `flag_bits` is told of columns."""
_COLUMN, _ENDS, _FLAGS = COLUMN, 16, FLAGS


class Cells(NamedTuple):
    """What both passes take, after their own arguments.

    Attributes
    ----------
    cells : int
        int64 of (lists + texts, rows + 2).
    rows, lists, texts : int
        How many there are; lists and columns of bytes.
    valid : int
        uint8: 1 if a value is valid.
    left : int
        int64: becomes 1 if the first pass leaves a value to the host.
    """

    cells: int
    rows: int
    lists: int
    texts: int
    valid: int
    left: int


class WriteTables(NamedTuple):
    """What kernels that write take last: tables, the column of the value itself, the fills of a value, the number of all columns."""

    column_table: int
    level_table: int
    fill_table: int
    root: int
    first_fill: int
    fills: int
    ended: int


def arguments(module: str, name: str, *parts: Arguments) -> Arguments:
    """A named tuple with the fields of several, by the module that defines it under this name."""
    return namedtuple(name, [field for part in parts for field in part._fields], module=module)


@register_jitable
def counting(i: int, a: Arguments) -> ColumnTables:
    """Where the first pass counts what value ``i`` takes."""
    stride, own = 8 * (a.rows + 2), a.cells + 8 * (i + 2)
    # No row counts level 0.
    return ColumnTables(0, 0, own - stride, 0, own + stride * a.lists, stride, a.lists + 1)


@register_jitable
def uncount(i: int, a: Arguments) -> None:
    """Value ``i`` takes nothing."""
    stride, own = 8 * (a.rows + 2), a.cells + 8 * (i + 2)
    for k in range(a.lists + a.texts):
        store64(own + stride * k, 0)


@register_jitable
def writing(i: int, a: Arguments) -> ColumnTables:
    """Where the second pass writes value ``i``, from where the sums say."""
    if i == 0:
        for k in range(a.ended):
            ends = load64(a.column_table + _COLUMN * k + _ENDS)
            if ends != 0:
                store32(ends, 0)
    stride, first, end = 8 * (a.rows + 2), a.cells, a.cells + 8 * (a.rows + 2) * (a.lists + a.texts)
    own = 8 * (i + 1)
    # No `range`, as in `kolumn.encodings.text`.
    while first < end:
        store64(first + own, load64(first + own) - load64(first))
        first += stride
    own += a.cells
    return ColumnTables(a.column_table, a.level_table, own - stride, a.fill_table, own + stride * a.lists, stride, a.lists + 1)


class FlagBits(NamedTuple):
    """Arguments of `flag_bits`: 2^shift words of each column; and addresses.

    ``columns`` has a row of int64 for each: uint8 flags, how many rows they are, and where the bitmap is. ``nulls`` are int32 of each word:
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
    store32(a.nulls + 4 * i, nulls)


class EvenEnds(NamedTuple):
    """Arguments of `even_ends`: ``ends``, int32 of n, and the ``width`` of every row."""

    ends: int
    width: int


@thread_per_item(EvenEnds)
def even_ends(i: int, a: EvenEnds) -> None:
    """Write where row ``i`` begins if all have the same width."""
    store32(a.ends + 4 * i, a.width * i)
