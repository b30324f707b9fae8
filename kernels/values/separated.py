"""Values of separated fields (RFC 4180), parsed on the device: a thread per record.

    value    12,"a ""b"" c",,x          a field may be quoted: then separators and line ends are part of it, and a quote is doubled
    cells    12 | a "b" c | null | x    where each begins, and how long it is once doubled quotes are single ones

A value with more or fewer fields than its schema, or with a quote that is not closed, is null in all fields. An empty field is null, a
quoted empty one is empty text.

Bound: the values' bytes, read once for the fields and once for texts and numbers, a byte a step.
"""

from typing import NamedTuple

from kolumn.formats import memory
from kolumn.kernels.machine.kernel import thread_per_item
from kolumn.machine_code.deferred import register_jitable
from kolumn.machine_code.words import load32, load64, store8, store32, store64

_QUOTE, _LINE_FEED, _RETURN, _MINUS, _PLUS, _ZERO = 0x22, 10, 13, 0x2D, 0x2B, 0x30
_HIGHEST = 2**63 - 1
_TRUE, _FALSE = int.from_bytes(b"true"), int.from_bytes(b"false")


class Split(NamedTuple):
    """Arguments of `split`; addresses, but for the two numbers at the end.

    Attributes
    ----------
    at, length : int
        int64 and int32: where values are.
    cells, lengths : int
        int64 of each field: addresses of its columns. Cells are int64: where the field begins, negative where it has doubled quotes;
        lengths int32: of its text, -1 for null.
    valid : int
        uint8.
    fields, separator : int
        How many fields there are, and the byte between them.
    """

    at: int
    length: int
    cells: int
    lengths: int
    valid: int
    fields: int
    separator: int


@thread_per_item(Split)
def split(i: int, a: Split) -> None:
    """Find the fields of value ``i``."""
    buf, end = load64(a.at + 8 * i), load32(a.length + 4 * i)
    if end > 0 and memory.load8(buf, end - 1) == _LINE_FEED:
        end -= 1
    if end > 0 and memory.load8(buf, end - 1) == _RETURN:
        end -= 1
    at, fine = 0, end >= 0
    for k in range(a.fields):
        cell, length = 0, -1
        if fine:
            at, cell, length = _field(buf, at, end, a.separator)
            # What follows a field: the end, or a separator and another one.
            fine = at >= 0 and (at == end if k + 1 == a.fields else at < end)
            at += 1
        store64(load64(a.cells + 8 * k) + 8 * i, cell)
        store32(load64(a.lengths + 8 * k) + 4 * i, length)
    store8(a.valid + i, 1 if fine else 0)
    if not fine:
        for k in range(a.fields):
            store32(load64(a.lengths + 8 * k) + 4 * i, -1)


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


class Text(NamedTuple):
    """Arguments of `text`: the int64 cells and int32 offsets (n + 1) of a field, and where its text goes."""

    cell: int
    ends: int
    target: int


@thread_per_item(Text)
def text(i: int, a: Text) -> None:
    """Copy the text of row ``i``, doubled quotes as single ones."""
    cell, to, stop = load64(a.cell + 8 * i), a.target + load32(a.ends + 4 * i), a.target + load32(a.ends + 4 * (i + 1))
    at = abs(cell)
    while to < stop:
        byte = memory.load8(at, 0)
        store8(to, byte)
        at += 2 if cell < 0 and byte == _QUOTE else 1
        to += 1


class Number(NamedTuple):
    """Arguments of `integer` and `boolean`; addresses, but for the limits.

    ``cell`` and ``length`` are of `split`; ``target`` is int64, ``lengths`` (int32, -1 for null) may be ``length``. ``valid`` becomes 0
    where there is a field and it is not a number between ``lowest`` and ``highest``.
    """

    cell: int
    length: int
    target: int
    lengths: int
    valid: int
    lowest: int
    highest: int


@thread_per_item(Number)
def integer(i: int, a: Number) -> None:
    """Parse the decimal number of row ``i``: an optional sign, and digits."""
    length = load32(a.length + 4 * i)
    value, fine = _integer(load64(a.cell + 8 * i), length)
    fine = fine and a.lowest <= value <= a.highest
    store64(a.target + 8 * i, value if fine else 0)
    store32(a.lengths + 4 * i, 0 if fine else -1)
    if length >= 0 and not fine:
        store8(a.valid + i, 0)


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


@thread_per_item(Number)
def boolean(i: int, a: Number) -> None:
    """Parse true, false, 1 or 0 of row ``i``, in small or capital letters."""
    cell, length = load64(a.cell + 8 * i), load32(a.length + 4 * i)
    found = -1
    if cell > 0 and length == 1:
        digit = memory.load8(cell, 0) - _ZERO
        found = digit if 0 <= digit <= 1 else -1
    elif cell > 0 and length == 4:
        word = _small(cell, 4)
        found = 1 if word == _TRUE else -1
    elif cell > 0 and length == 5:
        word = _small(cell, 5)
        found = 0 if word == _FALSE else -1
    store64(a.target + 8 * i, max(found, 0))
    store32(a.lengths + 4 * i, 0 if found >= 0 else -1)
    if length >= 0 and found < 0:
        store8(a.valid + i, 0)


@register_jitable
def _small(cell: int, length: int) -> int:
    """Letters as one number, the first one highest, capital ones as small ones."""
    word = 0
    for k in range(length):
        word = (word << 8) | memory.load8(cell, k) | 0x20
    return word
