"""The message set of KIP-98 as first proposed, a draft: magic 2, a header of 45 bytes, messages with their own checksums.

    0        8        12    16    17      19       23          31    39      41         45
    +--------+--------+-----+-----+-------+--------+-----------+-----+-------+----------+----
    | offset | length | crc |magic| attr. | offset | max       | pid | epoch | sequence | messages, plain
    | i64    | i32    | u32 | i8  | i16   | delta  | timestamp | i64 | i16   | i32      | or one stream
    +--------+--------+-----+-----+-------+--------+-----------+-----+-------+----------+----
                            |<------------------ CRC-32 over [16, end) ------------------------>

    attributes  bits 0-2 codec (0 none, 1 gzip, 2 snappy, 3 lz4) · 3 LogAppendTime · 4 transactional

    message  length uvar | attributes i8 | timestamp i64 | offset delta uvar | [key length uvar] [key] [value] | crc u32
    its attributes  bit 0 null key · 1 null value · 2 control

``length`` counts the bytes after it, including the CRC-32, which covers the attributes to the value. A null key has neither length
nor bytes. With a null value the key has no length: it takes the remaining bytes. A value never has a length and always takes the
remaining bytes.

The proposal's sentence "The starting offset of the next message set should be offset + offset delta" is read literally. The offset
delta is the number of offsets that the set spans, its last offset is offset + offset delta - 1, and the next sequence is
sequence + offset delta. Neither changes when messages are removed. The key of a control message is version i16, type i16, where 0
is COMMIT and 1 is ABORT, the opposite of format 2.
"""

from kolumn.core.errors import Code
from kolumn.formats import crc, layout, legacy, table
from kolumn.formats.entry import Message, bad_message, holds_offset
from kolumn.formats.layout import LZ4, Family, Format, Layout
from kolumn.formats.memory import Buffer, i16_at, i32_at, i64_at, load8, put16, put32, put64, store8, u32_at
from kolumn.formats.varint import MALFORMED, put_uvarint, uvarint32, uvarint_size

MAGIC, HEADER, CRC_FROM = 2, 45, 16
SMALLEST, SMALLEST_MESSAGE = HEADER - 12, 15
NULL_KEY, NULL_VALUE, CONTROL = 1, 2, 4
CONTROL_TYPES = ("COMMIT", "ABORT")
"""Names of the control types, by their numbers; in format 2 the numbers of these two are exchanged."""
_LARGEST_CODEC = LZ4
_OK, _RECORD_CRC, _BAD_LAST_OFFSET, _BAD_LENGTH = int(Code.OK), int(Code.RECORD_CRC), int(Code.LAST_OFFSET), int(Code.BAD_LENGTH)
_RECORD_LENGTH, _RECORD_END, _OFFSET_DELTA = int(Code.RECORD_LENGTH), int(Code.RECORD_END), int(Code.OFFSET_DELTA)
_KEY_LENGTH, _CONTROL_KEY = int(Code.KEY_LENGTH), int(Code.CONTROL_KEY)
_SMALLEST_BODY = SMALLEST_MESSAGE - 1


def header(buf: Buffer, pos: int, size: int, row) -> int:  # type: ignore[no-untyped-def]
    """Fill one row of the batch table from the 45 bytes at ``pos`` of an entry of ``size`` bytes; returns a code."""
    row[table.BASE_OFFSET], row[table.LAST_OFFSET] = i64_at(buf, pos), i64_at(buf, pos)
    row[table.COUNT], row[table.LEADER_EPOCH], row[table.PAYLOAD], row[table.CRC_FROM] = table.UNKNOWN, -1, HEADER, CRC_FROM
    if size < HEADER:
        return _BAD_LENGTH
    attributes = i16_at(buf, pos + 17)
    delta = i32_at(buf, pos + 19) - 1
    fits = holds_offset(row[table.BASE_OFFSET], delta)
    row[table.LAST_OFFSET] += delta if fits else 0
    row[table.CRC], row[table.ATTRIBUTES], row[table.CODEC] = u32_at(buf, pos + 12), attributes, attributes & 7
    row[table.TIMESTAMP_TYPE], row[table.TRANSACTIONAL] = (attributes >> 3) & 1, (attributes >> 4) & 1
    row[table.BASE_TIMESTAMP], row[table.MAX_TIMESTAMP] = -1, i64_at(buf, pos + 23)
    row[table.PRODUCER_ID], row[table.PRODUCER_EPOCH] = i64_at(buf, pos + 31), i16_at(buf, pos + 39)
    row[table.BASE_SEQUENCE] = i32_at(buf, pos + 41)
    return _OK if fits else _BAD_LAST_OFFSET


def hop(buf: Buffer, at: int, end: int) -> tuple[int, int, int]:
    """Hop over the message at ``at``: (OK, position of its attributes, next), or (RECORD_LENGTH, at, at)."""
    length, body = uvarint32(buf, at, end)
    if body == MALFORMED or length < _SMALLEST_BODY or length > end - body:
        return _RECORD_LENGTH, at, at
    return _OK, body, body + length


def message(buf: Buffer, at: int, end: int, wrapped: int = 0, attributes: int = 0, base: int = 0, number: int = 0) -> Message:
    """See `kolumn.formats.layout.Layout.message`; ``base`` is the offset of the set."""
    _, body, _ = hop(buf, at, end)
    stop = end - 4
    marks, timestamp = load8(buf, body), i64_at(buf, body + 1)
    delta, at = uvarint32(buf, body + 9, stop)
    if at == MALFORMED:
        return bad_message(_OFFSET_DELTA, body + 9)
    key, key_length, value_length = at, -1, -1
    if marks & NULL_KEY == 0:
        key_length = stop - at
        if marks & NULL_VALUE == 0:
            key_length, key = uvarint32(buf, at, stop)
            if key == MALFORMED or key_length > stop - key:
                return bad_message(_KEY_LENGTH, at)
        at = key + key_length
    if marks & CONTROL and key_length < 4:
        return bad_message(_CONTROL_KEY, body)
    if marks & NULL_VALUE == 0:
        value_length = stop - at
    elif at != stop:
        return bad_message(_RECORD_END, at)
    return Message(_OK, end, base + delta, timestamp, 1, -1, marks, key, key_length, at, value_length)


def body_size(offset_delta: int, key_length: int, value_length: int) -> int:
    """Bytes of a message after its length field; a negative key or value length is null."""
    size = _SMALLEST_BODY - 1 + uvarint_size(offset_delta) + max(key_length, 0) + max(value_length, 0)
    return size + uvarint_size(key_length) if key_length >= 0 and value_length >= 0 else size


def put_message(
    buf: Buffer, at: int, body: int, control: int, timestamp: int, offset_delta: int, key_length: int, value_length: int
) -> int:
    """Write the beginning of a message whose body has ``body`` bytes; returns the position of its key, which value and CRC follow."""
    at = put_uvarint(buf, at, body)
    attributes = (NULL_KEY if key_length < 0 else 0) | (NULL_VALUE if value_length < 0 else 0) | (CONTROL if control else 0)
    store8(buf, at, attributes)
    put64(buf, at + 1, timestamp)
    at = put_uvarint(buf, at + 9, offset_delta)
    return put_uvarint(buf, at, key_length) if key_length >= 0 and value_length >= 0 else at


def put_header(buf: Buffer, pos: int, size: int, row) -> None:  # type: ignore[no-untyped-def]
    """Write the 45 header bytes of an entry of ``size`` bytes at ``pos`` from a row of the batch table, without the CRC."""
    put64(buf, pos, row[table.BASE_OFFSET])
    put32(buf, pos + 8, size - 12)
    store8(buf, pos + 16, MAGIC)
    put16(buf, pos + 17, row[table.CODEC] | (row[table.TIMESTAMP_TYPE] << 3) | (row[table.TRANSACTIONAL] << 4))
    put32(buf, pos + 19, row[table.LAST_OFFSET] - row[table.BASE_OFFSET] + 1)
    put64(buf, pos + 23, row[table.MAX_TIMESTAMP])
    put64(buf, pos + 31, row[table.PRODUCER_ID])
    put16(buf, pos + 39, row[table.PRODUCER_EPOCH])
    put32(buf, pos + 41, row[table.BASE_SEQUENCE])


def count(buf: Buffer, end: int, check_crcs: bool) -> tuple[int, int, int]:
    """Hop through the messages of a set: (code, count, where)."""
    at, count = 0, 0
    while at < end:
        code, body, following = hop(buf, at, end)
        if code != _OK:
            return code, count, at
        if check_crcs and crc.crc32(buf, body, following - 4) != u32_at(buf, following - 4):
            return _RECORD_CRC, count, following - 4
        count += 1
        at = following
    return _OK, count, -1


def plausible(buf: Buffer, pos: int, size: int) -> bool:
    """Whether bits that no writer sets are clear in a set whose length field is ``size``, and its offset delta is positive."""
    attributes = i16_at(buf, pos + 17)
    return size >= SMALLEST and 0 <= attributes < 32 and attributes & 7 <= _LARGEST_CODEC and i32_at(buf, pos + 19) > 0


def following(buf: Buffer, at: int, end: int, wrapped: int) -> tuple[int, int]:
    """Code, and the end of the message at ``at``."""
    code, _, next = hop(buf, at, end)
    return code, next


LAYOUT = Layout(
    "message set", 5, Family.SET, HEADER, crc_at=12, crc_from=CRC_FROM, castagnoli=False,
    header=header, plausible=plausible, codec_code=legacy.codec_code, hop=following, message=message, count=count,
    control_bit=CONTROL, control_types=CONTROL_TYPES, unsigned=True,
    holds={
        MAGIC: frozenset({
            layout.TIMESTAMPS, layout.APPEND_TIMES, layout.PRODUCERS, layout.TRANSACTIONS, layout.MARKERS, layout.EMPTY,
        })
    },
)  # fmt: skip
FORMAT = Format("kip98-draft", {0: legacy.LAYOUT, 1: legacy.LAYOUT, 2: LAYOUT}, MAGIC, transactions_in_sets=True)
