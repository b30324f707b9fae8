"""Entries: names for the columns of the batch table, over the same memory."""

import io
import random
import struct
from pathlib import Path

import crc32c
import numpy as np
import pytest

from kolumn.core.errors import Code
from kolumn.formats import table
from kolumn.formats.entries import Entries, Entry
from kolumn.source.side_files import aborted_in, open_in
from kolumn.source.storage import read_bytes
from kolumn.writers.write import IndexEntries

COLUMNS = {name.lower(): number for name, number in vars(table).items() if name.isupper() and isinstance(number, int)}
for _not_a_column in ("width", "no_timestamp_type", "create_time", "log_append_time", "unknown"):
    del COLUMNS[_not_a_column]


def some(count: int) -> Entries:
    return Entries(np.arange(count * table.WIDTH, dtype=np.int64).reshape(count, table.WIDTH))


def test_every_column_has_a_name() -> None:
    assert sorted(COLUMNS.values()) == list(range(table.WIDTH))


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column(name: str) -> None:
    entries = some(3)
    assert getattr(entries, name).tolist() == entries.array[:, COLUMNS[name]].tolist()
    assert [getattr(entry, name) for entry in entries] == getattr(entries, name).tolist()
    setattr(entries, name, 7)
    setattr(entries[1], name, 8)
    getattr(entries, name)[2] = 9
    assert entries.array[:, COLUMNS[name]].tolist() == [7, 8, 9]
    entries.array[:, COLUMNS[name]] = 0
    assert entries.array.sum() == some(3).array.sum() - some(3).array[:, COLUMNS[name]].sum()


def test_what_is_a_view_and_what_a_copy() -> None:
    entries = some(4)
    flags = np.array([True, False, True, False])
    assert np.shares_memory(entries[1:].array, entries.array)
    assert np.shares_memory(entries[1].array, entries.array)
    assert isinstance(entries[np.int64(1)], Entry)
    for part in (entries[flags], entries[[0, 2]], entries[np.array([0, 2])]):
        assert not np.shares_memory(part.array, entries.array)
        assert part.array.tolist() == entries.array[::2].tolist()
    assert not np.shares_memory(entries.copy().array, entries.array)
    assert not np.shares_memory(entries[0].copy().array, entries.array)


def test_what_is_wrong_where_they_end_and_which_are_joined() -> None:
    entries = Entries.zeros(3)
    entries.code[1] = Code.BAD_CRC
    entries.position = np.array([5, 6, 7])
    assert (entries.is_intact.tolist(), entries.intact().position.tolist()) == ([True, False, True], [5, 7])
    alone = entries[1].alone()
    assert (len(alone), alone[0].is_intact, alone[0].position, entries[1].code) == (1, True, 6, Code.BAD_CRC)
    entries = Entries.zeros(2)
    entries.position, entries.size = np.array([0, 100]), np.array([100, 61])
    assert (entries.end.tolist(), entries[-1].end) == ([100, 161], 161)
    entries = Entries.zeros(2)
    entries.base_offset, entries.last_offset = np.array([1, 5]), np.array([4, 9])
    assert entries.last_known_offset(-1) == 9
    entries.last_offset[1] = table.UNKNOWN
    assert (entries.last_known_offset(-1), entries[:0].last_known_offset(-1)) == (5, -1)
    entries = some(5)
    assert Entries.joined([entries[:2], entries[2:]]).array.tolist() == entries.array.tolist()
    assert Entries.joined([entries]) is entries
    assert Entries.room(3).array.shape == (3, table.WIDTH)


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


def test_txnindex(tmp_path: Path) -> None:
    path = tmp_path / "0.txnindex"
    assert aborted_in(read_bytes(str(path))) is None
    for data, expected in [(b"", []), (ENTRY, [(7, 16, 32)]), (2 * ENTRY, 2 * [(7, 16, 32)]), (ENTRY + ENTRY[:33], [(7, 16, 32)])]:
        path.write_bytes(data)
        assert aborted_in(read_bytes(str(path))) == expected
    path.write_bytes(ENTRY + ENTRY[:25] + b"\x1f" + ENTRY[26:])
    assert aborted_in(read_bytes(str(path))) is None, "out of order"


@pytest.mark.parametrize(
    ("place", "byte"),
    [(1, 1), (10, 0x80), (17, 0x30), (18, 0x80)],
    ids=["version", "first offset below 0", "first offset after the marker", "marker below 0"],
)
def test_a_txnindex_that_is_not_sane(tmp_path: Path, place: int, byte: int) -> None:
    data = bytearray(2 * ENTRY)
    data[place] = byte
    path = tmp_path / "0.txnindex"
    path.write_bytes(data)
    assert aborted_in(read_bytes(str(path))) is None


def test_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "33.snapshot"
    assert open_in(read_bytes(str(path))) is None
    path.write_bytes(snapshot())
    assert open_in(read_bytes(str(path))) == {7: 31}
    path.write_bytes(snapshot(producers=bytes(4)))
    assert open_in(read_bytes(str(path))) == {}


@pytest.mark.parametrize(
    "data",
    [b"", snapshot()[:-1], snapshot() + b"\0", snapshot(version=2), snapshot(checksum=1), snapshot(producers=b"\xff\xff\xff\xff")],
    ids=["empty", "cut", "too long", "version", "checksum", "negative count"],
)
def test_a_snapshot_that_is_not_sane(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "33.snapshot"
    path.write_bytes(data)
    assert open_in(read_bytes(str(path))) is None
