"""Protobuf's wire format (https://protobuf.dev/programming-guides/encoding/): tags, varints, numbers, lengths, and unknown fields.

    tag      varint: number of the field << 3 | wire type
    0 VARINT   varint: seven bits a byte, low ones first; bit 7 set: more follow
    1 FIXED64  eight bytes, little-endian
    2 LENGTH   varint length, and that many bytes
    3 GROUP    fields, up to tag 4 with the same number
    5 FIXED32  four bytes, little-endian

What is accepted is what upb accepts, the parser in the package protobuf: a varint of up to ten bytes, of the last of which one bit counts;
a tag of up to five bytes and 32 bits; a length of up to five bytes; tags and lengths may have more bytes than they need. Number 0 is
malformed, except in a group that is passed over and in a message without fields. Positions are addresses. Nothing at ``stop`` or after it
is read.
"""

from kolumn.formats.memory import load8
from kolumn.formats.words import load64, store64
from kolumn.values.wire.json_numbers import little32, little64

VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)  # Wire types.
MALFORMED = -1  # Returned instead of the next position.
MOST_NESTED = 100  # Messages and groups in each other that are accepted.
VARINT4, VARINT8, FIXED4, FIXED8, ZIGZAG4, ZIGZAG8, BOOL, ENUM, JSON, BYTES, TEXT, SINGLE_MESSAGE, SINGLE_GROUP = range(13)
"""Kinds of fields. The first ones are numbers. `JSON` is a message whose bytes are written."""
KINDS = {
    1: FIXED8, 2: FIXED4, 3: VARINT8, 4: VARINT8, 5: VARINT4, 6: FIXED8, 7: FIXED4, 8: BOOL, 9: TEXT, 10: SINGLE_GROUP, 11: SINGLE_MESSAGE,
    12: BYTES, 13: VARINT4, 14: ENUM, 15: FIXED4, 16: FIXED8, 17: ZIGZAG4, 18: ZIGZAG8,
}  # fmt: skip
"""Kinds by the numbers of types in FieldDescriptorProto."""
WIRES = {FIXED4: FIXED32, FIXED8: FIXED64, JSON: LENGTH, BYTES: LENGTH, TEXT: LENGTH, SINGLE_MESSAGE: LENGTH, SINGLE_GROUP: GROUP}
"""Wire types of kinds that are not `VARINT`."""
WIDTHS = {VARINT4: 4, VARINT8: 8, FIXED4: 4, FIXED8: 8, ZIGZAG4: 4, ZIGZAG8: 8, BOOL: 1, ENUM: 4}  # Bytes of numbers in their columns.
NOTHING, NUMBER, INDEXES, NAME, ANY, NAME_OR_NOTHING, PLAIN_INDEXES, SIZE = range(8)
"""What can precede a message, see `after_front`; the last two: `after_other_front`."""
CHOICE = 48 + 8 * MOST_NESTED  # Bytes of what `after_front` knows of a writer's schema.


def uvarint(at: int, stop: int) -> tuple[int, int]:
    """64 bits of a varint of up to ten bytes, whose highest one may be a sign, and the position after it; or 0 and `MALFORMED`."""
    value, shift = 0, 0
    while at < stop and shift < 63:
        byte = load8(at, 0)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    if at < stop and load8(at, 0) < 0x80:
        return value | ((load8(at, 0) & 1) << 63), at + 1
    return 0, MALFORMED


def tag_at(at: int, stop: int) -> tuple[int, int]:
    """Tag, of up to five bytes and 32 bits; results as in `uvarint`."""
    value, shift = 0, 0
    while at < stop and shift < 35:
        byte = load8(at, 0)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, at) if value <= 0xFFFFFFFF else (0, MALFORMED)
        shift += 7
    return 0, MALFORMED


def length_at(at: int, stop: int) -> tuple[int, int]:
    """Length of a field, of up to five bytes, that ends before ``stop``; results as in `uvarint`."""
    length, at = tag_at(at, stop)
    if at < 0 or length > stop - at:
        return 0, MALFORMED
    return length, at


def symbol_of(symbols: int, number: int) -> int:
    """Index of the symbol of a number of a closed enum; -1 if it has none."""
    count = load64(symbols)
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if load64(symbols + 8 + 8 * middle) < number:
            low = middle + 1
        else:
            high = middle
    return load64(symbols + 8 + 8 * (count + low)) if low < count and load64(symbols + 8 + 8 * low) == number else -1


def number_at(at: int, stop: int, kind: int) -> tuple[int, int]:
    """The bits of a number of a certain kind, of an enum its number; results as in `uvarint`."""
    if kind <= VARINT8:
        return uvarint(at, stop)
    if kind == FIXED8:
        return (little64(at), at + 8) if stop - at >= 8 else (0, MALFORMED)
    if kind == FIXED4:
        return (little32(at), at + 4) if stop - at >= 4 else (0, MALFORMED)
    value, at = uvarint(at, stop)
    if kind == BOOL:
        return (0 if value == 0 else 1), at
    if kind == ENUM:
        return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000, at
    if kind == ZIGZAG4:
        value &= 0xFFFFFFFF
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), at


def after_value(at: int, stop: int, wire: int) -> int:
    """Position after a value that is neither a group's nor its end's, or `MALFORMED`."""
    if wire == VARINT:
        _, at = uvarint(at, stop)
        return at
    if wire == LENGTH:
        length, at = length_at(at, stop)
        return at + length if at >= 0 else MALFORMED
    size = 8 if wire == FIXED64 else (4 if wire == FIXED32 else stop - at + 1)
    return at + size if size <= stop - at else MALFORMED


def after_field(at: int, stop: int, tag: int, depth: int, numbers: int) -> int:
    """Position after the value of an unknown field, or `MALFORMED`, as an end of a group is. ``depth`` counts messages and groups around
    the field; the `MOST_NESTED` words at ``numbers`` are overwritten.
    """
    if tag & 7 != GROUP:
        return after_value(at, stop, tag & 7)
    if depth >= MOST_NESTED:
        return MALFORMED
    opened = 1
    store64(numbers, tag >> 3)
    while opened > 0:
        tag, at = tag_at(at, stop)
        if at < 0:
            return MALFORMED
        if tag & 7 == GROUP:
            if depth + opened >= MOST_NESTED:
                return MALFORMED
            store64(numbers + 8 * opened, tag >> 3)
            opened += 1
        elif tag & 7 == END_GROUP:
            opened -= 1
            if load64(numbers + 8 * opened) != tag >> 3:
                return MALFORMED
        else:
            at = after_value(at, stop, tag & 7)
            if at < 0:
                return MALFORMED
    return at


def after_varint(at: int, stop: int) -> int:
    """As `uvarint` without the value. A backend may have a faster one."""
    _, at = uvarint(at, stop)
    return at


def after_unknown(at: int, stop: int, known: int) -> int:
    """Position of the first field, from ``at`` on, that is not passed over in a few steps. Passed over are fields with a tag of one byte
    and a number that is not ``known`` (bits of 0 to 15; 0 always is), but for groups and long strings. What is malformed remains for the
    caller.
    """
    while at < stop:
        tag = load8(at, 0)
        if tag >= 0x80 or (known >> (tag >> 3)) & 1 != 0:
            break
        wire, after = tag & 7, MALFORMED
        if wire == LENGTH:
            if at + 1 < stop and load8(at, 1) < 0x80:
                after = at + 2 + load8(at, 1)
        elif wire == VARINT:
            after = after_varint(at + 1, stop)
        elif wire == FIXED64:
            after = at + 9
        elif wire == FIXED32:
            after = at + 5
        if after < 0 or after > stop:
            break
        at = after
    return at


def lowest_bit(bits: int) -> int:
    """Number of the lowest bit that is set; there is one. A backend may have an instruction for it."""
    number = 0
    while bits & 1 == 0:
        bits = bits >> 1
        number += 1
    return number


def after_indexes(at: int, stop: int, path: int, count: int) -> int:
    """Position after Confluent's message indexes, or `MALFORMED` if they are not the ``count`` int64 at ``path``. A zig-zag varint counts
    them, as many follow; a count of 0 stands for the first message of the file.
    """
    own, at = uvarint(at, stop)
    if at < 0 or own & 1 != 0:
        return MALFORMED
    if own == 0:
        return at if count == 1 and load64(path) == 0 else MALFORMED
    if own >> 1 != count:
        return MALFORMED
    for k in range(count):
        index, at = uvarint(at, stop)
        if at < 0 or index != load64(path + 8 * k) << 1:
            return MALFORMED
    return at


def after_name(at: int, stop: int, name: int, size: int) -> int:
    """Position after Apicurio's ``Ref``, or `MALFORMED` if it does not have the name of ``size`` bytes at ``name``. ``Ref`` is a message
    with its length in front, and has the name of a message as field 1.
    """
    length, at = length_at(at, stop)
    if at < 0 or length != size + 2 or size > 0x7F or load8(at, 0) != 0x0A or load8(at, 1) != size:
        return MALFORMED
    for k in range(size):
        if load8(at, 2 + k) != load8(name, k):
            return MALFORMED
    return at + length


def is_name(at: int, stop: int) -> bool:
    """Whether a ``Ref`` of any message is there: letters, digits and underscores after the two lengths."""
    length, at = length_at(at, stop)
    if at < 0 or length < 3 or load8(at, 0) != 0x0A or load8(at, 1) != length - 2:
        return False
    for k in range(2, length):
        letter = load8(at, k)
        lower = letter | 0x20
        if not (97 <= lower <= 122 or 48 <= letter <= 57 or letter == 95):
            return False
    return True


def after_front(at: int, stop: int, front: int, choice: int) -> int:
    """Where a message begins, or `MALFORMED` if what precedes it chooses another one. ``front`` is `NOTHING`, a `NUMBER` of AWS Glue, a
    `NAME`: Apicurio's ``Ref``, indexes or both; `INDEXES` of Confluent or a `NAME`, which a prefix of five bytes does not tell apart;
    `ANY`: a `NAME` or nothing, as beside Apicurio's headers; `NAME_OR_NOTHING`: a ``Ref`` or none. ``choice`` are `CHOICE` bytes: how many
    message indexes there are, -1 if the writer's schema lacks the message; address and size of the name of the message, and of its full
    name; its number; the indexes.
    """
    count = load64(choice)
    if count < 0:
        return MALFORMED
    if front == NOTHING:
        return at
    if front == NUMBER:
        number, at = tag_at(at, stop)
        return at if number == load64(choice + 40) else MALFORMED
    after = after_name(at, stop, load64(choice + 8), load64(choice + 16))
    if after < 0:
        after = after_name(at, stop, load64(choice + 24), load64(choice + 32))
    begin = after if after >= 0 else at
    # Apicurio's indexes begin with 2, 4 or 6: no message does, since no field has the number 0.
    is_count = begin < stop and 0 < load8(begin, 0) < 8
    if (front == INDEXES and after < 0) or (front != NAME_OR_NOTHING and is_count):
        return after_indexes(begin, stop, choice + 48, count)
    return MALFORMED if after < 0 and (front == NAME or is_name(at, stop)) else begin


def after_other_front(at: int, stop: int, front: int, choice: int) -> int:
    """As `after_front`, for `PLAIN_INDEXES`, message indexes as varints that are not zig-zag ones, and `SIZE`, the bytes of the message."""
    count = load64(choice)
    if count < 0:
        return MALFORMED
    if front == SIZE:
        size, at = length_at(at, stop)
        return at if size == stop - at else MALFORMED
    own, at = uvarint(at, stop)
    if own == 0 and at >= 0:
        return at if count == 1 and load64(choice + 48) == 0 else MALFORMED
    if own != count:
        return MALFORMED
    for k in range(count):
        index, at = uvarint(at, stop)
        if at < 0 or index != load64(choice + 48 + 8 * k):
            return MALFORMED
    return at
