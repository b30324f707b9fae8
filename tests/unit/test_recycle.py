"""Page-locked memory is bounded, is given back, and is replaced by ordinary memory where there is no more of it."""

import ctypes
import gc
import mmap
from collections import Counter, OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kolumn.core import recycle

STATUS = Path("/proc/self/status")
MIB = 1 << 20


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Sizes of what was locked; at most 64 MiB may be, and 16 MiB stay."""
    made: list[int] = []

    def new(size: int) -> Any:
        made.append(size)
        return np.empty(size, np.uint8)

    monkeypatch.setattr(recycle, "MOST_LOCKED", 64 * MIB)
    monkeypatch.setattr(recycle, "KEPT_LOCKED", 16 * MIB)
    recycle.lock_by(new)
    yield made
    recycle.lock_by(None)


def address_of(taken: Any) -> int:
    return int(taken[0].address)


def is_locked(address: int) -> bool:
    """Whether a page-locked block in use begins there."""
    return address in recycle._locked.used


def test_blocks_are_used_again(locked: list[int]) -> None:
    first = recycle.take_locked(3 * MIB)
    assert is_locked(address_of(first))
    first[1][:3] = b"abc"
    address = address_of(first)
    del first
    gc.collect()
    assert not is_locked(address)
    again = recycle.take_locked(3 * MIB - 100)
    assert (address_of(again), len(locked)) == (address, 1)


def test_ordinary_memory_after_the_bound_and_what_is_given_back(locked: list[int]) -> None:
    held = [recycle.take_locked(15 * MIB) for _ in range(6)]
    assert [is_locked(address_of(one)) for one in held] == [True] * 4 + [False] * 2
    assert recycle.locked_bytes() == 60 * MIB
    for one in held:
        one[1][-1:] = b"x"
    del one
    held.clear()
    gc.collect()
    assert recycle.locked_bytes() <= 16 * MIB


def test_processes_that_share_a_gpu_share_the_bound(locked: list[int]) -> None:
    recycle.share_locked(4)
    try:
        held = [recycle.take_locked(7 * MIB) for _ in range(3)]
        assert [is_locked(address_of(one)) for one in held] == [True, True, False]
    finally:
        recycle.share_locked(1)


def test_blocks_of_another_size_make_room(locked: list[int]) -> None:
    kept = recycle.take_locked(MIB)
    held = [recycle.take_locked(15 * MIB) for _ in range(4)]
    held.clear()
    gc.collect()
    assert is_locked(address_of(recycle.take_locked(40 * MIB)))
    del kept


def test_memory_that_is_ordinary(locked: list[int]) -> None:
    """What is kept is never locked; nothing is where the system locks none, or without a GPU."""
    assert not is_locked(address_of(recycle.take(4 * MIB)))
    assert locked == []

    def refused(size: int) -> Any:
        raise MemoryError("no page-locked memory")

    for lock in (refused, None):
        recycle.lock_by(lock)
        taken = recycle.take_locked(MIB)
        taken[1][:] = bytes(MIB)
        assert (is_locked(address_of(taken)), recycle.locked_bytes()) == (False, 0)


def test_a_huge_block_frees_what_waits() -> None:
    """What waits would add to the peak of a batch of that size."""
    held = [recycle.take(8 * MIB) for _ in range(3)]
    del held
    gc.collect()
    assert recycle._waiting.bytes >= 3 * 8 * MIB
    recycle.take(recycle.HUGE - 1)
    assert recycle._waiting.bytes >= 3 * 8 * MIB
    recycle.take(recycle.HUGE)
    assert recycle._waiting.bytes == 0


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> recycle._Waiting:
    """No block waits, and at most 64 MiB may."""
    waiting = recycle._Waiting(64 * MIB)
    monkeypatch.setattr(recycle, "_waiting", waiting)
    return waiting


def taken_and_given_back(size: int, blocks: int) -> set[int]:
    """Takes some blocks at a time and lets them go; returns their addresses."""
    held = [recycle.take(size) for _ in range(blocks)]
    return {address_of(one) for one in held}


def test_sizes_that_nobody_asks_for_any_longer_make_room(kept: recycle._Waiting) -> None:
    """A read of another kind takes no fresh memory from the second time on, though the bytes that may wait did wait."""
    taken_and_given_back(16 * MIB, 4)
    assert kept.bytes == 64 * MIB
    first = taken_and_given_back(9 * MIB, 6)
    assert kept.bytes <= 64 * MIB
    assert taken_and_given_back(9 * MIB, 6) == first
    assert kept.bytes <= 64 * MIB


def test_blocks_that_are_used_now_are_not_freed_for_older_ones(kept: recycle._Waiting) -> None:
    """A table that somebody held for long does not drive out what reads take and give back again and again."""
    table = [recycle.take(16 * MIB) for _ in range(4)]
    first = taken_and_given_back(9 * MIB, 6)
    table.clear()
    assert taken_and_given_back(9 * MIB, 6) == first
    assert kept.bytes <= 64 * MIB


def test_what_comes_back_costs_the_same_after_many_sizes(kept: recycle._Waiting) -> None:
    """A process that has asked for thousands of sizes looks at no more of them than one that has asked for a few."""
    looks = Counter[str]()

    class Looked(OrderedDict[int, Any]):
        def move_to_end(self, key: int, last: bool = True) -> None:
            looks["moved"] += 1
            super().move_to_end(key, last)

        def __iter__(self) -> Iterator[int]:
            looks["looked at"] += 1
            return super().__iter__()

    kept.blocks = Looked()
    for size in range(1, 5000):
        kept.take(size, 1)
    held = [recycle.take(16 * MIB) for _ in range(5)]
    looks.clear()
    held.clear()
    assert kept.bytes == 64 * MIB
    assert 0 < looks["looked at"] <= 20
    assert looks["moved"] <= 20


def test_threads_count_what_waits(kept: recycle._Waiting) -> None:
    """Whatever order they take, give and free in."""

    def work(number: int) -> None:
        for i in range(200):
            taken_and_given_back((1 + (7 * i + number) % 5) * 3 * MIB, 4)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert kept.bytes == sum(len(block.array) for blocks in kept.blocks.values() for block in blocks)
    assert kept.bytes <= 64 * MIB + 4 * 15 * MIB


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim") or not STATUS.exists(), reason="needs glibc's malloc, and Linux")
def test_a_huge_block_returns_what_waited_to_the_system() -> None:
    # From now on malloc takes blocks of that size from its heap.
    np.empty(31 * MIB, np.uint8)
    held, above = [], []
    for _ in range(8):
        buffer, view = recycle.take(8 * MIB)
        np.frombuffer(view, np.uint8)[:] = 1
        held.append(buffer)
        above.append(np.ones(100_000, np.uint8))
    del buffer, view
    before = resident()
    held.clear()
    recycle.take(recycle.HUGE)
    assert resident() < before - 7 * 8 * MIB
    del above


def resident() -> int:
    return next(int(line.split()[1]) << 10 for line in STATUS.read_text().splitlines() if line.startswith("VmRSS:"))


@pytest.mark.parametrize("size", [recycle.SMALLEST, recycle.SMALLEST + 1, 3 << 20, recycle.LARGEST, recycle.LARGEST + 1])
def test_memory_begins_far_enough_into_a_page(size: int) -> None:
    """A file begins where a page does. With a target a few bytes further into one, Zen 3 takes four times as long to read it."""
    blocks = [recycle.memory(size), recycle.take(size)[0]]
    assert [block.address % mmap.PAGESIZE for block in blocks] == [recycle.INTO_PAGE, recycle.INTO_PAGE]
    assert [block.size for block in blocks] == [size, size]
