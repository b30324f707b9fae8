"""Writes one JSON object (https://www.rfc-editor.org/rfc/rfc8259) as a row of columns, by a table of the fields that have columns; other
members are passed over.

It decides only rows that it is sure of. Everything else is `UNDECIDED`, valid or not, and another reader decides it: syntax that
`kolumn.values.wire.json_text` does not accept, a member that comes twice, a name with an escape, a value of another type, a number out of
range or that is not certainly rounded right.

A row of the table has int64. Rows are named by their places in bytes. Row 0 is the object itself; fields of an object follow each other:

    kind | column | width | least | most | fill | fills | level | first | count | next | stamp | length | word | mask | name

``least`` and ``most`` are the range of an integer. ``level`` is that of a list's elements, ``first`` its element or an object's first
field. ``next`` is the field that is expected after this one. ``length``, ``word``, ``mask`` and ``name`` are of the field's name with a
quote and a colon after it: bytes, the first eight of them, which of these count, and where all are.

``stamps`` tell which members have come: every object that begins has a new number, which its members' stamps are set to.
"""

from typing import NamedTuple

from kolumn.formats.machine_code.words import load64, store64
from kolumn.formats.memory import load8
from kolumn.values.wire.columns import DONE, INVALID, ColumnTables, end_list, next_row, put_nulls, put_word, set_valid
from kolumn.values.wire.json_numbers import decimal_at, double_of_decimal, float_of_double, integer_at, load_word, word_at
from kolumn.values.wire.json_text import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    MINUS,
    OPEN_LIST,
    OPEN_OBJECT,
    QUOTE,
    after_literal,
    after_value,
    next_byte,
    put_string,
    string_end,
)

UNDECIDED = INVALID
FIELD = 128
"""Bytes of a row of the table."""
FRAME = 48
"""Bytes that are kept of each object and list around a value."""
TEXT, INTEGER, DOUBLE, FLOAT, BOOLEAN, OBJECT, LIST = range(7)
"""Kinds of values."""
_KIND, _COLUMN, _WIDTH, _LEAST, _MOST, _FILL, _FILLS, _LEVEL = range(0, 64, 8)
_FIRST, _COUNT, _NEXT, _STAMP, _LENGTH, _WORD, _MASK, _NAME = range(64, FIELD, 8)
_T, _F, _N = (ord(one) for one in "tfn")
_SIGN, _SIGN32 = -(2**63), 1 << 31


class JsonProgram(NamedTuple):
    """Addresses.

    ``fields`` is the table, ``names`` has the names, ``numbers`` is the table of `kolumn.values.wire.json_numbers`. Each thread has its own
    ``stamps``: a word for the last number that was taken, and one for each field, zeros at first; and ``frames``.
    """

    fields: int
    names: int
    numbers: int
    stamps: int
    frames: int


def is_name(p: JsonProgram, field: int, at: int, end: int) -> bool:
    """Whether the bytes from ``at`` on are a field's name, a quote and a colon."""
    length = load64(field + _LENGTH)
    if length > end - at or (word_at(at, end) ^ load64(field + _WORD)) & load64(field + _MASK) != 0:
        return False
    if length > 8:
        name, k = p.names + load64(field + _NAME), 8
        while k < length - 8:
            if load_word(at + k) != load_word(name + k):
                return False
            k += 8
        return load_word(at + length - 8) == load_word(name + length - 8)
    return True


def field_at(p: JsonProgram, inside: int, expected: int, at: int, end: int) -> tuple[int, int]:
    """The field of an object, 0 for none, whose name is at ``at``, and the address after the colon that follows; -1 if not decided."""
    if is_name(p, expected, at, end):
        return expected, at + load64(expected + _LENGTH)
    return field_of(p, inside, at, end)


def field_of(p: JsonProgram, inside: int, at: int, end: int) -> tuple[int, int]:
    """As `searched`. A backend may make it a function of its own."""
    return searched(p, inside, at, end)


def searched(p: JsonProgram, inside: int, at: int, end: int) -> tuple[int, int]:
    """As `field_at`, where none is expected."""
    quote = string_end(at, end, 0)
    if quote < 0:
        return 0, -1
    after, byte = next_byte(quote + 1, end)
    if byte != COLON:
        return 0, -1
    field, length = p.fields + load64(inside + _FIRST), quote - at
    for _ in range(load64(inside + _COUNT)):
        if load64(field + _LENGTH) == length + 2 and same_bytes(p.names + load64(field + _NAME), at, length):
            return field, after + 1
        field += FIELD
    return 0, after + 1


def same_bytes(one: int, other: int, size: int) -> bool:
    """Whether bytes at two addresses are the same."""
    k = 0
    while k < size and load8(one, k) == load8(other, k):
        k += 1
    return k == size


def member_at(p: JsonProgram, inside: int, expected: int, stamp: int, at: int, byte: int, end: int) -> tuple[int, int, int]:
    """Begin a member of an object, at whose quote ``at`` should be.

    Returns its field, 0 for a member that is passed over; the address of its value, or after what is passed over, -1 if not decided; and
    the first byte.
    """
    if byte != QUOTE:
        return 0, -1, 0
    field, at = field_at(p, inside, expected, at + 1, end)
    if at < 0:
        return 0, -1, 0
    at, byte = next_byte(at, end)
    if field == 0:
        # Strings are passed over here: the rest has a longer way.
        at = string_end(at + 1, end, 1) + 1 if byte == QUOTE else after_value(at, end)
        return 0, at if at > 0 else -1, 0
    place = p.stamps + load64(field + _STAMP)
    if load64(place) == stamp:
        return 0, -1, 0
    store64(place, stamp)
    return field, at, byte


def fill_missing(t: ColumnTables, p: JsonProgram, inside: int, stamp: int, row: int) -> None:
    """Make the fields of an object null that have another stamp."""
    field = p.fields + load64(inside + _FIRST)
    for _ in range(load64(inside + _COUNT)):
        if load64(p.stamps + load64(field + _STAMP)) != stamp:
            put_nulls(t, load64(field + _FILL), load64(field + _FILLS), row)
        field += FIELD


def put_integer(t: ColumnTables, p: JsonProgram, field: int, row: int, at: int, byte: int, end: int) -> int:
    """Write an integer whose first byte is ``byte``; returns the address after it, or -1."""
    least = load64(field + _LEAST)
    if byte == MINUS and least == 0:
        return -1
    value, at = integer_at(p.numbers, at + 1 if byte == MINUS else at, end)
    value = -value if byte == MINUS else value
    if at < 0 or value < least or value > load64(field + _MOST):
        return -1
    put_word(t, load64(field + _COLUMN), row, value, load64(field + _WIDTH))
    return at


def put_decimal(t: ColumnTables, p: JsonProgram, field: int, row: int, at: int, byte: int, end: int) -> int:
    """Write a float64 or float32; results as in `put_integer`."""
    digits, exponent, at = decimal_at(p.numbers, at + 1 if byte == MINUS else at, end)
    if at < 0:
        return -1
    bits, sign, width = double_of_decimal(p.numbers, digits, exponent), _SIGN, 8
    if load64(field + _KIND) == FLOAT:
        bits, sign, width = float_of_double(bits) if bits >= 0 else -1, _SIGN32, 4
    if bits < 0:
        return -1
    put_word(t, load64(field + _COLUMN), row, bits | sign if byte == MINUS else bits, width)
    return at


def put_boolean(t: ColumnTables, field: int, row: int, at: int, byte: int, end: int) -> int:
    """Write ``true`` or ``false``; results as in `put_integer`."""
    at = after_literal(at, end, byte)
    if at >= 0:
        put_word(t, load64(field + _COLUMN), row, 1 if byte == _T else 0, 1)
    return at


def put_value(t: ColumnTables, p: JsonProgram, field: int, row: int, at: int, byte: int, end: int) -> int:
    """Write a value that is neither an object nor a list, or null; results as in `put_integer`, or -1 minus the code for no room."""
    kind = load64(field + _KIND)
    if byte == QUOTE and kind == TEXT:
        return put_string(t, load64(field + _COLUMN), row, at + 1, end)
    if byte == _N:
        put_nulls(t, load64(field + _FILL), load64(field + _FILLS), row)
        return after_literal(at, end, byte)
    if kind == INTEGER:
        return put_integer(t, p, field, row, at, byte, end)
    if DOUBLE <= kind <= FLOAT:
        return put_decimal(t, p, field, row, at, byte, end)
    return put_boolean(t, field, row, at, byte, end) if kind == BOOLEAN else -1


def push(frame: int, inside: int, expected: int, row: int, stamp: int, missing: int) -> None:
    """Keep what `decode` knows of an object or list while it is in another one."""
    store64(frame, inside)
    store64(frame + 8, expected)
    store64(frame + 16, row)
    store64(frame + 24, stamp)
    store64(frame + 32, missing)


def next_stamp(p: JsonProgram) -> int:
    """A new number for an object."""
    stamp = load64(p.stamps) + 1
    store64(p.stamps, stamp)
    return stamp


def decode(t: ColumnTables, p: JsonProgram, at: int, end: int, row: int) -> int:
    """Write the object at addresses [at, end), at least eight bytes, into a row of level 0.

    Returns `DONE`, `UNDECIDED`, or what has no room; after the latter two the caller calls `kolumn.values.wire.columns.restore`.
    """
    at, byte = next_byte(at, end)
    if byte != OPEN_OBJECT:
        return UNDECIDED
    at += 1
    # What is open: its field, the field that is expected in it, the stamp of an object or 0, and members that have not come.
    inside, frame, stamp = p.fields, p.frames, next_stamp(p)
    expected, missing, close, opened = p.fields + load64(inside + _FIRST), load64(inside + _COUNT), CLOSE_OBJECT, True
    set_valid(t, load64(inside + _COLUMN), row, 1)
    while True:
        at, byte = next_byte(at, end)
        if byte == close:
            at += 1
            if stamp != 0 and missing != 0:
                fill_missing(t, p, inside, stamp, row)
            if frame == p.frames:
                at, _ = next_byte(at, end)
                return DONE if at >= end else UNDECIDED
            ended, was_list, opened = inside, stamp == 0, False
            frame -= FRAME
            inside, expected, row = load64(frame), load64(frame + 8), load64(frame + 16)
            stamp, missing = load64(frame + 24), load64(frame + 32)
            close = CLOSE_LIST if stamp == 0 else CLOSE_OBJECT
            if was_list:
                end_list(t, load64(ended + _COLUMN), row, load64(ended + _LEVEL))
            continue
        if not opened:
            if byte != COMMA:
                return UNDECIDED
            at, byte = next_byte(at + 1, end)
        opened, field = False, expected
        if stamp != 0:
            field, at, byte = member_at(p, inside, expected, stamp, at, byte, end)
            if at < 0:
                return UNDECIDED
            if field == 0:
                continue
            missing -= 1
            expected = p.fields + load64(field + _NEXT)
        else:
            row = next_row(t, load64(inside + _LEVEL))
            if row < 0:
                return -row
        kind = load64(field + _KIND)
        if kind < OBJECT or byte == _N:
            at = put_value(t, p, field, row, at, byte, end)
            if at < 0:
                return -1 - at if at < -1 else UNDECIDED
        elif byte == (OPEN_OBJECT if kind == OBJECT else OPEN_LIST):
            push(frame, inside, expected, row, stamp, missing)
            frame += FRAME
            at, inside, opened, stamp, missing, close = at + 1, field, True, 0, 0, CLOSE_LIST
            expected = p.fields + load64(field + _FIRST)
            if kind == OBJECT:
                stamp, missing, close = next_stamp(p), load64(field + _COUNT), CLOSE_OBJECT
                set_valid(t, load64(field + _COLUMN), row, 1)
        else:
            return UNDECIDED
