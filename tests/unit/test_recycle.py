"""Page-locked memory is bounded, is given back, and is replaced by ordinary memory where there is no more of it."""

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kolumn.arrow import recycle

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


def test_without_a_gpu_memory_is_ordinary() -> None:
    taken = recycle.take_locked(MIB)
    assert not is_locked(address_of(taken))
    assert recycle.locked_bytes() == 0


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


def test_ordinary_memory_after_the_bound(locked: list[int]) -> None:
    held = [recycle.take_locked(15 * MIB) for _ in range(6)]
    flags = [is_locked(address_of(one)) for one in held]
    assert flags == [True] * 4 + [False] * 2
    assert recycle.locked_bytes() <= 64 * MIB
    for one in held:
        one[1][-1:] = b"x"


def test_it_is_given_back(locked: list[int]) -> None:
    held = [recycle.take_locked(15 * MIB) for _ in range(4)]
    assert recycle.locked_bytes() == 60 * MIB
    held.clear()
    gc.collect()
    assert recycle.locked_bytes() <= 16 * MIB


def test_blocks_of_another_size_make_room(locked: list[int]) -> None:
    kept = recycle.take_locked(MIB)
    held = [recycle.take_locked(15 * MIB) for _ in range(4)]
    held.clear()
    gc.collect()
    assert is_locked(address_of(recycle.take_locked(40 * MIB)))
    del kept


def test_where_the_system_locks_none(locked: list[int]) -> None:
    def refused(size: int) -> Any:
        raise MemoryError("no page-locked memory")

    recycle.lock_by(refused)
    taken = recycle.take_locked(MIB)
    taken[1][:] = bytes(MIB)
    assert not is_locked(address_of(taken))


def test_what_is_kept_is_never_locked(locked: list[int]) -> None:
    taken = recycle.take(4 * MIB)
    assert not is_locked(address_of(taken))
    assert locked == []


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
