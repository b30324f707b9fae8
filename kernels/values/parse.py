"""Values parsed on the device: a thread per record walks its value, by a table of the fields' types.

    fixed    | id i64 | price f64 | flag u8 |                            every field at its place; the length is known
    avro     | long | 0x02 | length | bytes ... | double |               one after the other; unions with null have a branch in front

A value that does not match the table becomes null in every field and 0 in ``valid``; no other value is affected.

Bound: the values' bytes, read once, and 12 bytes written for each field.
"""

from typing import NamedTuple

from kolumn.formats import memory, varint
from kolumn.kernels.columns.steps import store_word
from kolumn.kernels.machine.kernel import thread_per_item
from kolumn.machine_code.deferred import register_jitable
from kolumn.machine_code.words import load32, load64, store8, store32, store64

BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, NULL = range(8)
"""Avro's types that have a column."""
FIRST, SECOND = 16, 32
"""Added to a type: a union with null, which is its first or its second branch."""
UNWANTED = 64
"""Added to a type: its fields have no column."""
_BOOLEAN, _INT, _LONG, _FLOAT, _DOUBLE, _NULL = BOOLEAN, INT, LONG, FLOAT, DOUBLE, NULL
_FIRST, _SECOND, _UNWANTED, _TYPE = FIRST, SECOND, UNWANTED, 15


class Fixed(NamedTuple):
    """Arguments of `fixed`; addresses, but for the last four fields.

    ``at`` (int64) and ``length`` (int32) say where values are; ``target`` and ``lengths`` (int32, -1 for null) are written for one field:
    ``width`` bytes at ``offset`` of a value of ``total``, ``swapped`` where they are big-endian.
    """

    at: int
    length: int
    target: int
    lengths: int
    total: int
    offset: int
    width: int
    swapped: int


@thread_per_item(Fixed)
def fixed(i: int, a: Fixed) -> None:
    """Write one field of value ``i``."""
    value, place = 0, load64(a.at + 8 * i) + a.offset
    whole = load32(a.length + 4 * i) == a.total
    if whole:
        for k in range(a.width):
            byte = memory.load8(place, k)
            value |= byte << (8 * (a.width - 1 - k if a.swapped != 0 else k))
    store_word(a.target + a.width * i, value, a.width)
    store32(a.lengths + 4 * i, 0 if whole else -1)


class Avro(NamedTuple):
    """Arguments of `avro`; addresses, but for the three numbers at the end.

    Attributes
    ----------
    at, length, prefix : int
        As in `kolumn.kernels.values.bodies.DeviceBodies`.
    types : int
        int32 of each field: its type, with `FIRST` or `SECOND`, and with `UNWANTED`.
    cells, lengths : int
        int64 of each field that is wanted: addresses of its columns.
        Cells are int64: a number's bits, or where bytes begin; lengths int32, -1 for null.
    valid : int
        uint8: 1 if the value matches its schema.
    fields, wanted, bare : int
        How many fields there are, and how many of them are wanted; 1 if a body that is not valid may be a value without a prefix.
    """

    at: int
    length: int
    prefix: int
    types: int
    cells: int
    lengths: int
    valid: int
    fields: int
    wanted: int
    bare: int


@thread_per_item(Avro)
def avro(i: int, a: Avro) -> None:
    """Write all fields of value ``i``."""
    buf, end = load64(a.at + 8 * i), load32(a.length + 4 * i)
    prefix = load32(a.prefix + 4 * i)
    fine = _fields(i, a, buf, 0, end)
    if not fine and a.bare != 0 and prefix > 0 and end >= 0:
        # A value may only look as if there were a prefix.
        fine = _fields(i, a, buf - prefix, 0, end + prefix)
    store8(a.valid + i, 1 if fine else 0)
    if not fine:
        for k in range(a.wanted):
            store32(load64(a.lengths + 8 * k) + 4 * i, -1)


@register_jitable
def _fields(i: int, a: Avro, buf: int, at: int, end: int) -> bool:
    """Write the fields of the value at [at, end) of ``buf``; whether it is valid."""
    fine, column = end >= at, 0
    for k in range(a.fields):
        cell, length, kind = 0, -1, load32(a.types + 4 * k)
        if fine:
            at, cell, length = _cell(buf, at, end, kind)
            fine = at >= 0
        if kind & _UNWANTED == 0:
            store64(load64(a.cells + 8 * column) + 8 * i, cell)
            store32(load64(a.lengths + 8 * column) + 4 * i, length)
            column += 1
    return fine and at == end


@register_jitable
def _cell(buf: int, at: int, end: int, kind: int) -> tuple[int, int, int]:
    """Next position, or a negative one, and the cell and length of the field at ``at``."""
    if kind & (_FIRST | _SECOND):
        branch, at = varint.varint64(buf, at, end)
        if at < 0 or branch < 0 or branch > 1:
            return -1, 0, -1
        if branch == (0 if kind & _FIRST else 1):
            return at, 0, -1
    kind &= _TYPE
    if kind == _NULL:
        return at, 0, -1
    if kind in (_INT, _LONG):
        value, at = varint.varint64(buf, at, end)
        if kind == _INT and not -(2**31) <= value < 2**31:
            return -1, 0, -1
        return at, value, 0
    if kind in (_BOOLEAN, _FLOAT, _DOUBLE):
        width = 1 if kind == _BOOLEAN else (4 if kind == _FLOAT else 8)
        if end - at < width or (kind == _BOOLEAN and memory.load8(buf, at) > 1):
            return -1, 0, -1
        value = 0
        for k in range(width):
            value |= memory.load8(buf, at + k) << (8 * k)
        return at + width, value, 0
    length, at = varint.varint64(buf, at, end)
    if at < 0 or length < 0 or length > end - at:
        return -1, 0, -1
    return at + length, buf + at, length


class Narrow(NamedTuple):
    """Arguments of `narrow`: int64 ``source``, ``target`` with ``width`` bytes for each row."""

    source: int
    target: int
    width: int


@thread_per_item(Narrow)
def narrow(i: int, a: Narrow) -> None:
    """Write the low bytes of row ``i``."""
    store_word(a.target + a.width * i, load64(a.source + 8 * i), a.width)
