"""The key-value store of a Redpanda node in plain Python: its segments, its snapshot, and the maps of offset translators in it."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kit.encoder import Record, batch, record_body
from kit.redpanda import FILTERED, HEADER, headers, of_kafka

KVSTORE = 4
Batches = Sequence[tuple[int, int]]
"""Base raw offsets, and how many raw offsets each has."""


def map_key(group: int) -> bytes:
    return struct.pack("<bbq", 4, 0, group)


def reach_key(group: int) -> bytes:
    return struct.pack("<bbq", 4, 1, group)


def map_value(start_delta: int, batches: Batches) -> bytes:
    body = struct.pack("<qI", start_delta, len(batches)) + b"".join(struct.pack("<qi", *one) for one in batches)
    return struct.pack("<BBI", 0, 0, len(body)) + body


def reach_value(raw: int) -> bytes:
    return struct.pack("<q", raw)


def put(value: bytes | None) -> bytes:
    """The value of a record of a segment; None deletes the key."""
    return b"\0" if value is None else b"\1" + struct.pack("<I", len(value)) + value


def filtered_batches(data: bytes) -> list[tuple[int, int]]:
    """The batches of a segment that consumers have no offsets of."""
    return [(base, last + 1) for _, _, base, kind, last in headers(data) if kind in FILTERED]


def log_of(puts: Iterable[tuple[bytes, bytes]], first: int = 0) -> bytes:
    """Batches of one record each, with stored values."""
    return b"".join(of_kafka(batch([Record(first + i, key, value, 7)]), kind=KVSTORE) for i, (key, value) in enumerate(puts))


def snapshot(state: Mapping[bytes, bytes], last: int) -> bytes:
    """A snapshot of the state up to a raw offset. What its first two checksums cover is not known: here they are zeros."""
    records = [Record(i, key, value, 7) for i, (key, value) in enumerate(state.items())]
    entry = of_kafka(batch(records, base_offset=0), kind=KVSTORE)
    body = entry[:HEADER] + struct.pack("<qb", 0, 0)
    for record in records:
        assert record.key is not None
        assert record.value is not None
        body += struct.pack("<Ibqi", len(record_body(record, 0, 7)), 0, 0, record.offset)
        for held in (record.key, record.value):
            body += struct.pack("<iI", len(held), len(held)) + held
        body += struct.pack("<i", 0)
    return struct.pack("<IIbi", 0, 0, 1, 8) + struct.pack("<q", last) + struct.pack("<i", len(body)) + body


@dataclass
class Store:
    """A store that is being written: keys are put or deleted in segments, which end where a new one begins."""

    folder: Path
    next: int = 0
    state: dict[bytes, bytes] = field(default_factory=dict)
    _base: int = 0

    def put(self, *puts: tuple[bytes, bytes | None]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(log_of([(key, put(value)) for key, value in puts], self.next))
        self.next += len(puts)
        for key, value in puts:
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value

    @property
    def path(self) -> Path:
        return self.folder / f"{self._base}-1-v1.log"

    def roll(self) -> None:
        self._base = self.next

    def compact(self, keep: bool = False) -> None:
        """Write a snapshot and begin a segment; the ones before it are removed, or kept."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "snapshot").write_bytes(snapshot(self.state, self.next - 1))
        if not keep:
            for path in self.folder.glob("*.log"):
                path.unlink()
        self.roll()
