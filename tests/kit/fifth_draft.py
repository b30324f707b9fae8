"""A format that nobody proposed: that one file is all that a new format takes. KOLUMN_FORMATS=kit.fifth_draft makes it known.

0        8      12    16      17           18      22              30
+--------+------+-----+-------+------------+-------+---------------+----
| offset | size | crc | magic | attributes | span  | max timestamp | messages, plain or one stream
| i64    | i32  | u32 | i8 2  | i8         | i32   | i64           |
+--------+------+-----+-------+------------+-------+---------------+----
                      |<------ CRC-32 over [16, end) --------------------->

message  size i32 | offset delta i32 | timestamp i64 | key length i32 | key | value, what remains

attributes  bits 0-2 codec; a negative key length is null
"""

from kolumn.core.errors import Code
from kolumn.formats import layout, legacy, table
from kolumn.formats.entry import Message, bad_message
from kolumn.formats.layout import LZ4, Family, Format, Layout
from kolumn.formats.memory import Buffer, i32_at, i64_at, load8, u32_at

MAGIC = 2
HEADER = 30
CRC_FROM = 16
SMALLEST_MESSAGE = 16
_LARGEST_CODEC = LZ4
_OK, _BAD_LENGTH, _RECORD_LENGTH, _KEY_LENGTH = int(Code.OK), int(Code.BAD_LENGTH), int(Code.RECORD_LENGTH), int(Code.KEY_LENGTH)


def header(buf: Buffer, pos: int, size: int, row) -> int:
    """Fill a row of the batch table."""
    row[table.BASE_OFFSET] = row[table.LAST_OFFSET] = i64_at(buf, pos)
    row[table.COUNT] = table.UNKNOWN
    row[table.PRODUCER_ID] = row[table.PRODUCER_EPOCH] = row[table.BASE_SEQUENCE] = row[table.LEADER_EPOCH] = -1
    row[table.PAYLOAD], row[table.CRC_FROM] = HEADER, CRC_FROM
    if size < HEADER:
        return _BAD_LENGTH
    row[table.CRC] = u32_at(buf, pos + 12)
    row[table.ATTRIBUTES] = load8(buf, pos + 17)
    row[table.CODEC] = load8(buf, pos + 17) & 7
    row[table.LAST_OFFSET] += max(i32_at(buf, pos + 18) - 1, 0)
    row[table.BASE_TIMESTAMP] = -1
    row[table.MAX_TIMESTAMP] = i64_at(buf, pos + 22)
    return _OK


def plausible(buf: Buffer, pos: int, size: int) -> bool:
    """Whether bits that no writer sets are clear."""
    return size >= HEADER - 12 and load8(buf, pos + 17) <= _LARGEST_CODEC and i32_at(buf, pos + 18) > 0


def following(buf: Buffer, at: int, end: int, wrapped: int) -> tuple[int, int]:
    """Code, and where the next message begins."""
    size = i32_at(buf, at) if at + 4 <= end else -1
    if size < SMALLEST_MESSAGE or size > end - at - 4:
        return _RECORD_LENGTH, at
    return _OK, at + 4 + size


def count(buf: Buffer, end: int, check_crcs: bool) -> tuple[int, int, int]:
    """Code, messages, and the place of an offence."""
    at, messages = 0, 0
    while at < end:
        code, next = following(buf, at, end, 1)
        if code != _OK:
            return code, messages, at
        messages += 1
        at = next
    return _OK, messages, -1


def message(buf: Buffer, at: int, end: int, wrapped: int = 0, attributes: int = 0, base: int = 0, number: int = 0) -> Message:
    """As `kolumn.formats.layout.Layout.message`."""
    length, key = i32_at(buf, at + 16), at + 20
    if length > end - key:
        return bad_message(_KEY_LENGTH, at + 16)
    value = key + max(length, 0)
    return Message(_OK, at, base + i32_at(buf, at + 4), i64_at(buf, at + 8), 0, -1, 0, key, length, value, end - value)


LAYOUT = Layout(
    "set of the fifth draft", 8, Family.SET, HEADER, crc_at=12, crc_from=CRC_FROM, castagnoli=False,
    header=header, plausible=plausible, codec_code=legacy.codec_code, hop=following, message=message, count=count,
    holds={MAGIC: frozenset({layout.TIMESTAMPS})},
)  # fmt: skip
FORMAT = Format("fifth", {0: legacy.LAYOUT, 1: legacy.LAYOUT, 2: LAYOUT}, MAGIC)
