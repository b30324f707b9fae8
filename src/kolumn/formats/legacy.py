"""Formats 0 and 1, the message of Kafka 0.7 to 0.10, alone or wrapped (KIP-31, KIP-32, ``LegacyRecord``).

    0        8      12    16    17    18                 v0: key length at 18, key at 22
    +--------+------+-----+-----+-----+-----------+------------+-----+--------------+-------+
    | offset | size | crc |magic|attr.| timestamp | key length | key | value length | value |
    | i64    | i32  | u32 | i8  | i8  | i64 (v1)  | i32        |     | i32          |       |
    +--------+------+-----+-----+-----+-----------+------------+-----+--------------+-------+
                          |<------------- CRC-32 over [16, end) -------------------------->

    attributes  bits 0-2 codec (0 none, 1 gzip, 2 snappy, 3 lz4) · 3 LogAppendTime (v1) · the rest ignored

With a codec the message is a *wrapper*: its value decompresses to inner messages of the same layout, and its own offset is
that of the last one. In a format 0 wrapper the inner offsets are absolute; in a format 1 wrapper they are relative:

    base = wrapper offset - last inner offset        (0 if the wrapper offset is 0, which old versions of librdkafka wrote)

Compaction leaves holes in the inner offsets, so the base is known only from the last inner message. Bytes between the value and
the end of a message are ignored, as in Java. A negative key or value length is null (in aiokafka only -1 is null).
"""

from kolumn.core.arrays import Bytes, Row
from kolumn.core.errors import Code
from kolumn.formats import layout, table
from kolumn.formats.entry import OVERHEAD, Message, bad_message
from kolumn.formats.layout import LZ4, Family, Layout, codec_up_to
from kolumn.formats.memory import Buffer, i32_at, i64_at, load8, put32, put64, store8, u32_at

CRC_FROM, HEADER = 16, 18
SMALLEST_V0, SMALLEST_V1, SMALLEST_ENTRY = 14, 22, 26
_OK, _TRUNCATED, _MESSAGE_SIZE, _KEY_LENGTH = int(Code.OK), int(Code.TRUNCATED), int(Code.MESSAGE_SIZE), int(Code.KEY_LENGTH)
_VALUE_LENGTH, _INNER_LENGTH = int(Code.VALUE_LENGTH), int(Code.INNER_LENGTH)
_LARGEST_CODEC = LZ4
_NO_TIMESTAMP = -1


def header(buf: Buffer, pos: int, size: int, row) -> int:  # type: ignore[no-untyped-def]
    """Fill one row of the batch table from the outermost message at ``pos``, of which 26 bytes are read at most; returns a code."""
    magic, attributes = load8(buf, pos + 16), load8(buf, pos + 17)
    row[table.ATTRIBUTES], row[table.CODEC] = attributes, attributes & 7
    row[table.LAST_OFFSET], row[table.BASE_OFFSET], row[table.COUNT] = i64_at(buf, pos), i64_at(buf, pos), 1
    if row[table.CODEC] != 0:
        row[table.BASE_OFFSET] = row[table.COUNT] = table.UNKNOWN
    row[table.CRC], row[table.CRC_FROM] = u32_at(buf, pos + 12), CRC_FROM
    row[table.PRODUCER_ID] = row[table.PRODUCER_EPOCH] = row[table.BASE_SEQUENCE] = row[table.LEADER_EPOCH] = -1
    row[table.TIMESTAMP_TYPE] = table.NO_TIMESTAMP_TYPE
    row[table.MAX_TIMESTAMP] = row[table.BASE_TIMESTAMP] = _NO_TIMESTAMP
    if magic >= 1:
        if size < SMALLEST_V1 + OVERHEAD:
            return _MESSAGE_SIZE
        row[table.TIMESTAMP_TYPE] = (attributes >> 3) & 1
        row[table.MAX_TIMESTAMP] = i64_at(buf, pos + 18)
        if row[table.CODEC] == 0:
            row[table.BASE_TIMESTAMP] = row[table.MAX_TIMESTAMP]
    return _OK


def inner(buf: Buffer, at: int, end: int) -> tuple[int, int]:
    """Hop over an inner message: (OK, next), (TRUNCATED, at) at the end, or (INNER_LENGTH, at). As in Java, left-over bytes that are not a
    whole message end the payload without an error."""
    if end - at < OVERHEAD:
        return _TRUNCATED, at
    size = i32_at(buf, at + 8)
    if size < SMALLEST_V0:
        return _INNER_LENGTH, at + 8
    if size > end - at - OVERHEAD:
        return _TRUNCATED, at
    return _OK, at + OVERHEAD + size


def message(buf: Buffer, at: int, end: int, wrapped: int = 0, attributes: int = 0, base: int = 0, number: int = 0) -> Message:
    """See `kolumn.formats.layout.Layout.message`. The magic must be 0, 1, or 2 of `kip87`. An append time of the wrapper replaces the
    timestamps of messages with magic 1 or 2; those of magic 0 have no timestamp."""
    key_at = at + 18
    timestamp, dated = _NO_TIMESTAMP, 0
    if load8(buf, at + 16) >= 1:
        if end - at < SMALLEST_V1 + OVERHEAD:
            return bad_message(_MESSAGE_SIZE, at + 8)
        timestamp, dated = i64_at(buf, key_at), 1
        key_at += 8
    elif end - at < SMALLEST_ENTRY:
        return bad_message(_MESSAGE_SIZE, at + 8)
    key, key_length = key_at + 4, i32_at(buf, key_at)
    if key_length > end - key - 4:
        return bad_message(_KEY_LENGTH, key_at)
    value_at = key + max(key_length, 0)
    value, value_length = value_at + 4, i32_at(buf, value_at)
    if value_length > end - value:
        return bad_message(_VALUE_LENGTH, value_at)
    return Message(_OK, at, i64_at(buf, at) + base, timestamp, dated, -1, 0, key, key_length, value, value_length)


def message_size(magic: int, key_length: int, value_length: int) -> int:
    """Bytes of an entry with a key and a value; a negative length is null."""
    return SMALLEST_ENTRY + (8 if magic >= 1 else 0) + max(key_length, 0) + max(value_length, 0)


def put_message(buf: Buffer, pos: int, size: int, magic: int, offset: int, attributes: int, timestamp: int) -> int:
    """Write the beginning of an entry of ``size`` bytes, without its CRC; returns the position of its key's length."""
    put64(buf, pos, offset)
    put32(buf, pos + 8, size - OVERHEAD)
    store8(buf, pos + 16, magic)
    store8(buf, pos + 17, attributes)
    if magic == 0:
        return pos + HEADER
    put64(buf, pos + HEADER, timestamp)
    return pos + HEADER + 8


def plausible(buf: Buffer, pos: int, size: int) -> bool:
    """Whether bits that no writer sets are clear in a message whose length field is ``size``."""
    attributes = load8(buf, pos + 17)
    return attributes < 16 and attributes & 7 <= _LARGEST_CODEC and (load8(buf, pos + 16) == 0 or size >= SMALLEST_V1)


def believable(head: Bytes, row: Row) -> bool:
    """Fill a row from a header whose length may be wrong; False if no writer writes such a header."""
    if head[17] >= 16:
        return False
    length = i32_at(head, HEADER + 8 * int(head[16]))
    # The comparison at the end rejects zeros, which are not a header.
    return header(head, 0, SMALLEST_V1 + OVERHEAD, row) == _OK and length >= -1 and row[table.CODEC] <= _LARGEST_CODEC and any(head[8:16])


def codec_code(attributes: int, codec: int) -> int:
    """OK if a message may have this codec, else the code of the error."""
    return codec_up_to(codec, _LARGEST_CODEC)


def inner_codec(attributes: int) -> int:
    """Codec of a message in a wrapper, where only 0 is allowed."""
    return attributes & 7


def following(buf: Buffer, at: int, end: int, wrapped: int) -> tuple[int, int]:
    """Code, and the end of the message at ``at``; a message that is not wrapped ends at ``end``."""
    return inner(buf, at, end) if wrapped else (_OK, end)


def wrapped(buf: Buffer, at: int, stop: int) -> tuple[int, int, int]:
    """Code, position and length of the compressed payload of the wrapper at ``at``."""
    found = message(buf, at, stop)
    return found.code, found.value, found.value_length


LAYOUT = Layout(
    "message", 0, Family.MESSAGES, SMALLEST_ENTRY, crc_at=12, crc_from=CRC_FROM, castagnoli=False,
    header=header, plausible=plausible, codec_code=codec_code, believable=believable,
    hop=following, message=message, wrapped=wrapped, inner_codec=inner_codec,
    holds={0: frozenset(), 1: frozenset({layout.TIMESTAMPS, layout.APPEND_TIMES})},
)  # fmt: skip
