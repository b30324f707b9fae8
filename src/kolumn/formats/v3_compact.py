"""Compact format 3, a draft: the record batch of format 2 with a header of varints, and records without attributes.

    base offset i64 | batch length uvar | leader epoch i32 | magic i8 = 3 | crc u32 | attributes i16 | last offset delta uvar
    | base timestamp zvarlong | max timestamp delta zvarlong | producer id i64 | producer epoch i16 | base sequence i32
    | record count i32 | records, plain or one stream

    attributes  bits 0-6 as in format 2 · 7 records have no attributes byte

The CRC-32C covers the bytes from the attributes to the end. The batch length counts the bytes after itself. The document quotes the
largest values of *unsigned* varints for its lengths, so those are unsigned; timestamps may be -1, so they are zig-zag. The largest
timestamp is base + delta. Writers set bit 7 unless a record has attributes. Records are those of `v2`, except for that byte.

The position of the magic depends on the width of the batch length. In a mixed file an entry is tried as format 3 first, then as a
shipped one, and the checksum decides. Without checksums the structure decides; if both fit, the entry is format 3.
"""

from collections.abc import Iterator

from kolumn.core.arrays import Bytes, Row
from kolumn.core.errors import Code
from kolumn.formats import layout, legacy, table, v2
from kolumn.formats.entry import holds_offset
from kolumn.formats.layout import ZSTD, Family, Format, Layout, Outline
from kolumn.formats.memory import Buffer, i16_at, i32_at, i64_at, load8, put16, put32, put64, store8, u32_at
from kolumn.formats.varint import MALFORMED, put_uvarint, put_varint, uvarint32, uvarint_size, varint64, varint_size

MAGIC, BARE = 3, 0x80
LARGEST_HEADER, SMALLEST_LENGTH, SMALLEST_RECORD = 67, 32, 6
_LARGEST_CODEC = ZSTD
_OK, _BAD_LAST_OFFSET, _TRUNCATED, _BAD_LENGTH = int(Code.OK), int(Code.LAST_OFFSET), int(Code.TRUNCATED), int(Code.BAD_LENGTH)
_BATCH_HEADER = int(Code.BATCH_HEADER)
_V3, _V3_BARE = 2, 3  # numbers of the two layouts


def entry(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Frame the entry at ``pos`` if its magic and length are those of format 3: OK or TRUNCATED with its size, else BAD_LENGTH."""
    length, at = uvarint32(buf, pos + 8, min(pos + 13, end))
    if at == MALFORMED or length < SMALLEST_LENGTH or at + 5 > end or load8(buf, at + 4) != MAGIC:
        return _BAD_LENGTH, 0
    if length > end - at:
        return _TRUNCATED, at - pos + length
    return _OK, at - pos + length


def header(buf: Buffer, pos: int, size: int, row) -> int:  # type: ignore[no-untyped-def]
    """Fill one row of the batch table from the header at ``pos``, after `entry` has framed it. Reads at most `LARGEST_HEADER` bytes."""
    _, at = uvarint32(buf, pos + 8, pos + 13)
    return fill(buf, pos, at, pos + size, row)


def fill(buf: Buffer, pos: int, at: int, end: int, row) -> int:  # type: ignore[no-untyped-def]
    """Fill one row as `header` does, for an entry that ends at ``end``; ``at`` is the position after its batch length."""
    attributes = i16_at(buf, at + 9)
    row[table.LAYOUT], row[table.MAGIC] = _V3_BARE if attributes & BARE else _V3, MAGIC
    row[table.CRC], row[table.CRC_FROM], row[table.PAYLOAD], row[table.COUNT] = u32_at(buf, at + 5), at + 9 - pos, 0, table.UNKNOWN
    row[table.BASE_OFFSET], row[table.LAST_OFFSET], row[table.LEADER_EPOCH] = i64_at(buf, pos), i64_at(buf, pos), i32_at(buf, at)
    row[table.ATTRIBUTES], row[table.CODEC], row[table.TIMESTAMP_TYPE] = attributes, attributes & 7, (attributes >> 3) & 1
    row[table.TRANSACTIONAL], row[table.CONTROL] = (attributes >> 4) & 1, (attributes >> 5) & 1
    row[table.DELETE_HORIZON] = (attributes >> 6) & 1
    last, base_at = uvarint32(buf, at + 11, end)
    if base_at == MALFORMED:
        return _BATCH_HEADER
    base, delta_at = varint64(buf, base_at, end)
    if delta_at == MALFORMED:
        return _BATCH_HEADER
    delta, producer_at = varint64(buf, delta_at, end)
    if producer_at == MALFORMED or producer_at + 18 > end:
        return _BATCH_HEADER
    fits = holds_offset(row[table.BASE_OFFSET], last)
    row[table.LAST_OFFSET] += last if fits else 0
    row[table.BASE_TIMESTAMP], row[table.MAX_TIMESTAMP] = base, base + delta
    row[table.PRODUCER_ID], row[table.PRODUCER_EPOCH] = i64_at(buf, producer_at), i16_at(buf, producer_at + 8)
    row[table.BASE_SEQUENCE], row[table.COUNT] = i32_at(buf, producer_at + 10), i32_at(buf, producer_at + 14)
    row[table.PAYLOAD] = producer_at + 18 - pos
    return _OK if fits else _BAD_LAST_OFFSET


def header_size(row, payload: int) -> int:  # type: ignore[no-untyped-def]
    """Bytes of the header of a batch whose records have ``payload`` bytes."""
    rest = 29 + uvarint_size(row[table.LAST_OFFSET] - row[table.BASE_OFFSET])
    rest += varint_size(row[table.BASE_TIMESTAMP]) + varint_size(row[table.MAX_TIMESTAMP] - row[table.BASE_TIMESTAMP])
    return 8 + uvarint_size(rest + payload) + rest


def put_header(buf: Buffer, pos: int, size: int, row) -> int:  # type: ignore[no-untyped-def]
    """Write the header at ``pos`` of an entry of ``size`` bytes from a row of the batch table, without its CRC. Returns the position of the
    CRC; the bytes that it covers begin 4 bytes after that."""
    put64(buf, pos, row[table.BASE_OFFSET])
    length = size - 9
    while uvarint_size(length) + 8 + length > size:
        length -= 1
    at = put_uvarint(buf, pos + 8, length)
    put32(buf, at, row[table.LEADER_EPOCH])
    store8(buf, at + 4, MAGIC)
    crc_at = at + 5
    flags = (
        (row[table.TIMESTAMP_TYPE] << 3) | (row[table.TRANSACTIONAL] << 4) | (row[table.CONTROL] << 5) | (row[table.DELETE_HORIZON] << 6)
    )
    put16(buf, at + 9, row[table.CODEC] | flags | (BARE if row[table.LAYOUT] == _V3_BARE else 0))
    at = put_uvarint(buf, at + 11, row[table.LAST_OFFSET] - row[table.BASE_OFFSET])
    at = put_varint(buf, at, row[table.BASE_TIMESTAMP])
    at = put_varint(buf, at, row[table.MAX_TIMESTAMP] - row[table.BASE_TIMESTAMP])
    put64(buf, at, row[table.PRODUCER_ID])
    put16(buf, at + 8, row[table.PRODUCER_EPOCH])
    put32(buf, at + 10, row[table.BASE_SEQUENCE])
    put32(buf, at + 14, row[table.COUNT])
    return crc_at


def crc_at(buf: Buffer, pos: int) -> int:
    """Position of the checksum of the entry at ``pos``."""
    _, at = uvarint32(buf, pos + 8, pos + 13)
    return at + 5


def plausible(buf: Buffer, pos: int, size: int) -> bool:
    """Whether no attribute bits are set that no writer sets, in an entry that `entry` has framed."""
    attributes = i16_at(buf, crc_at(buf, pos) + 4)
    return 0 <= attributes < 256 and attributes & 7 <= _LARGEST_CODEC


def shapes(head: Bytes, size: int) -> Iterator[Outline]:
    """Possible layouts of an entry at ``head``, for each width of the batch length: see `kolumn.formats.layout.Format.own_shapes`."""
    for at in range(9, 14):
        if size >= v2.HEADER and head[at + 4] == MAGIC:
            yield Outline(at + SMALLEST_LENGTH, at + 9, u32_at(head, at + 5), True, mark=at)


def believable(head: Bytes, row: Row) -> bool | None:
    """Fill a row from a header whose length may be wrong; None if the magic is in none of its possible positions."""
    for at in range(9, 14):
        if head[at + 4] == MAGIC:
            return fill(head, 0, at, LARGEST_HEADER, row) == _OK
    return None


def _layout(number: int, attribute_bytes: int) -> Layout:
    return Layout(
        "compact record batch", number, Family.RECORDS, LARGEST_HEADER, crc_at=0, crc_from=0, castagnoli=True,
        header=header, plausible=plausible, codec_code=v2.codec_code, hop=v2.following, attribute_bytes=attribute_bytes,
        smallest_record=SMALLEST_RECORD + attribute_bytes, control_types=v2.CONTROL_TYPES, holds={MAGIC: layout.RECORD_BATCH},
    )  # fmt: skip


LAYOUT, BARE_LAYOUT = _layout(_V3, 1), _layout(_V3_BARE, 0)
FORMAT = Format(
    "v3-compact", {0: legacy.LAYOUT, 1: legacy.LAYOUT, 2: v2.LAYOUT}, MAGIC, own_frame=entry, own_crc_at=crc_at,
    own_shapes=shapes, own_believable=believable, own_layouts=(LAYOUT, BARE_LAYOUT), as_shipped=True,
)  # fmt: skip
