"""The tables of a Protobuf program, and how the next field of a message is found by them.

The tables have int64. Rows of fields and messages are named by their places in bytes. Other fields are unknown ones, and are passed over:

    messages | first field | fields | direct | numbers | all bits | fill | fills | level of entries of a map | its column | own | known
    fields   | tag | other tag | kind | column | level | message | bit | ring | next | fill | fills | symbols | element | width | plain
    direct   | field of the numbers 0, 1, 2, ... of a message, -1 without one
    symbols  | count | numbers, ascending | index of each

A message that stands at two places of the schema is there twice, with other columns. Fields of a message are ordered by their numbers.

``known`` has the bits of the numbers 0 to 15 that are among the fields, and of 0 in any case.
``plain`` is `VARINT8`, `FIXED8` or `TEXT` for fields of these kinds that are neither repeated nor in a oneof: they are tried first.
"""

from typing import NamedTuple

from kolumn.encodings.protobuf_wire import END_GROUP, GROUP, MALFORMED, MOST_NESTED, after_field, after_unknown, tag_at
from kolumn.formats.memory import load8
from kolumn.machine_code.words import load64

MESSAGE, FIELD = 88, 120
"""Bytes of a row of the tables."""
BITS = 62
"""Fields of a message that can have a bit in ``seen``."""
FRAME = 64
"""Bytes of memory for a message around another one."""
FRAMES = FRAME * (MOST_NESTED + 1)
"""Bytes of memory for all frames that there can be."""
GROUPS = 8 * MOST_NESTED
"""Bytes of memory for numbers of groups."""
FIRST_AT, COUNT_AT, DIRECT_AT, NUMBERS_AT, ALL_AT, MESSAGE_FILL_AT, MESSAGE_FILLS_AT, LEVEL_AT = range(0, 64, 8)
LIST_AT, OWN_AT, KNOWN_AT = range(64, MESSAGE, 8)
TAG_AT, OTHER_AT, KIND_AT, COLUMN_AT, CHILD_AT, MESSAGE_AT, BIT_AT, RING_AT = range(0, 64, 8)
NEXT_AT, FILL_AT, FILLS_AT, SYMBOLS_AT, ELEMENT_AT, WIDTH_AT, PLAIN_AT = range(64, FIELD, 8)
"""Where words are in a row."""
LEFT = MALFORMED - 1
"""In place of the next position: the message is left to the host."""


class ProtobufProgram(NamedTuple):
    """Addresses of the tables, and of memory for each thread; message 0 is the record.

    ``frames`` has a frame for each message around another one, and one more: at most `FRAMES` bytes. ``groups`` has `GROUPS` bytes; if it
    is 0, a message with an unknown group is undecided.
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
        found = load64(first + FIELD * middle + TAG_AT) >> 3
        if found == number:
            return first + FIELD * middle
        if found < number:
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
        after = after_unknown(at, stop, load64(message + KNOWN_AT))
        if after != at:
            at, strange = after, 1
            continue
        tag, at = tag_at(at, stop)
        # In a message without fields upb does not look at numbers.
        if at < 0 or (tag >> 3 == 0 and load64(message + COUNT_AT) > 0):
            return 0, tag, MALFORMED, strange
        if tag & 7 == END_GROUP:
            return 0, tag, (at if tag >> 3 > 0 else MALFORMED), strange
        field = field_of(p, message, tag >> 3)
        if field != 0 and (tag == load64(field + TAG_AT) or tag == load64(field + OTHER_AT)):
            return field, tag, at, strange
        if tag & 7 == GROUP and p.groups == 0:
            return 0, tag, LEFT, strange
        at = after_field(at, stop, tag, depth, p.groups)
        if at < 0:
            return 0, tag, MALFORMED, strange
        strange = 1
    return 0, 0, at, strange
