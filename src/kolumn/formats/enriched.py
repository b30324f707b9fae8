"""Enriched message metadata, a draft: magic 1, a message with a timestamp in seconds and tags.

    0        8      12    16    17    18          22           26
    +--------+------+-----+-----+-----+-----------+------------+------+------------+-----+--------------+-------+
    | offset | size | crc |magic|attr.| timestamp | tag length | tags | key length | key | value length | value |
    | i64    | i32  | u32 | i8  | i8  | i32       | i32        |      | i32        |     | i32          |       |
    +--------+------+-----+-----+-----+-----------+------------+------+------------+-----+--------------+-------+
                          |<------------------------ CRC-32 over [16, end) -------------------------------------->

    attributes  bits 0-3 type: 0 plain, 1 gzip, 2 snappy, 3 lz4, 8 leader epoch, 9 start transaction, 10 commit, 11 abort
                bit 4 relative offsets are honoured · bit 5 no wrapped message has a key
    tag         id i8, then 0: broker timestamp i64 ms · 32: number of wrapped messages i32

The document lists the size before the offset. It also does so for the format of its day, whose files have the offset first, so
this reader follows the files. A negative key or value length is null; a tag length of -1 or 0 means no tags. Milliseconds do not
fit the timestamp's 32 bits, so it counts seconds; -1 means no timestamp. The width of an unknown tag is not known, so it and all
tags after it are ignored, and the tags before it count. If a tag is repeated, the last one counts.

A wrapper's offset is that of its FIRST message. An inner offset counts from it: wrapper + inner if bit 4 is set, otherwise
wrapper + index, which mirrors need. Types 4 to 7 and 12 to 15 are errors. The document does not assign numbers to the control
types.
"""

from kolumn.core.errors import Code
from kolumn.formats import layout, legacy, table
from kolumn.formats.entry import OVERHEAD, Message, bad_message, holds_offset
from kolumn.formats.layout import LZ4, Family, Format, Layout
from kolumn.formats.memory import Buffer, i8_at, i32_at, i64_at, load8, put32, put64, store8, u32_at

MAGIC, CRC_FROM, HEADER = 1, 16, 26
SMALLEST = 34 - OVERHEAD
"""Size field of a message without key, value and tags, in bytes."""
BROKER_TIMESTAMP, NUM_MESSAGES = 0, 32
"""Ids of tags."""
HONOURED, NON_KEYED = 0x10, 0x20
FIRST_CONTROL, LAST_CONTROL = 8, 11
CONTROL_TYPES = ("LEADER_EPOCH", "START_TRANSACTION", "COMMIT", "ABORT")
"""Names of the control types, from `FIRST_CONTROL` on."""
TAGGED = 0x40
"""Added to a message's attributes if it has a broker timestamp."""
_TYPE_BITS, _KNOWN_BITS = 0x0F, 0x3F
_OK, _BAD_LAST_OFFSET, _MESSAGE_SIZE, _TAG_LENGTH = int(Code.OK), int(Code.LAST_OFFSET), int(Code.ENRICHED_SIZE), int(Code.TAG_LENGTH)
_TAG, _KEY_LENGTH, _MESSAGE_TYPE, _VALUE_LENGTH = int(Code.TAG), int(Code.KEY_LENGTH), int(Code.MESSAGE_TYPE), int(Code.VALUE_LENGTH)
_LARGEST_CODEC = LZ4


def header_bytes(buf: Buffer, pos: int, size: int) -> int:
    """How many bytes of the entry at ``pos`` `header` reads. The first `HEADER` bytes must be there. 0 for an entry smaller than that."""
    if size < HEADER:
        return 0
    return min(size, HEADER + min(max(i32_at(buf, pos + 22), 0), size))


def header(buf: Buffer, pos: int, size: int, row) -> int:  # type: ignore[no-untyped-def]
    """Fill one row of the batch table from the outermost message at ``pos``; returns a code. Errors in the tags are not reported here.
    `message` reports them; it is called once the checksum is known to be right."""
    row[table.LAST_OFFSET], row[table.BASE_OFFSET], row[table.COUNT] = i64_at(buf, pos), i64_at(buf, pos), 1
    row[table.CRC], row[table.CRC_FROM] = u32_at(buf, pos + 12), CRC_FROM
    row[table.PRODUCER_ID] = row[table.PRODUCER_EPOCH] = row[table.BASE_SEQUENCE] = row[table.LEADER_EPOCH] = -1
    row[table.BASE_TIMESTAMP] = row[table.MAX_TIMESTAMP] = -1
    if size < SMALLEST + OVERHEAD:
        return _MESSAGE_SIZE
    attributes = load8(buf, pos + 17)
    type = attributes & _TYPE_BITS
    row[table.ATTRIBUTES], row[table.CODEC] = attributes, type if type <= _LARGEST_CODEC else 0
    row[table.CONTROL] = 1 if FIRST_CONTROL <= type <= LAST_CONTROL else 0
    code, timestamp, _, count, _ = tags(buf, pos, pos + size)
    if code == _OK:
        row[table.MAX_TIMESTAMP] = timestamp
    if row[table.CODEC] == 0:
        row[table.BASE_TIMESTAMP] = row[table.MAX_TIMESTAMP]
        return _OK
    row[table.COUNT] = count if code == _OK else table.UNKNOWN
    # A wrapper with relative offsets may have been compacted: then the tag counts messages, not offsets.
    known = row[table.COUNT] > 0 and attributes & HONOURED == 0
    if known and not holds_offset(row[table.BASE_OFFSET], count - 1):
        return _BAD_LAST_OFFSET
    row[table.LAST_OFFSET] = row[table.BASE_OFFSET] + count - 1 if known else table.UNKNOWN
    return _OK


def tags(buf: Buffer, at: int, end: int) -> tuple[int, int, int, int, int]:
    """Timestamps and tags of the message at ``at`` that ends at ``end``.

    Returns ``timestamp``: milliseconds: the broker's timestamp, or else the message's own; -1 if it has no timestamp.
    ``seconds``: the message's own timestamp.
    ``count``: number of wrapped messages, `table.UNKNOWN` if there is no such tag.
    ``tagged``: `TAGGED` if there is a broker timestamp, else 0.
    """
    seconds, length = i32_at(buf, at + 18), i32_at(buf, at + 22)
    timestamp = -1 if seconds == -1 else seconds * 1000
    if length < -1 or length > end - at - SMALLEST - OVERHEAD:
        return _TAG_LENGTH, timestamp, seconds, table.UNKNOWN, 0
    place, stop = at + HEADER, at + HEADER + max(length, 0)
    count, tagged = table.UNKNOWN, 0
    while place < stop:
        tag = i8_at(buf, place)
        if tag == BROKER_TIMESTAMP:
            if stop - place < 9:
                return _TAG, timestamp, seconds, table.UNKNOWN, 0
            timestamp, tagged = i64_at(buf, place + 1), TAGGED
            place += 9
        elif tag == NUM_MESSAGES:
            if stop - place < 5:
                return _TAG, timestamp, seconds, table.UNKNOWN, 0
            count = i32_at(buf, place + 1)
            place += 5
        else:
            break
    return _OK, timestamp, seconds, count, tagged


def message(buf: Buffer, at: int, end: int, wrapped: int = 0, attributes: int = 0, base: int = 0, number: int = 0) -> Message:
    """See `kolumn.formats.layout.Layout.message`. Inner offsets are used only if `HONOURED` is set in the wrapper."""
    if end - at < SMALLEST + OVERHEAD:
        return bad_message(_MESSAGE_SIZE, at + 8)
    code, timestamp, seconds, _, tagged = tags(buf, at, end)
    if code != _OK:
        return bad_message(code, at + 22)
    key_at = at + HEADER + max(i32_at(buf, at + 22), 0)
    key, key_length = key_at + 4, i32_at(buf, key_at)
    if key_length > end - key - 4:
        return bad_message(_KEY_LENGTH, key_at)
    value_at = key + max(key_length, 0)
    value, value_length = value_at + 4, i32_at(buf, value_at)
    if value_length > end - value:
        return bad_message(_VALUE_LENGTH, value_at)
    offset, marks = i64_at(buf, at), load8(buf, at + 17) | tagged
    if codec_code(marks, 0) != _OK:
        return bad_message(_MESSAGE_TYPE, at + 17)
    if wrapped:
        offset = base + (offset if attributes & HONOURED != 0 else number)
    return Message(_OK, at, offset, timestamp, 0, seconds, marks, key, key_length, value, value_length)


def message_size(tag_bytes: int, key_length: int, value_length: int) -> int:
    """Bytes of an entry with tags, a key and a value; a negative length is null."""
    return SMALLEST + OVERHEAD + tag_bytes + max(key_length, 0) + max(value_length, 0)


def put_message(buf: Buffer, pos: int, size: int, offset: int, attributes: int, seconds: int, tag_bytes: int) -> int:
    """Write the beginning of an entry of ``size`` bytes, without its CRC and its tags; returns the position of the tags."""
    put64(buf, pos, offset)
    put32(buf, pos + 8, size - OVERHEAD)
    store8(buf, pos + 16, MAGIC)
    store8(buf, pos + 17, attributes)
    put32(buf, pos + 18, seconds)
    put32(buf, pos + 22, tag_bytes if tag_bytes else -1)
    return pos + HEADER


def plausible(buf: Buffer, pos: int, size: int) -> bool:
    """Whether bits that no writer sets are clear in a message whose length field is ``size``."""
    attributes = load8(buf, pos + 17)
    return size >= SMALLEST and attributes <= _KNOWN_BITS and attributes & _TYPE_BITS <= LAST_CONTROL


def codec_code(attributes: int, codec: int) -> int:
    """OK if a message's type is a codec or a control type, else the code of the error."""
    type = attributes & _TYPE_BITS
    return _OK if type <= _LARGEST_CODEC or FIRST_CONTROL <= type <= LAST_CONTROL else _MESSAGE_TYPE


def inner_codec(attributes: int) -> int:
    """Codec of a message in a wrapper, where only 0 is allowed. Control messages have a type in place of the codec, so for them 0."""
    return attributes & 7 if attributes & FIRST_CONTROL == 0 else 0


def wrapped(buf: Buffer, at: int, stop: int) -> tuple[int, int, int]:
    """Code, position and length of the compressed payload of the wrapper at ``at``."""
    found = message(buf, at, stop)
    return found.code, found.value, found.value_length


LAYOUT = Layout(
    "tagged message", 4, Family.MESSAGES, legacy.SMALLEST_ENTRY, crc_at=12, crc_from=CRC_FROM, castagnoli=False,
    header=header, plausible=plausible, codec_code=codec_code, header_bytes=header_bytes,
    hop=legacy.following, message=message, wrapped=wrapped, inner_codec=inner_codec, lowest_inner_magic=MAGIC, first_offset=True,
    control_bit=FIRST_CONTROL, tagged_bit=TAGGED, control_types=CONTROL_TYPES, typed_control=True,
    holds={MAGIC: frozenset({layout.TIMESTAMPS, layout.TYPED_CONTROL, layout.SECONDS})},
)  # fmt: skip
FORMAT = Format("enriched", {0: legacy.LAYOUT, 1: LAYOUT}, MAGIC, timed_index=True)
