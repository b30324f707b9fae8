"""Avro records of any schema on the device: the program of `kolumn.encodings.avro` run by a thread per value, twice.

    measure_values   adds up the elements and bytes of each value      cells | 0 |   | 3 | 0 | 7 |    a row of n + 2 int64 for each level
    running sum      where each value begins, after all rows before          | b | b | b+3 | b+3 | …  and each column of bytes
    write_values     writes the columns from there on

The first cell of a row stays as it is, and is taken off; after it comes a cell of each value, which its thread counts on.
A value that does not match its schema has no bytes and no elements: the second pass makes it null. Values of one topic may have several
schemas: each goes by the program of its own.

Bound: the values' bytes, read twice, and the columns' bytes, written once.
"""

from typing import NamedTuple

import kolumn.encodings.compiled  # noqa: F401 (the decoders as compiled functions first)
from kolumn.encodings.avro import decode
from kolumn.encodings.columns import COLUMN, DONE, ColumnTables, put_nulls
from kolumn.formats.memory import load8
from kolumn.kernels.machine.kernel import thread_per_item
from kolumn.machine_code.words import load32, load64, store8, store32, store64

FRAME = 24
"""Bytes of a frame of a value's stack."""
_FRAME, _COLUMN, _DONE, _ENDS = FRAME, COLUMN, DONE, 16
_INVALID = -1


class MeasureValues(NamedTuple):
    """What both passes take of the values, and where they keep their place; addresses, but for the numbers.

    Attributes
    ----------
    at, length, prefix, schema : int
        As in `kolumn.kernels.values.bodies.DeviceBodies`.
    bare : int
        1 if a body that is not valid may be a value without a prefix, of the reader's schema.
    back : int
        int32: bytes before its body at which a value begins, by the first pass; -1 for a value that is not valid.
    programs, stack, frames : int
        int64 of the reader's schema and of each writer's: address of its steps, 0 if they are not known; memory for ``frames`` frames of
        each value.
    cells : int
        int64 of (levels + columns, rows + 2).
    rows, levels, columns : int
        How many there are; columns of bytes.
    valid : int
        uint8: 1 if a value matches its schema.
    """

    at: int
    length: int
    prefix: int
    schema: int
    bare: int
    back: int
    programs: int
    stack: int
    frames: int
    cells: int
    rows: int
    levels: int
    columns: int
    valid: int


class FlagBits(NamedTuple):
    """Arguments of `flag_bits`: uint8 ``flags`` of ``rows`` rows, the ``bitmap``, and ``nulls``, int32 of n, how many each word has."""

    flags: int
    rows: int
    bitmap: int
    nulls: int


@thread_per_item(FlagBits)
def flag_bits(word: int, a: FlagBits) -> None:
    """Write 32 bits of validity: 1 where a flag is not 0, and after the last row."""
    bits, nulls = 0, 0
    for k in range(32):
        row = 32 * word + k
        if row < a.rows and load8(a.flags, row) == 0:
            nulls += 1
        else:
            bits |= 1 << k
    store32(a.bitmap + 4 * word, bits)
    store32(a.nulls + 4 * word, nulls)


class EvenEnds(NamedTuple):
    """Arguments of `even_ends`: ``ends``, int32 of n, and the ``width`` of every row."""

    ends: int
    width: int


@thread_per_item(EvenEnds)
def even_ends(i: int, a: EvenEnds) -> None:
    """Write where row ``i`` begins if all have the same width."""
    store32(a.ends + 4 * i, a.width * i)


class WriteValues(NamedTuple):
    """Arguments of `write_values`: those of the first pass, tables, the fills of a value, the number of all columns."""

    at: int
    length: int
    prefix: int
    schema: int
    bare: int
    back: int
    programs: int
    stack: int
    frames: int
    cells: int
    rows: int
    levels: int
    columns: int
    valid: int
    column_table: int
    level_table: int
    fill_table: int
    first_fill: int
    fills: int
    ended: int


@thread_per_item(MeasureValues)
def measure_values(i: int, a: MeasureValues) -> None:
    """Write what value ``i`` takes in each level and column, and whether it is valid."""
    stride, own = 8 * (a.rows + 2), a.cells + 8 * (i + 2)
    begin, length, prefix = load64(a.at + 8 * i), load32(a.length + 4 * i), load32(a.prefix + 4 * i)
    program = load64(a.programs + 8 * (load32(a.schema + 4 * i) + 1))
    back, code, attempt = 0, _INVALID, 0 if length >= 0 and program != 0 else 2
    while attempt < 2:
        t = ColumnTables(0, 0, own, 0, own + stride * a.levels, stride, a.levels)
        code = decode(t, program, a.stack + _FRAME * a.frames * i, begin - back, begin + length, i)
        attempt = attempt + 1 if code != _DONE and a.bare != 0 and prefix > 0 else 2
        if code != _DONE:
            for k in range(a.levels + a.columns):
                store64(own + stride * k, 0)
            # A value may only look as if there were a prefix.
            back, program = prefix, load64(a.programs)
    store32(a.back + 4 * i, back if code == _DONE else -1)
    store8(a.valid + i, 1 if code == _DONE else 0)


@thread_per_item(WriteValues)
def write_values(i: int, a: WriteValues) -> None:
    """Write value ``i`` into the columns, from where the sums say."""
    if i == 0:
        for k in range(a.ended):
            ends = load64(a.column_table + _COLUMN * k + _ENDS)
            if ends != 0:
                store32(ends, 0)
    stride, own = 8 * (a.rows + 2), a.cells + 8 * (i + 1)
    for k in range(a.levels + a.columns):
        store64(own + stride * k, load64(own + stride * k) - load64(a.cells + stride * k))
    t = ColumnTables(a.column_table, a.level_table, own, a.fill_table, own + stride * a.levels, stride, a.levels)
    back, begin, length = load32(a.back + 4 * i), load64(a.at + 8 * i), load32(a.length + 4 * i)
    program = load64(a.programs + 8 * (load32(a.schema + 4 * i) + 1 if back == 0 else 0))
    stack = a.stack + _FRAME * a.frames * i
    if back < 0 or decode(t, program, stack, begin - back, begin + length, i) != _DONE:
        put_nulls(t, a.first_fill, a.fills, i)
