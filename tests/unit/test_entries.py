"""Names for the columns of the batch table; index entries of many batches; side files about transactions."""

import io
import random
import struct
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest

from kolumn.formats import table
from kolumn.formats.entries import Entries
from kolumn.source.side_files import aborted_in, open_in
from kolumn.source.storage import read_bytes
from kolumn.writers.write import IndexEntries

COLUMNS = {name.lower(): number for name, number in vars(table).items() if name.isupper() and isinstance(number, int)}
for _not_a_column in ("width", "no_timestamp_type", "create_time", "log_append_time", "unknown"):
    del COLUMNS[_not_a_column]


def test_every_column_has_a_field_of_its_name() -> None:
    fields = {name: one.column for name, one in vars(Entries.__base__).items() if hasattr(one, "column")}
    assert fields == COLUMNS
    assert sorted(COLUMNS.values()) == list(range(table.WIDTH))


# Index entries are made for many batches at a time; they are those of ``LogSegment.append``, which takes one batch after the other.
MOST = 2**31 - 1


def one_by_one(base: int, batches: list[tuple[int, int, int, int]], interval: int) -> tuple[bytes, bytes]:
    """The two indexes, of batches with position, size, last offset and largest timestamp."""
    index, times, since, end = b"", b"", 0, 0
    time, time_offset, noted = -1, base, -1

    def note_time() -> tuple[bytes, int]:
        if time > noted and time_offset - base <= MOST:
            return struct.pack(">qi", time, time_offset - base), time
        return b"", noted

    for position, size, last, stamp in batches:
        since += position - end
        if stamp > time:
            time, time_offset = stamp, last
        if since > interval:
            if last - base <= MOST:
                index += struct.pack(">ii", last - base, position)
            more, noted = note_time()
            times += more
            since = 0
        since, end = since + size, position + size
    return index, times + note_time()[0]


@pytest.mark.parametrize("seed", range(40))
def test_many_at_a_time_are_as_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    base, interval, position, last = chance.choice((0, 1000)), chance.choice((1, 100, 4096)), 0, 1000
    batches = list[tuple[int, int, int, int]]()
    for _ in range(chance.choice((1, 2, 300))):
        size, gap = chance.choice((70, 90, 5000)), chance.choice((0, 0, 0, 777)) if seed % 2 else 0
        last += chance.choice((1, 1, 5, 2**30 if seed % 5 == 0 else 3))
        batches.append((position + gap, size, last, chance.choice((-1, 5, 6, chance.randrange(100)))))
        position += gap + size
    index, times = io.BytesIO(), io.BytesIO()
    made = IndexEntries(base, index, times)
    rest = batches
    while rest:
        some, rest = rest[: (cut := chance.randrange(1, 80))], rest[cut:]
        entries = Entries.zeros(len(some))
        columns = np.array(some, np.int64)
        entries.position, entries.size, entries.last_offset, entries.max_timestamp = columns.T
        made.note(columns[:, 0].copy(), entries, interval)
    made.note_time()
    assert (index.getvalue(), times.getvalue()) == one_by_one(base, batches, interval)


# Files about transactions that brokers write next to segments, byte by byte.
ENTRY = bytes.fromhex(
    "0000"  # version 0
    "0000000000000007"  # producer id
    "0000000000000010"  # first offset of the transaction
    "0000000000000020"  # offset of its ABORT marker
    "0000000000000021"  # last stable offset at the time of writing
)

PRODUCERS = bytes.fromhex(
    "00000002"  # two producers
    # producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of the open transaction
    "0000000000000007" "0003" "00000004" "0000000000000020" "00000001" "0000018000000000" "0000000b" "000000000000001f"
    "0000000000000008" "0000" "ffffffff" "ffffffffffffffff" "00000000" "0000018000000000" "ffffffff" "ffffffffffffffff"
)  # fmt: skip


def snapshot(version: int = 1, checksum: int = 0, producers: bytes = PRODUCERS) -> bytes:
    return version.to_bytes(2, "big") + (crc32c.crc32c(producers) ^ checksum).to_bytes(4, "big") + producers


def changed(place: int, byte: int) -> bytes:
    data = bytearray(2 * ENTRY)
    data[place] = byte
    return bytes(data)


TWICE = [(7, 16, 32)] * 2


@pytest.mark.parametrize(
    ("data", "expected"),
    [(None, None), (b"", []), (ENTRY, TWICE[:1]), (2 * ENTRY, TWICE), (ENTRY + ENTRY[:33], TWICE[:1]),
     (ENTRY + ENTRY[:25] + b"\x1f" + ENTRY[26:], None), (changed(1, 1), None), (changed(10, 0x80), None), (changed(17, 0x30), None),
     (changed(18, 0x80), None)],
    ids=["missing", "empty", "one", "two", "cut", "out of order", "version", "first offset below 0", "first offset after the marker",
         "marker below 0"],
)  # fmt: skip
def test_txnindex(tmp_path: Path, data: bytes | None, expected: list[Any] | None) -> None:
    """One that is not sane says nothing."""
    if data is not None:
        (tmp_path / "0.txnindex").write_bytes(data)
    assert aborted_in(read_bytes(str(tmp_path / "0.txnindex"))) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [(None, None), (snapshot(), {7: 31}), (snapshot(producers=bytes(4)), {}), (b"", None), (snapshot()[:-1], None),
     (snapshot() + b"\0", None), (snapshot(version=2), None), (snapshot(checksum=1), None), (snapshot(producers=b"\xff" * 4), None)],
    ids=["missing", "two producers", "no producers", "empty", "cut", "too long", "version", "checksum", "negative count"],
)  # fmt: skip
def test_snapshot(tmp_path: Path, data: bytes | None, expected: dict[int, int] | None) -> None:
    if data is not None:
        (tmp_path / "33.snapshot").write_bytes(data)
    assert open_in(read_bytes(str(tmp_path / "33.snapshot"))) == expected
