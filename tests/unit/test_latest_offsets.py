"""The table of keys of a compaction: the same as a dict's, whatever the keys, while it grows and where hashes collide."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.guarded import ending_at_a_page
from kolumn.cpu_fallback.encode.key_map import place_keys
from kolumn.writers.rewriting import cleaner
from kolumn.writers.rewriting.cleaner import LatestOffsets

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
    assert found.known(pa.array(probe, pa.binary())).tolist() == [key is not None and key in expected for key in probe]


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


@pytest.mark.parametrize("size", range(20))
def test_keys_differ_in_one_bit(size: int) -> None:
    """Of each byte of a key of each length: all of them count."""
    key = bytes(range(1, size + 1))
    others = [key[:at] + bytes([key[at] ^ bit]) + key[at + 1 :] for at in range(size) for bit in (1, 128)]
    compare(*added([[key, *others, key + b"\0", key]]))


def test_where_all_hashes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then keys are told apart by their bytes alone."""
    made = LatestOffsets.__init__

    def without_seeds(self: LatestOffsets, *given: Any) -> None:
        made(self, *given)
        self._seeds = [0, 0]

    monkeypatch.setattr(LatestOffsets, "__init__", without_seeds)
    compare(*added([[b"%d" % (one % 700) for one in range(2000)]]))


def test_tables_of_many_bytes_are_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner, "_LARGEST_TABLE", 100)
    keys: Keys = [*(b"%d" % one * 30 for one in range(200)), b"", bytes(1000)]
    found, expected = added([keys])
    assert found.table()["key"].num_chunks > 50
    compare(found, expected)


def test_after_the_last_slot_comes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all slots are taken; what lies after them stays as it is."""
    monkeypatch.setattr(cleaner, "_KEYS", 8)
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
        assert found.known(pa.array(keys, pa.binary())).all()


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
