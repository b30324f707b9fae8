"""Format 2, the record batch of Kafka 0.11 and later (KIP-98, ``DefaultRecordBatch`` and ``DefaultRecord``).

    0          8      12     16    17    21    23         27         35         43     51    53         57      61
    +----------+------+------+-----+-----+-----+----------+----------+----------+------+-----+----------+-------+--
    | base     |length|leader|magic| crc |attr.| last off-| base     | max      |prod- |prod.| base     |record | records,
    | offset   |      |epoch |     |     |     | set delta| timestamp| timestamp|ucer  |epoch| sequence |count  | plain or
    | i64      | i32  | i32  | i8  | u32 | i16 | i32      | i64      | i64      |i64   |i16  | i32      |i32    | one stream
    +----------+------+------+-----+-----+-----+----------+----------+----------+------+-----+----------+-------+--
                                         |<------------------ CRC-32C over [21, end) ---------------------------->

    attributes  bits 0-2 codec · 3 LogAppendTime · 4 transactional · 5 control · 6 base timestamp is the delete horizon

A record; all lengths and deltas are zig-zag varints of 32 bits, except for the timestamp delta, which has 64:

    length | attributes i8 | timestamp delta | offset delta | key length, key | value length, value | header count, headers

A negative key or value length means null. Header keys are not null, header values may be.
"""

from kolumn.core.arrays import Bytes, Row
from kolumn.core.errors import Code
from kolumn.formats import layout, table
from kolumn.formats.entry import NOT_PLAIN, Header, PlainRecord, Record, bad_header, bad_record, holds_offset
from kolumn.formats.layout import ZSTD, Family, Layout, codec_up_to
from kolumn.formats.memory import Buffer, i8_at, i16_at, i32_at, i64_at, load8, put16, put32, put64, store8, u32_at
from kolumn.formats.varint import put_varint, short_varint, varint32, varint64, varint_size

MAGIC, HEADER, CRC_FROM = 2, 61, 21
SMALLEST, SMALLEST_RECORD, SMALLEST_HEADER = 49, 7, 2
"""Bytes: of the smallest batch without its first 12, of the smallest record, and of the smallest record header, two lengths."""
ABORT, COMMIT = 0, 1
"""Types of control records that end transactions."""
CONTROL_TYPES = ("ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS")
"""Names of the control types, by their numbers (``ControlRecordType``)."""
_LARGEST_CODEC = ZSTD
_OK, _BAD_LENGTH, _BAD_LAST_OFFSET, _RECORD_LENGTH = int(Code.OK), int(Code.BAD_LENGTH), int(Code.LAST_OFFSET), int(Code.RECORD_LENGTH)
_TIMESTAMP_DELTA, _OFFSET_DELTA, _KEY_LENGTH = int(Code.TIMESTAMP_DELTA), int(Code.OFFSET_DELTA), int(Code.KEY_LENGTH)
_VALUE_LENGTH, _HEADER_COUNT, _HEADER_KEY = int(Code.VALUE_LENGTH), int(Code.HEADER_COUNT), int(Code.HEADER_KEY)
_HEADER_VALUE, _RECORD_END, _OFFSET_RANGE = int(Code.HEADER_VALUE), int(Code.RECORD_END), int(Code.OFFSET_RANGE)


def header(buf: Buffer, pos: int, size: int, row) -> int:  # type: ignore[no-untyped-def]
    """Fill one row of the batch table from the 61 bytes at ``pos`` of an entry of ``size`` bytes; returns a code."""
    row[table.PAYLOAD], row[table.CRC_FROM] = HEADER, CRC_FROM
    row[table.BASE_OFFSET], row[table.LAST_OFFSET], row[table.LEADER_EPOCH] = i64_at(buf, pos), i64_at(buf, pos), i32_at(buf, pos + 12)
    if size < SMALLEST + 12:
        row[table.COUNT] = table.UNKNOWN
        return _BAD_LENGTH
    attributes, delta = load8(buf, pos + 22), i32_at(buf, pos + 23)
    fits = holds_offset(row[table.BASE_OFFSET], delta)
    row[table.LAST_OFFSET] += delta if fits else 0
    row[table.COUNT], row[table.CODEC], row[table.CRC] = i32_at(buf, pos + 57), attributes & 7, u32_at(buf, pos + 17)
    row[table.ATTRIBUTES], row[table.TIMESTAMP_TYPE] = i16_at(buf, pos + 21), (attributes >> 3) & 1
    row[table.BASE_TIMESTAMP], row[table.MAX_TIMESTAMP] = i64_at(buf, pos + 27), i64_at(buf, pos + 35)
    row[table.PRODUCER_ID], row[table.PRODUCER_EPOCH] = i64_at(buf, pos + 43), i16_at(buf, pos + 51)
    row[table.BASE_SEQUENCE], row[table.TRANSACTIONAL] = i32_at(buf, pos + 53), (attributes >> 4) & 1
    row[table.CONTROL], row[table.DELETE_HORIZON] = (attributes >> 5) & 1, (attributes >> 6) & 1
    return _OK if fits else _BAD_LAST_OFFSET


def record(buf: Buffer, at: int, end: int) -> tuple[int, int]:
    """Hop over the record at ``at``: (OK, position of the next one), or (code, position of the error)."""
    length, body = varint32(buf, at, end)
    if body < 0 or length < 0 or length > end - body:
        return _RECORD_LENGTH, at
    return _OK, body + length


def fields(buf: Buffer, at: int, end: int, skip: int = 1) -> Record:
    """Fields of the record at ``at`` in a payload that ends at ``end``. Its attributes have ``skip`` bytes: 1, or 0 in `v3_compact`."""
    length, body = varint32(buf, at, end)
    if body < 0 or length < skip or length > end - body:
        return bad_record(_RECORD_LENGTH, at)
    stop = body + length
    timestamp, offset_at = varint64(buf, body + skip, stop)
    if offset_at < 0:
        return bad_record(_TIMESTAMP_DELTA, body + skip)
    offset, key_at = varint32(buf, offset_at, stop)
    if key_at < 0:
        return bad_record(_OFFSET_DELTA, offset_at)
    key_length, key = varint32(buf, key_at, stop)
    if key < 0 or key_length > stop - key:
        return bad_record(_KEY_LENGTH, key_at)
    value_at = key + max(key_length, 0)
    value_length, value = varint32(buf, value_at, stop)
    if value < 0 or value_length > stop - value:
        return bad_record(_VALUE_LENGTH, value_at)
    count_at = value + max(value_length, 0)
    count, headers = varint32(buf, count_at, stop)
    if headers < 0 or count < 0 or count > stop - headers:
        return bad_record(_HEADER_COUNT, count_at)
    return Record(_OK, stop, timestamp, offset, key, key_length, value, value_length, headers, count)


def whole(buf: Buffer, at: int, end: int, skip: int, most: int) -> int:
    """Code of the record at ``at``, headers and all, in a batch with the last offset delta ``most``."""
    record = fields(buf, at, end, skip)
    if record.code != _OK:
        return record.code
    header_at = record.headers
    for _ in range(record.header_count):
        header = record_header(buf, header_at, record.next)
        if header.code != _OK:
            return header.code
        header_at = header.next
    if header_at != record.next:
        return _RECORD_END
    return _OK if 0 <= record.offset_delta <= most else _OFFSET_RANGE


def offset_delta(buf: Buffer, at: int, end: int, skip: int) -> tuple[int, int]:
    """Offset delta of the record at ``at``, and its position, which is negative if it cannot be read; the record's length leads on."""
    length, body = varint32(buf, at, end)
    _, where = varint64(buf, body + skip, body + length)
    if where < 0:
        return 0, where
    delta, following = varint32(buf, where, body + length)
    return delta, where if following >= 0 else following


def plain_fields(buf: Buffer, at: int, end: int, skip: int = 1) -> PlainRecord:
    """Fields of a plain record, in fewer instructions than `fields` needs. Nearly all records are plain. A plain record has no headers, and
    no varint of more than two bytes. For all others, including damaged ones, the result is `NOT_PLAIN`, and the caller uses `fields`. Up to
    two bytes after ``end`` are read, so that one comparison with the end is enough."""
    record = short_fields(buf, at, end, skip)
    if record.next < 0 or record.value + max(record.value_length, 0) + 1 != record.next or load8(buf, record.next - 1) != 0:
        return NOT_PLAIN
    return record


def short_fields(buf: Buffer, at: int, end: int, skip: int = 1) -> PlainRecord:
    """As `plain_fields`, but records may have headers; what follows the value is not looked at."""
    length, body, more = short_varint(buf, at)
    stop = body + (length >> 1)
    if length < 2 * (skip + 5) or stop > end:
        return NOT_PLAIN
    timestamp, offset_at, last = short_varint(buf, body + skip)
    more |= last
    offset, key_at, last = short_varint(buf, offset_at)
    more |= last
    key_length, key, last = short_varint(buf, key_at)
    more |= last
    value_at = key + (key_length >> 1)
    if value_at >= stop:
        return NOT_PLAIN
    value_length, value, last = short_varint(buf, value_at)
    more |= last
    # Raw zig-zag numbers are odd if they are negative. The only odd ones in a plain record are the timestamp delta and lengths of null, 1.
    odd = ((length | offset) & 1) | (key_length & 1 & (key_length >> 1 > 0)) | (value_length & 1 & (value_length >> 1 > 0))
    if more >= 0x80 or odd or value + (value_length >> 1) >= stop:
        return NOT_PLAIN
    time_delta = (timestamp >> 1) ^ -(timestamp & 1)
    return PlainRecord(
        stop, time_delta, offset >> 1,
        key, (key_length >> 1) - (key_length & 1), value, (value_length >> 1) - (value_length & 1),
    )  # fmt: skip


def plain_header(buf: Buffer, at: int, stop: int) -> Header:
    """As `record_header`, for lengths of one or two bytes; ``next`` is -1 for a header that `record_header` has to read. Up to two bytes
    after ``stop`` are read."""
    key_length, key, more = short_varint(buf, at)
    value_at = key + (key_length >> 1)
    if value_at >= stop:
        return bad_header(_HEADER_KEY, -1)
    value_length, value, last = short_varint(buf, value_at)
    following = value + (value_length >> 1)
    if (more | last) >= 0x80 or key_length & 1 or (value_length & 1 and value_length > 1) or following > stop:
        return bad_header(_HEADER_VALUE, -1)
    return Header(_OK, following, key, key_length >> 1, value, (value_length >> 1) - (value_length & 1))


def record_header(buf: Buffer, at: int, stop: int) -> Header:
    """The record header at ``at`` of a record that ends at ``stop``."""
    key_length, key = varint32(buf, at, stop)
    if key < 0 or key_length < 0 or key_length > stop - key:
        return bad_header(_HEADER_KEY, at)
    value_at = key + key_length
    value_length, value = varint32(buf, value_at, stop)
    if value < 0 or value_length > stop - value:
        return bad_header(_HEADER_VALUE, value_at)
    return Header(_OK, value + max(value_length, 0), key, key_length, value, value_length)


def control_type(key: bytes) -> int | None:
    """Type in a control record's key (i16 version, i16 type), or None if the key is too short or its version is negative."""
    if len(key) < 4 or i8_at(key, 0) < 0:
        return None
    return i16_at(key, 2)


def payload_size(length: int) -> int:
    """Bytes of a key, a value, or a header's key or value, including the length before it; a negative length is null."""
    return varint_size(length) + max(length, 0)


def put_record(buf: Buffer, at: int, body: int, timestamp_delta: int, offset_delta: int, skip: int = 1) -> int:
    """Write the beginning of a record that has ``body`` bytes after its length; returns the position of its key's length."""
    at = put_varint(buf, at, body)
    store8(buf, at, 0)
    at = put_varint(buf, at + skip, timestamp_delta)
    return put_varint(buf, at, offset_delta)


def put_header(buf: Buffer, pos: int, size: int, row) -> None:  # type: ignore[no-untyped-def]
    """Write the 61 header bytes of an entry of ``size`` bytes at ``pos`` from a row of the batch table, without the CRC."""
    put64(buf, pos, row[table.BASE_OFFSET])
    put32(buf, pos + 8, size - 12)
    put32(buf, pos + 12, row[table.LEADER_EPOCH])
    store8(buf, pos + 16, MAGIC)
    flags = (
        (row[table.TIMESTAMP_TYPE] << 3) | (row[table.TRANSACTIONAL] << 4) | (row[table.CONTROL] << 5) | (row[table.DELETE_HORIZON] << 6)
    )
    put16(buf, pos + 21, row[table.CODEC] | flags)
    put32(buf, pos + 23, row[table.LAST_OFFSET] - row[table.BASE_OFFSET])
    put64(buf, pos + 27, row[table.BASE_TIMESTAMP])
    put64(buf, pos + 35, row[table.MAX_TIMESTAMP])
    put64(buf, pos + 43, row[table.PRODUCER_ID])
    put16(buf, pos + 51, row[table.PRODUCER_EPOCH])
    put32(buf, pos + 53, row[table.BASE_SEQUENCE])
    put32(buf, pos + 57, row[table.COUNT])


def plausible(buf: Buffer, pos: int, size: int) -> bool:
    """Whether bits that no writer sets are clear in a batch whose length field is ``size``, and its count fits its offsets."""
    attributes, count, last = i16_at(buf, pos + 21), i32_at(buf, pos + 57), i32_at(buf, pos + 23)
    return size >= SMALLEST and 0 <= count <= last + 1 and 0 <= attributes < 128 and attributes & 7 <= _LARGEST_CODEC


def following(buf: Buffer, at: int, end: int, wrapped: int) -> tuple[int, int]:
    """Code, and the end of the record at ``at``."""
    return record(buf, at, end)


def believable(head: Bytes, row: Row) -> bool:
    """Fill a row from a header whose length may be wrong; False if no writer writes such a header."""
    return header(head, 0, HEADER, row) == _OK and 0 <= int(row[table.ATTRIBUTES]) < 128


def codec_code(attributes: int, codec: int) -> int:
    """OK if a batch may have this codec, else the code of the error."""
    return codec_up_to(codec, _LARGEST_CODEC)


LAYOUT = Layout(
    "record batch", 1, Family.RECORDS, HEADER, crc_at=17, crc_from=CRC_FROM, castagnoli=True,
    header=header, plausible=plausible, codec_code=codec_code, believable=believable, hop=following,
    smallest_record=SMALLEST_RECORD, control_types=CONTROL_TYPES, holds={MAGIC: layout.RECORD_BATCH}, streamed=True,
)  # fmt: skip
