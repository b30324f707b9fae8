"""What compaction's filter and the conversion to messages write of batches, and which batches are left to the general path."""

import numpy as np
import pytest

from kit.encoder import Record, message, record_body, varint
from kolumn.cpu_fallback.encode.rewrite import LONGER, down_convert, filter_records
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.formats import table

BASE, TIME, LOWEST = 100, 5_000, 102
RECORDS = [
    Record(101, b"before", b"v", TIME), Record(102, b"a", b"", TIME - 300), Record(103, b"gone", b"x" * 99, TIME + 9_000),
    Record(104, None, b"has no key", TIME + 9_000), Record(105, b"", b"y" * 70, TIME - 100, ((b"\x7f", None), (b"", b"z" * 130))),
    Record(107, b"b" * 64, b"w", TIME - 200), Record(108, b"after", b"v", TIME),
]  # fmt: skip
STAY = [RECORDS[1], RECORDS[4], RECORDS[5]]
MARKS = np.array([1, 1, 0, 1, 1, 0, 1, 1], np.uint8)
"""Of offsets 101 to 108, all but the first and the last of which the filter may look at."""


def bodies(records: list[Record], time: int, trailing: bytes = b"") -> bytes:
    made = [record_body(one, BASE, time) + trailing for one in records]
    return b"".join(varint(len(body)) + body for body in made)


def filtered(data: bytes, count: int, horizon: int = 0, marks: np.ndarray = MARKS) -> tuple[bytes, list[int]] | None:
    """The records that stay, their number and both timestamps of the batch; None if the batch is left, of which nothing may change."""
    rows = np.zeros((1, table.WIDTH), np.int64)
    rows[0, [table.COUNT, table.BASE_OFFSET, table.BASE_TIMESTAMP, table.MAX_TIMESTAMP]] = count, BASE, TIME, TIME + 9_000
    rows[0, [table.LAST_OFFSET, table.DELETE_HORIZON]] = BASE + 10_000, horizon
    before, source, gap = rows.copy(), np.frombuffer(data + bytes(PAD), np.uint8), 5
    target, made = np.zeros(gap + len(data) + LONGER * count + PAD, np.uint8), np.zeros(1, np.int64)
    address, size, gaps = (np.array([one], np.int64) for one in (source.ctypes.data, len(data), gap))
    inside = marks.ctypes.data + 1, LOWEST, len(marks) - 2
    total = filter_records(rows, address, size, gaps, *inside, -1, TIME, target.ctypes.data, made)
    if made[0] < 0:
        assert (rows == before).all()
        assert total == 0
        return None
    assert total == gap + made[0]
    return target[gap:total].tobytes(), rows[0, [table.COUNT, table.BASE_TIMESTAMP, table.MAX_TIMESTAMP]].tolist()


def test_what_stays() -> None:
    """Marked offsets inside of the marks, with a key. The times are theirs, though all are before that of the batch."""
    assert filtered(bodies(RECORDS, TIME), len(RECORDS)) == (bodies(STAY, TIME - 300), [3, TIME - 300, TIME - 100])
    assert filtered(bodies(RECORDS, TIME), len(RECORDS), horizon=1) == (bodies(STAY, TIME), [3, TIME, TIME - 100])
    assert filtered(bodies(RECORDS, TIME), len(RECORDS), marks=np.zeros_like(MARKS)) is None


@pytest.mark.parametrize("name", [b"\x80", b"abc\xff", "é".encode()])
def test_names_of_headers_that_may_be_no_text(name: bytes) -> None:
    odd = Record(106, b"k", b"v", TIME, ((b"name", b""), (name, b"")))
    assert filtered(bodies([*RECORDS[:5], odd], TIME), 6) is not None
    marked = np.where(np.arange(len(MARKS)) == 5, 1, MARKS).astype(np.uint8)
    expected = [RECORDS[1], RECORDS[4], odd]
    first = min(one.timestamp for one in expected)
    found = filtered(bodies([*RECORDS[:5], odd], TIME), 6, marks=marked)
    assert found is not None
    assert found[1][0] == 3
    assert name in found[0]
    assert found[0] == bodies(expected, found[1][1])
    assert found[1][1] >= first


@pytest.mark.parametrize("where", range(8))
def test_a_tombstone_anywhere(where: int) -> None:
    records = [*RECORDS[:where], Record(106, b"k", None, TIME), *RECORDS[where:]]
    """It goes, since its key has a later record."""
    assert filtered(bodies(records, TIME), len(records)) == (bodies(STAY, TIME - 300), [3, TIME - 300, TIME - 100])


def test_bytes_that_nobody_asked_for() -> None:
    """After the last record, and after the headers of one that stays; and records that are cut off."""
    data = bodies(RECORDS, TIME)
    assert filtered(data + b"\0", len(RECORDS)) is None
    assert filtered(data, len(RECORDS) - 1) is None
    assert filtered(data[:-1], len(RECORDS)) is None
    assert filtered(bodies(RECORDS, TIME, b"\0"), len(RECORDS)) is None


FIRST, BEGIN = 1000, 50_000
WHOLE = [
    Record(1000, b"key", b"value" * 20, BEGIN), Record(1003, None, b"", 0), Record(1004, b"", None, -1), Record(1900, b"k" * 40, b"v", -2),
    Record(1901, None, None, BEGIN + 7),
]  # fmt: skip
ROOM_EACH = 64


def made_of(records: list[Record], trailing: bytes = b"") -> bytes:
    made = [record_body(one, FIRST, BEGIN) + trailing for one in records]
    return b"".join(varint(len(body)) + body for body in made)


def converted(batches: list[tuple[bytes, int]], magic: int) -> tuple[tuple[int, int, int, int], bytes, np.ndarray]:
    """What the loop returns, the messages, and their rows; batches are bytes of records, and how many."""
    rows, of_all = np.zeros((len(batches), table.WIDTH), np.int64), np.full(table.WIDTH, 77, np.int64)
    rows[:, table.BASE_OFFSET], rows[:, table.BASE_TIMESTAMP], rows[:, table.COUNT] = FIRST, BEGIN, [count for _, count in batches]
    rows[:, table.LAST_OFFSET] = WHOLE[-1].offset
    sources = [np.frombuffer(data + bytes(PAD), np.uint8) for data, _ in batches]
    address = np.array([one.ctypes.data for one in sources], np.int64)
    size = np.array([len(data) for data, _ in batches], np.int64)
    out = np.zeros((int(rows[:, table.COUNT].sum()), table.WIDTH), np.int64)
    target = np.zeros(int(size.sum()) + ROOM_EACH * (len(out) + 1) + PAD, np.uint8)
    done = down_convert(rows, address, size, magic, of_all, out, target.ctypes.data)
    return done, target[: done[2]].tobytes(), out[: done[1]]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_and_their_rows(magic: int) -> None:
    """Only a timestamp of -1 is none; format 0 has none at all, but those that are lost are counted."""
    done, data, rows = converted([(made_of(WHOLE), 5), (b"", 0), (made_of(WHOLE[1:3]), 2)], magic)
    written = [message(magic, one) for one in [*WHOLE, *WHOLE[1:3]]]
    assert (done, data) == ((3, 7, sum(map(len, written)), 4 + 1), b"".join(written))
    assert rows[:, table.SIZE].tolist() == [len(one) for one in written]
    assert rows[:, table.POSITION].tolist() == np.cumsum([0, *map(len, written[:-1])]).tolist()
    assert rows[:, table.BASE_OFFSET].tolist() == [one.offset for one in [*WHOLE, *WHOLE[1:3]]]
    times = [one.timestamp if magic else -1 for one in [*WHOLE, *WHOLE[1:3]]]
    assert rows[:, table.MAX_TIMESTAMP].tolist() == times
    assert (rows[:, table.LEADER_EPOCH] == 77).all()


HEADER = Record(1001, b"k", b"v", BEGIN, ((b"h", b""),))


@pytest.mark.parametrize(
    "odd",
    [
        (made_of([*WHOLE, HEADER]), 6), (made_of(WHOLE) + b"\0", 5), (made_of(WHOLE), 4), (made_of(WHOLE)[:-1], 5),
        (made_of(WHOLE, b"\0"), 5), (made_of(WHOLE[:1]), 2), (made_of(WHOLE[:1]), 0),
        (made_of([Record(1902, None, None, BEGIN)]), 1), (made_of([Record(999, None, None, BEGIN)]), 1),
    ],
    ids=[
        "header", "bytes after the records", "fewer records", "cut off", "bytes after the headers", "more records", "no records",
        "after the last offset", "before the first offset",
    ],
)  # fmt: skip
def test_a_batch_that_is_left(odd: tuple[bytes, int]) -> None:
    """What is before it counts, nothing of it or after it does."""
    plain = (made_of(WHOLE[:2]), 2)
    done, data, rows = converted([plain, plain, odd, plain], 1)
    written = b"".join(message(1, one) for one in [*WHOLE[:2], *WHOLE[:2]])
    assert (done, data, len(rows)) == ((2, 4, len(written), 4), written, 4)
