"""Avro's binary encoding (https://avro.apache.org/docs/1.12.0/specification/#binary-encoding): a program of steps, made from a writer's and
a reader's schema, writes one value into columns. Of values that no column gets, what their lengths and blocks say is checked.

A program is int64 words at one address. Rows of eight words are steps; constants come after them. Places in a program are bytes from its
address, so it can lie anywhere.

    word  | 0    | 1      | 2 | 3    | 4 | 5          | 6     | 7
          | kind | column | a | jump | b | first fill | fills | branch of null

A kind with `OPTIONAL` has a union's branch in front: that of null makes the fills null and goes to ``jump``, the other one is the step.
Lists are loops: `LIST` begins one or jumps over the `NEXT` after the steps of an item. A frame on ``stack`` has three words of
the list around it: items left of its block, its row, and where a block that says its size has to end.
"""

from kolumn.formats.memory import i8_at, load8
from kolumn.formats.words import load64, store64
from kolumn.values.wire import columns
from kolumn.values.wire import json_numbers as numbers
from kolumn.values.wire.columns import DONE, INVALID, ColumnTables, put_word, wide
from kolumn.values.wire.json_numbers import little32, long_at, size_at

STEP, FRAME = 64, 24  # Bytes of a step, and of a frame of the stack.
FREE = 65536  # Items without bytes that a value may have, in addition to one for each of its bytes.
OPTIONAL = 64
LONG, INT, INT_TO_LONG, TIME, SCALED, INT_TO_FLOAT, INT_TO_DOUBLE = range(7)
TEXT, BYTES, DECIMAL_BYTES, ENUM, UNION = range(7, 12)
DOUBLE, FLOAT, BOOLEAN, FLOAT_TO_DOUBLE, FIXED, DECIMAL, DURATION = range(12, 19)
NEXT, LIST, JUMP, END, FAIL, OPEN, ITEM, CLOSE = range(19, 27)
VALID, NULLS, WORD, CONSTANT, CONSTANT_FIXED = range(27, 32)
SKIP_LENGTH, SKIP_LONG, SKIP_NUMBER, SKIP_NEXT, SKIP_LIST, SKIP_BYTES, SKIP_BOOLEAN, SKIP_UNION, SKIP_JUMP = range(32, 41)
"""Kinds of steps. Those of the last line write nothing. LONG to UNION begin with a number. What their words mean:

LONG, INT, INT_TO_LONG, FLOAT, DOUBLE, BOOLEAN, FLOAT_TO_DOUBLE, DURATION, TEXT, BYTES: ``column``.
TIME: a: the most that the number can be, the least is 0; b: bytes to write.
SCALED: a: what to multiply a time with, or, if negative, to divide it by; b: how far from 0 the number can be: others are left to
`kolumn.values.avro_plain`.
INT_TO_FLOAT, INT_TO_DOUBLE: a: whether the number has to fit 32 bits.
ENUM: a: place of the reader's indexes by the writer's, -1 for none; b: how many the writer has.
DECIMAL_BYTES, DECIMAL: a: place of the largest number, words from the lowest on, and of the smallest one after it; b: bytes of a number in
the column; after the two numbers a word with the bytes of a DECIMAL. FIXED: b: bytes.
LIST, SKIP_LIST: a: level of the items, -1 if they are skipped; b: whether items may have no bytes; ``jump``: the step after its NEXT.
NEXT, SKIP_NEXT: the same, but ``jump`` is the first step of an item. UNION, SKIP_UNION: b: branches; as many steps follow, of which
``jump`` counts. SKIP_LONG: any number. SKIP_NUMBER: a, b: the least and the most that the number can be. SKIP_LENGTH: as many bytes follow
as the number says, and a more. SKIP_BYTES: b: how many. NULLS: fills. VALID: ``column`` is not null. WORD: a: bits, b: bytes. CONSTANT,
CONSTANT_FIXED: a: place, b: bytes. OPEN, ITEM, CLOSE: a list of constants; a: level.
"""
COLUMN_AT, A_AT, JUMP_AT, B_AT, FILL_AT, FILLS_AT, NULL_AT = 8, 16, 24, 32, 40, 48, 56  # Where words are in a step.
ROW_AT, LIMIT_AT = 8, 16  # Where words are in a frame.


def skip(program: int, pc: int, stack: int, at: int, end: int, free: int) -> tuple[int, int, int]:
    """As `skip_steps`. A backend may make it a function of its own, whose loop then has the registers for itself."""
    return skip_steps(program, pc, stack, at, end, free)


def skip_steps(program: int, pc: int, stack: int, at: int, end: int, free: int) -> tuple[int, int, int]:
    """Run the steps that write nothing, from the place ``pc`` on. ``free`` are the items without bytes that the value may have. Returns
    address, place and ``free`` after the last of these steps; the address is -1 if the value is not valid.
    """
    left, limit = 0, 0
    while at >= 0:
        s = program + pc
        kind = load64(s)
        if kind & (OPTIONAL - 1) < SKIP_LENGTH:
            break
        if kind >= OPTIONAL:
            kind -= OPTIONAL
            value, at = size_at(at, end)
            if at < 0 or value < 0 or value > 1:
                return -1, pc, free
            if value == load64(s + NULL_AT):
                pc = load64(s + JUMP_AT)
                continue
        pc += STEP
        if kind == SKIP_LENGTH:
            value, at = size_at(at, end)
            if value < 0 or value > end - at - load64(s + A_AT):
                return -1, pc, free
            at = at + load64(s + A_AT) + value if at >= 0 else -1
        elif kind == SKIP_LONG:
            at = numbers.after_long(at, end)
        elif kind == SKIP_NUMBER:
            value, at = long_at(at, end)
            if value < load64(s + A_AT) or value > load64(s + B_AT):
                return -1, pc, free
        elif kind <= SKIP_LIST:
            if kind == SKIP_LIST:
                store64(stack, left)
                store64(stack + LIMIT_AT, limit)
                stack, left, limit = stack + FRAME, 0, 0
            if left == 0:
                left, at, limit, free = block(s, at, end, limit, free)
            left -= 1
            if (left < 0) == (kind == SKIP_LIST):
                pc = load64(s + JUMP_AT)
            if left < 0:
                stack -= FRAME
                left, limit = load64(stack), load64(stack + LIMIT_AT)
        elif kind == SKIP_JUMP:
            pc = load64(s + JUMP_AT)
        elif kind == SKIP_UNION:
            at, pc = branch_of(s, pc, at, end)
        elif kind == SKIP_BYTES:
            size = load64(s + B_AT)
            at = at + size if size <= end - at else -1
        else:
            at = at + 1 if at < end and load8(at, 0) <= 1 else -1
    return at, pc, free


def branch_of(s: int, pc: int, at: int, end: int) -> tuple[int, int]:
    """Address after the branch of a union, and place of the next step."""
    value, at = size_at(at, end)
    if at < 0 or value < 0 or value >= load64(s + B_AT):
        return -1, pc
    return at, load64(s + STEP * (value + 1) + JUMP_AT)


def block(s: int, at: int, end: int, limit: int, free: int) -> tuple[int, int, int, int]:
    """Items of the next block, the address after its head, where it has to end (0 if it does not say), items without bytes left. Blocks of
    lists that are skipped are skipped whole if they say their size.
    """
    if limit != 0 and at != limit:
        return 1, -1, 0, free
    limit = 0
    count, at = size_at(at, end)
    while at >= 0 and count < 0:
        size, at = long_at(at, end)
        if at < 0 or size < 0 or size > end - at or count == _SIGN:
            return 1, -1, 0, free
        if load64(s + A_AT) < 0:
            count, at = long_at(at + size, end)
        else:
            count, limit = -count, at + size
    if at < 0 or (load64(s + B_AT) == 0 and count > end - at):
        return 1, -1, 0, free
    if load64(s + B_AT) != 0:
        free -= count
        if free < 0:
            return 1, -1, 0, free
    return count, at, limit, free


_LEAST32, _MOST32 = -(2**31), 2**31 - 1
_SIGN = -(2**63)
_MILLISECOND = 1_000_000
_LOW = 2**32 - 1


def decode(t: ColumnTables, program: int, constants: int, stack: int, begin: int, end: int, row: int, resumed: int) -> int:
    """Write the value at addresses [begin, end) into a row of level 0. ``constants`` is the program that lasts until all is written, of
    which ``program`` may be a copy. ``stack`` has a frame for each list around a value, and one more. ``resumed`` is 0 for the whole value;
    on a GPU the word that the first pass leaves at ``stack``: bytes from the first list on, and in the low 32 bits its step. It leaves 0 if
    there is no list. Returns `DONE`, `INVALID`, or what has no room; after the latter two the caller calls
    `kolumn.values.wire.columns.restore`.
    """
    at, pc = (begin if resumed == 0 else end - (resumed >> 32)), resumed & _LOW
    value, free, lists = 0, end - begin + FREE, 0
    # Items that are left of the innermost list's block, and where the block has to end; those of the lists around it are on the stack.
    # A kind that is dealt with becomes `OPTIONAL`. No step goes on with the next one before the end of the loop: lanes of a GPU meet there.
    left, limit = 0, 0
    while True:
        s, before = program + pc, at
        pc += STEP
        kind = load64(s)
        if kind >= SKIP_LENGTH:
            if kind & (OPTIONAL - 1) >= SKIP_LENGTH:
                at, pc, free = skip(program, pc - STEP, stack, at, end, free)
                kind = OPTIONAL
            else:
                at, pc, kind = _optional(t, s, kind - OPTIONAL, pc, at, end, row)
        if kind < TEXT:
            value, at = long_at(at, end)
            if at >= 0:
                at = _number(t, s, kind, value, at, row)
        elif kind < UNION:
            value, at = size_at(at, end)
            if at >= 0:
                at = _sized(t, program, s, kind, value, at, end, row)
        elif kind == UNION:
            at, pc = branch_of(s, pc, at, end)
        elif kind <= DURATION:
            at = _plain(t, program, s, kind, at, end, row)
        elif kind <= LIST:
            if kind == LIST:
                lists = lists if lists != 0 else (end - before) << 32 | (s - program)
                store64(stack, left)
                store64(stack + ROW_AT, row)
                store64(stack + LIMIT_AT, limit)
                stack, left, limit = stack + FRAME, 0, 0
            if left == 0:
                left, at, limit, free = block(s, at, end, limit, free)
            left -= 1
            if (left < 0) == (kind == LIST):
                pc = load64(s + JUMP_AT)
            if left >= 0:
                row = columns.next_row(t, load64(s + A_AT))
                at = at if row >= 0 else row - 1
            else:
                stack -= FRAME
                left, limit, row = load64(stack), load64(stack + LIMIT_AT), load64(stack + ROW_AT)
                columns.end_list(t, load64(s + COLUMN_AT), row, load64(s + A_AT))
        elif kind == JUMP:
            pc = load64(s + JUMP_AT)
        elif kind == END:
            columns.leave(t, stack, lists)
            return DONE if at == end else INVALID
        elif kind <= CLOSE:
            lists = lists if lists != 0 else (end - before) << 32 | (s - program)
            at, row, stack = _listed(t, s, kind, at, row, stack)
        elif kind != OPTIONAL:
            at = _other(t, program, constants, s, kind, at, row)
        if at < 0:
            return -1 - at if at < -1 else INVALID


def _optional(t: ColumnTables, s: int, kind: int, pc: int, at: int, end: int, row: int) -> tuple[int, int, int]:
    """The branch in front of a step: address after it, -1 if there is none, place of the next step, and the kind that is left to do."""
    value, at = size_at(at, end)
    if at < 0 or value < 0 or value > 1:
        return -1, pc, OPTIONAL
    if value == load64(s + NULL_AT):
        columns.put_nulls(t, load64(s + FILL_AT), load64(s + FILLS_AT), row)
        return at, load64(s + JUMP_AT), OPTIONAL
    return at, pc, kind


def _listed(t: ColumnTables, s: int, kind: int, at: int, row: int, stack: int) -> tuple[int, int, int]:
    """A list of constants: address, row and stack after the step."""
    if kind == OPEN:
        store64(stack + ROW_AT, row)
        return at, row, stack + FRAME
    if kind == ITEM:
        row = columns.next_row(t, load64(s + A_AT))
        return at if row >= 0 else row - 1, row, stack
    if kind == CLOSE:
        row = load64(stack - FRAME + ROW_AT)
        columns.end_list(t, load64(s + COLUMN_AT), row, load64(s + A_AT))
        return at, row, stack - FRAME
    return -1, row, stack


def _number(t: ColumnTables, s: int, kind: int, value: int, at: int, row: int) -> int:
    column = load64(s + COLUMN_AT)
    is_int = value >= _LEAST32 and value <= _MOST32
    if kind == LONG:
        put_word(t, column, row, value, 8)
    elif kind <= INT_TO_LONG:
        if not is_int:
            return -1
        if kind == INT:
            put_word(t, column, row, value, 4)
        else:
            put_word(t, column, row, value, 8)
    elif kind == TIME:
        if value < 0 or value > load64(s + A_AT):
            return -1
        put_word(t, column, row, value, load64(s + B_AT))
    elif kind == SCALED:
        return _scaled(t, s, value, at, row)
    elif load64(s + A_AT) != 0 and not is_int:
        return -1
    elif kind == INT_TO_FLOAT:
        put_word(t, column, row, numbers.float_of(value), 4)
    else:
        put_word(t, column, row, numbers.double_of(value), 8)
    return at


def _scaled(t: ColumnTables, s: int, value: int, at: int, row: int) -> int:
    factor, most = load64(s + A_AT), load64(s + B_AT)
    if value > most or value < -most:
        return -1
    if factor > 0:
        value *= factor
    elif value >= 0:
        value = value // -factor
    else:
        # Down, as for later times.
        value = -((-value - factor - 1) // -factor)
    put_word(t, load64(s + COLUMN_AT), row, value, 8)
    return at


def _sized(t: ColumnTables, program: int, s: int, kind: int, size: int, at: int, end: int, row: int) -> int:
    """Steps with as many bytes as a number says, and enums."""
    column = load64(s + COLUMN_AT)
    if kind <= BYTES:
        if size < 0 or size > end - at:
            return -1
        code = columns.put_text(t, column, row, at, size) if kind == TEXT else columns.put_bytes(t, column, row, at, size)
        return at + size if code == DONE else min(-1, -1 - code)
    if kind == ENUM:
        if size < 0 or size >= load64(s + B_AT):
            return -1
        index = load64(program + load64(s + A_AT) + 8 * size)
        if index < 0:
            return -1
        put_word(t, column, row, index, 4)
        return at
    return _decimal(t, program, s, at, size, row) if size >= 0 and size <= end - at else -1


def _plain(t: ColumnTables, program: int, s: int, kind: int, at: int, end: int, row: int) -> int:
    """Steps whose value has a known number of bytes."""
    column, size = load64(s + COLUMN_AT), load64(s + B_AT)
    if kind == DECIMAL:
        size = load64(program + load64(s + A_AT) + 2 * size)
    if size > end - at:
        return -1
    if kind == DOUBLE:
        put_word(t, column, row, numbers.little64(at), 8)
    elif kind == FLOAT:
        put_word(t, column, row, little32(at), 4)
    elif kind == BOOLEAN:
        byte = load8(at, 0)
        if byte > 1:
            return -1
        put_word(t, column, row, byte, 1)
    elif kind == FLOAT_TO_DOUBLE:
        put_word(t, column, row, numbers.double_of_float(little32(at)), 8)
    elif kind == FIXED:
        target = wide(t, column, row, size)
        if target != 0:
            columns.copy(target, at, size)
    elif kind == DECIMAL:
        return _decimal(t, program, s, at, size, row)
    else:
        months, days = little32(at), little32(at + 4)
        if months > _MOST32 or days > _MOST32:
            return -1
        target = wide(t, column, row, 16)
        if target != 0:
            store64(target, months | (days << 32))
            store64(target + 8, little32(at + 8) * _MILLISECOND)
    return at + size


def _decimal(t: ColumnTables, program: int, s: int, at: int, size: int, row: int) -> int:
    """A decimal of ``size`` bytes; returns the address after it. It is not valid if it has more digits than its type."""
    width, bounds = load64(s + B_AT), program + load64(s + A_AT)
    if size == 0:
        return -1
    for k in range(width, size):
        # Bytes beyond those of the column repeat the sign.
        if load8(at, size - 1 - k) != i8_at(at, size - width) >> 7 & 0xFF:
            return -1
    above, below = 0, 0
    for word in range(width // 8 - 1, -1, -1):
        value, most, least = numbers.big_endian(at, size, word), load64(bounds + 8 * word), load64(bounds + width + 8 * word)
        if word < width // 8 - 1:
            value, most, least = value ^ _SIGN, most ^ _SIGN, least ^ _SIGN
        if above == 0 and value != most:
            above = 1 if value > most else -1
        if below == 0 and value != least:
            below = 1 if value > least else -1
    if above > 0 or below < 0:
        return -1
    target = wide(t, load64(s + COLUMN_AT), row, width)
    if target != 0:
        for word in range(width // 8):
            store64(target + 8 * word, numbers.big_endian(at, size, word))
    return at + size


def _other(t: ColumnTables, program: int, constants: int, s: int, kind: int, at: int, row: int) -> int:
    column, size = load64(s + COLUMN_AT), load64(s + B_AT)
    if kind == VALID:
        columns.set_valid(t, column, row, 1)
    elif kind == NULLS:
        columns.put_nulls(t, load64(s + FILL_AT), load64(s + FILLS_AT), row)
    elif kind == WORD:
        put_word(t, column, row, load64(s + A_AT), size)
    elif kind == CONSTANT:
        code = columns.put_bytes(t, column, row, constants + load64(s + A_AT), size)
        return at if code == DONE else min(-1, -1 - code)
    elif kind == CONSTANT_FIXED:
        target = wide(t, column, row, size)
        if target != 0:
            columns.copy(target, program + load64(s + A_AT), size)
    else:
        return -1
    return at
