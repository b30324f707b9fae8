"""Reads JSON objects of which few members are wanted: block by block, one member of all rows after the other, as `avro_walk` reads Avro.

Members have to come in the order of a plan; each may be missing. A row is decided if nothing else is in it, and all of its syntax is
checked. The others, valid or not, are left to `kolumn.encodings.json`.

A plan is int64 words at one address, made by `kolumn.values.text.json_walk`:

    operations | wanted members | separator | its mask | its bytes | between objects | its mask | operations

A *separator* is a comma, or a comma and a space; between the objects of a list there are brackets around it. Both are given as the first
bytes of a word. An operation passes over a member. Its words are the member's kind; bytes of its name with the quotes, the colon and a
space if there is one; where these are, and 32 bytes in all; bits of those that count; its number if it is wanted, else -1; and how many
operations after it are for the members of each object in it, if it is a list of objects.
"""

from kolumn.cpu_fallback.machine.address import (
    STEP,
    differ32,
    load8,
    load32,
    load64,
    not_digits32,
    not_text32,
    select,
    store64,
    trailing_zeros,
)
from kolumn.cpu_fallback.values.blocks import AT, BLOCK, END, LIMIT
from kolumn.encodings.columns import DONE, ColumnTables, put_nulls, set_valid
from kolumn.encodings.json import FIELD, UNDECIDED, JsonProgram, column_of, fills_of, put_value
from kolumn.encodings.json_text import CLOSE_LIST, CLOSE_OBJECT, COMMA, MINUS, NULL, OPEN_OBJECT, QUOTE, after_value, next_byte
from kolumn.machine_code.deferred import register_jitable

REACH = 80
"""Bytes that are loaded before the row's end is looked at: a name and what follows."""
ROOM = 6
"""Words of memory for each row of a block, besides one for each wanted member."""
TEXT, INTEGER, NUMBER, OTHER, OBJECTS = range(5)
"""Kinds of members."""
HEAD, OPERATION = 56, 48
"""Bytes in front of the operations, and of each."""
_AT, _END, _LIMIT = AT, END, LIMIT
_ALL, _GOING, _LEFT, _FOUND = (8 * BLOCK * k for k in range(3, ROOM + 1))
_COUNT, _WANTED, _COMMA, _MASK, _STEP, _BETWEEN, _BETWEEN_MASK = range(0, HEAD, 8)
_KIND, _LENGTH, _NAME, _BITS, _NUMBER, _INNER = range(0, OPERATION, 8)
_SPACE, _ZERO, _POINT = (ord(one) for one in " 0.")
_EMPTY, _WITHIN = (int.from_bytes(one, "little") for one in (b"[]", b"[{"))
_NONE = 1 << STEP
"""A bit after those of 32 bytes."""
_SHORTEST = 8
_BLOCK, _HEAD, _OPERATION, _FIELD = BLOCK, HEAD, OPERATION, FIELD


@register_jitable
def walk(plan: int, memory: int, rows: int) -> None:
    """Read a block, whose memory is as `begin_rows` left it."""
    for r in range(rows):
        row = memory + 8 * r
        store64(row + _ALL, 8 * r)
        at, end, limit = load64(row + _AT), load64(row + _END), load64(row + _LIMIT)
        # Near its end a row is read by words that end there.
        store64(row + _AT, at + 1 if (load8(at) == OPEN_OBJECT) & (end - at >= _SHORTEST) else limit)
    operation = plan + _HEAD
    for _ in range(load64(plan)):
        inner = load64(operation + _INNER)
        if inner > 0:
            pass_lists(plan, operation, inner, memory, rows)
        else:
            pass_members(plan, operation, memory, memory + _ALL, rows)
        operation += _OPERATION * (1 + inner)


@register_jitable(forceinline=True)
def _is_closed(at: int) -> bool:
    """Whether an object ends at ``at``: there is a bracket, and no separator in front of it."""
    before = load8(at - 1)
    return (load8(at) == CLOSE_OBJECT) & (before != COMMA) & (before != _SPACE)


@register_jitable(forceinline=True)
def is_whole(memory: int, r: int) -> bool:
    """Whether row ``r`` is decided: an object that is valid, but for the values of what is wanted."""
    at, end = load64(memory + _AT + 8 * r), load64(memory + _END + 8 * r)
    return at < end and _is_closed(at) and (at + 1 == end or next_byte(at + 1, end)[0] == end)


@register_jitable
def put_found(t: ColumnTables, p: JsonProgram, plan: int, memory: int, r: int, row: int) -> int:
    """Write the wanted members of row ``r`` of the block, which is decided. Results as of `kolumn.encodings.json.decode`."""
    set_valid(t, column_of(p.fields), row, 1)
    field, found, end = p.fields, memory + _FOUND + 8 * r, load64(memory + _END + 8 * r)
    for _ in range(load64(plan + _WANTED)):
        field += _FIELD
        at = load64(found)
        found += 8 * _BLOCK
        if at == 0:
            fill, fills = fills_of(field)
            put_nulls(t, fill, fills, row)
            continue
        at = put_value(t, p, field, row, at, load8(at), end)
        if at < 0:
            return -1 - at if at < -1 else UNDECIDED
        # An integer may go on as a number with a fraction.
        byte = load8(at)
        if (byte != COMMA) & (byte != CLOSE_OBJECT):
            return UNDECIDED
    return DONE


@register_jitable(forceinline=True)
def _if_zero(word: int) -> int:
    """-1 if a number of at most 63 bits is 0, else 0."""
    return (word - 1) >> 63


@register_jitable(forceinline=True)
def _after_text(at: int) -> tuple[int, int]:
    """Address after a string or null, and 0 if it is one; a string that is long or not plain ASCII is none."""
    size = trailing_zeros(not_text32(at + 1) | _NONE)
    text = _if_zero((load8(at) ^ QUOTE) | (load8(at + 1 + size) ^ QUOTE))
    return at + 4 + ((size - 2) & text), (load32(at) ^ NULL) & ~text


@register_jitable(forceinline=True)
def _after_integer(at: int) -> tuple[int, int]:
    """As `_after_number`, without a fraction."""
    first = at + (1 if load8(at) == MINUS else 0)
    size = trailing_zeros(not_digits32(first) | _NONE)
    return first + size, 0 if (size > 0) & ((size == 1) | (load8(first) != _ZERO)) else 1


@register_jitable(forceinline=True)
def _after_number(at: int) -> tuple[int, int]:
    """Address after a number and 0 if it is one; one that is long or has an exponent goes on there."""
    first = at + (1 if load8(at) == MINUS else 0)
    stops = not_digits32(first) | _NONE
    whole = trailing_zeros(stops)
    point = load8(first + whole) == _POINT
    size = select(point, trailing_zeros((stops & (stops - 1)) | _NONE), whole)
    fine = (whole > 0) & ((whole == 1) | (load8(first) != _ZERO)) & (size != whole + 1)
    return first + size, 0 if fine else 1


@register_jitable(forceinline=True)
def _move(plan: tuple[int, int, int], memory: int, place: int, value: int, after: int, bad: int, left: int) -> int:
    """Let a row go on after a value, or if that is ``bad``, add it to those that are ``left``; returns how many these are.

    What follows is told by arithmetic: of conditions the compiler makes branches, which no processor predicts.
    """
    comma, mask, step = plan
    word = load32(after)
    other, unclosed = (word & mask) ^ comma, (word & 0xFF) ^ CLOSE_OBJECT
    if bad | other * unclosed == 0:
        store64(memory + place + _AT, min(after + (step & _if_zero(other)), load64(memory + place + _LIMIT)))
        return left
    store64(memory + place + _AT, value)
    store64(memory + _LEFT + 8 * left, place)
    return left + 1


@register_jitable
def _pass_left(memory: int, left: int) -> None:
    """Pass over the values of the rows that are left. What is in them does not matter, so a loop of its own has it."""
    for i in range(left):
        row = memory + load64(memory + _LEFT + 8 * i)
        end, limit = load64(row + _END), load64(row + _LIMIT)
        at = after_value(load64(row + _AT), end)
        if at >= 0:
            at, byte = next_byte(at, end)
            if byte == COMMA:
                at, _ = next_byte(at + 1, end)
                # An object may not end here.
                at = at if load8(at) == QUOTE else limit
            elif byte != CLOSE_OBJECT:
                at = limit
        store64(row + _AT, limit if at < 0 else min(at, limit))


@register_jitable
def find_values(plan: int, operation: int, memory: int, rows: int) -> None:
    """Note where the values of a wanted member are, 0 where it does not come next."""
    length, name, bits = load64(operation + _LENGTH), plan + load64(operation + _NAME), load64(operation + _BITS)
    found = memory + _FOUND + 8 * _BLOCK * load64(operation + _NUMBER)
    for r in range(rows):
        at = load64(memory + _AT + 8 * r)
        store64(found + 8 * r, at + length if differ32(at, name) & bits == 0 else 0)


@register_jitable
def pass_members(plan: int, operation: int, memory: int, places: int, rows: int) -> None:
    """Pass over a member in the rows whose places are at ``places``."""
    kind, number = load64(operation), load64(operation + _NUMBER)
    # Arguments that are constants: each kind has a loop of its own.
    if number >= 0:
        find_values(plan, operation, memory, rows)
    if kind == TEXT:
        left = _passed(TEXT, plan, operation, memory, places, rows)
    elif kind == INTEGER:
        left = _passed(INTEGER, plan, operation, memory, places, rows)
    elif kind == NUMBER:
        left = _passed(NUMBER, plan, operation, memory, places, rows)
    else:
        left = _passed(OTHER, plan, operation, memory, places, rows)
    _pass_left(memory, left)


@register_jitable(forceinline=True)
def _passed(kind: int, plan: int, operation: int, memory: int, places: int, rows: int) -> int:
    """Pass over a member in each row, and return how many rows are left."""
    length, name, bits = load64(operation + _LENGTH), plan + load64(operation + _NAME), load64(operation + _BITS)
    signs = load64(plan + _COMMA), load64(plan + _MASK), load64(plan + _STEP)
    left = 0
    for i in range(rows):
        place = load64(places + 8 * i)
        at = load64(memory + place + _AT)
        if differ32(at, name) & bits != 0:
            continue
        value = at + length
        after, bad = value, 1
        if kind == TEXT:
            after, bad = _after_text(value)
        elif kind == NUMBER:
            after, bad = _after_number(value)
        elif kind == INTEGER:
            after, bad = _after_integer(value)
        left = _move(signs, memory, place, value, after, bad, left)
    return left


@register_jitable
def pass_lists(plan: int, operation: int, inner: int, memory: int, rows: int) -> None:
    """Pass over a list of objects in each row."""
    going, left = 0, 0
    length, name, bits = load64(operation + _LENGTH), plan + load64(operation + _NAME), load64(operation + _BITS)
    comma, mask, step = load64(plan + _COMMA), load64(plan + _MASK), load64(plan + _STEP)
    for r in range(rows):
        at, limit = load64(memory + 8 * r + _AT), load64(memory + 8 * r + _LIMIT)
        if differ32(at, name) & bits != 0:
            continue
        value = at + length
        brackets = load32(value) & 0xFFFF
        within = brackets == _WITHIN
        word = load32(value + 2)
        more = (word & mask == comma) & (brackets == _EMPTY)
        fine = within | more | ((word & 0xFF == CLOSE_OBJECT) & (brackets == _EMPTY))
        store64(memory + 8 * r + _AT, select(fine, min(value + 2 + select(more, step, 0), limit), value))
        store64(memory + _GOING + 8 * going, 8 * r)
        going += 1 if within else 0
        store64(memory + _LEFT + 8 * left, 8 * r)
        left += 0 if fine else 1
    _pass_left(memory, left)
    while going > 0:
        for k in range(inner):
            pass_members(plan, operation + _OPERATION * (1 + k), memory, memory + _GOING, going)
        going = _next_objects(plan, memory, going)


@register_jitable
def _next_objects(plan: int, memory: int, going: int) -> int:
    """End an object in each of the rows that are in a list, and go on in the next one or after the list; returns how many are in it."""
    comma, mask, step = load64(plan + _COMMA), load64(plan + _MASK), load64(plan + _STEP)
    between, between_mask, left = load64(plan + _BETWEEN), load64(plan + _BETWEEN_MASK), 0
    for i in range(going):
        place = load64(memory + _GOING + 8 * i)
        at, limit = load64(memory + place + _AT), load64(memory + place + _LIMIT)
        word, ended = load32(at), _is_closed(at)
        again = ended & (word & between_mask == between) & (at < limit)
        after = load32(at + 2)
        more = after & mask == comma
        last = ended & ((word >> 8) & 0xFF == CLOSE_LIST) & (more | (after & 0xFF == CLOSE_OBJECT))
        at = select(again, at + 2 + step, select(last, at + 2 + select(more, step, 0), limit))
        store64(memory + place + _AT, min(at, limit))
        store64(memory + _GOING + 8 * left, place)
        left += 1 if again else 0
    return left
