"""Redpanda's batches in plain Python, written from Kafka's and read as such: the same bytes but for the header. Slow and readable."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import crc32c

from kit import oracle
from kit.encoder import Record, batch

KAFKA, REDPANDA = struct.Struct(">qiibIhiqqqhii"), struct.Struct("<iqbIhiqqqhii")
HEADER = 61
DATA, CONFIGURATION, TX_FENCE, ARCHIVAL = 1, 2, 10, 19
FILTERED = (2, 19, 23, 25, 34, 38)
"""Types whose batches take raw offsets, and no offsets of consumers."""
GHOST, PLACEHOLDER, ELSEWHERE, UNKNOWN = 7, 29, 36, 39
"""Types without records of their own, and the first one that nobody knows."""


def sealed(header: bytes) -> bytes:
    """A header of 57 bytes with its checksum in front."""
    return struct.pack("<I", crc32c.crc32c(header)) + header


def of_kafka(entry: bytes, raw: int | None = None, kind: int = DATA) -> bytes:
    """A batch of format 2 as one of Redpanda, with another base offset if one is given."""
    base, length, _, magic, *rest = KAFKA.unpack_from(entry)
    assert magic == 2
    return sealed(REDPANDA.pack(length + 12, base if raw is None else raw, kind, *rest)) + entry[HEADER:]


def to_kafka(entry: bytes, offset: int | None = None, leader_epoch: int = -1) -> bytes:
    """A batch of Redpanda as one of format 2, with another base offset if one is given."""
    size, base, _, *rest = REDPANDA.unpack_from(entry, 4)
    return KAFKA.pack(base if offset is None else offset, size - 12, leader_epoch, 2, *rest) + entry[HEADER:]


def kafka_entries(data: bytes) -> Iterator[bytes]:
    """The batches of a segment of format 2, up to what is no batch."""
    at = 0
    while at + HEADER <= len(data):
        length = struct.unpack_from(">i", data, at + 8)[0]
        if length < HEADER - 12 or at + 12 + length > len(data) or data[at + 16] != 2:
            return
        yield data[at : at + 12 + length]
        at += 12 + length


def swapped(data: bytes) -> bytes:
    """A segment of format 2 as one of Redpanda."""
    return b"".join(map(of_kafka, kafka_entries(data)))


def own_batch(raw: int, kind: int = CONFIGURATION, records: int = 1, value: bytes = b"own") -> bytes:
    """A batch of Redpanda's own."""
    return of_kafka(batch([Record(raw + i, b"", value, 0) for i in range(records)]), kind=kind)


@dataclass(frozen=True)
class Mixed:
    """A log with batches of Redpanda's own. ``offsets``: for the raw offset of each record of clients, its offset for consumers."""

    data: bytes
    offsets: Mapping[int, int]
    end: int  # raw offset after the last batch
    delta: int  # raw minus consumers' offset there


def mixed(data: bytes, own: Mapping[int, tuple[int, ...]], raw: int = 0, delta: int = 0) -> Mixed:
    """A segment of format 2 whose offsets have no gaps as one of Redpanda: before the batch with number i come batches of the types
    ``own[i]``. The first raw offset is ``raw``, and ``delta`` is what it differs by from its offset for consumers."""
    out, offsets = bytearray(), dict[int, int]()
    for i, entry in enumerate(kafka_entries(data)):
        for kind in own.get(i, ()):
            out += own_batch(raw, kind)
            raw += 1
            delta += kind in FILTERED
        last = struct.unpack_from(">i", entry, 23)[0]
        out += of_kafka(entry, raw)
        offsets |= {raw + k: raw + k - delta for k in range(last + 1)}
        raw += last + 1
    return Mixed(bytes(out), offsets, raw, delta)


def headers(data: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Position, size, base offset, type and last offset delta of each batch, as far as both checksums are right."""
    at = 0
    while at + HEADER <= len(data):
        size, base, kind, crc, *rest = REDPANDA.unpack_from(data, at + 4)
        head = data[at + 4 : at + HEADER]
        if struct.unpack_from("<I", data, at)[0] != crc32c.crc32c(head) or size < HEADER or at + size > len(data):
            return
        if crc32c.crc32c(struct.pack(">hiqqqhii", *rest) + data[at + HEADER : at + size]) != crc:
            return
        yield at, size, base, kind, rest[1]
        at += size


def is_opaque(kind: int) -> bool:
    """Whether nothing is known of what a batch of this type holds."""
    return kind in (0, GHOST, PLACEHOLDER, ELSEWHERE) or kind & 0xFF >= UNKNOWN


def read(data: bytes, check_crcs: bool = True) -> oracle.Segment:
    """Read a segment as `kit.oracle.read` does, with the rules of Redpanda's parser: only a header with a right checksum is believed to be
    that of a batch that was cut."""
    entries, at = list[oracle.Entry](), 0
    while at < len(data):
        if len(data) - at < HEADER:
            return oracle.Segment(entries, "truncated", at)
        size = struct.unpack_from("<i", data, at + 4)[0]
        if not any(data[at:]):
            return oracle.Segment(entries, "zeros", at)
        if size < HEADER or size > len(data) - at:
            return oracle.Segment(entries, "truncated" if size >= HEADER and has_header(data[at:]) else "bad length", at)
        entries.append(read_entry(data[at : at + size], at, check_crcs))
        at += size
    return oracle.Segment(entries, "end", at)


def has_header(entry: bytes) -> bool:
    """Whether bytes begin with a header and its checksum."""
    return len(entry) >= HEADER and struct.unpack_from("<I", entry)[0] == crc32c.crc32c(entry[4:HEADER])


def read_entry(entry: bytes, position: int, check_crcs: bool = True) -> oracle.Entry:
    """The batch that ``entry`` holds, and its rows with raw offsets. Those of batches of Redpanda's own are control records."""
    kind, base = entry[16], struct.unpack_from("<q", entry, 8)[0]
    if not has_header(entry):
        return oracle.Entry(position, len(entry), base, error="header crc")
    read = oracle.read_entry(to_kafka(entry), position, check_crcs)
    if is_opaque(kind):
        told = read.error if read.error in ("Record is corrupt: crc", "last offset wraps") else None
        return oracle.Entry(position, len(entry), base, error=told)
    return oracle.Entry(position, len(entry), base, _as_control(read.rows, kind), read.error)


def sound_rows(entry: bytes, position: int) -> list[oracle.Row]:
    """As `kit.oracle.sound_rows`."""
    if not has_header(entry) or is_opaque(entry[16]):
        return []
    return _as_control(oracle.sound_rows(to_kafka(entry), position), entry[16])


def _as_control(rows: list[oracle.Row], kind: int) -> list[oracle.Row]:
    return rows if kind == DATA else [row._replace(isControl=True, isTransactional=False) for row in rows]


def on_node(data: Path, name: str) -> Path:
    """Folder on a node of a topic-partition, by its name on a broker of Kafka."""
    topic, _, partition = name.rpartition("-")
    return data / "kafka" / topic / f"{partition}_1"


def put_on_node(data: Path, name: str, *entries: bytes, base: int = 0, term: int = 1) -> Path:
    """Write a segment into the folder of a topic-partition on a node."""
    folder = on_node(data, name)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base}-{term}-v1.log"
    path.write_bytes(b"".join(entries))
    return path
