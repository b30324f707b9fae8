"""Avro's binary encoding: a program of steps, made from a writer's and a reader's schema, writes one value into columns.

A program is int64 words at one address. Rows of eight words are steps; constants come after them. Places in a program are bytes from its
address, so it can lie anywhere.

    word  | 0    | 1      | 2 | 3    | 4 | 5          | 6     | 7
          | kind | column | a | jump | b | first fill | fills | branch of null

A kind with `OPTIONAL` has a union's branch in front: that of null makes the fills null and goes to ``jump``, the other one is the step.
Lists are loops: `LIST` begins one or jumps over the `NEXT` after the steps of an item. A frame on ``stack`` has three words of
the list around it: items left of its block, its row, and where a block that says its size has to end.

Source: the Avro specification 1.12, "Binary Encoding".
"""

from kolumn.encodings.columns import (
    DONE,
    INVALID,
    Target,
    end_list,
    next_row,
    put_bytes,
    put_nulls,
    put_text,
    put_word,
    set_valid,
    wide,
)
from kolumn.encodings.floats import double_of, double_of_float, float_of
from kolumn.encodings.numbers import big_endian, little32, little64, long_at, size_at
from kolumn.encodings.text import copy
from kolumn.formats.memory import i8_at, load8
from kolumn.machine_code.words import load64, store64

STEP, FRAME = 64, 24
"""Bytes of a step, and of a frame of the stack."""
FREE = 65536
"""So many items without bytes a value may have beyond its own bytes."""
OPTIONAL = 64

INT, LONG, TIME, INT_TO_FLOAT, INT_TO_DOUBLE, SKIP_NUMBER = range(6)
TEXT, BYTES, DECIMAL_BYTES, SKIP_LENGTH, ENUM, UNION = range(6, 12)
FLOAT, DOUBLE, BOOLEAN, FLOAT_TO_DOUBLE, FIXED, DECIMAL, DURATION = range(12, 19)
LIST, NEXT, JUMP, END, FAIL, OPEN, ITEM, CLOSE = range(19, 27)
SKIP_BYTES, SKIP_BOOLEAN, NULLS, VALID, WORD, CONSTANT, CONSTANT_FIXED = range(27, 34)
"""Kinds of steps. Those up to UNION begin with a number. What their words mean:

INT (a: 1; b: bytes to write), LONG, FLOAT, DOUBLE, BOOLEAN, FLOAT_TO_DOUBLE, DURATION, TEXT, BYTES: ``column``.
TIME: a: the most that the number can be, the least is 0; b: bytes to write.
INT_TO_FLOAT, INT_TO_DOUBLE: a: whether the number has to fit 32 bits.
ENUM: a: place of the reader's indexes by the writer's, -1 for none; b: how many the writer has.
DECIMAL_BYTES, DECIMAL: a: place of the largest number, words from the lowest on, and of the smallest one after it; b: bytes of a number in
the column; after the two numbers a word with the bytes of a DECIMAL. FIXED: b: bytes.
LIST: a: level of the items, -1 if they are skipped; b: whether items may have no bytes; ``jump``: the step after its NEXT. NEXT: the same,
but ``jump`` is the first step of an item. UNION: b: branches; as many steps follow, of which ``jump`` counts.
SKIP_NUMBER: a, b: the least and the most that the number can be. SKIP_LENGTH: as many bytes follow as the number says, and a more.
SKIP_BYTES: b: how many.
NULLS: fills. VALID: ``column`` is not null. WORD: a: bits, b: bytes. CONSTANT, CONSTANT_FIXED: a: place, b: bytes.
OPEN, ITEM, CLOSE: a list of constants; a: level.
"""
_COLUMN, _A, _JUMP, _B, _FILL, _FILLS, _NULL = 8, 16, 24, 32, 40, 48, 56
_ROW, _LIMIT = 8, 16
_LEAST32, _MOST32 = -(2**31), 2**31 - 1
_SIGN = -(2**63)
_MILLISECOND = 1_000_000


def decode(t: Target, program: int, stack: int, at: int, end: int, row: int) -> int:
    """Write the value at [at, end) into a row of level 0.

    Parameters
    ----------
    t : Target
    program, stack, at, end : int
        Addresses. ``stack`` has a frame for each list around a value, and one more.
    row : int

    Returns
    -------
    int
        `DONE`, `INVALID`, or what has no room; after the latter two the caller calls `kolumn.encodings.columns.restore`.
    """
    pc, value, free = 0, 0, end - at + FREE
    # Items that are left of the innermost list's block, and where the block has to end; those of the lists around it are on the stack.
    left, limit = 0, 0
    while True:
        s = program + pc
        pc += STEP
        kind = load64(s)
        if kind >= OPTIONAL:
            kind -= OPTIONAL
            value, at = size_at(at, end)
            if at < 0 or value < 0 or value > 1:
                return INVALID
            if value == load64(s + _NULL):
                put_nulls(t, load64(s + _FILL), load64(s + _FILLS), row)
                pc = load64(s + _JUMP)
                continue
        if kind <= SKIP_NUMBER:
            value, at = long_at(at, end)
            if at >= 0:
                at = _number(t, s, kind, value, at, row)
        elif kind <= UNION:
            value, at = size_at(at, end)
            if at < 0 or value < 0:
                return INVALID
            if kind != UNION:
                at = _sized(t, program, s, kind, value, at, end, row)
            elif value < load64(s + _B):
                pc = load64(s + STEP * (value + 1) + _JUMP)
            else:
                return INVALID
        elif kind <= DURATION:
            at = _plain(t, program, s, kind, at, end, row)
        elif kind <= NEXT:
            if kind == LIST:
                _push(stack, left, limit, row)
                stack, left, limit = stack + FRAME, 0, 0
            if left == 0:
                left, at, limit, free = _block(s, at, end, limit, free)
            if left == 0:
                stack -= FRAME
                left, limit, row = load64(stack), load64(stack + _LIMIT), load64(stack + _ROW)
                if load64(s + _A) >= 0:
                    end_list(t, load64(s + _COLUMN), row, load64(s + _A))
                if kind == LIST:
                    pc = load64(s + _JUMP)
            else:
                left -= 1
                if kind == NEXT:
                    pc = load64(s + _JUMP)
                if load64(s + _A) >= 0:
                    row = next_row(t, load64(s + _A))
                    at = at if row >= 0 else row - 1
        elif kind == JUMP:
            pc = load64(s + _JUMP)
        elif kind == END:
            return DONE if at == end else INVALID
        elif kind <= CLOSE:
            at, row, stack = _listed(t, s, kind, at, row, stack)
        else:
            at = _other(t, program, s, kind, at, end, row)
        if at < 0:
            return -1 - at if at < -1 else INVALID


def _failed(code: int) -> int:
    """What stands in place of an address after a failure: -1 for a value that is not valid, below that what has no room."""
    return -1 if code == INVALID else -1 - code


def _push(stack: int, left: int, limit: int, row: int) -> None:
    store64(stack, left)
    store64(stack + _ROW, row)
    store64(stack + _LIMIT, limit)


def _block(s: int, at: int, end: int, limit: int, free: int) -> tuple[int, int, int, int]:
    """Items of the next block, the address after its head, where it has to end (0 if it does not say), items without bytes left.

    Blocks of lists that are skipped are skipped whole if they say their size.
    """
    if limit != 0 and at != limit:
        return 1, -1, 0, free
    limit = 0
    count, at = size_at(at, end)
    while at >= 0 and count < 0:
        size, at = long_at(at, end)
        if at < 0 or size < 0 or size > end - at or count == _SIGN:
            return 1, -1, 0, free
        if load64(s + _A) < 0:
            count, at = long_at(at + size, end)
        else:
            count, limit = -count, at + size
    if at < 0 or (load64(s + _B) == 0 and count > end - at):
        return 1, -1, 0, free
    if load64(s + _B) != 0:
        free -= count
        if free < 0:
            return 1, -1, 0, free
    return count, at, limit, free


def _listed(t: Target, s: int, kind: int, at: int, row: int, stack: int) -> tuple[int, int, int]:
    """A list of constants: address, row and stack after the step."""
    if kind == OPEN:
        store64(stack + _ROW, row)
        return at, row, stack + FRAME
    if kind == ITEM:
        row = next_row(t, load64(s + _A))
        return at if row >= 0 else row - 1, row, stack
    if kind == CLOSE:
        row = load64(stack - FRAME + _ROW)
        end_list(t, load64(s + _COLUMN), row, load64(s + _A))
        return at, row, stack - FRAME
    return -1, row, stack


def _number(t: Target, s: int, kind: int, value: int, at: int, row: int) -> int:
    """Steps whose value is a number."""
    column, a = load64(s + _COLUMN), load64(s + _A)
    if kind == LONG:
        put_word(t, column, row, value, 8)
    elif kind == SKIP_NUMBER:
        return at if value >= a and value <= load64(s + _B) else -1
    elif kind == TIME:
        if value < 0 or value > a:
            return -1
        put_word(t, column, row, value, load64(s + _B))
    elif a != 0 and (value < _LEAST32 or value > _MOST32):
        return -1
    elif kind == INT:
        if load64(s + _B) == 4:
            put_word(t, column, row, value, 4)
        else:
            put_word(t, column, row, value, 8)
    elif kind == INT_TO_FLOAT:
        put_word(t, column, row, float_of(value), 4)
    else:
        put_word(t, column, row, double_of(value), 8)
    return at


def _sized(t: Target, program: int, s: int, kind: int, size: int, at: int, end: int, row: int) -> int:
    """Steps with as many bytes as a number says, and enums."""
    column, a = load64(s + _COLUMN), load64(s + _A)
    if kind == ENUM:
        if size >= load64(s + _B):
            return -1
        index = load64(program + a + 8 * size)
        if index < 0:
            return -1
        put_word(t, column, row, index, 4)
        return at
    if kind == SKIP_LENGTH:
        return at + size + a if size <= end - at - a else -1
    if size > end - at:
        return -1
    if kind == DECIMAL_BYTES:
        return _decimal(t, program, s, at, size, row)
    code = put_text(t, column, row, at, size) if kind == TEXT else put_bytes(t, column, row, at, size)
    return at + size if code == DONE else _failed(code)


def _plain(t: Target, program: int, s: int, kind: int, at: int, end: int, row: int) -> int:
    """Steps whose value has a known number of bytes."""
    column, size = load64(s + _COLUMN), load64(s + _B)
    if kind == DECIMAL:
        size = load64(program + load64(s + _A) + 2 * size)
    if size > end - at:
        return -1
    if kind == DOUBLE:
        put_word(t, column, row, little64(at), 8)
    elif kind == FLOAT:
        put_word(t, column, row, little32(at), 4)
    elif kind == BOOLEAN:
        byte = load8(at, 0)
        if byte > 1:
            return -1
        put_word(t, column, row, byte, 1)
    elif kind == FLOAT_TO_DOUBLE:
        put_word(t, column, row, double_of_float(little32(at)), 8)
    elif kind == FIXED:
        if t.columns != 0:
            copy(wide(t, column, row, size), at, size)
    elif kind == DECIMAL:
        return _decimal(t, program, s, at, size, row)
    else:
        months, days = little32(at), little32(at + 4)
        if months > _MOST32 or days > _MOST32:
            return -1
        if t.columns != 0:
            place = wide(t, column, row, 16)
            store64(place, months | (days << 32))
            store64(place + 8, little32(at + 8) * _MILLISECOND)
    return at + size


def _decimal(t: Target, program: int, s: int, at: int, size: int, row: int) -> int:
    """A decimal of ``size`` bytes; returns the address after it. It is not valid if it has more digits than its type."""
    width, bounds = load64(s + _B), program + load64(s + _A)
    if size == 0:
        return -1
    for k in range(width, size):
        # Bytes beyond those of the column repeat the sign.
        if load8(at, size - 1 - k) != i8_at(at, size - width) >> 7 & 0xFF:
            return -1
    above, below = 0, 0
    for word in range(width // 8 - 1, -1, -1):
        found, most, least = big_endian(at, size, word), load64(bounds + 8 * word), load64(bounds + width + 8 * word)
        if word < width // 8 - 1:
            found, most, least = found ^ _SIGN, most ^ _SIGN, least ^ _SIGN
        if above == 0 and found != most:
            above = 1 if found > most else -1
        if below == 0 and found != least:
            below = 1 if found > least else -1
    if above > 0 or below < 0:
        return -1
    if t.columns != 0:
        place = wide(t, load64(s + _COLUMN), row, width)
        for word in range(width // 8):
            store64(place + 8 * word, big_endian(at, size, word))
    return at + size


def _other(t: Target, program: int, s: int, kind: int, at: int, end: int, row: int) -> int:
    """Bytes that are skipped, constants, and values that are known to fail."""
    column, size = load64(s + _COLUMN), load64(s + _B)
    if kind == SKIP_BYTES:
        return at + size if size <= end - at else -1
    if kind == SKIP_BOOLEAN:
        return at + 1 if at < end and load8(at, 0) <= 1 else -1
    if kind == NULLS:
        put_nulls(t, load64(s + _FILL), load64(s + _FILLS), row)
    elif kind == VALID:
        set_valid(t, column, row, 1)
    elif kind == WORD:
        put_word(t, column, row, load64(s + _A), size)
    elif kind == CONSTANT:
        code = put_bytes(t, column, row, program + load64(s + _A), size)
        return at if code == DONE else _failed(code)
    elif kind == CONSTANT_FIXED:
        if t.columns != 0:
            copy(wide(t, column, row, size), program + load64(s + _A), size)
    else:
        return -1
    return at
