"""Which messages the records of batches become, and which batches are left to the general path; expected bytes are the tests' encoder's."""

import numpy as np
import pytest

from kit.encoder import Record, message, record_body, varint
from kolumn.cpu_fallback.encode.down_convert import down_convert
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.formats import table

BASE, TIME = 1000, 50_000
RECORDS = [
    Record(1000, b"key", b"value" * 20, TIME),
    Record(1003, None, b"", 0),
    Record(1004, b"", None, -1),
    Record(1900, b"k" * 40, b"v", -2),
    Record(1901, None, None, TIME + 7),
]
OVERHEAD = 64


def bodies(records: list[Record], trailing: bytes = b"") -> bytes:
    made = [record_body(one, BASE, TIME) + trailing for one in records]
    return b"".join(varint(len(body)) + body for body in made)


def converted(batches: list[tuple[bytes, int]], magic: int) -> tuple[tuple[int, int, int, int], bytes, np.ndarray]:
    """What the loop returns, the messages, and their rows; batches are bytes of records, and how many."""
    rows, of_all = np.zeros((len(batches), table.WIDTH), np.int64), np.full(table.WIDTH, 77, np.int64)
    rows[:, table.BASE_OFFSET], rows[:, table.BASE_TIMESTAMP], rows[:, table.COUNT] = BASE, TIME, [count for _, count in batches]
    rows[:, table.LAST_OFFSET] = RECORDS[-1].offset
    sources = [np.frombuffer(data + bytes(PAD), np.uint8) for data, _ in batches]
    address = np.array([one.ctypes.data for one in sources], np.int64)
    size = np.array([len(data) for data, _ in batches], np.int64)
    out = np.zeros((int(rows[:, table.COUNT].sum()), table.WIDTH), np.int64)
    target = np.zeros(int(size.sum()) + OVERHEAD * (len(out) + 1) + PAD, np.uint8)
    done = down_convert(rows, address, size, magic, of_all, out, target.ctypes.data)
    return done, target[: done[2]].tobytes(), out[: done[1]]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_and_their_rows(magic: int) -> None:
    """Only a timestamp of -1 is none; format 0 has none at all, but those that are lost are counted."""
    done, data, rows = converted([(bodies(RECORDS), 5), (b"", 0), (bodies(RECORDS[1:3]), 2)], magic)
    written = [message(magic, one) for one in [*RECORDS, *RECORDS[1:3]]]
    assert (done, data) == ((3, 7, sum(map(len, written)), 4 + 1), b"".join(written))
    assert rows[:, table.SIZE].tolist() == [len(one) for one in written]
    assert rows[:, table.POSITION].tolist() == np.cumsum([0, *map(len, written[:-1])]).tolist()
    assert rows[:, table.BASE_OFFSET].tolist() == [one.offset for one in [*RECORDS, *RECORDS[1:3]]]
    times = [one.timestamp if magic else -1 for one in [*RECORDS, *RECORDS[1:3]]]
    assert rows[:, table.MAX_TIMESTAMP].tolist() == times
    assert (rows[:, table.LEADER_EPOCH] == 77).all()


HEADER = Record(1001, b"k", b"v", TIME, ((b"h", b""),))


@pytest.mark.parametrize(
    "odd",
    [
        (bodies([*RECORDS, HEADER]), 6), (bodies(RECORDS) + b"\0", 5), (bodies(RECORDS), 4), (bodies(RECORDS)[:-1], 5),
        (bodies(RECORDS, b"\0"), 5), (bodies(RECORDS[:1]), 2), (bodies(RECORDS[:1]), 0),
        (bodies([Record(1902, None, None, TIME)]), 1), (bodies([Record(999, None, None, TIME)]), 1),
    ],
    ids=[
        "header", "bytes after the records", "fewer records", "cut off", "bytes after the headers", "more records", "no records",
        "after the last offset", "before the first offset",
    ],
)  # fmt: skip
def test_a_batch_that_is_left(odd: tuple[bytes, int]) -> None:
    """What is before it counts, nothing of it or after it does."""
    plain = (bodies(RECORDS[:2]), 2)
    done, data, rows = converted([plain, plain, odd, plain], 1)
    written = b"".join(message(1, one) for one in [*RECORDS[:2], *RECORDS[:2]])
    assert (done, data, len(rows)) == ((2, 4, len(written), 4), written, 4)
