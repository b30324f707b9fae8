"""All threads of a process, but for single ones that nobody waits for: how many there are for what, who keeps them, and who ends them.

A process that is forked has none of the threads of its parent: `shared` begins its own, `Workers` that wait are ended before the fork, and
a scan that was begun before it ends with the error of `forked`.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from kolumn.core.errors import KolumnError

FETCH, OPEN, LOOK, UNPACK = "fetch", "open", "look", "unpack"
LIST, FOLDER, TIER, TRANSACTIONS, PLAN = "list", "folder", "tier", "transactions", "plan"
DECODE, MERGE, PARQUET, CAT = "decode", "merge", "parquet", "cat"

SIZES = {
    # Kept by the process. None of them waits for another thread of its kind.
    FETCH: 16,  # requests for bytes at a time, of all files together
    OPEN: 4,  # remote files being opened, which waits for FETCH and LOOK
    LOOK: 8,  # HEAD requests and listings that compare a remote file with the listed one: FETCH may be busy for long
    UNPACK: len(os.sched_getaffinity(0)),  # chunks of Aiven's tier being decrypted and decompressed
    # As long as a block: nearly all of the time they wait for storage.
    LIST: 16,  # remote folders being listed
    FOLDER: 1,  # a remote name that may be a folder is listed while it is looked up
    TIER: 16,  # manifests being read, or last headers of a tier's segments
    TRANSACTIONS: 16,  # .txnindex files at URLs
    PLAN: 8,  # segments whose headers are read for a plan of Spark
}
"""Number of threads by what they do. `DECODE`, `MERGE`, `PARQUET` and `CAT` get as many as a read has, or as there are cores."""
KEPT = 32  # maximum number of threads that wait for the next read

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_End = TypeVar("_End")
_waiting: list[tuple[int, ThreadPoolExecutor]] = []  # threads of ended reads, and their number; the last ones were used last
_serving: set[ThreadPoolExecutor] = set()
"""Threads of reads. A read can be garbage when it ends; were its executor garbage too, the threads would end before it is kept, since the
garbage collector clears weak references before it closes a read."""


def shared(name: str) -> ThreadPoolExecutor:
    """The threads of this process for a purpose of `SIZES`."""
    return _shared(name, os.getpid())


@cache
def _shared(name: str, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(SIZES[name], thread_name_prefix=f"kolumn-{name}")


class RunAhead(Generic[_Item, _End]):
    """A generator that a thread runs until its items have so many bytes; who asks for them gets those, and then runs it himself."""

    def __init__(self, rest: Generator[_Item, None, _End]) -> None:
        self._rest, self._items = rest, deque[_Item]()
        self._ended: tuple[_End] | None = None
        self._failed: BaseException | None = None
        self._future: Future[None] | None = None

    def begin(self, pool: "Workers", bytes_of: Callable[[_Item], int], most: int) -> None:
        self._future = pool.submit(self._run, bytes_of, most)

    def cancel(self) -> None:
        if self._future is not None:
            self._future.cancel()

    def items(self) -> Generator[_Item, None, _End]:
        """The items, after those the error that ended the generator, or what it returns."""
        if self._future is not None:
            self._future.result()
        while self._items:
            yield self._items.popleft()
        if self._failed is not None:
            try:
                raise self._failed
            finally:
                del self._failed, self
        return self._ended[0] if self._ended is not None else (yield from self._rest)

    def _run(self, bytes_of: Callable[[_Item], int], most: int) -> None:
        size = 0
        try:
            while size < most:
                self._items.append(next(self._rest))
                size += bytes_of(self._items[-1])
        except StopIteration as end:
            self._ended = (end.value,)
        except BaseException as error:
            self._failed = error
        finally:
            # An error's traceback references this frame, which would keep the data read in memory until a garbage collection.
            del self


class Workers:
    """Threads of one read. With ``are_kept`` they wait for the next one afterwards: to begin and end them takes as long as some MiB."""

    def __init__(self, name: str, count: int, are_kept: bool) -> None:
        self._count, self._are_kept = count, are_kept
        self._pool = (_kept(count) if are_kept else None) or ThreadPoolExecutor(count, thread_name_prefix=f"kolumn-{name}")
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

    def map(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """Results in the order of ``items``, all of which are begun at once."""
        pending = deque([self.submit(work, item) for item in items])
        while pending:
            yield pending.popleft().result()

    def ahead(self, work: Callable[[_Item], _Result], items: Generator[_Item, Any, _End], most: int) -> Generator[_Result, None, _End]:
        """Results in the order of ``items``, of which ``most`` are begun ahead. If ``items`` fail, the results before that come first.
        Returns what ``items`` return."""
        pending = deque[Future[_Result]]()
        failed: Exception | None = None
        try:
            while True:
                try:
                    pending.append(self.submit(work, next(items)))
                except StopIteration as stop:
                    end: _End = stop.value
                    break
                except Exception as error:
                    failed = error
                    break
                if len(pending) >= most:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
            if failed is not None:
                raise failed
            return end
        finally:
            # The error's traceback references this frame, which would keep the data read in memory until a garbage collection.
            del failed
            for future in pending:
                future.cancel()

    def close(self) -> None:
        """Drop what was not begun, wait until nothing is under way, and keep the threads, or end them."""
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
def workers(name: str, count: int | None = None, are_kept: bool = False) -> Iterator[Workers]:
    """Threads for a block, as `Workers`; their number is that of `SIZES` unless it is given."""
    pool = Workers(name, SIZES[name] if count is None else count, are_kept)
    try:
        yield pool
    finally:
        pool.close()


def forked(process: int) -> KolumnError:
    """The error of a scan in a process that was forked in mid-scan from the ``process`` that began it, and has none of its threads."""
    return KolumnError(
        f"this scan was begun by process {process}, and process {os.getpid()} was forked from it in mid-scan, without its threads. Begin "
        "another scan in the new process"
    )


def keep_forever(work: object) -> None:
    """Let something never be garbage: of a scan in a forked process, what would wait for threads that are not there."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(work))


def _kept(count: int) -> ThreadPoolExecutor | None:
    for waiting in reversed(_waiting.copy()):
        if waiting[0] == count:
            # Another read may be faster.
            with suppress(ValueError):
                _waiting.remove(waiting)
                return waiting[1]
    return None


def _end_oldest() -> None:
    with suppress(IndexError):
        _waiting.pop(0)[1].shutdown()


def end_waiting() -> None:
    while _waiting:
        _end_oldest()


# A process that forks should have no other threads: the new one has only a copy of what they were doing.
os.register_at_fork(before=end_waiting)
