"""Which file has a name: whether it is still the one for which a read was planned, and what a folder of this machine holds at one moment.

A broker appends to its segments, which is harmless. It also replaces them (compaction), deletes them (retention) and cuts them (a new
leader), and a backup may be restored over them: positions that were planned for one file are invalid in another.
"""

import ctypes
import os
import struct
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kolumn.core.errors import KolumnError, StorageError

if TYPE_CHECKING:
    from pyarrow import fs

_AT_FDCWD, _AT_EMPTY_PATH, _STATX_BASIC, _STATX_BTIME, _STATX_BYTES = -100, 0x1000, 0x7FF, 0x800, 256
_STATX = struct.Struct("=I24xH2xQQ32xqI20xqI12xII")
"""Of ``struct statx``: mask, mode, inode, size, when made (s, ns), when modified (s, ns), device (major, minor)."""
_Buffer = ctypes.c_char * _STATX_BYTES
_ASKED = _STATX_BASIC | _STATX_BTIME
_NAMES = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()  # as `os.fsencode` encodes
TAIL = 64  # most bytes of `Identity.tail`
_LOOKS = 5
_NS = 1_000_000_000
_TAGS = ("ETag", "etag", "generation", "created", "LastModified", "last_modified")
"""Names in fsspec's file systems for the version of an object, or for the time of an object that can only be replaced."""
_OF_OBJECTS = ("s3", "gcs", "abfs")  # file systems of pyarrow in which nothing can be appended


@dataclass(frozen=True)
class Identity:
    """The properties by which a file system distinguishes a file from others."""

    size: int
    modified: int | None = None  # ns since 1970
    # Of a file of this machine. The device number is valid in one process only: another machine may see the same file under another
    # number, so it is not pickled.
    inode: int | None = None
    device: int | None = None
    born: int | None = None  # ns since 1970, if the file system records it: the inode number of a removed file may be reused at once
    tag: str | None = None  # version of an object at a URL
    # The last bytes of the file before preallocated zeros. In an active segment they distinguish appending from overwriting.
    tail: bytes | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(replace(self, device=None)) if self.device is not None else vars(self)

    def is_another(self, now: "Identity") -> bool:
        """Whether ``now`` is another file of the same name. A file that was appended to is the same one."""
        unchanged = (self.size, self.modified) == (now.size, now.modified)
        if self.inode is None or now.inode is None:
            if self.tag is not None and now.tag is not None:
                return self.tag != now.tag
            return now.size < self.size or self.is_rewritten(now)
        if None not in (self.born, now.born) and self.born != now.born:
            return True
        if self.device is None or now.device is None:
            # File systems in user space may assign other inode numbers on each machine.
            return self.inode != now.inode and not unchanged
        return (self.device, self.inode) != (now.device, now.inode)

    def is_rewritten(self, now: "Identity") -> bool:
        """Whether the file was modified and has no more bytes than before: overwritten, or written into preallocated space."""
        return self.size == now.size and None not in (self.modified, now.modified) and self.modified != now.modified


def of_growing(path: str) -> Identity | None:
    """Identity, with its tail, of a file of this machine that may grow; None if it cannot be opened."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for _ in range(_LOOKS):
            _, identity = seen(path, file)
            tail = os.pread(file, TAIL, max(identity.size - TAIL, 0))
            now = os.fstat(file)
            if (now.st_size, now.st_mtime_ns) == (identity.size, identity.modified):
                identity.__dict__["tail"] = tail.rstrip(b"\0")
                break
        return identity
    except OSError:
        return None
    finally:
        os.close(file)


def of_object(info: "fs.FileInfo", type_name: str, details: Mapping[str, Any]) -> Identity:
    """Identity of a file at a URL; ``type_name`` is that of pyarrow's file system, ``details`` come from fsspec, empty without it."""
    tag = next((_text(details[name]) for name in _TAGS if details.get(name)), None)
    if type_name in _OF_OBJECTS and info.mtime_ns is not None:
        tag = str(info.mtime_ns)
    return Identity(info.size or 0, info.mtime_ns, tag=tag)


def _text(tag: object) -> str:
    """A tag as text that is equal for a listing and for a single file: one has times as seconds, the other as `datetime`."""
    seconds = tag.timestamp() if isinstance(tag, datetime) else tag
    return f"{seconds:.6f}" if isinstance(seconds, float) else str(tag)


@cache
def _statx() -> Any:
    """Linux's system call that returns when a file was made; None if it is missing."""
    # Without types of arguments, which cost time in each call: numbers are ints, and bytes are addresses.
    return getattr(ctypes.CDLL(None), "statx", None)


def seen(
    path: str, descriptor: int | None = None, inside: tuple[int, bytes, Any] | None = None, status: os.stat_result | None = None
) -> tuple[int, Identity]:
    """Mode and identity of a file of this machine, or of a folder, by one call of the system if it has one that returns everything; errors
    as `os.stat`. Between two calls another file may get the name. Of a system without that call it is from the file's `os.stat`, which does
    not know when a file was made. ``inside`` are a folder's descriptor, the name of a file in it, and memory for the answer: the path is
    not followed then."""
    # Its own constructor would take longer than the look. What is not set has its default.
    identity = object.__new__(Identity)
    own = identity.__dict__
    if (statx := _statx()) is not None:
        buffer = _Buffer() if inside is None else inside[2]
        if inside is not None:
            failed = statx(inside[0], inside[1], 0, _ASKED, buffer)
        elif descriptor is None:
            failed = statx(_AT_FDCWD, os.fsencode(path), 0, _ASKED, buffer)
        else:
            failed = statx(descriptor, b"", _AT_EMPTY_PATH, _ASKED, buffer)
        mask, mode, inode, size, made, made_ns, modified, modified_ns, major, minor = _STATX.unpack_from(buffer)
        if not failed and mask & _STATX_BASIC == _STATX_BASIC:
            own["size"], own["modified"], own["inode"] = size, modified * _NS + modified_ns, inode
            own["device"], own["born"] = os.makedev(major, minor), made * _NS + made_ns if mask & _STATX_BTIME else None
            return mode, identity
    status = status or os.stat(path if descriptor is None else descriptor)
    own["size"], own["modified"], own["inode"], own["device"] = status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev
    return status.st_mode, identity


_ONE_CALL = 100  # minimum number of names that the system returns in one call
_MANY = 8  # entries of a folder that is opened to look at its files by their names alone
_LISTINGS = 20
_TICK = 1_000_000_000  # ns: longer than the resolution of a file system's times; some have whole seconds


class FolderEntry(NamedTuple):
    name: str
    size: int
    is_folder: bool
    is_regular: bool = True  # whether it is a regular file, not a device, socket or FIFO
    identity: Identity | None = None  # identity of a file, to detect later whether it is still the same file


def scanned(folder: str) -> list["os.DirEntry[str]"]:
    """The contents of a folder of this machine at one moment. The system lists a large folder in several calls, and misses a file that is
    renamed between two of them, as at the end of a broker's compaction. The folder's time shows that, unless it changed in the same tick of
    the clock: then two listings have to agree."""
    with os.scandir(folder) as listing:
        entries = list(listing)
    if len(entries) <= _ONE_CALL:
        return entries
    before: set[str] | None = None
    for _ in range(_LISTINGS):
        modified = os.stat(folder).st_mtime_ns
        with os.scandir(folder) as listing:
            entries = list(listing)
        if len(entries) <= _ONE_CALL:
            return entries
        unchanged, names = modified == os.stat(folder).st_mtime_ns, {entry.name for entry in entries}
        if unchanged and (time.time_ns() - modified > _TICK or names == before):
            return entries
        before = names
    raise KolumnError(f"{folder}: cannot be listed: files in it got other names each of {_LISTINGS} times. Run again when it is quiet")


def looked_at_files(folder: str, unusable: list[str] | None = None) -> list[FolderEntry]:
    """Files and folders in a folder of this machine, sorted by path. ``unusable`` takes the paths of broken links, devices, sockets and
    FIFOs."""
    listed: list[FolderEntry] = []
    entries = scanned(folder)
    if len(entries) > 1:
        entries.sort(key=attrgetter("path"))
    last = opened = None
    for entry in entries:
        if entry.name[-4:] == ".log":
            last = entry
    if len(entries) >= _MANY:
        # The names are short, and one piece of memory serves all.
        buffer = _Buffer()
        with suppress(OSError):
            opened = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for entry in entries:
            if entry.is_file():
                # The last segment may be written to: it is looked at once, with its last bytes.
                now = of_growing(entry.path) if entry is last else None
                if now is None:
                    _, now = seen(entry.path, inside=None if opened is None else (opened, entry.name.encode(*_NAMES), buffer))
                listed.append(FolderEntry(entry.path, now.size, False, True, now))
            elif entry.is_dir():
                listed.append(FolderEntry(entry.path, 0, True))
            elif unusable is not None:
                unusable.append(entry.path)
    finally:
        if opened is not None:
            os.close(opened)
    return listed


def names_of_files(folder: str) -> list[str]:
    """Names of the files in a folder of this machine, sorted; they are not looked at, so this costs a call or two of the system."""
    try:
        return sorted(entry.path for entry in scanned(folder) if entry.is_file())
    except OSError as error:
        raise StorageError(f"{folder}: cannot be listed: {error}") from error
