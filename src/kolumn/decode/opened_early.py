"""The next large segment far away is opened, and its first bytes are requested, when the last bytes of the one before it are requested.

Opening takes two or three answers of the store, one after the other: at 50 ms a tenth of the time in which a GiB is decoded. Requests
that were made earlier would compete with those whose bytes are needed first.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from os import getpid
from threading import Lock

from kolumn.errors import KolumnError
from kolumn.source import storage
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range


class OpenedEarly:
    """At most one open file that nobody has asked for yet."""

    def __init__(self) -> None:
        self._next: tuple[Range, Future[SegmentFile]] | None = None
        self._lock, self._closed = Lock(), False

    def opener(self, one: Range, following: Range | None) -> Callable[[], SegmentFile]:
        """What opens the file of a range, and later that of the range that will be asked for next; errors as those of `SegmentFile`."""

        def opened() -> SegmentFile:
            early = self._taken(one)
            file = _open(one) if early is None else early.result()
            if following is not None and following.fault is None and _is_far(following):
                file.when_begun(partial(self._begin, following))
            return file

        return opened

    def _begin(self, one: Range) -> None:
        with self._lock:
            if self._next is None and not self._closed:
                self._next = one, _openers(getpid()).submit(_open, one)

    def _taken(self, one: Range) -> Future[SegmentFile] | None:
        with self._lock:
            if self._next is None or self._next[0] is not one:
                return None
            (_, opened), self._next = self._next, None
            return opened

    def close(self) -> None:
        """Close the file that nobody has asked for."""
        with self._lock:
            self._closed = True
            unused, self._next = self._next, None
        if unused is None or unused[1].cancel():
            return
        try:
            unused[1].result().close()
        except KolumnError:
            return


def _is_far(one: Range) -> bool:
    return one.segment.manifest is not None or storage.is_url(one.segment.path)


def _open(one: Range) -> SegmentFile:
    file = SegmentFile(one.segment)
    file.request(one.start, one.end)
    return file


@cache
def _openers(process: int) -> ThreadPoolExecutor:
    """Threads of this process, other ones than those that fetch, for which an opening file may wait."""
    return ThreadPoolExecutor(4, thread_name_prefix="kolumn-open")
