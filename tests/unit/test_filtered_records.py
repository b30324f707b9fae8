"""What compaction's filter writes of one batch, and which it leaves to the general path; expected bytes are the tests' encoder's."""

import numpy as np
import pytest

from kit.encoder import Record, record_body, varint
from kolumn.cpu_fallback.encode.filter import LONGER, filter_records
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.formats import table

BASE, TIME, LOWEST = 100, 5_000, 102
RECORDS = [
    Record(101, b"before", b"v", TIME),
    Record(102, b"a", b"", TIME - 300),
    Record(103, b"gone", b"x" * 99, TIME + 9_000),
    Record(104, None, b"has no key", TIME + 9_000),
    Record(105, b"", b"y" * 70, TIME - 100, ((b"\x7f", None), (b"", b"z" * 130))),
    Record(107, b"b" * 64, b"w", TIME - 200),
    Record(108, b"after", b"v", TIME),
]
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


def test_a_delete_horizon_stays() -> None:
    assert filtered(bodies(RECORDS, TIME), len(RECORDS), horizon=1) == (bodies(STAY, TIME), [3, TIME, TIME - 100])


def test_a_batch_of_which_nothing_stays_is_left() -> None:
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
