"""Avro records of any schema on the device: the program of `kolumn.values.wire.avro` run by a thread per value, in the passes of `passes`.

Values of one topic may have several schemas: each goes by the program of its own.

Bound: the values' bytes, read once, their lists twice, and the columns' bytes, written once.
"""

from typing import NamedTuple

from kolumn.formats.machine_code.words import load32, load64, store8, store64
from kolumn.kernels.machine.kernel import Arguments, arguments, thread_per_item
from kolumn.kernels.values.passes import STAGED, Cells, WriteTables, counting, uncount, writing
from kolumn.values.wire.avro import decode
from kolumn.values.wire.columns import DONE, put_nulls

FRAME = 24
"""Bytes of a frame of a value's stack."""
_FRAME, _DONE = FRAME, DONE
_INVALID, _BARE = -1, -(2**63)


class Records(NamedTuple):
    """What both passes take of the values; addresses, but for the numbers.

    at … schema      as in `kolumn.kernels.values.bodies.DeviceBodies`
    bare             1 if a body that is not valid may be a value without a prefix, of the reader's schema
    notes            int64: 0, or where the first pass saw the first list, as `kolumn.values.wire.avro.decode` leaves it; negative for a
                     value without a prefix, which begins before its body
    programs         place among the tables: int64 of the reader's schema and of each writer's: where its steps are, 0 if not known
    stack, frames    memory for so many frames of each value
    """

    at: int
    length: int
    prefix: int
    schema: int
    bare: int
    notes: int
    programs: int
    stack: int
    frames: int


RecordPass = arguments(__name__, "RecordPass", Records, Cells, WriteTables)
"""Arguments of both passes."""


@thread_per_item(RecordPass, block=128, staged=STAGED)
def measure_values(i: int, tables: int, a: Arguments) -> None:
    """Write the columns of value ``i`` itself, what it takes in each level and column, and whether it is valid."""
    t, code, bare = counting(i, tables, a), _INVALID, 0
    while True:
        # Loaded again in the second turn, and after it: registers are few.
        back, schema = (load32(a.prefix + 4 * i), 0) if bare != 0 else (0, load32(a.schema + 4 * i) + 1)
        begin, end = load64(a.at + 8 * i) - back, load64(a.at + 8 * i) + load32(a.length + 4 * i)
        program = a.programs + load64(tables + a.programs + 8 * schema)
        if end < begin + back or program == a.programs:
            break
        code = decode(t, tables + program, a.tables + program, a.stack + _FRAME * a.frames * i, begin, end, i, 0)
        if code == _DONE:
            break
        uncount(i, a)
        # A value may only look as if there were a prefix.
        if bare != 0 or a.bare == 0 or load32(a.prefix + 4 * i) <= 0:
            break
        bare = 1
    if code != _DONE:
        put_nulls(t, a.first_fill, a.fills, i)
    lists = load64(a.stack + _FRAME * a.frames * i) if code == _DONE else 0
    store64(a.notes + 8 * i, lists | _BARE if bare != 0 and lists != 0 else lists)
    store8(a.valid + i, 1 if code == _DONE else 0)


@thread_per_item(RecordPass, block=128, staged=STAGED)
def write_values(i: int, tables: int, a: Arguments) -> None:
    """Write what is in lists of value ``i`` into the columns, from where the sums say."""
    t, note = writing(i, tables, a), load64(a.notes + 8 * i)
    if note != 0:
        schema, begin = load32(a.schema + 4 * i) + 1, load64(a.at + 8 * i)
        end = begin + load32(a.length + 4 * i)
        if note < 0:
            schema, begin, note = 0, begin - load32(a.prefix + 4 * i), note ^ _BARE
        program = a.programs + load64(tables + a.programs + 8 * schema)
        decode(t, tables + program, a.tables + program, a.stack + _FRAME * a.frames * i, begin, end, i, note)
