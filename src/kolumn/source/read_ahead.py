"""Bytes of a file far away: read in order, the next ranges are fetched by other threads while the first are decoded.

A first read fetches its own range, and at least a block; each one that goes on where the last ended doubles the number of blocks that
are fetched ahead. A read anywhere else begins anew. A range whose request fails is requested again, each time after a longer pause.
"""

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from os import getpid
from threading import Lock
from typing import Protocol

from pyarrow import ArrowException

BLOCK = 4 << 20
"""Bytes of a request: at 50 ms and 8 requests at a time that is 640 MiB/s."""
AHEAD_BYTES = 64 << 20
"""Bytes that are fetched ahead of one file, unless ``memory_bytes`` is smaller."""
REQUESTS = 16
"""Requests at a time, of all files together."""
_PAUSES = (0.1, 0.4, 1.6, 6.4)
"""Seconds before a request is repeated; the file systems have repeated it by then as they do."""
_FINAL = (FileNotFoundError, PermissionError)


class Readable(Protocol):
    """A file that is read by range."""

    def read_at(self, size: int, start: int, /) -> bytes:
        """Bytes [start, start + size)."""

    def close(self) -> None:
        """Release the file."""


class _Window:
    """Bytes [start, end) that are being fetched or are there."""

    def __init__(self, start: int, end: int, data: "Future[bytes]") -> None:
        self.start, self.end, self.data = start, end, data


class ReadAhead:
    """A file that is read ahead. Threads may share it.

    Parameters
    ----------
    file : Readable
    size : int
        Bytes that are read ahead at most.
    most : int
        Bytes that may be held in addition to those of the read under way; below a block nothing is read ahead.
    block : int
        Bytes of a request.
    aligned : bool
        Whether ranges should end at multiples of ``block``: where bytes are stored in chunks, none is then fetched twice.
    """

    def __init__(self, file: Readable, size: int, most: int, block: int = BLOCK, aligned: bool = False) -> None:
        self.file, self.size, self.block, self.aligned = file, size, block, aligned
        self._most = most // block
        self._depth = 0
        self._windows: deque[_Window] = deque()
        self._lock = Lock()

    def close(self) -> None:
        """Close the file, after requests that have begun."""
        with self._lock:
            for one in self._windows:
                if not one.data.cancel():
                    one.data.exception()
            self._windows.clear()
        self.file.close()

    def read_at(self, size: int, start: int) -> bytes:
        """Bytes [start, start + size); fewer if the file ends before. Errors are those of the file."""
        end = start + size
        if end > self.size:
            return bytes(fetched(self.file, start, end))
        with self._lock:
            used = self._used(start, end)
        parts = [memoryview(one.data.result())[max(start - one.start, 0) : end - one.start] for one in used]
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def _used(self, start: int, end: int) -> list[_Window]:
        """Windows that cover a range; the next ones are begun, and those before it are dropped."""
        known = self._windows
        if not known or not known[0].start <= start <= known[-1].end:
            self._forget()
            known, self._depth = self._windows, 0
        elif end > known[-1].end or known[0].end <= start:
            self._depth = min(max(1, self._depth * 2), self._most)
        while len(known) > 1 and known[1].start <= start:
            known.popleft().data.cancel()
        reach = known[-1].end if known else start
        while reach < end:
            reach = self._begin(reach, end if self._depth == 0 else reach + self.block)
        used = [one for one in known if one.start < end and one.end > start]
        ahead = sum(one.start >= end for one in known)
        while ahead < self._depth and reach < self.size:
            reach, ahead = self._begin(reach, reach + self.block), ahead + 1
        return used

    def _begin(self, start: int, end: int) -> int:
        least = (start // self.block + 1) * self.block if self.aligned else start + self.block
        end = min(max(end, least), self.size)
        if self.aligned:
            end = min(-(-end // self.block) * self.block, self.size)
        self._windows.append(_Window(start, end, _pool(getpid()).submit(fetched, self.file, start, end)))
        return end

    def _forget(self) -> None:
        for one in self._windows:
            one.data.cancel()
        self._windows = deque()


def fetched(file: Readable, start: int, end: int) -> bytes:
    """Bytes of a file, requested again if that fails."""
    for pause in _PAUSES:
        try:
            return file.read_at(end - start, start)
        except _FINAL:
            raise
        except (OSError, ArrowException):
            time.sleep(pause)
    return file.read_at(end - start, start)


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads of this process: those of the one that it was forked from are not there."""
    return ThreadPoolExecutor(REQUESTS, thread_name_prefix="kolumn-fetch")
