"""Writes one JSON object (https://www.rfc-editor.org/rfc/rfc8259) as a row of columns, by a table of the fields that have columns; other
members are passed over, and their syntax is checked.

It decides only rows that it is sure of. Everything else is `UNDECIDED`, valid or not, and another reader decides it: a member that comes
twice, a name with an escape, a value of another type, a number out of range or that is not certainly rounded right; an escape that means
U+0000, a surrogate without its other half, a string that is not UTF-8. Addresses of results are -1 if something is not accepted.

A row of the table has int64. Rows are named by the bytes before them. Row 0 is the object itself; fields of an object follow each other:

    kind | column | width | least | most | fill | fills | level | first | count | next | stamp | length | word | mask | name

``least`` and ``most`` are the range of an integer. ``level`` is that of a list's elements, ``first`` its element or an object's first
field. ``next`` is the field that is expected after this one. ``length``, ``word``, ``mask`` and ``name`` are of the field's name with a
quote and a colon after it: bytes, the first eight of them, which of these count, and where all are.

``stamps`` tell which members have come: every object that begins has a new number, which its members' stamps are set to.
"""

from typing import NamedTuple

from kolumn.formats.memory import load8, store8
from kolumn.formats.words import load64, store64
from kolumn.values.wire import columns
from kolumn.values.wire import json_numbers as numbers
from kolumn.values.wire.columns import DONE, INVALID, ColumnTables, full_column, is_utf8, put_nulls, put_word, set_valid
from kolumn.values.wire.json_numbers import first_byte, load_word, word_at

UNDECIDED = INVALID
FIELD = 128  # Bytes of a row of the table.
FRAME = 48  # Bytes that are kept of each object and list around a value.
TEXT, INTEGER, DOUBLE, FLOAT, BOOLEAN, OBJECT, LIST = range(7)  # Kinds of values.
_KIND, _COLUMN, _WIDTH, _LEAST, _MOST, _FILL, _FILLS, _LEVEL = range(0, 64, 8)
_FIRST, _COUNT, _NEXT, _STAMP, _LENGTH, _WORD, _MASK, _NAME = range(64, FIELD, 8)
_SIGN, _SIGN32 = -(2**63), 1 << 31
QUOTE, BACKSLASH, COMMA, COLON, MINUS = (ord(character) for character in '"\\,:-')
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = (ord(character) for character in "{}[]")
TRUE, FALSE, NULL = (int.from_bytes(word, "little") for word in (b"true", b"false", b"null"))
MOST_OPEN = 62  # Lists and objects in each other that are passed over: a bit each.
_SPACE, _LINE_FEED, _RETURN, _TAB, _ZERO, _NINE = (ord(character) for character in " \n\r\t09")
_SLASH, _B, _F, _N, _R, _T, _U = (ord(character) for character in "/bfnrtu")
_ONES, _HIGH = 0x0101010101010101, -0x7F7F7F7F7F7F7F80
_QUOTES, _BACKSLASHES, _SPACES = QUOTE * _ONES, BACKSLASH * _ONES, _SPACE * _ONES
_BITS32, _BITS40 = (1 << 32) - 1, (1 << 40) - 1


def next_byte(at: int, end: int) -> tuple[int, int]:
    """Address of the next byte that is no white space, and the byte; 0 at the end."""
    while at < end:
        byte = load8(at, 0)
        if byte > _SPACE:
            return at, byte
        if byte != _SPACE and byte != _LINE_FEED and byte != _RETURN and byte != _TAB:
            return at, 0
        at += 1
    return at, 0


def stops(word: int) -> int:
    """Bit 7 of the first byte that is a quote, a backslash or a control character; bytes after it may have it too."""
    quote, slash = word ^ _QUOTES, word ^ _BACKSLASHES
    return (((quote - _ONES) & ~quote) | ((slash - _ONES) & ~slash) | ((word - _SPACES) & ~word)) & _HIGH


def is_text(at: int, size: int) -> bool:
    """As `is_utf8`."""
    return is_utf8(at, size)


def hex4_at(at: int, end: int) -> int:
    """The number of four hexadecimal digits, or -1."""
    if end - at < 4:
        return -1
    value = 0
    for k in range(4):
        byte = load8(at, k)
        if byte >= _ZERO and byte <= _NINE:
            value = value * 16 + byte - _ZERO
        else:
            digit = (byte | 0x20) - 97
            if digit < 0 or digit > 5:
                return -1
            value = value * 16 + digit + 10
    return value


def escape_at(at: int, end: int) -> tuple[int, int]:
    """The address after an escape, whose backslash is before ``at``, and its code point."""
    byte = load8(at, 0) if at < end else 0
    if (byte == QUOTE) | (byte == BACKSLASH) | (byte == _SLASH):
        return at + 1, byte
    code = 10 if byte == _N else (9 if byte == _T else (13 if byte == _R else (8 if byte == _B else (12 if byte == _F else 0))))
    if code != 0:
        return at + 1, code
    code = hex4_at(at + 1, end) if byte == _U else -1
    if code <= 0 or (code >= 0xDC00 and code <= 0xDFFF):
        return -1, 0
    at += 5
    if code >= 0xD800 and code <= 0xDBFF:
        if end - at < 6 or load8(at, 0) != BACKSLASH or load8(at, 1) != _U:
            return -1, 0
        low = hex4_at(at + 2, end)
        if low < 0xDC00 or low > 0xDFFF:
            return -1, 0
        return at + 6, 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
    return at, code


def put_code_point(target: int, code: int) -> int:
    if code < 0x80:
        store8(target, 0, code)
        return 1
    more = 1 if code < 0x800 else (2 if code < 0x10000 else 3)
    store8(target, 0, (0xFF00 >> (more + 1)) & 0xFF | (code >> (6 * more)))
    for k in range(1, more + 1):
        store8(target, k, 0x80 | ((code >> (6 * (more - k))) & 0x3F))
    return more + 1


def put_string(t: ColumnTables, column: int, row: int, at: int, end: int) -> int:
    """Write the string after a quote; returns the address after it, -1, or -1 minus the code for no room. Words are stored whole, up to 8
    bytes after the room of the column.
    """
    begin = columns.begin_of(t, column, row)
    target, room = columns.space_from(t, column, begin)
    size, bits = 0, 0
    while True:
        word = word_at(at, end)
        stop = stops(word)
        if size > room:
            return -1 - full_column(column)
        numbers.put_word8(target + size, word)
        if stop == 0:
            bits |= word
            at += 8
            size += 8
            continue
        count = first_byte(stop)
        bits |= word & ((1 << (8 * count)) - 1)
        at += count
        size += count
        byte = (word >> (8 * count)) & 0xFF
        if byte == QUOTE:
            break
        if byte != BACKSLASH:
            return -1
        at, code = escape_at(at + 1, end)
        if at < 0:
            return -1
        if size > room:
            return -1 - full_column(column)
        size += put_code_point(target + size, code)
    if size > room:
        return -1 - full_column(column)
    if bits & _HIGH != 0 and not is_text(target, size):
        return -1
    columns.end_bytes(t, column, row, begin + size)
    return at + 1


def string_end(at: int, end: int, escapes: int) -> int:
    """Address of the quote that ends a string, whose first byte is at ``at``; 0 for ``escapes`` accepts none."""
    begin, bits = at, 0
    while True:
        word = word_at(at, end)
        stop = stops(word)
        if stop == 0:
            bits |= word
            at += 8
            continue
        count = first_byte(stop)
        bits |= word & ((1 << (8 * count)) - 1)
        at += count
        byte = (word >> (8 * count)) & 0xFF
        if byte == QUOTE:
            return at if bits & _HIGH == 0 or is_text(begin, at - begin) else -1
        if byte != BACKSLASH or escapes == 0:
            return -1
        at, _ = escape_at(at + 1, end)
        if at < 0:
            return -1


def after_literal(at: int, end: int, byte: int) -> int:
    """Address after ``true``, ``false`` or ``null``, whose first byte is ``byte``."""
    word = word_at(at, end)
    if word & _BITS32 == (TRUE if byte == _T else NULL):
        return at + 4
    return at + 5 if byte == _F and word & _BITS40 == FALSE else -1


def after_value(at: int, end: int) -> int:
    """Address after a value, whose first byte is at ``at`` or after white space."""
    kinds, depth, name = 0, 0, 0
    while True:
        at, byte = next_byte(at, end)
        if name != 0:
            # A member of an object.
            if byte != QUOTE:
                return -1
            at = string_end(at + 1, end, 1)
            if at < 0:
                return -1
            at, byte = next_byte(at + 1, end)
            if byte != COLON:
                return -1
            name = 0
            at, byte = next_byte(at + 1, end)
        if byte | 0x20 == OPEN_OBJECT:
            if depth == MOST_OPEN:
                return -1
            name = 1 if byte == OPEN_OBJECT else 0
            kinds, depth = (kinds << 1) | name, depth + 1
            at, following = next_byte(at + 1, end)
            # The brackets of lists and objects differ in one bit; each that closes is two more than the one that opens.
            if following != byte + 2:
                continue
        elif byte == QUOTE:
            at = string_end(at + 1, end, 1) + 1
            if at == 0:
                return -1
        elif byte == MINUS or (byte >= _ZERO and byte <= _NINE):
            at = numbers.after_number(at + 1 if byte == MINUS else at, end)
        else:
            at = after_literal(at, end, byte)
        # After a value: what it is in may end, or goes on.
        while True:
            if at < 0 or depth == 0:
                return at
            at, byte = next_byte(at, end)
            if byte == COMMA:
                at, name = at + 1, kinds & 1
                break
            if byte != (CLOSE_OBJECT if kinds & 1 else CLOSE_LIST):
                return -1
            at, kinds, depth = at + 1, kinds >> 1, depth - 1


class JsonProgram(NamedTuple):
    """Addresses. ``fields`` is the table, ``names`` has the names, ``numbers`` is the table of `kolumn.values.wire.json_numbers`. Each
    thread has its own ``stamps``: a word for the last number that was taken, and one for each field, zeros at first; and ``frames``.
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


def field_of(p: JsonProgram, inside: int, at: int, end: int) -> tuple[int, int]:
    """The field of an object, 0 for none, whose name is at ``at``, and the address after the colon that follows; -1 if not decided."""
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


def same_bytes(left: int, right: int, size: int) -> bool:
    k = 0
    while k < size and load8(left, k) == load8(right, k):
        k += 1
    return k == size


def member_at(p: JsonProgram, inside: int, expected: int, stamp: int, at: int, byte: int, end: int) -> tuple[int, int, int]:
    """Begin a member of an object, at whose quote ``at`` should be. Returns its field, 0 for a member that is passed over; the address of
    its value, or after what is passed over, -1 if not decided; and the first byte.
    """
    if byte != QUOTE:
        return 0, -1, 0
    field, at = expected, at + 1
    if is_name(p, expected, at, end):
        at += load64(expected + _LENGTH)
    else:
        field, at = field_of(p, inside, at, end)
        if at < 0:
            return 0, -1, 0
    at, byte = next_byte(at, end)
    if field == 0:
        # Strings are passed over here: the rest has a longer way.
        at = string_end(at + 1, end, 1) + 1 if byte == QUOTE else after_value(at, end)
        return 0, at if at > 0 else -1, 0
    own = p.stamps + load64(field + _STAMP)
    if load64(own) == stamp:
        return 0, -1, 0
    store64(own, stamp)
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
    value, at = numbers.integer_at(p.numbers, at + 1 if byte == MINUS else at, end)
    value = -value if byte == MINUS else value
    if at < 0 or value < least or value > load64(field + _MOST):
        return -1
    put_word(t, load64(field + _COLUMN), row, value, load64(field + _WIDTH))
    return at


def put_decimal(t: ColumnTables, p: JsonProgram, field: int, row: int, at: int, byte: int, end: int) -> int:
    """Write a float64 or float32; results as in `put_integer`."""
    digits, exponent, at = numbers.decimal_at(p.numbers, at + 1 if byte == MINUS else at, end)
    if at < 0:
        return -1
    bits, sign, width = numbers.double_of_decimal(p.numbers, digits, exponent), _SIGN, 8
    if load64(field + _KIND) == FLOAT:
        bits, sign, width = numbers.float_of_double(bits) if bits >= 0 else -1, _SIGN32, 4
    if bits < 0:
        return -1
    put_word(t, load64(field + _COLUMN), row, bits | sign if byte == MINUS else bits, width)
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
    at = after_literal(at, end, byte) if kind == BOOLEAN else -1
    if at >= 0:
        put_word(t, load64(field + _COLUMN), row, 1 if byte == _T else 0, 1)
    return at


def push(frame: int, inside: int, expected: int, row: int, stamp: int, missing: int) -> None:
    """Keep what `decode` knows of an object or list while it is in another one."""
    store64(frame, inside)
    store64(frame + 8, expected)
    store64(frame + 16, row)
    store64(frame + 24, stamp)
    store64(frame + 32, missing)


def next_stamp(p: JsonProgram) -> int:
    stamp = load64(p.stamps) + 1
    store64(p.stamps, stamp)
    return stamp


def decode(t: ColumnTables, p: JsonProgram, at: int, end: int, row: int) -> int:
    """Write the object at addresses [at, end), at least eight bytes, into a row of level 0. Returns `DONE`, `UNDECIDED`, or what has no
    room; after the latter two the caller calls `kolumn.values.wire.columns.restore`.
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
                columns.end_list(t, load64(ended + _COLUMN), row, load64(ended + _LEVEL))
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
            row = columns.next_row(t, load64(inside + _LEVEL))
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
