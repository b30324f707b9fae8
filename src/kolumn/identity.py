"""Which file a name stood for when it was looked at, and whether another one is there now.

A broker appends to its segments, and that is fine. It also puts others in their places (compaction), deletes them (retention) and cuts
them (a new leader), and a backup may be restored over them: positions that were planned in one file mean nothing in another.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

from pyarrow import fs

_AT_FDCWD, _AT_EMPTY_PATH, _STATX_BTIME, _STATX_BYTES = -100, 0x1000, 0x800, 256
_BTIME = struct.Struct("=qI")
_BTIME_AT = 80
_TAGS = ("ETag", "etag", "generation", "created", "LastModified", "last_modified")
"""What file systems of fsspec call a version of an object, or the time of one that can only be replaced."""
_OF_OBJECTS = ("s3", "gcs", "abfs")
"""File systems of pyarrow in which nothing can be appended."""


@dataclass(frozen=True)
class Identity:
    """A file, as far as its file system tells it from others.

    Attributes
    ----------
    size : int
        Bytes.
    modified : int, optional
        ns since 1970.
    inode, device : int, optional
        Of a file of this machine. The device counts within one process alone: another machine may see the same file under another
        number, so it is not pickled.
    born : int, optional
        ns since 1970, where the file system notes it: a number of a file that was removed is given out again at once.
    tag : str, optional
        Version of an object behind a URL.
    """

    size: int
    modified: int | None = None
    inode: int | None = None
    device: int | None = None
    born: int | None = None
    tag: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(replace(self, device=None)) if self.device is not None else vars(self)

    def is_another(self, now: "Identity") -> bool:
        """Whether ``now`` is another file under the same name. One to which something was appended is not."""
        unchanged = (self.size, self.modified) == (now.size, now.modified)
        if self.inode is None or now.inode is None:
            if self.tag is not None and now.tag is not None:
                return self.tag != now.tag
            return now.size < self.size or self.is_rewritten(now)
        if None not in (self.born, now.born) and self.born != now.born:
            return True
        if self.device is None or now.device is None:
            # File systems in user space may number files anew on each machine.
            return self.inode != now.inode and not unchanged
        return (self.device, self.inode) != (now.device, now.inode)

    def is_rewritten(self, now: "Identity") -> bool:
        """Whether the file was modified and has no more bytes than before: written over, or written into room that it had."""
        return self.size == now.size and None not in (self.modified, now.modified) and self.modified != now.modified


def of_file(path: str, found: os.stat_result, descriptor: int | None = None) -> Identity:
    """Identity of a file of this machine, from its `os.stat`; by ``descriptor`` of the one that is open."""
    return Identity(found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev, _born(path, descriptor))


def of_object(info: fs.FileInfo, kind: str, details: Mapping[str, Any]) -> Identity:
    """Identity of a file behind a URL.

    Parameters
    ----------
    info : pyarrow.fs.FileInfo
    kind : str
        Name of pyarrow's file system.
    details : mapping
        What fsspec says of it; empty where it is not asked.
    """
    tag = next((_text(details[name]) for name in _TAGS if details.get(name)), None)
    if kind in _OF_OBJECTS and info.mtime_ns is not None:
        tag = str(info.mtime_ns)
    return Identity(info.size or 0, info.mtime_ns, tag=tag)


def _text(tag: Any) -> str:
    """The same, whether a listing or a look at one file says it: times come as seconds from one and as `datetime` from the other."""
    seconds = tag.timestamp() if isinstance(tag, datetime) else tag
    return f"{seconds:.6f}" if isinstance(seconds, float) else str(tag)


@cache
def _statx() -> Any:
    """The system call of Linux that knows when a file was made, None where there is none."""
    found = getattr(ctypes.CDLL(None), "statx", None)
    if found is not None:
        found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p]
    return found


def _born(path: str, descriptor: int | None) -> int | None:
    statx = _statx()
    if statx is None:
        return None
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if descriptor is None:
        failed = statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer)
    else:
        failed = statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer)
    if failed or not int.from_bytes(buffer.raw[:4], sys.byteorder) & _STATX_BTIME:
        return None
    seconds, ns = _BTIME.unpack_from(buffer.raw, _BTIME_AT)
    return int(seconds) * 1_000_000_000 + int(ns)
