"""An independent encoder of Kafka's formats 0, 1 and 2. Slow and readable; every field can be given, right or wrong."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import crc32c

from kit.streams import NONE, compress

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
Header = tuple[bytes, bytes | None]


@dataclass(frozen=True)
class Record:
    """One record: ``offset`` and ``timestamp`` (ms) are absolute."""

    offset: int
    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = -1
    headers: tuple[Header, ...] = ()


def varint(number: int) -> bytes:
    """Zig-zag varint of a number's low 64 bits."""
    number = (number + (1 << 63)) % (1 << 64) - (1 << 63)
    return uvarint((number << 1) ^ (number >> 63))


def uvarint(number: int) -> bytes:
    """Little-endian groups of 7 bits."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def overlong(encoded: bytes, length: int) -> bytes:
    """The same varint in ``length`` bytes: padded with empty groups, which Java accepts."""
    assert len(encoded) <= length
    padding = length - len(encoded)
    return encoded if not padding else encoded[:-1] + bytes([encoded[-1] | 0x80]) + b"\x80" * (padding - 1) + b"\x00"


def sized(data: bytes | None) -> bytes:
    """Format 2: varint length and bytes; -1 for null."""
    return varint(-1) if data is None else varint(len(data)) + data


def record_body(record: Record, base_offset: int, base_timestamp: int, attributes: int = 0) -> bytes:
    """Body of a record of format 2: all but its length."""
    return b"".join(
        (
            struct.pack(">B", attributes), varint(record.timestamp - base_timestamp), varint(record.offset - base_offset),
            sized(record.key), sized(record.value), varint(len(record.headers)),
            *(sized(key) + sized(value) for key, value in record.headers),
        )
    )  # fmt: skip


def batch(
    records: Sequence[Record], *, codec: int = NONE, style: str = "", flags: int = 0, base_offset: int | None = None,
    last_offset: int | None = None, base_timestamp: int | None = None, max_timestamp: int | None = None, producer_id: int = -1,
    producer_epoch: int = -1, base_sequence: int = -1, leader_epoch: int = 0,
) -> bytes:  # fmt: skip
    """A batch of format 2.

    Base and last offset, base and maximum timestamp follow from the records unless given (a cleaned batch keeps its own). With
    the flag `DELETE_HORIZON`, ``base_timestamp`` is the horizon.
    """
    base = base_offset if base_offset is not None else records[0].offset if records else 0
    last = last_offset if last_offset is not None else records[-1].offset if records else base
    base_time = base_timestamp if base_timestamp is not None else records[0].timestamp if records else -1
    max_time = max_timestamp if max_timestamp is not None else max((r.timestamp for r in records), default=-1)
    bodies = (record_body(record, base, base_time) for record in records)
    payload = compress(codec, b"".join(varint(len(body)) + body for body in bodies), style) if records else b""
    return raw_batch(
        payload, len(records), base_offset=base, leader_epoch=leader_epoch, attributes=(codec if records else NONE) | flags,
        last_delta=last - base, base_timestamp=base_time, max_timestamp=max_time, producer_id=producer_id, producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )  # fmt: skip


def raw_batch(
    payload: bytes, count: int, *, base_offset: int = 0, leader_epoch: int = 0, attributes: int = 0, last_delta: int = 0,
    base_timestamp: int = -1, max_timestamp: int = -1, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1,
) -> bytes:  # fmt: skip
    """A batch of format 2 around any payload, header fields as given, length and CRC right."""
    covered = (
        struct.pack(">hiqqqhii", attributes, last_delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count)
        + payload
    )
    return struct.pack(">qiibI", base_offset, 9 + len(covered), leader_epoch, 2, crc32c.crc32c(covered)) + covered


def control_batch(
    offset: int, kind: int, *, producer_id: int = 7, producer_epoch: int = 3, coordinator_epoch: int = 11, timestamp: int = 0
) -> bytes:
    """A transaction marker: ``kind`` 0 is ABORT, 1 is COMMIT."""
    marker = Record(offset, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch), timestamp)
    return batch([marker], flags=TRANSACTIONAL | CONTROL, producer_id=producer_id, producer_epoch=producer_epoch)


def sized32(data: bytes | None) -> bytes:
    """Formats 0 and 1: 4-byte length and bytes; -1 for null."""
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(magic: int, record: Record, attributes: int = 0, *, trailing: bytes = b"") -> bytes:
    """An entry of format 0 or 1. ``trailing`` bytes follow the value and are ignored by readers."""
    times = struct.pack(">q", record.timestamp) if magic == 1 else b""
    covered = struct.pack(">bB", magic, attributes) + times + sized32(record.key) + sized32(record.value) + trailing
    body = struct.pack(">I", zlib.crc32(covered)) + covered
    return struct.pack(">qi", record.offset, len(body)) + body


def wrapper(
    magic: int, records: Sequence[Record], codec: int, *, style: str = "", flags: int = 0, offset: int | None = None,
    timestamp: int | None = None, inner_base: int | None = None, inner_magic: int | None = None, garbage: bytes = b"",
) -> bytes:  # fmt: skip
    """A compressed message set of format 0 (absolute inner offsets) or 1 (relative ones).

    ``inner_base`` is what inner offsets of format 1 count from (default: the first record; 0 makes them absolute);
    ``garbage`` follows the last inner message inside the stream.
    """
    if inner_base is None:
        inner_base = records[0].offset if magic == 1 else 0
    inner = b"".join(
        message(magic if inner_magic is None else inner_magic, Record(r.offset - inner_base, r.key, r.value, r.timestamp)) for r in records
    )
    if timestamp is None:
        timestamp = max(r.timestamp for r in records)
    value = compress(codec, inner + garbage, style, magic)
    return message(magic, Record(records[-1].offset if offset is None else offset, None, value, timestamp), codec | flags)


def with_crc(entry: bytes) -> bytes:
    """The same entry with its checksum right again."""
    if entry[16] == 2:
        return entry[:17] + struct.pack(">I", crc32c.crc32c(entry[21:])) + entry[21:]
    return entry[:12] + struct.pack(">I", zlib.crc32(entry[16:])) + entry[16:]
