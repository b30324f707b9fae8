"""Values of separated fields (RFC 4180), parsed on the device: a thread per record.

    value    12,"a ""b"" c",,x          a field may be quoted: then separators and line ends are part of it, and a quote is doubled
    cells    12 | a "b" c | null | x    where each begins, and how long it is once doubled quotes are single ones

A value with more or fewer fields than its schema, or with a quote that is not closed, is null in all fields. An empty field is null, a
quoted empty one is empty text.

Bound: the values' bytes, read twice, a byte a step, and the columns' bytes, written once.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.encodings.columns import COLUMN, ColumnTables, begin_of, count_bytes, end_bytes, put_nulls, put_word, set_valid
from kolumn.formats import memory
from kolumn.kernels.columns.table import Column
from kolumn.kernels.machine.kernel import thread_per_item
from kolumn.kernels.machine.runtime import Runtime
from kolumn.kernels.values.bodies import DeviceBodies
from kolumn.kernels.values.passes import Arguments, Cells, WriteTables, arguments, counting, uncount, writing
from kolumn.kernels.values.typed import LayoutColumns
from kolumn.machine_code.deferred import register_jitable
from kolumn.machine_code.words import load32, load64, store8
from kolumn.values.layout import ColumnLayout
from kolumn.values.types import TYPES

_COLUMN, _FIELD = COLUMN, 40
_QUOTE, _LINE_FEED, _RETURN, _MINUS, _PLUS, _ZERO = 0x22, 10, 13, 0x2D, 0x2B, 0x30
_HIGHEST = 2**63 - 1
_TRUE, _FALSE = int.from_bytes(b"true"), int.from_bytes(b"false")


class Separated(NamedTuple):
    """What both passes take of the values; addresses, but for the two numbers at the end.

    Attributes
    ----------
    at, length : int
        As in `kolumn.kernels.values.bodies.DeviceBodies`.
    table, fields, separator : int
        Among the tables, int64 of each field, in order: its column, what makes it null, the bytes of a number (0 for text), the lowest and
        highest one (both 0 for a flag); how many fields there are; the byte between them.
    """

    at: int
    length: int
    table: int
    fields: int
    separator: int


MeasureFields = arguments(__name__, "MeasureFields", Separated, Cells, WriteTables)
WriteFields = arguments(__name__, "WriteFields", Separated, Cells, WriteTables)


@thread_per_item(MeasureFields)
def measure_fields(i: int, a: Arguments) -> None:
    """Write what the texts of value ``i`` take, and whether it has the right fields."""
    fine, _ = _fields(counting(i, a.tables, a), i, a)
    if not fine:
        uncount(i, a)
    store8(a.valid + i, 1 if fine else 0)


@thread_per_item(WriteFields)
def write_fields(i: int, a: Arguments) -> None:
    """Write the fields of value ``i``; a number that is none makes the value one that is not valid."""
    t = writing(i, a.tables, a)
    if memory.load8(a.valid, i) == 0:
        put_nulls(t, a.first_fill, a.fills, i)
        return
    set_valid(t, a.root, i, 1)
    _, right = _fields(t, i, a)
    if not right:
        store8(a.valid + i, 0)


@register_jitable
def _fields(t: ColumnTables, i: int, a: Arguments) -> tuple[bool, bool]:
    """Count or write the fields of value ``i``: whether they are as many as there should be, and right."""
    buf, end = load64(a.at + 8 * i), load32(a.length + 4 * i)
    if end > 0 and memory.load8(buf, end - 1) == _LINE_FEED:
        end -= 1
    if end > 0 and memory.load8(buf, end - 1) == _RETURN:
        end -= 1
    at, k, fine, right = 0, 0, end >= 0, True
    while fine and k < a.fields:
        at, cell, length = _field(buf, at, end, a.separator)
        # What follows a field: the end, or a separator and another one.
        k += 1
        fine = at >= 0 and (at == end if k == a.fields else at < end)
        at += 1
        if fine and not _put(t, a.tables + a.table + _FIELD * (k - 1), i, cell, length):
            right = False
    return fine, right


@register_jitable
def _put(t: ColumnTables, field: int, row: int, cell: int, length: int) -> bool:
    """Count or write a field; whether it is right."""
    column, width = load64(field), load64(field + 16)
    if t.turn == 1:
        if width == 0 and length > 0:
            count_bytes(t, column, length)
        return True
    value, fine = 0, length >= 0
    if fine and width == 0:
        begin = begin_of(t, column, row)
        _copy(load64(t.columns + _COLUMN * column) + begin, cell, length)
        end_bytes(t, column, row, begin + length)
        return True
    lowest, highest = load64(field + 24), load64(field + 32)
    if fine and lowest == highest:
        value = _boolean(cell, length)
        fine = value >= 0
    elif fine:
        value, fine = _integer(cell, length)
        fine = fine and lowest <= value <= highest
    if fine:
        put_word(t, column, row, value, width)
    else:
        put_nulls(t, load64(field + 8), 1, row)
    return fine or length < 0


@register_jitable
def _copy(target: int, cell: int, length: int) -> None:
    """Copy the text of a field, doubled quotes as single ones."""
    at, end = abs(cell), target + length
    while target < end:
        byte = memory.load8(at, 0)
        store8(target, byte)
        at += 2 if cell < 0 and byte == _QUOTE else 1
        target += 1


@register_jitable
def _field(buf: int, at: int, end: int, separator: int) -> tuple[int, int, int]:
    """Where the field at ``at`` ends (before a separator, or at the end; negative if it does not), its cell, and its length."""
    if at >= end or memory.load8(buf, at) != _QUOTE:
        begin = at
        while at < end and memory.load8(buf, at) != separator:
            at += 1
        return at, buf + begin, at - begin if at > begin else -1
    begin, doubled = at + 1, 0
    at = begin
    while at < end:
        if memory.load8(buf, at) != _QUOTE:
            at += 1
        elif at + 1 < end and memory.load8(buf, at + 1) == _QUOTE:
            doubled += 1
            at += 2
        else:
            length, at = at - begin - doubled, at + 1
            if at < end and memory.load8(buf, at) != separator:
                return -1, 0, -1
            return at, -(buf + begin) if doubled else buf + begin, length
    return -1, 0, -1


@register_jitable
def _integer(cell: int, length: int) -> tuple[int, bool]:
    if cell < 0 or length < 1:
        return 0, False
    at, value = 0, 0
    sign = memory.load8(cell, 0)
    if sign in (_MINUS, _PLUS):
        at = 1
    if at == length:
        return 0, False
    while at < length:
        digit = memory.load8(cell, at) - _ZERO
        # Counted downwards, since the lowest number has no positive counterpart: below this, the next step would pass -2^63.
        if digit < 0 or digit > 9 or value < -((_HIGHEST - max(digit - 1, 0)) // 10):
            return 0, False
        value = value * 10 - digit
        at += 1
    if sign == _MINUS:
        return value, True
    return -value, value != -_HIGHEST - 1


@register_jitable
def _boolean(cell: int, length: int) -> int:
    """0 or 1 for true, false, 1 or 0, in small or capital letters; else -1."""
    if cell > 0 and length == 1:
        digit = memory.load8(cell, 0) - _ZERO
        return digit if 0 <= digit <= 1 else -1
    if cell > 0 and length == 4:
        return 1 if _small(cell, 4) == _TRUE else -1
    if cell > 0 and length == 5:
        return 0 if _small(cell, 5) == _FALSE else -1
    return -1


@register_jitable
def _small(cell: int, length: int) -> int:
    """Letters as one number, the first one highest, capital ones as small ones."""
    word = 0
    for k in range(length):
        word = (word << 8) | memory.load8(cell, k) | 0x20
    return word


def parse_separated(device: Runtime, bodies: DeviceBodies, fields: tuple[tuple[str, str], ...], separator: int) -> tuple[Column, Column]:
    """The struct column of values, and flags of those that match the schema; float32 and float64 are text, which cuDF converts."""
    types = [TYPES[kind] for _, kind in fields]
    layout = ColumnLayout.of(
        pa.struct([(name, pa.string() if pa.types.is_floating(type) else type) for (name, _), type in zip(fields, types, strict=True)])
    )
    limits = [np.iinfo(type.to_pandas_dtype()) if pa.types.is_integer(type) else None for type in types]
    rows = [
        (node.column, node.first_fill, node.width, *((0, 0) if own is None else (own.min, own.max)))
        for node, own in zip(layout.root.children, limits, strict=True)
    ]
    made = LayoutColumns(device, layout, bodies.count, [np.array(rows, np.int64)], early=False)
    own = bodies.at.address, bodies.length.address, *made.given, len(fields), separator
    made.written(own, measure_fields, write_fields)
    return made.column(), made.valid
