"""Writes one JSON object (https://www.rfc-editor.org/rfc/rfc8259) as a row of columns, by a table of the fields that have columns; other
members are passed over, and their syntax is checked.

It decides only rows that it is sure of. A value that is certainly not of its field's type becomes null and is noted as lost. Everything
else is `UNDECIDED`, and another reader decides it: a member or a key that comes twice, a number that is not certainly rounded right; an
escape that means U+0000, a surrogate without its other half, a string that is not UTF-8. Addresses of results are -1 if something is not
accepted.

A row of the table has int64. Rows are named by the bytes before them. Row 0 is the object itself; fields of an object follow each other:

    kind | column | width | least | most | fill | fills | level | first | count | next | stamp | length | word | mask | name

``least`` and ``most`` are the range of an integer. ``level`` is that of a list's or map's elements, ``first`` its element, a map's key, or
an object's first field; a map's value follows its key. ``next`` is the field that is expected after this one. ``length``, ``word``,
``mask`` and ``name`` are of the field's name with a quote and a colon after it: bytes, the first eight of them, which of these count, and
where all are. A name that has to be written with escapes has no ``length``: ``word`` is its length.

``stamps`` tell which members have come: every object that begins has a new number, which its members' stamps are set to. What is open has
the stamp of its object, or `_IN_LIST` or `_IN_MAP`.

``lost`` is two words, of which the first is how many values are lost, and two for each of them: its row of level 0, and its row of the
table. A field is noted once for a row: its mark is a number of the attempt to write the row. The first of the ``marks`` is added to it.
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
TEXT, QUOTED, NUMBER, JSON, INTEGER, DOUBLE, FLOAT, BOOLEAN, OBJECT, LIST, MAP = range(11)
"""Kinds of values. The first four are columns of text: of a string its characters, and of any other value its JSON text; of strings alone;
of a string its characters, and of a number its text; of every value its JSON text.
"""
_IN_LIST, _IN_MAP = 0, -1
NO_LENGTH = 1 << 62  # Longer than any text: no bytes are this name.
MOST_KEYS = 64  # Keys of a map that are compared with each other.
_KIND, _COLUMN, _WIDTH, _LEAST, _MOST, _FILL, _FILLS, _LEVEL = range(0, 64, 8)
_FIRST, _COUNT, _NEXT, _STAMP, _LENGTH, _WORD, _MASK, _NAME = range(64, FIELD, 8)
_SIGN, _SIGN32 = -(2**63), 1 << 31
QUOTE, BACKSLASH, COMMA, COLON, MINUS = (ord(character) for character in '"\\,:-')
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = (ord(character) for character in "{}[]")
TRUE, FALSE, NULL = (int.from_bytes(word, "little") for word in (b"true", b"false", b"null"))
MOST_OPEN = 62  # Lists and objects in each other that are passed over: a bit each.
_SPACE, _LINE_FEED, _RETURN, _TAB, _ZERO, _NINE = (ord(character) for character in " \n\r\t09")
_SLASH, _B, _E, _F, _N, _R, _T, _U, _POINT = (ord(character) for character in "/befnrtu.")
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


def utf8_byte(code: int, more: int, k: int) -> int:
    """A byte of a code point in UTF-8, which has ``more`` after the first one."""
    if k > 0:
        return 0x80 | ((code >> (6 * (more - k))) & 0x3F)
    return code if more == 0 else (0xFF00 >> (more + 1)) & 0xFF | (code >> (6 * more))


def more_bytes(code: int) -> int:
    return 0 if code < 0x80 else (1 if code < 0x800 else (2 if code < 0x10000 else 3))


def put_code_point(target: int, code: int) -> int:
    more = more_bytes(code)
    for k in range(more + 1):
        store8(target, k, utf8_byte(code, more, k))
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
    thread has its own ``stamps``: a word for the last number that was taken, and one for each field, zeros at first; ``marks`` likewise;
    ``frames``, and ``lost`` with room for each field once.
    """

    fields: int
    names: int
    numbers: int
    stamps: int
    frames: int
    marks: int
    lost: int


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
    quote, is_escaped = string_end(at, end, 0), False
    if quote < 0:
        quote, is_escaped = string_end(at, end, 1), True
        if quote < 0:
            return 0, -1
    after, byte = next_byte(quote + 1, end)
    if byte != COLON:
        return 0, -1
    field, length = p.fields + load64(inside + _FIRST), quote - at
    for _ in range(load64(inside + _COUNT)):
        name, size = p.names + load64(field + _NAME), load64(field + _LENGTH)
        if is_escaped:
            if is_written(name, (size if size < NO_LENGTH else load64(field + _WORD)) - 2, at, quote):
                return field, after + 1
        elif size == length + 2 and same_bytes(name, at, length):
            return field, after + 1
        field += FIELD
    return 0, after + 1


def is_written(name: int, size: int, at: int, quote: int) -> bool:
    """Whether a string up to its quote, which has escapes, is a name."""
    k = 0
    while at < quote:
        code, more = load8(at, 0), 0
        if code == BACKSLASH:
            at, code = escape_at(at + 1, quote)
            more = more_bytes(code)
        else:
            at += 1
        if k + more >= size:
            return False
        for j in range(more + 1):
            if load8(name, k + j) != utf8_byte(code, more, j):
                return False
        k += more + 1
    return k == size


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


def is_whole(at: int, end: int) -> bool:
    """Whether neither a fraction nor an exponent follows the digits of a number."""
    byte = load8(at, 0) if at < end else 0
    return byte != _POINT and byte | 0x20 != _E


def put_integer(t: ColumnTables, p: JsonProgram, field: int, row: int, at: int, byte: int, end: int) -> int:
    """Write an integer whose first byte is ``byte``; returns the address after it, or -1."""
    least = load64(field + _LEAST)
    if byte == MINUS and least == 0:
        return -1
    value, at = numbers.integer_at(p.numbers, at + 1 if byte == MINUS else at, end)
    value = -value if byte == MINUS else value
    if at < 0 or value < least or value > load64(field + _MOST) or not is_whole(at, end):
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
    if byte == QUOTE and kind <= NUMBER:
        return put_string(t, load64(field + _COLUMN), row, at + 1, end)
    if byte == _N:
        put_nulls(t, load64(field + _FILL), load64(field + _FILLS), row)
        return after_literal(at, end, byte)
    if kind == INTEGER:
        return put_integer(t, p, field, row, at, byte, end)
    if kind <= JSON:
        return put_raw(t, field, row, at, byte, end)
    if DOUBLE <= kind <= FLOAT:
        return put_decimal(t, p, field, row, at, byte, end)
    at = after_literal(at, end, byte) if kind == BOOLEAN else -1
    if at >= 0:
        put_word(t, load64(field + _COLUMN), row, 1 if byte == _T else 0, 1)
    return at


def is_number(byte: int) -> bool:
    """Whether a value is a number, by its first byte."""
    return byte == MINUS or (byte >= _ZERO and byte <= _NINE)


def put_raw(t: ColumnTables, field: int, row: int, at: int, byte: int, end: int) -> int:
    """Write the text of a value as it stands; results as in `put_value`."""
    kind = load64(field + _KIND)
    if kind == QUOTED or (kind == NUMBER and not is_number(byte)):
        return -1
    after = after_value(at, end)
    if after < 0:
        return -1
    code = columns.put_bytes(t, load64(field + _COLUMN), row, at, after - at)
    return after if code == DONE else -1 - code


def lose(t: ColumnTables, p: JsonProgram, field: int, record: int, row: int, at: int, byte: int, end: int) -> int:
    """Make a value null that is not of its field's type, and note that it is lost; returns the address after it, or -1 if it is not certain
    that it is lost.
    """
    kind, after = load64(field + _KIND), after_value(at, end)
    if after < 0:
        return -1
    if is_number(byte) and kind >= INTEGER and kind <= FLOAT:
        # Floats that are not certainly rounded right are not decided, nor integers from 2**63 on: 64 bits have at most 20 digits. Numbers
        # with a fraction or an exponent may be integers, unless the last digit of a fraction says otherwise.
        stop = numbers.digits_end(at + 1 if byte == MINUS else at, end)
        if kind != INTEGER or (stop == after and load64(field + _WIDTH) == 8 and stop - at <= 20):
            return -1
        if stop != after and (load8(stop, 0) != _POINT or numbers.digits_end(stop + 1, end) != after or load8(after, -1) == _ZERO):
            return -1
    put_nulls(t, load64(field + _FILL), load64(field + _FILLS), row)
    mark, attempt = p.marks + load64(field + _STAMP), load64(p.marks) + record + 1
    if load64(mark) != attempt:
        store64(mark, attempt)
        count = load64(p.lost)
        store64(p.lost, count + 1)
        store64(p.lost + 16 * count + 16, record)
        store64(p.lost + 16 * count + 24, field - p.fields)
    return after


def is_twice(t: ColumnTables, column: int, first: int, stop: int) -> bool:
    """Whether two rows of a column of bytes are the same, or there are too many to compare."""
    if stop - first > MOST_KEYS:
        return True
    for row in range(first + 1, stop):
        at, size = columns.bytes_of(t, column, row)
        for other in range(first, row):
            begin, length = columns.bytes_of(t, column, other)
            if length == size and same_bytes(at, begin, size):
                return True
    return False


def end_elements(t: ColumnTables, p: JsonProgram, field: int, row: int, stamp: int) -> int:
    """End a list or a map; -1 for a map that is not decided."""
    column, level = load64(field + _COLUMN), load64(field + _LEVEL)
    columns.end_list(t, column, row, level)
    if stamp == _IN_LIST:
        return 0
    first, stop = columns.elements_of(t, column, row)
    return -1 if is_twice(t, load64(p.fields + load64(field + _FIRST) + _COLUMN), first, stop) else 0


def put_key(t: ColumnTables, field: int, row: int, at: int, byte: int, end: int) -> tuple[int, int]:
    """Write the key of a map's value ``field``; returns the address of the value and its first byte; addresses as in `put_value`."""
    if byte != QUOTE:
        return -1, 0
    at = put_string(t, load64(field - FIELD + _COLUMN), row, at + 1, end)
    if at < 0:
        return at, 0
    at, byte = next_byte(at, end)
    if byte != COLON:
        return -1, 0
    return next_byte(at + 1, end)


def push(frame: int, inside: int, expected: int, row: int, stamp: int, missing: int) -> None:
    """Keep what `decode` knows of an object or list while it is in another one."""
    store64(frame, inside)
    store64(frame + 8, expected)
    store64(frame + 16, row)
    store64(frame + 24, stamp)
    store64(frame + 32, missing)


def kept(frame: int) -> tuple[int, int, int, int, int]:
    """What `push` has kept."""
    return load64(frame), load64(frame + 8), load64(frame + 16), load64(frame + 24), load64(frame + 32)


def next_stamp(p: JsonProgram) -> int:
    stamp = load64(p.stamps) + 1
    store64(p.stamps, stamp)
    return stamp


def decode(t: ColumnTables, p: JsonProgram, at: int, end: int, row: int) -> int:
    """Write the value at addresses [at, end), at least eight bytes, into a row of level 0: an object, a list or a map. Returns `DONE`,
    `UNDECIDED`, or what has no room; after the latter two the caller calls `kolumn.values.wire.columns.restore`.
    """
    at, byte = next_byte(at, end)
    # What is open: its field, the field that is expected in it, its stamp, and members that have not come.
    inside, frame, record, opened = p.fields, p.frames, row, True
    kind = load64(inside + _KIND)
    if byte != (OPEN_LIST if kind == LIST else OPEN_OBJECT):
        return UNDECIDED
    at, stamp, expected, missing, close = begin(t, p, inside, kind, row, at)
    while True:
        at, byte = next_byte(at, end)
        if byte == close:
            at += 1
            if stamp > 0 and missing != 0:
                fill_missing(t, p, inside, stamp, row)
            if frame == p.frames:
                if stamp <= 0 and end_elements(t, p, inside, record, stamp) < 0:
                    return UNDECIDED
                return DONE if next_byte(at, end)[0] >= end else UNDECIDED
            ended, ended_stamp, opened = inside, stamp, False
            frame -= FRAME
            inside, expected, row, stamp, missing = kept(frame)
            close = CLOSE_LIST if stamp == _IN_LIST else CLOSE_OBJECT
            if ended_stamp <= 0 and end_elements(t, p, ended, row, ended_stamp) < 0:
                return UNDECIDED
            continue
        if not opened:
            if byte != COMMA:
                return UNDECIDED
            at, byte = next_byte(at + 1, end)
        opened, field = False, expected
        if stamp > 0:
            field, at, byte = member_at(p, inside, expected, stamp, at, byte, end)
            if at < 0:
                return UNDECIDED
            if field == 0:
                continue
            missing, expected = missing - 1, p.fields + load64(field + _NEXT)
        else:
            row = columns.next_row(t, load64(inside + _LEVEL))
            if row < 0:
                return -row
            if stamp == _IN_MAP:
                at, byte = put_key(t, field, row, at, byte, end)
                if at < 0:
                    return -1 - at if at < -1 else UNDECIDED
        kind = load64(field + _KIND)
        if kind < OBJECT or byte == _N:
            after = put_value(t, p, field, row, at, byte, end)
            if after < -1:
                return -1 - after
            at = after if after >= 0 else lose(t, p, field, record, row, at, byte, end)
        elif byte == (OPEN_LIST if kind == LIST else OPEN_OBJECT):
            push(frame, inside, expected, row, stamp, missing)
            frame, inside, opened = frame + FRAME, field, True
            at, stamp, expected, missing, close = begin(t, p, inside, kind, row, at)
        else:
            at = lose(t, p, field, record, row, at, byte, end)
        if at < 0:
            return UNDECIDED


def begin(t: ColumnTables, p: JsonProgram, inside: int, kind: int, row: int, at: int) -> tuple[int, int, int, int, int]:
    """Begin an object, a list or a map. Returns the address after its bracket, its stamp, the field that is expected first, how many
    members it has, and the byte that ends it.
    """
    expected = p.fields + load64(inside + _FIRST)
    if kind == OBJECT:
        set_valid(t, load64(inside + _COLUMN), row, 1)
        return at + 1, next_stamp(p), expected, load64(inside + _COUNT), CLOSE_OBJECT
    if kind == LIST:
        return at + 1, _IN_LIST, expected, 0, CLOSE_LIST
    return at + 1, _IN_MAP, expected + FIELD, 0, CLOSE_OBJECT
