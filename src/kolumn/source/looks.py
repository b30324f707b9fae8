"""What files far away are now, asked for while a scan goes on: of small segments in one folder by one listing, of others by a look at each.

A listing is only believed where it has a file as it was found. Of any other the file itself is looked at, and that decides.
"""

from concurrent.futures import Future
from threading import RLock
from typing import Protocol

from kolumn.core.errors import KolumnError
from kolumn.core.threads import LOOK, shared
from kolumn.source import storage
from kolumn.source.identity import Identity
from kolumn.source.remote import fsspec_of
from kolumn.source.segments import Segment

_SMALL = 256 << 20
"""Bytes of the largest segment that is looked at with others: looks at larger ones are few beside the requests for their bytes."""
_TOGETHER = 16
"""Segments that are looked at together. A replaced one is noticed after so many others at the latest."""
_LISTED = 1000
"""Largest folder that is listed instead, in files and folders: a store of S3's kind sends so many in one answer."""


class Answer(Protocol):
    """What a file is now."""

    def done(self) -> bool:
        """Whether `result` need not wait."""

    def result(self) -> Identity | None:
        """Identity of the file; None if there is none."""


class Look:
    """Looks at one file: before its first bytes are used, and after its last ones were fetched."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment

    def first(self) -> Answer:
        """What the file is now, or was a few segments ago in the same scan."""
        return _current(self.segment)

    def last(self) -> Answer:
        """What the file is after this call. Who needs it waits for it."""
        return _current(self.segment)


class Looks:
    """Looks at the files of one scan. Threads may share it."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}
        self._ended = False

    def end(self) -> None:
        """Nothing else will be read. So nobody waits for others to be looked at with the last files."""
        if not self._ended:
            self._ended = True
            for folder in self._folders.values():
                folder.end()

    def at(self, segment: Segment) -> Look:
        """The looks at a file that the scan will read."""
        if segment.size > _SMALL or not 0 < segment.listed <= _LISTED:
            return Look(segment)
        name = storage.parent(segment.path)
        return _Together(segment, self._folders.setdefault(name, _Folder(name)))


class _Together(Look):
    """Looks at a file together with others of its folder."""

    def __init__(self, segment: Segment, folder: "_Folder") -> None:
        super().__init__(segment)
        self.folder = folder
        self._last: _Listed | None = None
        with folder.lock:
            folder.expected += 1

    def first(self) -> Answer:
        return self.folder.first(self.segment)

    def last(self) -> Answer:
        with self.folder.lock:
            if self._last is None:
                self.folder.expected -= 1
            if self._last is None or self._last.listing is not None:
                self._last = self.folder.last(self.segment)
            return self._last


class _Listed:
    """What a listing has of a file, if one has been begun."""

    def __init__(self, segment: Segment, folder: "_Folder", listing: "_Listing | None" = None) -> None:
        self.segment, self.folder, self.listing = segment, folder, listing

    def done(self) -> bool:
        return self.listing is not None and self.listing.done()

    def result(self) -> Identity | None:
        found = self.folder.listed(self).get(self.segment.path)
        return found if found == self.segment.identity else storage.current(self.segment.path)


class _Folder:
    """What a scan asks of a folder.

    Attributes
    ----------
    expected : int
        Files whose last look is still to be asked for; files that are not known yet are not among them.
    """

    def __init__(self, name: str) -> None:
        self.name, self.lock, self.expected, self._ended = name, RLock(), 0, False
        self._newest: _Listing | None = None
        self._opened = 0
        self._waiting: list[_Listed] = []

    def first(self, segment: Segment) -> Answer:
        """What the newest listing has of a file; a new one is begun for every so many files."""
        with self.lock:
            if self._newest is None or self._opened == _TOGETHER:
                if self.expected < 2:
                    return _current(segment)
                self._list()
            self._opened += 1
            return _Listed(segment, self, self._newest)

    def last(self, segment: Segment) -> _Listed:
        """What a listing will have of a file that begins later: when so many wait for it, when it is the last file, or on demand."""
        with self.lock:
            self._waiting.append(one := _Listed(segment, self))
            if len(self._waiting) == _TOGETHER or (self._ended and not self.expected):
                self._ask()
            return one

    def end(self) -> None:
        """All files are known."""
        with self.lock:
            self._ended = True
            if self._waiting and not self.expected:
                self._ask()

    def listed(self, one: _Listed) -> "dict[str, Identity | None]":
        """The listing that a file waits for. If it fails it has no files, so that each is looked at."""
        with self.lock:
            if one.listing is None:
                self._ask()
        assert one.listing is not None
        try:
            return one.listing.result()
        except KolumnError:
            return {}

    def _ask(self) -> None:
        asked = shared(LOOK).submit(_alone, self._waiting[0].segment) if len(self._waiting) == 1 else self._list()
        for one in self._waiting:
            one.listing = asked
        self._waiting = []

    def _list(self) -> "_Listing":
        self._newest, self._opened = shared(LOOK).submit(_identities, self.name), 0
        return self._newest


_Listing = Future[dict[str, Identity | None]]


def _current(segment: Segment) -> Future[Identity | None]:
    return shared(LOOK).submit(storage.current, segment.path)


def _identities(folder: str) -> dict[str, Identity | None]:
    """What a folder has now, by name."""
    system, path = storage.file_system(folder)
    if (inner := fsspec_of(system)) is not None:
        inner.invalidate_cache(path)
    return {one.name: one.identity for one in storage.listing(folder)}


def _alone(segment: Segment) -> dict[str, Identity | None]:
    return {segment.path: storage.current(segment.path)}
