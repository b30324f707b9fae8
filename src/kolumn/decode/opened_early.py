"""Segments far away are opened, and their first bytes are requested, when the requests for the one before them are all begun.

The last look at a file, which tells whether it was overwritten while it was read, is judged while the next ones are decoded.

Opening takes two or three answers of the store, one after the other, and a segment may have fewer bytes than have to be under way. So the
bytes that one file lets be fetched ahead, and does not have, are fetched of those that are read after it. Earlier requests would compete
with those whose bytes are needed first.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import islice
from threading import RLock
from types import TracebackType

from kolumn.core.errors import KolumnError
from kolumn.core.threads import OPEN, shared
from kolumn.source import storage
from kolumn.source.segment_file import Look, Looks, SegmentFile
from kolumn.source.segments import Range

_TASKS = 8  # tasks that are known while the one before them is read
_FILES = 32  # files that are open and that nobody has asked for yet


class _Far:
    """A range of a segment far away, and the next such range."""

    def __init__(self, part: Range, look: Look) -> None:
        self.range, self.look = part, look
        self.following: _Far | None = None

    def open(self, room: int | None) -> SegmentFile:
        """Open the file and begin to fetch what the read asks for first."""
        file = SegmentFile(self.range.segment, self.look)
        file.request(self.range.start, self.range.end, room)
        return file


class OpenedEarly:
    """Files of the ranges of one scan. Threads may share it."""

    def __init__(self) -> None:
        self._known: dict[int, _Far] = {}
        self._last: _Far | None = None
        self._early: dict[_Far, Future[SegmentFile]] = {}
        self._left: deque[SegmentFile] = deque()
        self._looks: Looks | None = None
        self._lock, self._closed = RLock(), False

    def with_following(self, tasks: Iterator[list[Range]]) -> Iterator[list[Range]]:
        """The tasks; if they are far away, the next ones are known by then. If the source fails, the tasks before that come first."""
        held: deque[list[Range]] = deque()
        while True:
            try:
                # Two at a time, since planning may take requests, and somebody waits for the first rows.
                most = len(held) + (2 if len(held) < _TASKS else 1)
                for task in islice(tasks, most - len(held)):
                    held.append(task)
                    self._add(task)
                    if self._last is None:
                        break
                else:
                    if len(held) < most and self._looks is not None:
                        self._looks.end()
            except BaseException:
                yield from held
                raise
            if not held:
                return
            yield held.popleft()
            if self._left:
                self.settle(wait=False)

    def open(self, part: Range) -> AbstractContextManager[SegmentFile]:
        """Open the file of a range, or wait until it is open; errors as those of `SegmentFile`."""
        if self._last is None:
            return SegmentFile(part.segment)
        with self._lock:
            far = self._known.pop(id(part), None)
            if far is None:
                return SegmentFile(part.segment)
            early = self._early.pop(far, None)
        file = far.open(None) if early is None or early.cancel() else early.result()
        if far.following is not None:
            file.when_near(partial(self._prepare, far.following))
        return _Left(file, self)

    def leave(self, file: SegmentFile) -> None:
        """Compare a file that was read later, or close it if nobody reads on."""
        with self._lock:
            if not self._closed:
                file.leave()
                self._left.append(file)
                return
        file.close()

    def settle(self, wait: bool) -> None:
        """Compare files that were left with those that were found; unless this shall ``wait``, only those that need no waiting."""
        while self._left and (wait or self._left[0].is_looked_at or len(self._left) > _FILES):
            with self._left.popleft():
                pass

    def close(self) -> None:
        """Close the files that nobody has asked for, and those that were left."""
        with self._lock:
            self._closed = True
            unused = list(self._early.values())
            self._early.clear()
        for early in unused:
            if not early.cancel():
                with suppress(KolumnError):
                    early.result().close()
        while self._left:
            self._left.popleft().close()

    def _add(self, task: list[Range]) -> None:
        for part in task:
            segment = part.segment
            if (segment.manifest is not None or ("://" in segment.path and storage.is_url(segment.path))) and part.fault is None:
                self._looks = self._looks or Looks()
                with self._lock:
                    self._known[id(part)] = far = _Far(part, self._looks.at(segment))
                    if self._last is not None:
                        self._last.following = far
                    self._last = far

    def _prepare(self, far: _Far | None, room: int) -> None:
        """Begin to fetch so many bytes of a range and of those after it."""
        with self._lock:
            while far is not None and room > 0 and not self._closed:
                if id(far.range) in self._known:
                    self._begin(far, room)
                room -= far.range.end - far.range.start
                far = far.following

    def _begin(self, far: _Far, room: int) -> None:
        opened = self._early.get(far)
        if opened is None:
            if len(self._early) < _FILES:
                self._early[far] = shared(OPEN).submit(far.open, room)
        elif opened.done() and opened.exception() is None:
            opened.result().request(far.range.start, far.range.end, room)


class _Left:
    """A file that is not closed after a read without an error, but left for a later comparison."""

    def __init__(self, file: SegmentFile, early: OpenedEarly) -> None:
        self.file, self.early = file, early

    def __enter__(self) -> SegmentFile:
        return self.file

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.file.__exit__(kind, error, trace)
        else:
            self.early.leave(self.file)
