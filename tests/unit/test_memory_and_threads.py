"""What reads keep for the next one: memory, page-locked or not, and threads; nothing is under way after a read."""

import ctypes
import gc
import mmap
import os
import signal
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import kolumn
from kit.encoder import Record, batch
from kit.outcome import raises
from kolumn.core import recycle
from kolumn.core import threads as module
from kolumn.core.errors import KolumnError
from kolumn.core.threads import DECODE, KEPT, end_waiting, workers
from kolumn.decode.small_segments import MOST_SEGMENTS, SMALL, tasks_of
from kolumn.source.segments import Range, Segment

STATUS = Path("/proc/self/status")
MIB = 1 << 20


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Sizes of what was locked; at most 64 MiB may be, and 16 MiB stay."""
    made: list[int] = []
    monkeypatch.setattr(recycle, "MOST_LOCKED", 64 * MIB)
    monkeypatch.setattr(recycle, "KEPT_LOCKED", 16 * MIB)
    recycle.lock_by(lambda size: made.append(size) or np.empty(size, np.uint8))
    yield made
    recycle.lock_by(None)


def address_of(taken: Any) -> int:
    return int(taken[0].address)


def is_locked(address: int) -> bool:
    """Whether a page-locked block in use begins there."""
    return address in recycle._locked.used


def test_blocks_are_used_again(locked: list[int]) -> None:
    first = recycle.take_locked(3 * MIB)
    address = address_of(first)
    assert is_locked(address)
    first[1][:3] = b"abc"
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
    for lock in (Mock(side_effect=MemoryError("no page-locked memory")), None):
        recycle.lock_by(lock)
        taken = recycle.take_locked(MIB)
        taken[1][:] = bytes(MIB)
        assert (is_locked(address_of(taken)), recycle.locked_bytes()) == (False, 0)


def test_a_huge_block_frees_what_waits() -> None:
    """What waits would add to the peak of a batch of that size."""
    taken_and_given_back(8 * MIB, 3)
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


@pytest.mark.parametrize("are_held", [False, True])
def test_sizes_that_nobody_asks_for_any_longer_make_room(kept: recycle._Waiting, are_held: bool) -> None:
    """A read of another kind takes no fresh memory from the second time on, though the bytes that may wait did wait.

    Nor does a table that somebody held for long drive out what reads take and give back again and again.
    """
    table = [recycle.take(16 * MIB) for _ in range(4)]
    if not are_held:
        table.clear()
        assert kept.bytes == 64 * MIB
    first = taken_and_given_back(9 * MIB, 6)
    assert kept.bytes <= 64 * MIB
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


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    end_waiting()
    yield
    end_waiting()


def waiting() -> int:
    return sum(count for count, _ in module._waiting)


def test_few_threads_are_kept() -> None:
    found = set()
    for _ in range(3):
        with workers(DECODE, 1, are_kept=True) as pool:
            found.add(pool.submit(threading.get_ident).result())
    assert len(found) == 1
    # Reads at the same time have threads of their own.
    with workers(DECODE, 1, are_kept=True) as one, workers(DECODE, 1, are_kept=True) as two:
        assert one.submit(threading.get_ident).result() != two.submit(threading.get_ident).result()
    assert waiting() == 2
    for count in (1, 2, KEPT - 1, KEPT + 1):
        with workers(DECODE, count, are_kept=True) as pool:
            pool.submit(int).result()
        assert waiting() <= KEPT
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kolumn_")]


def test_what_is_under_way_is_waited_for() -> None:
    begun, done = threading.Event(), list[int]()

    def work() -> None:
        begun.set()
        time.sleep(0.01)
        done.append(1)

    with workers(DECODE, 1, are_kept=True) as pool:
        pool.submit(work)
        dropped = pool.submit(done.append, 2)
        begun.wait()
    assert done == [1]
    raises(CancelledError, "", dropped.result)


def test_threads_without_a_thread_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with workers(DECODE, 2, are_kept=True) as pool:
        monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", Mock(side_effect=RuntimeError("can't start new thread")))
        raises(RuntimeError, "new thread", pool.submit, int)
    assert not waiting()


def test_no_thread_is_left_before_a_fork() -> None:
    with workers(DECODE, 2, are_kept=True) as pool:
        pool.submit(int).result()
    assert waiting() == 2
    child = os.fork()
    if not child:
        try:
            with workers(DECODE, 2, are_kept=True) as pool:
                os._exit(pool.submit(threading.active_count).result() != 2)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not waiting()


def test_threads_of_a_read_that_is_garbage_serve_the_next_one() -> None:
    """An exception's traceback references a read that references it: such cycles are collected with what they hold."""

    def read() -> Iterator[object]:
        with workers(DECODE, 1, are_kept=True) as pool:
            yield pool.submit(threading.get_ident).result()

    holder: list[object] = [found := read()]
    thread = next(found)
    holder.append(holder)
    del found, holder
    gc.collect()
    with workers(DECODE, 1, are_kept=True) as pool:
        # Without a thread for it, it would be cancelled at the end, and waited for.
        assert pool.submit(threading.get_ident).result(timeout=60) == thread


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_scan_is_not_continued_in_a_process_that_is_forked_from_it(path: Path, threads: int, goes_on: bool) -> None:
    """It has none of the threads that decode, and would wait for them, to go on or to end."""
    path.write_bytes(b"".join(batch([Record(i, b"key", bytes(1000))]) for i in range(300)))
    reader = kolumn.scan(path, threads=threads, chunk_bytes=20_000)
    first = reader.read_next_batch().num_rows
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            if goes_on:
                reader.read_next_batch()
            else:
                del reader
                gc.collect()
                os._exit(kolumn.read(path, threads=threads).num_rows != 300)
        except KolumnError as error:
            os._exit(not ("forked" in str(error) and kolumn.read(path, threads=threads).num_rows == 300))
        finally:
            os._exit(2)
    assert (os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), first + sum(one.num_rows for one in reader)) == (0, 300)


EACH = 100


def ranges(count: int, size: int = EACH) -> Iterator[Range]:
    for i in range(count):
        yield Range.whole(Segment(f"{i}.log", "t", 0, i, size))


def sizes(tasks: Iterator[list[Range]]) -> list[int]:
    return [sum(one.end for one in task) for task in tasks]


def test_tasks_are_short_at_first_and_large_ranges_are_alone() -> None:
    """A short source is shared by all threads, and a long one costs few tasks."""
    assert sizes(tasks_of(ranges(45), 4 * EACH, 10 * EACH, 3)) == [400] * 3 + [1000] * 3 + [300]
    assert (sizes(tasks_of(ranges(12), 4 * EACH, 10 * EACH, 3)), sizes(tasks_of(ranges(9), 4 * EACH))) == ([400] * 3, [400, 400, 100])
    mixed = iter([*ranges(2), *ranges(1, SMALL + 1), *ranges(3)])
    assert sizes(tasks_of(mixed, 10 * EACH, 20 * EACH, 0)) == [200, SMALL + 1, 300]
    assert [len(task) for task in tasks_of(ranges(MOST_SEGMENTS + 1, 1), 1000, 2000)] == [MOST_SEGMENTS, 1]


def test_what_was_named_before_an_error_comes_first() -> None:
    def failing() -> Iterator[Range]:
        yield from ranges(3)
        raise KolumnError("not listed")

    tasks = tasks_of(failing(), 10 * EACH)
    assert len(next(tasks)) == 3
    raises(KolumnError, "not listed", next, tasks)
