"""What the kernels that write columns of a layout share: a thread per value, in two passes where values have lists.

    first pass       writes the columns of records: numbers, and where       cells | 0 |   | 3 | 0 | 7 |    a row of n + 2 int64 for each
                     each text is; counts elements and bytes                                                list and column of bytes
    flag_bits        flags of validity become bitmaps, those of all columns by one launch
    running sum      where each value begins, after all rows before          | b | b | b+3 | b+3 | …
    texts            where each row of a record's list or text ends; texts go to their columns
    second pass      writes what is in lists from there on, if there are any

The first cell of a row is what is before the row; after it comes a cell of each value, which its thread counts on. A value that is not
valid has no bytes and no elements. Numbers in a value are read by aligned words: a piece of device memory has PAD bytes more.
"""

import kolumn.values.wire.compiled  # noqa: F401 (the decoders as compiled functions first)
from kolumn.core.deferred import implement, register_jitable
from kolumn.formats.memory import load8
from kolumn.formats.words import load64, loadu32, shifted, store32, store64
from kolumn.kernels.columns.gather import move_short
from kolumn.kernels.machine.kernel import Arguments, arguments, ones, thread_per_item, warp_per_item
from kolumn.values.wire import json_numbers, protobuf_wire
from kolumn.values.wire.columns import ColumnTables

_MALFORMED = protobuf_wire.MALFORMED


@register_jitable
def _word(at: int) -> int:
    """Eight bytes from ``at`` on."""
    low = at & -8
    return shifted(load64(low), load64(low + 8), 8 * (at & 7))


@register_jitable
def _uvarint(at: int, stop: int) -> tuple[int, int]:
    if at >= stop:
        return 0, _MALFORMED
    byte = load8(at, 0)
    return (byte, at + 1) if byte < 0x80 else _longer(at, stop)


@register_jitable
def _longer(at: int, stop: int) -> tuple[int, int]:
    """A varint of which one byte is there at least."""
    word = _word(at)
    value, last = json_numbers.number_of_word(word), ~word & json_numbers.MORE
    size = ones(last ^ (last - 1)) >> 3 if last != 0 else 9
    if size > stop - at:
        return 0, _MALFORMED
    if size < 9:
        return value, at + size
    byte = load8(at, 8)
    value |= (byte & 0x7F) << 56
    if byte < 0x80:
        return value, at + 9
    if stop - at < 10 or load8(at, 9) >= 0x80:
        return 0, _MALFORMED
    return value | (load8(at, 9) & 1) << 63, at + 10


@register_jitable
def _zigzag(at: int, end: int) -> tuple[int, int]:
    value, at = _longer(at, end) if at < end else (0, _MALFORMED)
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), at


@register_jitable
def _half(at: int) -> int:
    """Four bytes from ``at`` on, without a sign."""
    return (loadu32(at & -4) | (loadu32((at + 3) & -4) << 32)) >> (8 * (at & 3)) & 0xFFFFFFFF


@register_jitable
def _lowest_bit(bits: int) -> int:
    return ones(~bits & (bits - 1))


for _function, _by in (
    (json_numbers.longer_at, _zigzag), (json_numbers.little64, _word), (json_numbers.little32, _half),
    (protobuf_wire.uvarint, _uvarint), (protobuf_wire.lowest_bit, _lowest_bit),
):  # fmt: skip
    implement(_function, _by, target="gpu")
FLAGS = 24
"""Bytes of a row of what `flag_bits` is told of columns."""
STAGED = 6144
"""Bytes of tables of which a block keeps a copy."""
TEXTS = 40
"""Bytes of a row of what `texts` is told of columns."""
Cells = arguments(__name__, "Cells", "counts cursors stride cells valid left")
"""What both passes take after their own arguments.

counts, cursors   the first cells, of level 0, which has none, and of the first column of bytes
stride, cells     bytes of a row of cells, and how many rows there are
valid             uint8: 1 if a value is valid
left              int64: becomes 1 if the first pass leaves a value to the host"""
WriteTables = arguments(__name__, "WriteTables", "tables table_bytes column_table fill_table root first_fill fills ends ended")
"""What a pass that writes takes last.

tables, table_bytes        where tables begin, and their bytes; those that the kernel takes itself come first
column_table, fill_table   places among the tables, see `kolumn.values.wire.columns`
root, first_fill, fills    the column of the value itself, and the fills of a value
ends, ended                int64 addresses of the ends that the second pass writes, and how many they are; the first of each is 0"""


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


Texts = arguments(__name__, "Texts", "columns stop")
"""Arguments of `texts`: addresses of the first row and after the last one of a table. It has a row of int64 for each column: its sums, from
the first value's on; what is before them; int32 ends; where each text is, 0 for a list; and where they go."""


@warp_per_item(Texts, lanes=4)
def texts(i: int, lane: int, lanes: int, a: Arguments) -> None:
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
        column += TEXTS


FlagBits = arguments(__name__, "FlagBits", "columns shift nulls")
"""Arguments of `flag_bits`: 2^shift words of each column; and addresses. ``columns`` has a row of int64 for each: uint8 flags, how many
rows they are, and where the bitmap is. ``nulls`` are int64 of each word: how many it has."""


@thread_per_item(FlagBits)
def flag_bits(i: int, a: Arguments) -> None:
    """Write 32 bits of validity: 1 where a flag is not 0, and after the last row. Columns with fewer words have no nulls in the others."""
    column = a.columns + FLAGS * (i >> a.shift)
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


EvenEnds = arguments(__name__, "EvenEnds", "ends width")
"""Arguments of `even_ends`: ``ends``, int32 of n, and the ``width`` of every row."""


@thread_per_item(EvenEnds)
def even_ends(i: int, a: Arguments) -> None:
    """Write where row ``i`` begins if all have the same width."""
    store32(a.ends + 4 * i, a.width * i)
