"""Writes one Protobuf message as a row of columns, by a program: tables of the messages and fields that have columns.

The tables have int64. Rows of fields and messages are named by their places in bytes. Other fields are unknown ones, and are passed over:

    messages | first field | fields | direct | numbers | all bits | fill | fills | level of a map's entries | its column | own column
    fields   | tag | other tag | kind | column | level | message | bit | ring | next | fill | fills | symbols | element | width | plain
    direct   | field of the numbers 0, 1, 2, ... of a message, -1 without one
    symbols  | count | numbers, ascending | index of each

A message that stands at two places of the schema is there twice, with other columns. Fields of a message are ordered by their numbers.

What upb does, the parser in the package protobuf, is done here. The last value of a field counts, messages that come twice are merged,
a member of a oneof removes the others, repeated numbers may be packed or not, a value of another wire type is unknown, and so is a number
that a closed enum does not have. An entry of a map that has something unknown is dropped. Strings must be UTF-8, those of proto2 too.

Each frame notes in ``seen`` the bits of its fields that have been written; what is missing at its end becomes null or its default then.
A message that comes again has nothing missing. In a message with too many fields for bits everything is written at its beginning.
``plain`` is `VARINT8` or `TEXT` for fields of these kinds that are neither repeated nor in a oneof: they are tried first.
"""

from typing import NamedTuple

from kolumn.encodings.columns import (
    COLUMN,
    DONE,
    FILL,
    INVALID,
    LEVEL,
    NULL_LIST,
    ColumnTables,
    end_list,
    next_row,
    put_bytes,
    put_nulls,
    put_text,
    put_word,
    set_valid,
)
from kolumn.encodings.protobuf_wire import (
    END_GROUP,
    ENUM,
    LENGTH,
    MALFORMED,
    MOST_NESTED,
    SINGLE_MESSAGE,
    TEXT,
    VARINT8,
    after_field,
    length_at,
    lowest_bit,
    number_at,
    symbol_of,
    tag_at,
    uvarint,
)
from kolumn.formats.memory import load8
from kolumn.machine_code.words import load32, load64, store64

MESSAGE, FIELD = 80, 120
"""Bytes of a row of the tables."""
BITS = 62
"""Fields of a message that can have a bit in ``seen``."""
FRAMES = 8 * 8 * (MOST_NESTED + 1) + 8 * MOST_NESTED
"""Bytes of memory for frames and numbers of groups."""
_FIRST, _COUNT, _DIRECT, _NUMBERS, _ALL, _FILL, _FILLS, _LEVEL, _LIST, _OWN = range(0, 80, 8)
_TAG, _OTHER, _KIND, _COLUMN, _CHILD, _MESSAGE, _BIT, _RING, _NEXT, _F_FILL, _F_FILLS, _SYMBOLS, _ELEMENT, _WIDTH, _PLAIN = range(0, 120, 8)
_ALL_SEEN = -1


class ProtobufProgram(NamedTuple):
    """Addresses of the tables, and of `FRAMES` bytes for each thread; message 0 is the record."""

    messages: int
    fields: int
    direct: int
    symbols: int
    frames: int


def field_of(p: ProtobufProgram, message: int, number: int) -> int:
    """Address of the field with a number in the message at an address; 0 if it is unknown."""
    if number < load64(message + _NUMBERS):
        field = load64(p.direct + load64(message + _DIRECT) + 8 * number)
        return p.fields + field if field >= 0 else 0
    first, low, high = p.fields + load64(message + _FIRST), 0, load64(message + _COUNT)
    while low < high:
        middle = (low + high) >> 1
        found = load64(first + FIELD * middle + _TAG) >> 3
        if found == number:
            return first + FIELD * middle
        if found < number:
            low = middle + 1
        else:
            high = middle
    return 0


def drop_elements(t: ColumnTables, level: int) -> None:
    """Set back the levels of lists in the elements of a level whose last elements have been dropped."""
    if t.cursors != 0:
        return
    inner = level + 1
    while inner < t.level_count and load64(t.levels + LEVEL * inner + 16) >= level:
        place = t.levels + LEVEL * inner
        ends = load64(t.columns + COLUMN * load64(place + 8) + 16)
        store64(t.counts + t.stride * inner, load32(ends + 4 * load64(t.counts + t.stride * load64(place + 16))))
        inner += 1


def clear(t: ColumnTables, field: int, row: int) -> None:
    """Make a field, and everything in it, null or its default."""
    fill = load64(field + _F_FILL)
    for k in range(fill, fill + load64(field + _F_FILLS)):
        put_nulls(t, k, 1, row)
        place = t.fills + FILL * k
        if load64(place) == NULL_LIST:
            drop_elements(t, load64(place + 16))


def clear_others(t: ColumnTables, p: ProtobufProgram, field: int, row: int, seen: int) -> None:
    """Remove the other members of a oneof. Their bits stay in ``seen``: what is removed is written, with nothing in it."""
    other = p.fields + load64(field + _RING)
    while other != field:
        bit = load64(other + _BIT)
        if bit == 0 or seen & bit != 0:
            clear(t, other, row)
        other = p.fields + load64(other + _RING)


def fill_missing(t: ColumnTables, p: ProtobufProgram, message: int, missing: int, row: int) -> None:
    """Make the fields of some bits null or their default."""
    first = p.fields + load64(message + _FIRST)
    while missing != 0:
        field = first + FIELD * lowest_bit(missing)
        put_nulls(t, load64(field + _F_FILL), load64(field + _F_FILLS), row)
        missing &= missing - 1


def next_field(p: ProtobufProgram, message: int, expected: int, at: int, stop: int, depth: int) -> tuple[int, int, int, int]:
    """Find the next field that has a column.

    Parameters
    ----------
    message, expected : int
        Addresses of the message and of the field that is tried first.
    at, stop, depth : int
        Fields begin at ``at``; how many messages the message is in.

    Returns
    -------
    field : int
        Its address; 0 at the end of the message or of a group.
    tag : int
        Its tag, of a group's end that one; 0 at ``stop``.
    next : int
        Where its value begins, or `MALFORMED`.
    strange : int
        1 if unknown fields were passed over.
    """
    strange = 0
    while at < stop:
        tag = load8(at, 0)
        if tag < 0x80 and tag == load64(expected + _TAG):
            return expected, tag, at + 1, strange
        tag, at = tag_at(at, stop)
        # In a message without fields upb does not look at numbers.
        if at < 0 or (tag >> 3 == 0 and load64(message + _COUNT) > 0):
            return 0, tag, MALFORMED, strange
        if tag & 7 == END_GROUP:
            return 0, tag, (at if tag >> 3 > 0 else MALFORMED), strange
        field = field_of(p, message, tag >> 3)
        if field != 0 and (tag == load64(field + _TAG) or tag == load64(field + _OTHER)):
            return field, tag, at, strange
        at = after_field(at, stop, tag, depth, p.frames + 64 * (MOST_NESTED + 1))
        if at < 0:
            return 0, tag, MALFORMED, strange
        strange = 1
    return 0, 0, at, strange


def put_number(t: ColumnTables, p: ProtobufProgram, field: int, row: int, at: int, stop: int, seen: int) -> tuple[int, int, int]:
    """Write a number of a field that is not repeated.

    Returns
    -------
    next : int
        Position after it, or `MALFORMED`.
    seen : int
        With the field's bit.
    strange : int
        1 if it is a number that its closed enum does not have.
    """
    kind = load64(field + _KIND)
    value, at = number_at(at, stop, kind)
    if at < 0:
        return MALFORMED, seen, 0
    if kind == ENUM:
        value = symbol_of(p.symbols + load64(field + _SYMBOLS), value)
        if value < 0:
            return at, seen, 1
    if load64(field + _RING) >= 0:
        clear_others(t, p, field, row, seen)
    put_word(t, load64(field + _COLUMN), row, value, load64(field + _WIDTH))
    return at, seen | load64(field + _BIT), 0


def begin_row(t: ColumnTables, field: int, row: int) -> int:
    """The row of a message in a field: a new element of a repeated one, or the negated code for no room; else the row itself."""
    level = load64(field + _CHILD)
    if level == 0:
        return row
    inner = next_row(t, level)
    if inner >= 0:
        end_list(t, load64(field + _COLUMN), row, level)
    return inner


def put_numbers(t: ColumnTables, p: ProtobufProgram, field: int, row: int, at: int, stop: int, until: int) -> tuple[int, int, int]:
    """Append the numbers at [at, until) to a repeated field, one at least if that is not empty.

    Returns
    -------
    code : int
        As in `write_message`.
    next : int
    strange : int
        1 if there was a number that its closed enum does not have.
    """
    kind, level, element, strange = load64(field + _KIND), load64(field + _CHILD), load64(field + _ELEMENT), 0
    width = load64(field + _WIDTH)
    while at < until:
        value, at = number_at(at, stop, kind)
        if at < 0:
            return INVALID, at, 0
        if kind == ENUM:
            value = symbol_of(p.symbols + load64(field + _SYMBOLS), value)
            if value < 0:
                strange = 1
                continue
        inner = next_row(t, level)
        if inner < 0:
            return -inner, at, 0
        put_word(t, element, inner, value, width)
    end_list(t, load64(field + _COLUMN), row, level)
    return DONE, at, strange


def put_string(t: ColumnTables, field: int, row: int, at: int, end: int) -> tuple[int, int, int]:
    """Write or append the string or bytes at [at, end); results as in `put_numbers`."""
    column, target = load64(field + _COLUMN), begin_row(t, field, row)
    if target < 0:
        return -target, at, 0
    if load64(field + _CHILD) > 0:
        column = load64(field + _ELEMENT)
    if load64(field + _KIND) == TEXT:
        return put_text(t, column, target, at, end - at), end, 0
    return put_bytes(t, column, target, at, end - at), end, 0


def put_value(
    t: ColumnTables, p: ProtobufProgram, field: int, row: int, at: int, stop: int, end: int, seen: int
) -> tuple[int, int, int, int]:
    """Write what is neither a message nor plain: numbers at [at, end), of which the last one ends before ``stop``, or a string.

    Returns
    -------
    code, next : int
        As in `put_numbers`.
    seen : int
        With the field's bit.
    strange : int
        As in `put_numbers`.
    """
    kind = load64(field + _KIND)
    if kind <= ENUM and load64(field + _CHILD) == 0:
        at, seen, strange = put_number(t, p, field, row, at, stop, seen)
        return (DONE if at >= 0 else INVALID), at, seen, strange
    if load64(field + _RING) >= 0:
        clear_others(t, p, field, row, seen)
    code, at, strange = put_numbers(t, p, field, row, at, stop, end) if kind <= ENUM else put_string(t, field, row, at, end)
    return code, at, seen | load64(field + _BIT), strange


def put_plain(t: ColumnTables, field: int, row: int, at: int, stop: int) -> tuple[int, int]:
    """Write the value of a plain field; returns a code as `write_message`, and the position after it."""
    column = load64(field + _COLUMN)
    if load64(field + _PLAIN) == VARINT8:
        value, at = uvarint(at, stop)
        if at < 0:
            return INVALID, at
        put_word(t, column, row, value, load64(field + _WIDTH))
        return DONE, at
    length, at = length_at(at, stop)
    if at < 0:
        return INVALID, at
    return put_text(t, column, row, at, length), at + length


def begin_message(t: ColumnTables, message: int, row: int, seen: int) -> int:
    """Begin a message in a row; returns its ``seen``, which was -1 if it comes again and else 0."""
    if seen == 0 and load64(message + _ALL) == 0:
        put_nulls(t, load64(message + _FILL), load64(message + _FILLS), row)
        return _ALL_SEEN
    return seen


def end_entry(t: ColumnTables, message: int, row: int, parent_row: int) -> None:
    """Drop an entry of a map, the last one, if the message is one."""
    column, level = load64(message + _LIST), load64(message + _LEVEL)
    if column >= 0 and t.cursors == 0:
        store64(t.counts + t.stride * level, row)
        drop_elements(t, level)
        end_list(t, column, parent_row, level)


def push(frame: int, stop: int, message: int, row: int, seen: int, group: int, strange: int, expected: int) -> None:
    """Keep what `write_message` knows of a message while it is in another one."""
    store64(frame, stop)
    store64(frame + 8, message)
    store64(frame + 16, row)
    store64(frame + 24, seen)
    store64(frame + 32, group)
    store64(frame + 40, strange)
    store64(frame + 48, expected)


def write_message(t: ColumnTables, p: ProtobufProgram, row: int, at: int, stop: int) -> int:
    """Write the message at addresses [at, stop) as a row of level 0.

    Returns
    -------
    int
        `DONE`; `INVALID` if it is malformed; or what has no room, see `kolumn.encodings.columns`. After the last two the caller restores.
    """
    message, frame, group, strange = p.messages, p.frames, 0, 0
    expected = p.fields + load64(message + _FIRST)
    seen = begin_message(t, message, row, 0)
    set_valid(t, load64(message + _OWN), row, 1)
    while True:
        field, tag, at, odd = next_field(p, message, expected, at, stop, (frame - p.frames) >> 6)
        strange |= odd
        if at < 0:
            return INVALID
        if field == 0:
            if tag >> 3 != group:
                return INVALID
            missing = load64(message + _ALL) & ~seen
            if missing != 0:
                fill_missing(t, p, message, missing, row)
            if frame == p.frames:
                return DONE
            frame -= 64
            if strange != 0:
                end_entry(t, message, row, load64(frame + 16))
            stop, message, row, seen = load64(frame), load64(frame + 8), load64(frame + 16), load64(frame + 24)
            group, strange, expected = load64(frame + 32), load64(frame + 40), load64(frame + 48)
            continue
        kind, level, bit = load64(field + _KIND), load64(field + _CHILD), load64(field + _BIT)
        expected = p.fields + load64(field + _NEXT)
        if load64(field + _PLAIN) >= 0:
            code, at = put_plain(t, field, row, at, stop)
            if code != DONE:
                return code
            seen |= bit
            continue
        end, bound = at + 1, stop
        if tag & 7 == LENGTH:
            length, at = length_at(at, stop)
            if at < 0:
                return INVALID
            bound = end = at + length
        if kind <= TEXT:
            code, at, seen, odd = put_value(t, p, field, row, at, bound, end, seen)
            strange |= odd
            if code != DONE:
                return code
            continue
        if load64(field + _RING) >= 0:
            clear_others(t, p, field, row, seen)
        inner = _ALL_SEEN if level == 0 and (bit == 0 or seen & bit != 0) else 0
        seen |= bit
        push(frame, stop, message, row, seen, group, strange, expected)
        frame += 64
        stop, group, strange = bound, (0 if kind == SINGLE_MESSAGE else tag >> 3), 0
        message = p.messages + load64(field + _MESSAGE)
        row = begin_row(t, field, row)
        if row < 0:
            return -row
        seen = begin_message(t, message, row, inner)
        if level == 0 and load64(field + _COLUMN) >= 0:
            set_valid(t, load64(field + _COLUMN), row, 1)
        expected = p.fields + load64(message + _FIRST)


def write_null(t: ColumnTables, p: ProtobufProgram, row: int) -> None:
    """Write a row of level 0 without a value."""
    put_nulls(t, load64(p.messages + _FILL), load64(p.messages + _FILLS), row)
