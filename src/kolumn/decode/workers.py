"""Threads that decode, kept from one read to the next: to begin and to end them takes as long as some MiB of a segment."""

import ctypes
import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakSet

from kolumn.errors import KolumnError

KEPT = 32
"""Maximum number of threads that wait for the next read."""

_Result = TypeVar("_Result")
_waiting: list[tuple[int, ThreadPoolExecutor]] = []
"""Threads that have nothing to do, and their number; the last ones were used last."""
_serving: set[ThreadPoolExecutor] = set()
"""Threads of reads. A read can be garbage when it ends; were its executor garbage too, the threads would end before it is kept."""


class Workers:
    """Threads of one read.

    Parameters
    ----------
    count : int
    are_kept : bool
        Whether they may wait for the next read. Threads that use a GPU hold memory there until they end.
    """

    def __init__(self, count: int, are_kept: bool = True) -> None:
        self._count, self._pool, self._are_kept = count, _taken(count), are_kept
        _serving.add(self._pool)
        # It has what is not done, and results that somebody holds.
        self._begun: WeakSet[Future[Any]] = WeakSet()

    def submit(self, work: Callable[..., _Result], *arguments: Any) -> "Future[_Result]":
        """Let a thread do some work after what was submitted before."""
        try:
            future = self._pool.submit(work, *arguments)
        except BaseException:
            # It can have the work, and no thread for it.
            self._are_kept = False
            raise
        self._begun.add(future)
        return future

    def close(self) -> None:
        """Wait until nothing is under way, and keep the threads, or end them."""
        begun = list(self._begun)
        for future in begun:
            future.cancel()
        try:
            wait(begun)
        finally:
            _serving.discard(self._pool)
        if not self._are_kept:
            self._pool.shutdown(cancel_futures=True)
            return
        _waiting.append((self._count, self._pool))
        while sum(count for count, _ in _waiting) > KEPT:
            _end_oldest()


@contextmanager
def workers(count: int, are_kept: bool = True) -> Iterator[Workers]:
    """Threads for one read, as `Workers`. At its end, what was not begun is dropped, and what is under way is waited for."""
    found = Workers(count, are_kept)
    try:
        yield found
    finally:
        found.close()


def in_process(found: Generator[_Result, None, None]) -> Iterator[_Result]:
    """What a generator that uses threads finds, for the process that began it: a process that is forked from it has none of them.

    Raises
    ------
    KolumnError
        This is another process.
    """
    process = os.getpid()
    try:
        for one in found:
            yield one
            if os.getpid() != process:
                raise KolumnError(
                    f"this scan was begun by process {process}, and process {os.getpid()} was forked from it in mid-scan, without its "
                    "threads. Begin another scan in the new process"
                )
    finally:
        if os.getpid() == process:
            found.close()
        else:
            # It would wait for those threads when it is closed, or garbage, so it is neither.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))


def _taken(count: int) -> ThreadPoolExecutor:
    """So many threads that wait, or new ones."""
    for one in reversed(_waiting.copy()):
        if one[0] == count:
            try:
                _waiting.remove(one)
            except ValueError:
                # Another read was faster.
                continue
            return one[1]
    return ThreadPoolExecutor(count, thread_name_prefix="kolumn")


def _end_oldest() -> None:
    try:
        _, pool = _waiting.pop(0)
    except IndexError:
        return
    pool.shutdown()


def end_waiting() -> None:
    """End the threads that wait for the next read."""
    while _waiting:
        _end_oldest()


# A process that forks should have no other threads: the new one has only a copy of what they were doing.
os.register_at_fork(before=end_waiting)
