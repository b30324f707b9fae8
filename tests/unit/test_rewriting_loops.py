"""Loops that rewrite: the table of keys of a compaction is as a dict; filter and conversion leave odd batches to the general path.

`tests/behaviour/test_compaction_ways.py` compares what filter and conversion write.
"""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.encoder import Record, message, record_body, varint
from kit.guarded import ending_at_a_page
from kolumn.cpu_fallback.encode.key_map import place_keys
from kolumn.cpu_fallback.encode.rewrite import LONGER, down_convert, filter_records
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.formats import table
from kolumn.writers import last_offsets
from kolumn.writers.last_offsets import LatestOffsets

BASE, TIME, LOWEST = 100, 5_000, 102
RECORDS = [
    Record(101, b"before", b"v", TIME), Record(102, b"a", b"", TIME - 300), Record(103, b"gone", b"x" * 99, TIME + 9_000),
    Record(104, None, b"has no key", TIME + 9_000), Record(105, b"", b"y" * 70, TIME - 100, ((b"\x7f", None), (b"", b"z" * 130))),
    Record(107, b"b" * 64, b"w", TIME - 200), Record(108, b"after", b"v", TIME),
]  # fmt: skip
STAY = [RECORDS[1], RECORDS[4], RECORDS[5]]
MARKS = np.array([1, 1, 0, 1, 1, 0, 1, 1], np.uint8)
"""Of offsets 101 to 108, all but the first and the last of which the filter may look at."""


def bodies(records: list[Record], time: int, trailing: bytes = b"", base: int = BASE) -> bytes:
    made = [record_body(one, base, time) + trailing for one in records]
    return b"".join(varint(len(body)) + body for body in made)


def filtered(data: bytes, count: int) -> tuple[bytes, list[int]] | None:
    """The records that stay, their number and both timestamps of the batch; None if the batch is left, of which nothing may change."""
    rows = np.zeros((1, table.WIDTH), np.int64)
    rows[0, [table.COUNT, table.BASE_OFFSET, table.BASE_TIMESTAMP, table.MAX_TIMESTAMP]] = count, BASE, TIME, TIME + 9_000
    rows[0, table.LAST_OFFSET] = BASE + 10_000
    before, source, gap = rows.copy(), np.frombuffer(data + bytes(PAD), np.uint8), 5
    target, made = np.zeros(gap + len(data) + LONGER * count + PAD, np.uint8), np.zeros(1, np.int64)
    address, size, gaps = (np.array([one], np.int64) for one in (source.ctypes.data, len(data), gap))
    inside = MARKS.ctypes.data + 1, LOWEST, len(MARKS) - 2
    total = filter_records(rows, address, size, gaps, *inside, -1, TIME, target.ctypes.data, made)
    if made[0] < 0:
        assert (rows == before).all()
        assert total == 0
        return None
    assert total == gap + made[0]
    return target[gap:total].tobytes(), rows[0, [table.COUNT, table.BASE_TIMESTAMP, table.MAX_TIMESTAMP]].tolist()


def test_bytes_that_nobody_asked_for() -> None:
    """After the last record, and after the headers of one that stays; and records that are cut off."""
    data = bodies(RECORDS, TIME)
    assert filtered(data, len(RECORDS)) == (bodies(STAY, TIME - 300), [3, TIME - 300, TIME - 100])
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
    return bodies(records, BEGIN, trailing, FIRST)


def converted(batches: list[tuple[bytes, int]]) -> tuple[tuple[int, int, int, int], bytes]:
    """What the loop returns, and the messages; batches are bytes of records, and how many."""
    rows, of_all = np.zeros((len(batches), table.WIDTH), np.int64), np.full(table.WIDTH, 77, np.int64)
    rows[:, table.BASE_OFFSET], rows[:, table.BASE_TIMESTAMP], rows[:, table.COUNT] = FIRST, BEGIN, [count for _, count in batches]
    rows[:, table.LAST_OFFSET] = WHOLE[-1].offset
    sources = [np.frombuffer(data + bytes(PAD), np.uint8) for data, _ in batches]
    address = np.array([one.ctypes.data for one in sources], np.int64)
    size = np.array([len(data) for data, _ in batches], np.int64)
    out = np.zeros((int(rows[:, table.COUNT].sum()), table.WIDTH), np.int64)
    target = np.zeros(int(size.sum()) + ROOM_EACH * (len(out) + 1) + PAD, np.uint8)
    done = down_convert(rows, address, size, 1, of_all, out, target.ctypes.data)
    return done, target[: done[2]].tobytes()


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
    written = b"".join(message(1, one) for one in [*WHOLE[:2], *WHOLE[:2]])
    assert converted([plain, plain, odd, plain]) == ((2, 4, len(written), 4), written)


Keys = list[bytes | None]


def added(parts: list[Keys], start: int = 0, step: int = 1) -> tuple[LatestOffsets, dict[bytes, int]]:
    found, expected, offset = LatestOffsets(), dict[bytes, int](), start
    for keys in parts:
        offsets = list(range(offset, offset + step * len(keys), step))
        offset += step * len(keys)
        found.add(pa.array(keys, pa.binary()), pa.array(offsets, pa.int64()))
        for key, one in zip(keys, offsets, strict=True):
            if key is not None:
                expected[key] = max(one, expected.get(key, one))
    return found, expected


def compare(found: LatestOffsets, expected: dict[bytes, int]) -> None:
    table = found.table()
    assert (len(table), dict(zip(table["key"].to_pylist(), table["offset"].to_pylist(), strict=True))) == (len(expected), expected)
    assert found.offsets().tolist() == sorted(expected.values())
    offsets = set(expected.values())
    near = np.array(sorted({offset + more for offset in offsets for more in (-1, 0, 1)} | {-(2**62), 2**62}), np.int64)
    assert found.is_latest(near).tolist() == [offset in offsets for offset in near.tolist()]
    probe: Keys = [*list(expected)[:500], None, b"", b"\0", *(key + b"\0" for key in list(expected)[:500]), *(key[:-1] for key in expected)]
    assert found.last(pa.array(probe, pa.binary())).tolist() == [expected.get(key, -1) for key in probe]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.one_of(st.none(), st.binary(max_size=3), st.binary(max_size=40)), max_size=50), max_size=4),
    st.sampled_from([1, -1, 1000]),
)
def test_as_a_dict(parts: list[Keys], step: int) -> None:
    """With offsets that rise or, as no log has them, fall; with gaps, the set of last offsets is searched."""
    compare(*added(parts, 10**6, step))


@pytest.mark.parametrize(("rows", "kinds", "longest"), [(20_000, 20_000, 16), (30_000, 900, 40), (300, 300, 3000), (4097, 4097, 1)])
def test_while_it_grows(rows: int, kinds: int, longest: int) -> None:
    rng = random.Random(rows)
    keys: Keys = [b"%d|" % one * rng.randint(1, longest) for one in range(kinds)]
    compare(*added([[rng.choice(keys) for _ in range(rows // 2)], [*keys, None], [rng.choice(keys) for _ in range(rows // 2)]]))


def test_keys_differ_in_one_bit() -> None:
    """Of each byte of a key of each length: all of them count."""
    for size in range(20):
        key = bytes(range(1, size + 1))
        others = [key[:at] + bytes([key[at] ^ bit]) + key[at + 1 :] for at in range(size) for bit in (1, 128)]
        compare(*added([[key, *others, key + b"\0", key]]))


def test_where_all_hashes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then keys are told apart by their bytes alone."""
    monkeypatch.setattr(LatestOffsets, "_seeds", property(lambda self: [0, 0], lambda self, seeds: None), raising=False)
    compare(*added([[b"%d" % (one % 700) for one in range(2000)]]))


def test_tables_of_many_bytes_are_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_offsets, "_LARGEST_TABLE", 100)
    keys: Keys = [*(b"%d" % one * 30 for one in range(200)), b"", bytes(1000)]
    found, expected = added([keys])
    assert found.table()["key"].num_chunks > 50
    compare(found, expected)


def test_after_the_last_slot_comes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all slots are taken; what lies after them stays as it is."""
    monkeypatch.setattr(last_offsets, "_KEYS", 8)
    for _ in range(20):
        found = LatestOffsets()
        found.add(pa.array([b"first"]), pa.array([0]))
        slots = np.zeros(32, np.int64)
        found._slots = slots[:8]
        place_keys(found._map(), 1)
        keys: Keys = [b"first", *(b"%d" % one for one in range(6))]
        found.add(pa.array(keys, pa.binary()), pa.array(range(7)))
        assert np.count_nonzero(slots[:8]) == 7
        assert not slots[8:].any()
        compare(found, dict(zip([key for key in keys if key is not None], range(7), strict=True)))
        slots[:8] = 0
        place_keys(found._map(), 7)
        assert not slots[8:].any()
        assert (found.last(pa.array(keys, pa.binary())) >= 0).all()


def test_slices_nothing_and_a_record_that_is_not_later() -> None:
    found = LatestOffsets()
    found.add(pa.array([b"a", b"a", b"a"]), pa.array([5, 5, 4]))
    assert found.table()["offset"].to_pylist() == [5]
    found = LatestOffsets()
    found.add(pa.array([], pa.binary()), pa.array([], pa.int64()))
    found.add(pa.nulls(3, pa.binary()), pa.array([1, 2, 3]))
    compare(found, {})
    keys, offsets = pa.array([b"a", None, b"b", b"a", None], pa.binary()), pa.array([1, 2, 3, 4, 5])
    found.add(keys.slice(1, 3), offsets.slice(1, 3))
    compare(found, {b"b": 3, b"a": 4})
    assert LatestOffsets.of(np.array([3, 9], np.int64)).is_latest(np.array([2, 3, 9, 10], np.int64)).tolist() == [False, True, True, False]


def test_keys_are_not_read_past_their_end() -> None:
    """A page that nobody may touch begins after the bytes of the last key."""
    for size in range(1, 70):
        data = ending_at_a_page(size)
        data[:] = np.arange(size, dtype=np.uint8)
        ends = pa.py_buffer(np.array([0, size // 2, size], np.int32))
        keys = pa.Array.from_buffers(pa.binary(), 2, [None, ends, pa.py_buffer(data)])
        found = LatestOffsets()
        found.add(keys, pa.array([1, 2]))
        compare(found, dict(zip(keys.to_pylist(), [1, 2], strict=True)))
