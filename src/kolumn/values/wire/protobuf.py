"""Writes one Protobuf message as a row of columns, by tables of the fields that have columns.

What upb does, the parser in the package protobuf, is done here. The last value of a field counts, messages that come twice are merged,
a member of a oneof removes the others, repeated numbers may be packed or not, a value of another wire type is unknown, and so is a number
that a closed enum does not have. An entry of a map that has something unknown is dropped. Strings must be UTF-8, those of proto2 too.

Each frame notes in ``seen`` the bits of its fields that have been written; what is missing at its end becomes null or its default then. A
message that comes again has nothing missing. With too many fields for bits everything is written at the beginning of the message.

The tables have int64. Rows of fields and messages are named by the bytes before them. Other fields are unknown ones, and are passed over.
Each row ends with ``json``, which is 2**32 for entries of maps, and for the fields of a oneof, with a message in one of them that becomes
JSON text, else 0:

    messages | first field | fields | direct | numbers | all bits | fill | fills | level of entries of a map | its column | own | known
    fields   | tag | other tag | kind | column | level | message | bit | ring | next | fill | fills | symbols | element | width | plain
    direct   | field of the numbers 0, 1, 2, ... of a message, -1 without one
    symbols  | count | numbers, ascending | index of each

A message that stands at two places of the schema is there twice, with other columns. Fields of a message are ordered by their numbers.
Of a message that becomes JSON text the bytes are written. One that comes in parts, is a group, or may be removed, makes the record
invalid: it is left to the plain reader.
``known`` has the bits of the numbers 0 to 15 that are among the fields, and of 0 in any case.
``plain`` is `VARINT8`, `FIXED8` or `TEXT` for fields of these kinds that are neither repeated nor in a oneof: they are tried first.
"""

from typing import NamedTuple

from kolumn.formats.memory import load8
from kolumn.formats.words import load32, load64, store64
from kolumn.values.wire import columns
from kolumn.values.wire import protobuf_wire as wire
from kolumn.values.wire.columns import DONE, INVALID, ColumnTables, put_nulls
from kolumn.values.wire.protobuf_wire import ENUM, JSON, MALFORMED, TEXT

MESSAGE, FIELD = 96, 128  # Bytes of a row of the tables.
BITS = 62  # Fields of a message that can have a bit in ``seen``.
FRAME = 64
FRAMES, GROUPS = FRAME * (wire.MOST_NESTED + 1), 8 * wire.MOST_NESTED
"""Bytes of memory for a message around another one, for all of these that there can be, and for numbers of groups."""
FIRST_AT, COUNT_AT, DIRECT_AT, NUMBERS_AT, ALL_AT, MESSAGE_FILL_AT, MESSAGE_FILLS_AT, LEVEL_AT = range(0, 64, 8)
LIST_AT, OWN_AT, KNOWN_AT, ENTRY_JSON_AT = range(64, MESSAGE, 8)
TAG_AT, OTHER_AT, KIND_AT, COLUMN_AT, CHILD_AT, MESSAGE_AT, BIT_AT, RING_AT = range(0, 64, 8)
NEXT_AT, FILL_AT, FILLS_AT, SYMBOLS_AT, ELEMENT_AT, WIDTH_AT, PLAIN_AT, JSON_AT = range(64, FIELD, 8)  # Where words are in a row.
LEFT = MALFORMED - 1  # In place of the next position: the message is left to the host.


class ProtobufProgram(NamedTuple):
    """Addresses of the tables, and of memory for each thread; message 0 is the record. ``frames`` has a frame for each message around
    another one, and one more: at most `FRAMES` bytes. ``groups`` has `GROUPS` bytes; if it is 0, a message with an unknown group is
    undecided.
    """

    messages: int
    fields: int
    direct: int
    symbols: int
    frames: int
    groups: int


def field_of(p: ProtobufProgram, message: int, number: int) -> int:
    """Address of the field with a number in the message at an address; 0 if it is unknown."""
    if number < load64(message + NUMBERS_AT):
        field = load64(p.direct + load64(message + DIRECT_AT) + 8 * number)
        return p.fields + field if field >= 0 else 0
    first, low, high = p.fields + load64(message + FIRST_AT), 0, load64(message + COUNT_AT)
    while low < high:
        middle = (low + high) >> 1
        known = load64(first + FIELD * middle + TAG_AT) >> 3
        if known == number:
            return first + FIELD * middle
        if known < number:
            low = middle + 1
        else:
            high = middle
    return 0


def next_field(p: ProtobufProgram, message: int, expected: int, at: int, stop: int, depth: int) -> tuple[int, int, int, int]:
    """Find the next field that has a column, from ``at`` on; ``expected`` is tried first, ``depth`` counts the messages around the message.
    Returns its address, 0 at the end of the message or of a group; its tag, of a group's end that one, 0 at ``stop``; where its value
    begins, `MALFORMED`, or less than that if the message is undecided; and 1 if unknown fields were passed over.
    """
    strange = 0
    while at < stop:
        tag = load8(at, 0)
        if tag < 0x80 and tag == load64(expected + TAG_AT):
            return expected, tag, at + 1, strange
        after = wire.after_unknown(at, stop, load64(message + KNOWN_AT))
        if after != at:
            at, strange = after, 1
            continue
        tag, at = wire.tag_at(at, stop)
        # In a message without fields upb does not look at numbers.
        if at < 0 or (tag >> 3 == 0 and load64(message + COUNT_AT) > 0):
            return 0, tag, MALFORMED, strange
        if tag & 7 == wire.END_GROUP:
            return 0, tag, (at if tag >> 3 > 0 else MALFORMED), strange
        field = field_of(p, message, tag >> 3)
        if field != 0 and (tag == load64(field + TAG_AT) or tag == load64(field + OTHER_AT)):
            return field, tag, at, strange
        if tag & 7 == wire.GROUP and p.groups == 0:
            return 0, tag, LEFT, strange
        at = wire.after_field(at, stop, tag, depth, p.groups)
        if at < 0:
            return 0, tag, MALFORMED, strange
        strange = 1
    return 0, 0, at, strange


UNDECIDED = columns.full_level(0)  # Result for a message that a GPU leaves to the host.
_ALL_SEEN = -1


def drop_elements(t: ColumnTables, level: int) -> None:
    """Set back the levels of lists in the elements of a level whose last elements have been dropped."""
    if t.turn != 0:
        return
    inner = level + 1
    while inner < t.level_count and load64(t.levels + columns.LEVEL * inner + 16) >= level:
        entry = t.levels + columns.LEVEL * inner
        ends = load64(t.columns + columns.COLUMN * load64(entry + 8) + 16)
        store64(t.counts + t.stride * inner, load32(ends + 4 * load64(t.counts + t.stride * load64(entry + 16))))
        inner += 1


def clear(t: ColumnTables, field: int, row: int) -> None:
    """Make a field, and everything in it, null or its default."""
    fill = load64(field + FILL_AT)
    for k in range(fill, fill + load64(field + FILLS_AT)):
        put_nulls(t, k, 1, row)
        entry = t.fills + columns.FILL * k
        if load64(entry) == columns.NULL_LIST:
            drop_elements(t, load64(entry + 16))


def is_spoilt(t: ColumnTables, p: ProtobufProgram, field: int, row: int, seen: int) -> bool:
    """Whether another member of a oneof was there, and one of them has JSON in it: nobody looks whether what is removed is a message."""
    if load64(field + JSON_AT) == 0:
        return False
    other = p.fields + load64(field + RING_AT)
    while other != field:
        bit = load64(other + BIT_AT)
        if seen & bit != 0 or (bit == 0 and columns.is_set(t, load64(other + COLUMN_AT), row)):
            return True
        other = p.fields + load64(other + RING_AT)
    return False


def clear_others(t: ColumnTables, p: ProtobufProgram, field: int, row: int, seen: int) -> bool:
    """Remove the other members of a oneof. Their bits stay in ``seen``: what is removed is written, with nothing in it. Returns whether
    none are removed, since the record `is_spoilt`.
    """
    if is_spoilt(t, p, field, row, seen):
        return True
    other = p.fields + load64(field + RING_AT)
    while other != field:
        bit = load64(other + BIT_AT)
        if bit == 0 or seen & bit != 0:
            clear(t, other, row)
        other = p.fields + load64(other + RING_AT)
    return False


def fill_missing(t: ColumnTables, p: ProtobufProgram, message: int, missing: int, row: int) -> None:
    first = p.fields + load64(message + FIRST_AT)
    while missing != 0:
        field = first + FIELD * wire.lowest_bit(missing)
        put_nulls(t, load64(field + FILL_AT), load64(field + FILLS_AT), row)
        missing &= missing - 1


def is_left(t: ColumnTables, p: ProtobufProgram, field: int, seen: int) -> bool:
    """Whether a message is left to the host, because this field of it, not a plain one, comes again, or after another member of its oneof.
    On a GPU what is written cannot be taken back, but for numbers. No serializer writes such a message.
    """
    if t.turn == 0:
        return False
    if load64(field + KIND_AT) > ENUM and load64(field + CHILD_AT) == 0 and seen & load64(field + BIT_AT) != 0:
        return True
    if load64(field + RING_AT) >= 0:
        other = p.fields + load64(field + RING_AT)
        while other != field:
            if seen & load64(other + BIT_AT) != 0:
                return True
            other = p.fields + load64(other + RING_AT)
    return False


def put_number(t: ColumnTables, p: ProtobufProgram, field: int, row: int, at: int, stop: int, seen: int) -> tuple[int, int, int]:
    """Write a number of a field that is not repeated: position after it or `MALFORMED`, ``seen`` with the field's bit, and 1 if it is a
    number that its closed enum does not have.
    """
    kind = load64(field + KIND_AT)
    value, at = wire.number_at(at, stop, kind)
    if at < 0:
        return MALFORMED, seen, 0
    if kind == ENUM:
        value = wire.symbol_of(p.symbols + load64(field + SYMBOLS_AT), value)
        if value < 0:
            return at, seen, 1
    if load64(field + RING_AT) >= 0 and clear_others(t, p, field, row, seen):
        return MALFORMED, seen, 0
    columns.put_word(t, load64(field + COLUMN_AT), row, value, load64(field + WIDTH_AT))
    return at, seen | load64(field + BIT_AT), 0


def begin_row(t: ColumnTables, field: int, row: int) -> int:
    """The row of a message in a field: a new element of a repeated one, or the negated code for no room; else the row itself."""
    level = load64(field + CHILD_AT)
    if level == 0:
        return row
    inner = columns.next_row(t, level)
    if inner >= 0:
        columns.end_list(t, load64(field + COLUMN_AT), row, level)
    return inner


def put_numbers(t: ColumnTables, p: ProtobufProgram, field: int, row: int, at: int, stop: int, until: int) -> tuple[int, int, int]:
    """Append the numbers at [at, until) to a repeated field, one at least if that is not empty. Returns a code as `write_message`, the next
    position, and 1 if there was a number that its closed enum does not have.
    """
    kind, level, element, strange = load64(field + KIND_AT), load64(field + CHILD_AT), load64(field + ELEMENT_AT), 0
    width = load64(field + WIDTH_AT)
    while at < until:
        value, at = wire.number_at(at, stop, kind)
        if at < 0:
            return INVALID, at, 0
        if kind == ENUM:
            value = wire.symbol_of(p.symbols + load64(field + SYMBOLS_AT), value)
            if value < 0:
                strange = 1
                continue
        inner = columns.next_row(t, level)
        if inner < 0:
            return -inner, at, 0
        columns.put_word(t, element, inner, value, width)
    columns.end_list(t, load64(field + COLUMN_AT), row, level)
    return DONE, at, strange


def is_in_parts(t: ColumnTables, field: int, row: int, seen: int) -> bool:
    """Whether the bytes of a message are not the whole of it: it is a group, or there were others before."""
    bit = load64(field + BIT_AT)
    before = seen & bit != 0 if bit != 0 else columns.is_set(t, load64(field + COLUMN_AT), row)
    return load64(field + TAG_AT) & 7 == wire.GROUP or (before and load64(field + CHILD_AT) == 0)


def put_string(t: ColumnTables, field: int, row: int, at: int, end: int) -> tuple[int, int, int]:
    """Write or append the string or bytes at [at, end); results as in `put_numbers`."""
    column, target = load64(field + COLUMN_AT), begin_row(t, field, row)
    if target < 0:
        return -target, at, 0
    if load64(field + CHILD_AT) > 0:
        column = load64(field + ELEMENT_AT)
    if load64(field + KIND_AT) == TEXT:
        return columns.put_text(t, column, target, at, end - at), end, 0
    return columns.put_bytes(t, column, target, at, end - at), end, 0


def put_value(
    t: ColumnTables, p: ProtobufProgram, field: int, row: int, at: int, stop: int, end: int, seen: int
) -> tuple[int, int, int, int]:
    """Write what is neither a message nor plain: numbers at [at, end), of which the last one ends before ``stop``, or a string. Returns
    code and next position as `put_numbers`, ``seen`` with the field's bit, and the last of `put_numbers`.
    """
    kind = load64(field + KIND_AT)
    if kind <= ENUM and load64(field + CHILD_AT) == 0:
        at, seen, strange = put_number(t, p, field, row, at, stop, seen)
        return (DONE if at >= 0 else INVALID), at, seen, strange
    if kind == JSON and is_in_parts(t, field, row, seen):
        return INVALID, at, seen, 0
    if load64(field + RING_AT) >= 0 and clear_others(t, p, field, row, seen):
        return INVALID, at, seen, 0
    code, at, strange = put_numbers(t, p, field, row, at, stop, end) if kind <= ENUM else put_string(t, field, row, at, end)
    return code, at, seen | load64(field + BIT_AT), strange


def put_plain(t: ColumnTables, field: int, row: int, at: int, stop: int, seen: int) -> tuple[int, int]:
    """Write the value of a plain field; returns a code as `write_message`, and the position after it."""
    column, plain = load64(field + COLUMN_AT), load64(field + PLAIN_AT)
    if plain != TEXT:
        value, at = wire.number_at(at, stop, wire.FIXED8) if plain == wire.FIXED8 else wire.uvarint(at, stop)
        if at < 0:
            return INVALID, at
        columns.put_word(t, column, row, value, load64(field + WIDTH_AT))
        return DONE, at
    if t.turn != 0 and seen & load64(field + BIT_AT) != 0:
        return UNDECIDED, at
    length, at = wire.length_at(at, stop)
    if at < 0:
        return INVALID, at
    return columns.put_text(t, column, row, at, length), at + length


def extent(tag: int, at: int, stop: int) -> tuple[int, int, int]:
    """Where a value begins, or `MALFORMED`; where it ends, of a number a byte on; and what is not part of it."""
    if tag & 7 != wire.LENGTH:
        return at, at + 1, stop
    length, at = wire.length_at(at, stop)
    return at, at + length, at + length


def begin_message(t: ColumnTables, message: int, row: int, seen: int) -> int:
    """Begin a message in a row; returns its ``seen``, which was -1 if it comes again and else 0."""
    if seen == 0 and load64(message + ALL_AT) == 0:
        put_nulls(t, load64(message + MESSAGE_FILL_AT), load64(message + MESSAGE_FILLS_AT), row)
        return _ALL_SEEN
    return seen


def end_entry(t: ColumnTables, message: int, row: int, frame: int) -> None:
    """Drop an entry of a map, the last one, if the message is one; ``frame`` keeps the message around it."""
    column, level = load64(message + LIST_AT), load64(message + LEVEL_AT)
    if column >= 0 and t.turn == 0:
        store64(t.counts + t.stride * level, row)
        drop_elements(t, level)
        columns.end_list(t, column, load64(frame + 16), level)
    # No group ends with such a number: the record is invalid at the end of the message around an entry with JSON.
    store64(frame + 32, load64(frame + 32) - load64(message + ENTRY_JSON_AT))


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
    """Write the message at addresses [at, stop) as a row of level 0. On a GPU the first pass leaves at ``p.frames`` the address of the
    first field that is repeated or a message, 0 if there is none. The second one may begin there: of the message itself it writes nothing.
    Returns `DONE`; `INVALID` if it is malformed; or what has no room, see `kolumn.values.wire.columns`. After the last two the caller
    restores. On a GPU there is always room, and a message may be `UNDECIDED`.
    """
    message, frame, group, strange = p.messages, p.frames, 0, 0
    expected = p.fields + load64(message + FIRST_AT)
    seen, deep = begin_message(t, message, row, 0), 0
    columns.set_valid(t, load64(message + OWN_AT), row, 1)
    while True:
        before = at
        field, tag, at, odd = next_field(p, message, expected, at, stop, (frame - p.frames) >> 6)
        strange |= odd
        if at < 0:
            return INVALID if at == MALFORMED else UNDECIDED
        if field == 0:
            if tag >> 3 != group:
                return INVALID
            fill_missing(t, p, message, load64(message + ALL_AT) & ~seen, row)
            if frame == p.frames:
                columns.leave(t, frame, deep)
                return DONE
            frame -= FRAME
            if strange != 0:
                end_entry(t, message, row, frame)
            stop, message, row, seen = load64(frame), load64(frame + 8), load64(frame + 16), load64(frame + 24)
            group, strange, expected = load64(frame + 32), load64(frame + 40), load64(frame + 48)
            continue
        bit, expected = load64(field + BIT_AT), p.fields + load64(field + NEXT_AT)
        if load64(field + PLAIN_AT) >= 0:
            code, at = put_plain(t, field, row, at, stop, seen)
            if code != DONE:
                return code
            seen |= bit
            continue
        kind, level = load64(field + KIND_AT), load64(field + CHILD_AT)
        if is_left(t, p, field, seen):
            return UNDECIDED
        deep = before if deep == 0 and (level > 0 or kind > TEXT) else deep
        at, end, bound = extent(tag, at, stop)
        if at < 0:
            return INVALID
        if kind <= TEXT:
            code, at, seen, odd = put_value(t, p, field, row, at, bound, end, seen)
            strange |= odd
            if code != DONE:
                return code
            continue
        if load64(field + RING_AT) >= 0 and clear_others(t, p, field, row, seen):
            return INVALID
        inner = _ALL_SEEN if level == 0 and (bit == 0 or seen & bit != 0) else 0
        seen |= bit
        push(frame, stop, message, row, seen, group, strange, expected)
        frame += FRAME
        stop, group, strange = bound, (0 if kind == wire.SINGLE_MESSAGE else tag >> 3), 0
        message = p.messages + load64(field + MESSAGE_AT)
        row = begin_row(t, field, row)
        if row < 0:
            return -row
        seen = begin_message(t, message, row, inner)
        if level == 0 and load64(field + COLUMN_AT) >= 0:
            columns.set_valid(t, load64(field + COLUMN_AT), row, 1)
        expected = p.fields + load64(message + FIRST_AT)


def write_null(t: ColumnTables, p: ProtobufProgram, row: int) -> None:
    put_nulls(t, load64(p.messages + MESSAGE_FILL_AT), load64(p.messages + MESSAGE_FILLS_AT), row)
