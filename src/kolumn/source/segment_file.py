"""Bytes of one segment file, by range, into padded memory. Read, not mapped: a file that shrinks raises an error, not SIGBUS.

What files far away are now is asked while a scan goes on: of small segments in one folder by one listing, of others by a look at each. A
listing is only believed where it has a file as it was found. Of any other the file itself is looked at, and that decides.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import RLock
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from pyarrow import ArrowException

from kolumn.core.arrays import Bytes
from kolumn.core.errors import KolumnError, StorageError
from kolumn.core.recycle import take, take_locked
from kolumn.core.threads import LOOK, shared
from kolumn.formats import layouts
from kolumn.source import storage
from kolumn.source.identity import TAIL, Identity, seen
from kolumn.source.read_ahead import BLOCK, Readable, ReadAhead, open_ranges
from kolumn.source.segments import Segment
from kolumn.source.storage import fsspec_of, look, read_bytes, with_suffix
from kolumn.source.tier_file import AivenFile, index_bytes

_SMALL = 256 << 20
"""Bytes of the largest segment that is looked at with others: looks at larger ones are few beside the requests for their bytes."""
_TOGETHER = 16  # Segments that are looked at together. A replaced one is noticed after so many others at the latest.
_LISTED = 1000  # largest folder that is listed instead, in files and folders: a store of S3's kind sends so many in one answer


Answer: TypeAlias = "Future[Identity | None] | _Listed"
"""What a file is now: its identity, None if there is none."""


class Look:
    """Compares the identity of one file: before its first bytes are used, and after its last ones were fetched."""

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
        identity = self.folder.listed(self).get(self.segment.path)
        return identity if identity == self.segment.identity else storage.current(self.segment.path)


class _Folder:
    """What a scan asks of a folder; ``expected`` are files whose last look is still to be asked for, of those that are known."""

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
            self._waiting.append(waiting := _Listed(segment, self))
            if len(self._waiting) == _TOGETHER or (self._ended and not self.expected):
                self._ask()
            return waiting

    def end(self) -> None:
        with self.lock:
            self._ended = True
            if self._waiting and not self.expected:
                self._ask()

    def listed(self, waiting: _Listed) -> "dict[str, Identity | None]":
        """The listing that a file waits for. If it fails it has no files, so that each is looked at."""
        with self.lock:
            if waiting.listing is None:
                self._ask()
        assert waiting.listing is not None
        try:
            return waiting.listing.result()
        except KolumnError:
            return {}

    def _ask(self) -> None:
        path = self._waiting[0].segment.path
        is_alone = len(self._waiting) == 1
        asked = shared(LOOK).submit(lambda: {path: storage.current(path)}) if is_alone else self._list()
        for waiting in self._waiting:
            waiting.listing = asked
        self._waiting = []

    def _list(self) -> "_Listing":
        self._newest, self._opened = shared(LOOK).submit(_identities, self.name), 0
        return self._newest


_Listing = Future[dict[str, Identity | None]]
_Result = TypeVar("_Result")


def _current(segment: Segment) -> Future[Identity | None]:
    return shared(LOOK).submit(storage.current, segment.path)


def _identities(folder: str) -> dict[str, Identity | None]:
    system, path = storage.file_system(folder)
    if (inner := fsspec_of(system)) is not None:
        inner.invalidate_cache(path)
    return {entry.name: entry.identity for entry in storage.listing(folder)}


PAD = 64
_BLOCK = 1 << 20

_AGAIN = "Run again: the read is then planned for the present files"
_MARGIN = 1.2  # how much more the next batches may have of what does not fill their bytes alone
_ROOM = 64  # zeros at the end of a file that show that it was preallocated
_LOOKS, _BETWEEN_LOOKS = 5, 0.01
_OVER = 1 << 18
"""Bytes that are copied where an entry is in what two requests have fetched: more than that entry, so that chunks are not tiny."""


def _changed(path: str, how: str) -> StorageError:
    return StorageError(f"{path}: {how} after the source was listed, so what was planned no longer fits. {_AGAIN}")


@dataclass
class SizeEstimate:
    """What the batches that were decoded let expect of the next ones. Decoders update it; it determines the sizes of chunks and columns."""

    inflates: float = 4.0  # decompressed bytes for each compressed byte
    density: float = 0.0  # records for each decompressed byte; 0 if nothing is known
    header_density: float = 1 / 32
    largest: int = 0  # decompressed bytes of the largest batch
    shares: tuple[float, ...] = (1 / 4, 1.0, 1 / 8, 1 / 4)  # of keys, values, header keys and header values in the decompressed bytes

    def learn(self, total: int, rows: int, headers: int, columns: Sequence[int], packed: int, inflated: int) -> None:
        """Records of ``total`` decompressed bytes, with so many bytes in each of the four columns; of these bytes ``packed`` ones became
        ``inflated`` ones."""
        if packed:
            self.inflates = max(1.0, inflated / packed)
        if total:
            self.density, self.header_density = max(rows, 1) / total, _MARGIN * headers / total
            self.shares = tuple([min(1.0, _MARGIN * size / total) for size in columns])


class SegmentFile:
    """An open segment. Its ``size`` bounds what is read: bytes that a broker appends later are not read. If its ``identity`` is known, no
    other file of that name is read: it is an error that the file is gone, has been replaced, or cannot be opened, and on exit that it was
    overwritten while it was read. ``look`` tells how a file far away is looked at, if others of the same scan are looked at with it.

    Compiled code can read the bytes by the ``descriptor`` if the file ``is_local``: by that of the file, or minus the address of a segment
    in memory."""

    def __init__(self, segment: Segment, look: Look | None = None) -> None:
        self.segment, self.path, self.size = segment, segment.path, segment.size
        self.format = layouts.FORMAT_NAMES.index(segment.format)
        self.sizes = SizeEstimate()
        self.memory = segment.memory
        # Memory that decoders have used for some of its bytes, for those that come after them.
        self.spare = list[Any]()
        self._remote: Any = None
        self.is_local = True
        self._look = look
        self._first_look: Answer | None = None
        self._last_look: tuple[int, Answer] | None = None
        if self.memory is not None:
            self.descriptor = -self.memory.address
            return
        if segment.manifest is not None or ("://" in segment.path and storage.is_url(segment.path)):
            self._open_remote()
            return
        try:
            self.descriptor = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise self._gone() from error
        except OSError as error:
            raise StorageError(f"{segment.path}: cannot be opened: {error.strerror}") from error
        try:
            self._compare()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            # Bytes that changed while they were read look like damage.
            if error is None or isinstance(error, KolumnError):
                self._compare()
        finally:
            self.close()

    def _open_remote(self) -> None:
        """Open a file far away. Whether it is the one that was found is asked meanwhile, and compared before any byte is returned."""
        self.descriptor, self.is_local = -1, False
        self._look = self._look or Look(self.segment)
        if self.segment.identity is not None:
            self._first_look = self._look.first()
        manifest, access = self.segment.manifest, self.segment.access
        block, aligned = BLOCK, False
        try:
            file: Readable = open_ranges(self.path) if manifest is None else AivenFile(manifest, access)
        except KolumnError as error:
            if self.segment.identity is not None and manifest is None and storage.current(self.path) is None:
                raise self._gone() from error
            raise
        if manifest is not None and not manifest.is_plain:
            block, aligned = manifest.chunk_size * max(BLOCK // manifest.chunk_size, 1), True
        self._remote = ReadAhead(file, self.size, access.ahead_bytes, block, aligned)
        self._remote.when_fetched(self._on_fetched)

    def _on_fetched(self) -> None:
        """Look at a file whose bytes are all there, unless that has begun, so that nobody waits for it at the end."""
        last, begun = self._last_look, self._remote.begun
        if self._look is None or self.segment.identity is None or (last is not None and last[0] == begun):
            return
        try:
            self._last_look = begun, self._look.last()
        except RuntimeError:
            # The interpreter is ending, and nobody will ask: a thread reports what its callbacks raise.
            return

    def _compare(self) -> None:
        """Check that the open file is the one that was found, and that it was not overwritten."""
        before, last = self.segment.identity, self._last_look
        if before is None or self.memory is not None:
            return
        if self._remote is None:
            _, now = seen(self.path, self.descriptor)
            tail = before.tail
            has_tail = not tail or os.pread(self.descriptor, len(tail), max(before.size - TAIL, 0)) == tail
            # Everything but the tail is seen again in most files.
            if not (has_tail and vars(now).items() <= vars(before).items()):
                self._judge(before, now, has_tail)
        else:
            is_fresh = last is not None and last[0] == self._remote.begun
            self._judge(before, last[1].result() if is_fresh and last is not None else self._identity())

    def _compare_first(self) -> None:
        """The same of a file far away, before its first bytes are used."""
        if (look := self._first_look) is not None:
            assert self.segment.identity is not None
            self._judge(self.segment.identity, look.result())
            self._first_look = None

    def _judge(self, before: Identity, now: Identity | None, has_tail: bool = True) -> None:
        """Raise an error if a file is not the one that was found; ``has_tail``: a file of that size has the bytes with which it ended."""
        if now is None:
            raise _changed(self.path, "was deleted")
        if before.is_another(now):
            raise _changed(self.path, "was replaced by another file")
        if now.size < before.size:
            # Bytes before its end may be others than before: data may have been appended after the cut.
            raise self._cut(now.size)
        if now.size > before.size and self.segment.following is not None:
            raise _changed(self.path, "grew although another segment follows it: it was overwritten")
        if not has_tail:
            raise _changed(self.path, "was overwritten")
        for _ in range(_LOOKS):
            if not before.is_rewritten(now) or self._has_room(now.size):
                return
            # A file's time changes before its size does: this may be the moment in which a broker appends.
            time.sleep(_BETWEEN_LOOKS)
            now = self._identity() or now
        raise _changed(self.path, "was overwritten")

    def _identity(self) -> Identity | None:
        if self._remote is not None:
            return storage.current(self.path)
        return seen(self.path, self.descriptor)[1]

    def _has_room(self, end: int) -> bool:
        """Whether the file ends with zeros: a preallocated file has its size from the beginning, and is filled later."""
        start = max(end - _ROOM, 0)
        last = os.pread(self.descriptor, _ROOM, start) if self._remote is None else self._remote.read_at(end - start, start)
        return not any(last)

    def _gone(self) -> StorageError:
        return _changed(self.path, "cannot be opened: it was deleted")

    def request(self, start: int, end: int, room: int | None = None) -> None:
        """Begin to fetch what a read of [start, end) in order asks for first, if the file is far away; see `ReadAhead.request`."""
        if self._remote is not None:
            self._remote.request(start, end, room)

    def leave(self) -> None:
        """Begin the last look at a file far away that has been read, and free the bytes that were fetched."""
        self._on_fetched()
        self._remote.release()

    @property
    def is_looked_at(self) -> bool:
        """Whether the end of a ``with`` would not wait for the last look at a file far away."""
        return self._last_look is None or self._last_look[1].done()

    def when_near(self, listener: Callable[[int], None]) -> None:
        """Call ``listener`` when a file far away that is read in order may leave requests to the next ones; see `ReadAhead.when_near`."""
        if self._remote is not None:
            self._remote.when_near(listener)

    def close(self) -> None:
        """Close the file; at the end of a ``with`` it is also compared with the one that was found."""
        if self._remote is not None:
            self._remote.close()
        elif self.memory is None:
            os.close(self.descriptor)

    @property
    def has_path(self) -> bool:
        """Whether it is a file of this machine, with an `opened_path`."""
        return self._remote is None and self.memory is None

    @property
    def opened_path(self) -> str:
        """A path for libraries that open files by themselves. It leads to the file that is open here, even if its name has changed."""
        return f"/proc/self/fd/{self.descriptor}"

    def read(self, start: int, end: int, locked: bool = False) -> Bytes:
        """Bytes [start, end) as a read-only uint8 array with `PAD` zero bytes after them; ``locked``: for a copy to a GPU. Releases the
        GIL. A segment in memory is not copied if `PAD` bytes of it follow; they are then not zeros. The same is true of bytes that were
        fetched together. It is an error if the file has fewer bytes than it had when it was found."""
        size = end - start
        if self.memory is not None and end + PAD <= self.size:
            return np.frombuffer(self.memory, np.uint8, size + PAD, start)
        if self._remote is not None and not locked and (held := self._held(start, end)) is not None:
            return held
        buffer, view = (take_locked if locked else take)(size + PAD)
        done = 0
        if self._remote is not None:
            done = self._fetched(start, lambda: int(self._remote.read_into(np.frombuffer(view, np.uint8)[:size], start)))
            if done < size:
                raise self._cut(start + done)
        if self.memory is not None:
            view[:size] = memoryview(self.memory).cast("B")[start:end]
            done = size
        while done < size:
            try:
                got = os.preadv(self.descriptor, [view[done:size]], start + done)
            except OSError as error:
                raise StorageError(f"{self.path}: cannot be read at position {start + done}: {error.strerror}") from error
            if got == 0:
                raise self._cut(start + done)
            done += got
        view[size:] = bytes(PAD)
        return np.frombuffer(buffer, np.uint8)

    def _held(self, start: int, end: int) -> Any:
        """Bytes that one request has fetched, with those after them; None if they are of several."""
        return self._fetched(start, lambda: self._remote.held(start, end, PAD) if end > start else None)

    def _fetched(self, start: int, read: Callable[[], _Result]) -> _Result:
        """What a read of a file far away returns, after a look at the file if it is the first one."""
        try:
            result = read()
        except KolumnError:
            raise
        except (OSError, ArrowException) as error:
            self._compare_first()
            raise StorageError(f"{self.path}: cannot be read at position {start}: {error}") from error
        self._compare_first()
        return result

    def end_of_read(self, start: int, least: int, most: int) -> int:
        """Where a read from ``start`` should end, between two positions, so that bytes that were fetched together need no copy."""
        border = None if self._remote is None else self._remote.border(start)
        if border is None or border - PAD >= most:
            return most
        return border - PAD if border - PAD >= least else min(max(least, border + _OVER), most)

    def _cut(self, position: int) -> StorageError:
        return StorageError(f"{self.path}: was listed with {self.size} bytes and ends at {position} now: it was truncated. {_AGAIN}")

    def zeros_from(self, start: int) -> bool:
        """Whether every byte from ``start`` to the end is zero."""
        for position in range(start, self.size, _BLOCK):
            stop = min(position + _BLOCK, self.size)
            if self.read(position, stop)[: stop - position].any():
                return False
        return True


def side_bytes(segment: Segment, suffix: str) -> bytes | None:
    """All bytes of a small file beside a segment, such as ``.index``; None if it is missing or, on this machine, cannot be read. Aiven's
    tier has them in one object, where the manifest says. Errors as `kolumn.source.storage.read_bytes`."""
    if segment.manifest is not None:
        return index_bytes(segment.manifest, segment.access, suffix)
    return read_bytes(with_suffix(segment.path, suffix)) if segment.has_beside(suffix) else None


def is_absent(segment: Segment, suffix: str) -> bool:
    """Whether a segment of a tier never had such a file; one that cannot be read is not absent."""
    if segment.copy_id is None:
        return False
    if segment.manifest is not None:
        return all(name != suffix for name, _, _ in segment.manifest.indexes)
    return not segment.has_beside(suffix) or look(with_suffix(segment.path, suffix)) is None
