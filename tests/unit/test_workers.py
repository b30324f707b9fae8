"""Threads of reads: which are kept, that nothing is under way after a read, and which small ranges they get together."""

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest

import kolumn
from kit.encoder import Record, batch
from kolumn.core import threads as module
from kolumn.core.errors import KolumnError
from kolumn.core.threads import DECODE, KEPT, end_waiting, workers
from kolumn.decode.small_segments import MOST_SEGMENTS, SMALL, tasks_of
from kolumn.source.segments import Range, Segment


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
    begun, go, done = threading.Event(), threading.Event(), list[int]()

    def work() -> None:
        begun.set()
        go.wait()
        time.sleep(0.01)
        done.append(1)

    with workers(DECODE, 1, are_kept=True) as pool:
        pool.submit(work)
        dropped = pool.submit(done.append, 2)
        begun.wait()
        go.set()
    assert done == [1]
    with pytest.raises(CancelledError):
        dropped.result()


def test_threads_without_a_thread_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ThreadPoolExecutor) -> None:
        raise RuntimeError("can't start new thread")

    with workers(DECODE, 2, are_kept=True) as pool:
        monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            pool.submit(int)
    assert not waiting()


def test_no_thread_is_left_before_a_fork() -> None:
    with workers(DECODE, 2, are_kept=True) as pool:
        pool.submit(int).result()
    assert waiting() == 2
    child = os.fork()
    if not child:
        try:
            with workers(DECODE, 2, are_kept=True) as pool:
                right = pool.submit(threading.active_count).result() == 2
            os._exit(0 if right else 1)
        except BaseException:
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
def test_a_scan_is_not_continued_in_a_process_that_is_forked_from_it(tmp_path: Path, threads: int, goes_on: bool) -> None:
    """It has none of the threads that decode, and would wait for them, to go on or to end."""
    path = tmp_path / f"{0:020}.log"
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
    with pytest.raises(KolumnError, match="not listed"):
        next(tasks)
