"""Avro records of any schema on the device: the program of `kolumn.encodings.avro` run by a thread per value, in the passes of `passes`.

Values of one topic may have several schemas: each goes by the program of its own.

Bound: the values' bytes, read twice, and the columns' bytes, written once.
"""

from typing import NamedTuple

import kolumn.encodings.compiled  # noqa: F401 (the decoders as compiled functions first)
from kolumn.encodings.avro import decode
from kolumn.encodings.columns import DONE, put_nulls
from kolumn.kernels.machine.kernel import thread_per_item
from kolumn.kernels.values.passes import Arguments, Cells, WriteTables, arguments, counting, uncount, writing
from kolumn.machine_code.words import load32, load64, store8, store32

FRAME = 24
"""Bytes of a frame of a value's stack."""
_FRAME, _DONE = FRAME, DONE
_INVALID = -1


class Records(NamedTuple):
    """What both passes take of the values; addresses, but for the numbers.

    Attributes
    ----------
    at, length, prefix, schema : int
        As in `kolumn.kernels.values.bodies.DeviceBodies`.
    bare : int
        1 if a body that is not valid may be a value without a prefix, of the reader's schema.
    back : int
        int32: bytes before its body at which a value begins, by the first pass; -1 for a value that is not valid.
    programs, stack, frames : int
        int64 of the reader's schema and of each writer's: where its steps are from there on, 0 if they are not known; memory for ``frames``
        frames of each value.
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


MeasureValues = arguments(__name__, "MeasureValues", Records, Cells)
WriteValues = arguments(__name__, "WriteValues", Records, Cells, WriteTables)


@thread_per_item(MeasureValues)
def measure_values(i: int, a: Arguments) -> None:
    """Write what value ``i`` takes in each level and column, and whether it is valid."""
    begin, length, prefix = load64(a.at + 8 * i), load32(a.length + 4 * i), load32(a.prefix + 4 * i)
    program = load64(a.programs + 8 * (load32(a.schema + 4 * i) + 1))
    back, code, attempt = 0, _INVALID, 0 if length >= 0 and program != 0 else 2
    while attempt < 2:
        code = decode(counting(i, a), a.programs + program, a.stack + _FRAME * a.frames * i, begin - back, begin + length, i)
        attempt = attempt + 1 if code != _DONE and a.bare != 0 and prefix > 0 else 2
        if code != _DONE:
            uncount(i, a)
            # A value may only look as if there were a prefix.
            back, program = prefix, load64(a.programs)
    store32(a.back + 4 * i, back if code == _DONE else -1)
    store8(a.valid + i, 1 if code == _DONE else 0)


@thread_per_item(WriteValues)
def write_values(i: int, a: Arguments) -> None:
    """Write value ``i`` into the columns, from where the sums say."""
    t = writing(i, a)
    back, begin, length = load32(a.back + 4 * i), load64(a.at + 8 * i), load32(a.length + 4 * i)
    program = a.programs + load64(a.programs + 8 * (load32(a.schema + 4 * i) + 1 if back == 0 else 0))
    stack = a.stack + _FRAME * a.frames * i
    if back < 0 or decode(t, program, stack, begin - back, begin + length, i) != _DONE:
        put_nulls(t, a.first_fill, a.fills, i)
