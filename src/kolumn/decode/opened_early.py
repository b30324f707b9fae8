"""The next large segment far away is opened, and its first bytes are requested, while the one before it is decoded.

Opening takes two or three answers of the store, one after the other: at 50 ms a tenth of the time in which a GiB is decoded.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from os import getpid

from kolumn.errors import KolumnError
from kolumn.source import storage
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range


class OpenedEarly:
    """At most one open file that nobody has asked for yet."""

    def __init__(self) -> None:
        self._next: tuple[Range, Future[SegmentFile]] | None = None

    def begin(self, one: Range) -> None:
        """Open the file of a range that will be asked for next; a file of this machine is left alone."""
        segment = one.segment
        if self._next is None and one.fault is None and (segment.manifest is not None or storage.is_url(segment.path)):
            self._next = one, _openers(getpid()).submit(_open, one)

    def take(self, one: Range) -> Callable[[], SegmentFile]:
        """What returns the open file of a range; errors of the call as those of `SegmentFile`."""
        if self._next is None or self._next[0] is not one:
            return lambda: SegmentFile(one.segment)
        (_, opened), self._next = self._next, None
        return opened.result

    def close(self) -> None:
        """Close the file that nobody has asked for."""
        if self._next is None:
            return
        (_, opened), self._next = self._next, None
        if not opened.cancel():
            try:
                opened.result().close()
            except KolumnError:
                return


def _open(one: Range) -> SegmentFile:
    file = SegmentFile(one.segment)
    file.request(one.start)
    return file


@cache
def _openers(process: int) -> ThreadPoolExecutor:
    """Threads of this process, other ones than those that fetch, for which an opening file may wait."""
    return ThreadPoolExecutor(4, thread_name_prefix="kolumn-open")
