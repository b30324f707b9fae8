"""Strings of JSON, and everything that no column gets: it is passed over, and its syntax is checked (RFC 8259).

Accepted is less than the RFC allows: the caller leaves the rest to another reader. Strings have to be UTF-8, their surrogates pairs, and
no escape may mean U+0000. Addresses of results are -1 if something is not accepted.
"""

from kolumn.formats.memory import load8, store8
from kolumn.values.wire.columns import ColumnTables, begin_of, end_bytes, full_column, space_from
from kolumn.values.wire.json_numbers import after_number, first_byte, put_word8, word_at
from kolumn.values.wire.text import is_utf8

QUOTE, BACKSLASH, COMMA, COLON, MINUS = (ord(one) for one in '"\\,:-')
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = (ord(one) for one in "{}[]")
TRUE, FALSE, NULL = (int.from_bytes(one, "little") for one in (b"true", b"false", b"null"))
MOST_OPEN = 62
"""Lists and objects in each other that are passed over: a bit each."""
_SPACE, _LINE_FEED, _RETURN, _TAB, _ZERO, _NINE = (ord(one) for one in " \n\r\t09")
_SLASH, _B, _F, _N, _R, _T, _U = (ord(one) for one in "/bfnrtu")
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
    """As `kolumn.values.wire.text.is_utf8`. A backend may make it a function of its own."""
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
    """As `escape_of`. A backend may make it a function of its own."""
    return escape_of(at, end)


def escape_of(at: int, end: int) -> tuple[int, int]:
    """The address after an escape, whose backslash is before ``at``, and its code point."""
    byte = load8(at, 0) if at < end else 0
    if (byte == QUOTE) | (byte == BACKSLASH) | (byte == _SLASH):
        return at + 1, byte
    if byte == _N:
        return at + 1, 10
    if byte == _T:
        return at + 1, 9
    if byte == _R:
        return at + 1, 13
    if byte == _B:
        return at + 1, 8
    if byte == _F:
        return at + 1, 12
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
    """Write a code point as UTF-8; returns how many bytes it has."""
    if code < 0x80:
        store8(target, 0, code)
        return 1
    if code < 0x800:
        store8(target, 0, 0xC0 | (code >> 6))
        store8(target, 1, 0x80 | (code & 0x3F))
        return 2
    if code < 0x10000:
        store8(target, 0, 0xE0 | (code >> 12))
        store8(target, 1, 0x80 | ((code >> 6) & 0x3F))
        store8(target, 2, 0x80 | (code & 0x3F))
        return 3
    store8(target, 0, 0xF0 | (code >> 18))
    store8(target, 1, 0x80 | ((code >> 12) & 0x3F))
    store8(target, 2, 0x80 | ((code >> 6) & 0x3F))
    store8(target, 3, 0x80 | (code & 0x3F))
    return 4


def put_string(t: ColumnTables, column: int, row: int, at: int, end: int) -> int:
    """Write the string after a quote; returns the address after it, -1, or -1 minus the code for no room.

    Words are stored whole, up to 8 bytes after the room of the column.
    """
    begin = begin_of(t, column, row)
    target, room = space_from(t, column, begin)
    size, bits = 0, 0
    while True:
        word = word_at(at, end)
        stop = stops(word)
        if size > room:
            return -1 - full_column(column)
        put_word8(target + size, word)
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
    end_bytes(t, column, row, begin + size)
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
    """As `passed_over`. A backend may make it a function of its own."""
    return passed_over(at, end)


def passed_over(at: int, end: int) -> int:
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
            at = after_number(at + 1 if byte == MINUS else at, end)
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
