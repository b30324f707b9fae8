"""Bytes of a file far away: read in order, the next ranges are fetched by other threads while the first are decoded.

A read somewhere in a file fetches its own range, and at least a block. One of more than a block, and each one that goes on where the last
ended, or less than a block after that, multiplies the bytes that are fetched ahead, up to a bound, in several requests. Where a read in
order is announced, all of them are begun at once. A range whose request fails is requested again, each time after a longer pause.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import RLock
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from kolumn.core.arrays import Bytes
from kolumn.core.threads import FETCH, shared
from kolumn.source import storage
from kolumn.source.storage import fsspec_of, repeated

BLOCK = 4 << 20  # minimum bytes of a request
AHEAD_BYTES = 384 << 20
"""Bytes that are fetched ahead of a reader, unless ``memory_bytes`` is smaller, and up to a request more. They are half as many
until a reader had to wait, or is seen to be so fast that it soon would."""
_OF_ONE = 6  # requests in which the bytes are fetched ahead, unless they would be too large
_LARGEST = (32 << 20) - (4 << 10)
"""Bytes of the largest request. From 32 MiB on malloc returns an answer's memory to the system, and fresh pages cost more than the copy."""


class Readable(Protocol):
    def read_at(self, size: int, start: int, /) -> bytes:
        """Bytes [start, start + size)."""

    def close(self) -> None: ...


class _Window:
    """Bytes [start, end) that are being fetched or are there."""

    def __init__(self, start: int, end: int, data: "Future[bytes]") -> None:
        self.start, self.end, self.data = start, end, data


class ReadAhead:
    """A file that is read ahead. Threads may share it. At most ``size`` bytes are read ahead, and at most ``most`` may be held in addition
    to those of the read under way; below a block nothing is read ahead. Files that are read after this one share them. ``aligned`` ranges
    end at multiples of ``block``: where bytes are stored in chunks, none is then fetched twice. ``begun`` counts the requests."""

    def __init__(self, file: Readable, size: int, most: int, block: int = BLOCK, aligned: bool = False) -> None:
        self.file, self.size, self.block, self.aligned = file, size, block, aligned
        self._most = most // block * block
        self._ahead, self._bound = 0, self._most // 2 // block * block
        self._largest = max(_LARGEST // block, 1) * block if aligned else max(_LARGEST, block)
        self._origin, self._goal, self._follows = 0, size, False
        self._windows: deque[_Window] = deque()
        self._lock = RLock()
        self.begun, self._under_way = 0, 0
        self._latency, self._since = 0.0, 0.0
        self._when_near: Callable[[int], None] | None = None
        self._when_fetched: Callable[[], None] | None = None

    def close(self) -> None:
        """Close the file, after requests that have begun."""
        with self._lock:
            for window in self._windows:
                if not window.data.cancel():
                    window.data.exception()
            self._windows.clear()
        self.file.close()

    def read_at(self, size: int, start: int) -> bytes:
        """Bytes [start, start + size); fewer if the file ends before. Errors are those of the file."""
        if start + size > self.size:
            return bytes(fetched(self.file, start, start + size))
        return b"".join(self._parts(start, start + size))

    def read_into(self, target: Bytes, start: int) -> int:
        """Fill ``target`` with the bytes from ``start`` on; returns how many there are."""
        done = 0
        for part in self._parts(start, min(start + len(target), self.size)):
            # NumPy copies without the GIL.
            target[done : done + len(part)] = np.frombuffer(part, np.uint8)
            done += len(part)
        return done

    def held(self, start: int, end: int, more: int) -> Bytes | None:
        """Bytes [start, end + more) without a copy, if one request has fetched them all."""
        used = self._asked(start, end)
        if len(used) > 1 or used[0].end < end + more:
            return None
        window = used[0]
        data = self._awaited(window)
        return np.frombuffer(data, np.uint8, end + more - start, start - window.start) if len(data) == window.end - window.start else None

    def request(self, start: int, end: int, room: int | None = None) -> None:
        """Begin to fetch what a read of [start, end) in order asks for first. Nothing after ``end`` is then fetched ahead. ``room`` is how
        many bytes may be fetched before the read begins, because files before this one have left them. It may be asked for again."""
        with self._lock:
            if room is None or not self._windows:
                self._goal = min(end, self.size)
                self._forget()
                self._origin, self._since = start, 0.0
            self._follows = room is not None
            if room is not None:
                # It is more where a reader of the file before had to wait.
                self._bound = max(self._bound, min(room, self._most) // self.block * self.block)
            self._ahead = self._bound
            reach = self._windows[-1].end if self._windows else start
            if room is None and start < self._goal:
                # Somebody waits for the first answer, which should not take long to transfer.
                reach = self._begin(start, start + self.block)
            self._fill(reach, start + (self._ahead if room is None else min(room, self._ahead)))

    def when_near(self, listener: Callable[[int], None]) -> None:
        """Call ``listener`` when a read in order comes near its end, with the bytes that may be fetched of what is read after it. It is
        called in the thread that reads, whenever there are more of them."""
        self._when_near = listener
        self._tell(self._origin)

    def when_fetched(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever everything has been fetched that a read in order asks for; from a thread that fetches."""
        self._when_fetched = listener

    def release(self) -> None:
        """Free the bytes that were fetched, if none are still to arrive: `close` waits for those."""
        with self._lock:
            if all(window.data.done() for window in self._windows):
                self._forget()

    def border(self, start: int) -> int | None:
        """Where the request ends that has fetched the byte at ``start``; None if none has."""
        with self._lock:
            return next((window.end for window in self._windows if window.start <= start < window.end), None)

    def _parts(self, start: int, end: int) -> list[memoryview]:
        return [memoryview(self._awaited(window))[max(start - window.start, 0) : end - window.start] for window in self._asked(start, end)]

    def _asked(self, start: int, end: int) -> list[_Window]:
        with self._lock:
            used = self._used(start, end)
        self._tell(end)
        return used

    def _tell(self, end: int) -> None:
        """Tell what is read after this file how much of it may be fetched, when a read is at ``end``."""
        beyond = end + self._ahead - self._goal
        if beyond > 0 and self._when_near is not None:
            self._when_near(beyond)

    def _used(self, start: int, end: int) -> list[_Window]:
        """Windows that cover a range; the next ones are begun, and those before it are dropped."""
        known = self._windows
        if self._bound and known and known[-1].end < start <= known[-1].end + self.block:
            # A walk of headers leaves out the rest of a payload, and goes on after it.
            self._begin(known[-1].end, start)
        if not known or not known[0].start <= start <= known[-1].end:
            self._forget()
            known, self._ahead, self._origin, self._since = self._windows, 0, start, 0.0
            if end - start > self.block:
                self._ahead = min(_OF_ONE * self.block, self._bound)
        elif start >= known[0].end or end > known[-1].end:
            self._compare_rates(start)
            self._ahead = min(max(self.block, self._ahead * 4), self._bound)
        while len(known) > 1 and known[1].start <= start:
            known.popleft().data.cancel()
        reach = known[-1].end if known else start
        while reach < end:
            reach = self._begin(reach, end if self._ahead == 0 else reach + self._request(reach))
        self._fill(reach, end + self._ahead)
        return [window for window in known if window.start < end and window.end > start]

    def _compare_rates(self, start: int) -> None:
        """Fetch more ahead from now on, if what may be ahead would be read within the time of two answers: the reader would soon wait."""
        now, read = perf_counter(), start - self._origin
        self._since = self._since or now
        if 2 * read >= self._bound and (now - self._since) * self._bound < 2 * self._latency * read:
            self._bound = self._most

    def _fill(self, reach: int, end: int) -> None:
        while reach < min(end, self._goal):
            reach = self._begin(reach, reach + self._request(reach))

    def _request(self, start: int) -> int:
        """Bytes of the next request. What is left is divided equally: a small request takes nearly as long as a large one."""
        most = min(max(self._ahead // _OF_ONE, self.block), self._largest)
        if self.aligned:
            return most // self.block * self.block
        left = max(self._goal - start, 1)
        return -(-left // -(-left // most))

    def _begin(self, start: int, end: int) -> int:
        least = (start // self.block + 1) * self.block if self.aligned else start + self.block
        end = min(max(end, least), self.size)
        if self.aligned:
            end = min(-(-end // self.block) * self.block, self.size)
        data, now = shared(FETCH).submit(fetched, self.file, start, end), perf_counter()
        self.begun += 1
        self._under_way += 1
        self._windows.append(_Window(start, end, data))
        data.add_done_callback(lambda data: self._ended(data, perf_counter() - now))
        return end

    def _awaited(self, window: _Window) -> bytes:
        """The bytes of a request; more is fetched ahead from now on if they have not arrived, unless they are among the first of all."""
        if (self._follows or window.start - self._origin > self._bound) and not window.data.done():
            self._bound = self._most
        return window.data.result()

    def _ended(self, data: "Future[bytes]", took: float) -> None:
        with self._lock:
            self._under_way -= 1
            self._latency = self._latency if data.cancelled() else took
            is_last = not self._under_way and bool(self._windows) and self._windows[-1].end >= self._goal
        if is_last and not data.cancelled() and self._when_fetched is not None:
            self._when_fetched()

    def _forget(self) -> None:
        for window in self._windows:
            window.data.cancel()
        self._windows = deque()


class _ByRequests:
    """A file of an fsspec file system, whose ranges threads can request at the same time; an opened file serves one thread at a time."""

    def __init__(self, system: Any, path: str) -> None:
        self.system, self.path = system, path

    def read_at(self, size: int, start: int, /) -> bytes:
        data = self.system.cat_file(self.path, start=start, end=start + size)
        return data if isinstance(data, bytes) else bytes(data)

    def close(self) -> None: ...


def open_ranges(url: str) -> Readable:
    """Open a file at a URL for reads by range from several threads. With fsspec a file that does not exist is only found to be missing when
    it is read."""
    system, path = storage.file_system(url)
    inner = fsspec_of(system)
    opened: Readable = storage.open_input(url) if inner is None else _ByRequests(inner, path)
    return opened


def fetched(file: Readable, start: int, end: int) -> bytes:
    """Bytes of a file, requested again if that fails."""
    return repeated(lambda: file.read_at(end - start, start))
