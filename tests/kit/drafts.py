"""The four draft formats, encoded by hand: independent of Kolumn, one function per kind of entry.

Layouts are those of the documents with the decisions that `kolumn.formats` quotes.
"""

import struct
import zlib
from collections.abc import Sequence

import crc32c

from kit.encoder import Record, sized, sized32, uvarint, varint
from kit.streams import NONE, compress

HONOURED, NON_KEYED = 0x10, 0x20
TOMBSTONE = 0x20


def entry(offset: int, covered: bytes) -> bytes:
    """An entry around any covered bytes: offset i64 | size i32 | crc32 u32 | what it covers."""
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered


def tagged(
    record: Record, kind: int = 0, *, seconds: int = -1, tags: bytes | None = b"", flags: int = 0, tag_length: int | None = None
) -> bytes:
    length = (len(tags) if tags else -1) if tag_length is None else tag_length
    head = struct.pack(">bBii", 1, kind | flags, seconds, length) + (tags or b"")
    return entry(record.offset, head + sized32(record.key) + sized32(record.value))


def time_tag(timestamp: int) -> bytes:
    return struct.pack(">bq", 0, timestamp)


def count_tag(count: int) -> bytes:
    return struct.pack(">bi", 32, count)


def tagged_wrapper(offset: int, inner: Sequence[bytes], codec: int, *, flags: int = HONOURED, tags: bytes = b"", style: str = "") -> bytes:
    """An enriched wrapper around messages, whose offsets count from its own."""
    value = compress(codec, b"".join(inner), style, 1)
    return tagged(Record(offset, None, value, -1), codec, tags=tags, flags=flags)


def set_message(record: Record, base: int, control: bool = False) -> bytes:
    """A message of the KIP-98 draft."""
    attributes = (record.key is None) | (record.value is None) << 1 | control << 2
    body = struct.pack(">Bq", attributes, record.timestamp) + uvarint(record.offset - base)
    if record.key is not None:
        body += (b"" if record.value is None else uvarint(len(record.key))) + record.key
    return sealed(body + (record.value or b""))


def sealed(body: bytes) -> bytes:
    """A message of the KIP-98 draft around any body: length uvarint | body | crc32 u32."""
    return uvarint(len(body) + 4) + body + struct.pack(">I", zlib.crc32(body))


def message_set(
    offset: int, messages: Sequence[bytes], span: int, *, codec: int = NONE, flags: int = 0, max_timestamp: int = -1,
    producer: tuple[int, int, int] = (-1, -1, -1), style: str = "",
) -> bytes:  # fmt: skip
    """A message set of the KIP-98 draft that spans ``span`` offsets; ``producer`` is id, epoch and sequence."""
    head = struct.pack(">bhiqqhi", 2, codec | flags, span, max_timestamp, *producer)
    return entry(offset, head + (compress(codec, b"".join(messages), style, 2) if messages else b""))


def bare_record(record: Record, base: int, base_timestamp: int, attributes: bytes = b"") -> bytes:
    """A record of format 3; ``attributes`` has none or one byte."""
    body = b"".join(
        (
            attributes, varint(record.timestamp - base_timestamp), varint(record.offset - base), sized(record.key), sized(record.value),
            varint(len(record.headers)), *(sized(key) + sized(value) for key, value in record.headers),
        )
    )  # fmt: skip
    return varint(len(body)) + body


def compact_batch(
    offset: int, records: Sequence[bytes], *, last_delta: int, base_timestamp: int, max_delta: int, codec: int = NONE, flags: int = 0x80,
    producer: tuple[int, int, int] = (-1, -1, -1), leader_epoch: int = 0, style: str = "", count: int | None = None,
) -> bytes:  # fmt: skip
    """A batch of format 3; without bit 7 in ``flags`` its records have attributes."""
    covered = struct.pack(">h", codec | flags) + uvarint(last_delta) + varint(base_timestamp) + varint(max_delta)
    covered += struct.pack(">qhii", *producer, len(records) if count is None else count)
    covered += compress(codec, b"".join(records), style) if records else b""
    return compact_entry(offset, covered, leader_epoch)


def compact_entry(offset: int, covered: bytes, leader_epoch: int = 0) -> bytes:
    """A batch of format 3 around any covered bytes: offset i64 | size uvarint | epoch i32 | magic i8 | crc32c u32 | what it covers."""
    return struct.pack(">q", offset) + uvarint(len(covered) + 9) + struct.pack(">ibI", leader_epoch, 3, crc32c.crc32c(covered)) + covered


def flagged(record: Record, attributes: int = 0, magic: int = 2) -> bytes:
    """A message of KIP-87, which differs from format 1 in its magic and in one bit."""
    covered = struct.pack(">bBq", magic, attributes, record.timestamp) + sized32(record.key) + sized32(record.value)
    return entry(record.offset, covered)


def flagged_wrapper(offset: int, inner: Sequence[bytes], codec: int, *, timestamp: int = -1, flags: int = 0, style: str = "") -> bytes:
    """A wrapper of KIP-87."""
    return flagged(Record(offset, None, compress(codec, b"".join(inner), style, 2), timestamp), codec | flags)
