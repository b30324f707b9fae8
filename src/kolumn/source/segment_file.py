"""Bytes of one segment file, by range, into padded memory. Read, not mapped: a file that shrinks raises an error, not SIGBUS.

Bytes of the file of a segment's name with another suffix: indexes, snapshots, leader epochs.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
from pyarrow import ArrowException

from kolumn.core.arrays import Bytes
from kolumn.core.errors import KolumnError, StorageError
from kolumn.core.recycle import take, take_locked
from kolumn.formats import layouts
from kolumn.source import storage
from kolumn.source.identity import Identity, has_tail, of_open
from kolumn.source.looks import Answer, Look
from kolumn.source.read_ahead import BLOCK, ReadAhead, open_ranges
from kolumn.source.segments import Segment
from kolumn.source.storage import look, read_bytes, with_suffix
from kolumn.source.tiers.file import AivenFile, index_bytes

PAD = 64
_BLOCK = 1 << 20

_AGAIN = "Run again: the read is then planned for the present files"
_MARGIN = 1.2
"""How much more the next batches may have of what does not fill their bytes alone."""
_ROOM = 64
"""Zeros at the end of a file that show that it was preallocated."""
_LOOKS, _BETWEEN_LOOKS = 5, 0.01
_OVER = 1 << 18
"""Bytes that are copied where an entry is in what two requests have fetched: more than that entry, so that chunks are not tiny."""


def _changed(path: str, how: str) -> StorageError:
    return StorageError(f"{path}: {how} after the source was listed, so what was planned no longer fits. {_AGAIN}")


@dataclass
class SizeEstimate:
    """What the batches that were decoded let expect of the next ones. Decoders update it; it determines the sizes of chunks and columns.

    Attributes
    ----------
    inflates : float
        Decompressed bytes for each compressed byte.
    density, header_density : float
        Records (0 if nothing is known) and headers for each decompressed byte.
    largest : int
        Decompressed bytes of the largest batch.
    shares : tuple of float
        Of keys, values, header keys and header values in the decompressed bytes.
    """

    inflates: float = 4.0
    density: float = 0.0
    header_density: float = 1 / 32
    largest: int = 0
    shares: tuple[float, ...] = (1 / 4, 1.0, 1 / 8, 1 / 4)

    def learn(self, total: int, rows: int, headers: int, columns: Sequence[int], packed: int, inflated: int) -> None:
        """Records of ``total`` decompressed bytes, with so many bytes in each of the four columns; of these bytes ``packed`` ones became
        ``inflated`` ones."""
        if packed:
            self.inflates = max(1.0, inflated / packed)
        if total:
            self.density, self.header_density = max(rows, 1) / total, _MARGIN * headers / total
            self.shares = tuple([min(1.0, _MARGIN * size / total) for size in columns])


class SegmentFile:
    """An open segment.

    Parameters
    ----------
    segment : Segment
        Its ``size`` bounds what is read: bytes that a broker appends later are not read. If its ``identity`` is known, no other file of
        that name is read.
    look : Look, optional
        How a file far away is looked at, if others of the same scan are looked at with it.

    Raises
    ------
    KolumnError
        The file is gone, has been replaced, or cannot be opened. On exit: it was overwritten while it was read.

    Attributes
    ----------
    format : int
        Number in `layouts`: the format of its entries.
    sizes : SizeEstimate
    memory : pa.Buffer, optional
        The segment itself, if it is in memory and not in a file.
    spare : list of pa.Buffer
        Memory that decoders have used for some of its bytes, for those that come after them.
    """

    def __init__(self, segment: Segment, look: Look | None = None) -> None:
        self.segment, self.path, self.size = segment, segment.path, segment.size
        self.format = layouts.FORMAT_NAMES.index(segment.format)
        self.sizes = SizeEstimate()
        self.memory, self.spare = segment.memory, list[Any]()
        self._remote: Any = None
        self._look = look
        self._first_look: Answer | None = None
        self._last_look: tuple[int, Answer] | None = None
        if self.memory is not None:
            self._file = -self.memory.address
            return
        if segment.manifest is not None or ("://" in segment.path and storage.is_url(segment.path)):
            self._open_remote()
            return
        try:
            self._file = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            # Bytes that changed while they were read look like damage.
            if error is None or isinstance(error, KolumnError):
                self._compare()
        finally:
            self.close()

    def _open_remote(self) -> None:
        """Open a file far away. Whether it is the one that was found is asked meanwhile, and compared before any byte is returned."""
        self._file = -1
        self._look = self._look or Look(self.segment)
        if self.segment.identity is not None:
            self._first_look = self._look.first()
        self._remote = self._opened_remote()
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

    def _opened_remote(self) -> Any:
        try:
            manifest, access = self.segment.manifest, self.segment.access
            if manifest is None:
                return ReadAhead(open_ranges(self.path), self.size, access.ahead_bytes)
            if manifest.is_plain:
                return ReadAhead(AivenFile(manifest, access), self.size, access.ahead_bytes)
            block = manifest.chunk_size * max(BLOCK // manifest.chunk_size, 1)
            return ReadAhead(AivenFile(manifest, access), self.size, access.ahead_bytes, block, aligned=True)
        except KolumnError as error:
            if self.segment.identity is not None and self.segment.manifest is None and storage.current(self.path) is None:
                raise self._gone() from error
            raise

    def _compare(self) -> None:
        """Check that the open file is the one that was found, and that it was not overwritten."""
        before = self.segment.identity
        if before is None or self.memory is not None:
            return
        if self._remote is None:
            self._judge(before, of_open(self.path, self._file))
            return
        last = self._last_look
        self._judge(before, last[1].result() if last is not None and last[0] == self._remote.begun else self._identity())

    def _compare_first(self) -> None:
        """The same of a file far away, before its first bytes are used."""
        if (look := self._first_look) is not None:
            assert self.segment.identity is not None
            self._judge(self.segment.identity, look.result())
            self._first_look = None

    def _judge(self, before: Identity, now: Identity | None) -> None:
        if now is None:
            raise _changed(self.path, "was deleted")
        if before.inode is not None and before.looks_like(now) and (self._remote is not None or has_tail(self._file, before)):
            return
        if before.is_another(now):
            raise _changed(self.path, "was replaced by another file")
        if now.size < before.size:
            # Bytes before its end may be others than before: data may have been appended after the cut.
            raise self._cut(now.size)
        if now.size > before.size and self.segment.following is not None:
            raise _changed(self.path, "grew although another segment follows it: it was overwritten")
        if self._remote is None and not has_tail(self._file, before):
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
        return of_open(self.path, self._file)

    def _has_room(self, end: int) -> bool:
        """Whether the file ends with zeros: a preallocated file has its size from the beginning, and is filled later."""
        start = max(end - _ROOM, 0)
        last = os.pread(self._file, _ROOM, start) if self._remote is None else self._remote.read_at(end - start, start)
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
            os.close(self._file)

    @property
    def is_local(self) -> bool:
        """Whether compiled code can read the bytes by the `descriptor`."""
        return self._remote is None

    @property
    def has_path(self) -> bool:
        """Whether it is a file of this machine, with an `opened_path`."""
        return self._remote is None and self.memory is None

    @property
    def opened_path(self) -> str:
        """A path for libraries that open files by themselves. It leads to the file that is open here, even if its name has changed."""
        return f"/proc/self/fd/{self._file}"

    @property
    def descriptor(self) -> int:
        """File descriptor for compiled code that reads the file itself; minus the address of a segment in memory."""
        return self._file

    def read(self, start: int, end: int, locked: bool = False) -> Bytes:
        """Bytes [start, end) as a read-only uint8 array with `PAD` zero bytes after them; ``locked``: for a copy to a GPU.

        Releases the GIL. Raises KolumnError if the file has fewer bytes than it had when it was found.

        A segment in memory is not copied if `PAD` bytes of it follow; they are then not zeros. The same is true of bytes that were fetched
        together.
        """
        size = end - start
        if self.memory is not None and end + PAD <= self.size:
            return np.frombuffer(self.memory, np.uint8, size + PAD, start)
        if self._remote is not None and not locked and (found := self._held(start, end)) is not None:
            return found
        buffer, view = (take_locked if locked else take)(size + PAD)
        done = self._read_remote(view, start, end) if self._remote is not None else 0
        if self.memory is not None:
            view[:size] = memoryview(self.memory).cast("B")[start:end]
            done = size
        while done < size:
            try:
                got = os.preadv(self._file, [view[done:size]], start + done)
            except OSError as error:
                raise StorageError(f"{self.path}: cannot be read at position {start + done}: {error.strerror}") from error
            if got == 0:
                raise self._cut(start + done)
            done += got
        view[size:] = bytes(PAD)
        return np.frombuffer(buffer, np.uint8)

    def _held(self, start: int, end: int) -> Any:
        """Bytes that one request has fetched, with those after them; None if they are of several."""
        try:
            found = self._remote.held(start, end, PAD) if end > start else None
        except KolumnError:
            raise
        except (OSError, ArrowException) as error:
            raise self._unread(start, error) from error
        self._compare_first()
        return found

    def _read_remote(self, view: Any, start: int, end: int) -> int:
        """Read over a network; small reads, like those of headers, are served from larger ones."""
        try:
            done = self._remote.read_into(np.frombuffer(view, np.uint8)[: end - start], start)
        except KolumnError:
            raise
        except (OSError, ArrowException) as error:
            raise self._unread(start, error) from error
        self._compare_first()
        if done < end - start:
            raise self._cut(start + done)
        return int(done)

    def _unread(self, start: int, error: Exception) -> StorageError:
        self._compare_first()
        return StorageError(f"{self.path}: cannot be read at position {start}: {error}")

    def end_of_read(self, start: int, least: int, most: int) -> int:
        """Where a read from ``start`` should end, between two positions, so that bytes that were fetched together need no copy."""
        border = None if self._remote is None else self._remote.border(start)
        if border is None or border - PAD >= most:
            return most
        return border - PAD if border - PAD >= least else min(max(least, border + _OVER), most)

    def _cut(self, position: int) -> StorageError:
        return StorageError(f"{self.path}: ends at position {position} and had {self.size} bytes when it was found: it was cut. {_AGAIN}")

    def zeros_from(self, start: int) -> bool:
        """Whether every byte from ``start`` to the end is zero."""
        for at in range(start, self.size, _BLOCK):
            stop = min(at + _BLOCK, self.size)
            if self.read(at, stop)[: stop - at].any():
                return False
        return True


def side_bytes(segment: Segment, suffix: str) -> bytes | None:
    """All bytes of a small file beside a segment, such as ``.index``; None if it is missing or, on this machine, cannot be read.

    Aiven's tier has them in one object, at the places that the manifest names.

    Raises
    ------
    KolumnError
        As `kolumn.source.storage.read_bytes`.
    """
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
