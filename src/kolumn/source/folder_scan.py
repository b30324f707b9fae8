"""What a folder of this machine holds at one moment, while a broker renames its files."""

import os
import time
from typing import NamedTuple

from kolumn.core.errors import KolumnError, StorageError
from kolumn.source.identity import FilesIn, Identity, of_file, of_growing

_ONE_CALL = 100
"""Minimum number of names that the system returns in one call."""
_MANY = 8
"""Entries of a folder that is opened to look at its files by their names alone."""
_LISTINGS = 20
_TICK = 1_000_000_000
"""ns: longer than the resolution of a file system's times; some have whole seconds."""


class FolderEntry(NamedTuple):
    """A file or a folder."""

    name: str
    size: int
    is_folder: bool
    is_regular: bool = True
    """Whether it is a regular file, not a device, socket or FIFO."""
    identity: Identity | None = None
    """Identity of a file, to detect later whether it is still the same file."""


def scanned(folder: str) -> list["os.DirEntry[str]"]:
    """The contents of a folder of this machine at one moment.

    The system lists a large folder in several calls, and misses a file that is renamed between two of them, as at the end of a
    broker's compaction. The folder's time shows that, unless it changed in the same tick of the clock: then two listings have to agree.
    """
    with os.scandir(folder) as found:
        entries = list(found)
    if len(entries) <= _ONE_CALL:
        return entries
    before: set[str] | None = None
    for _ in range(_LISTINGS):
        at = os.stat(folder).st_mtime_ns
        with os.scandir(folder) as found:
            entries = list(found)
        if len(entries) <= _ONE_CALL:
            return entries
        unchanged, names = at == os.stat(folder).st_mtime_ns, {one.name for one in entries}
        if unchanged and (time.time_ns() - at > _TICK or names == before):
            return entries
        before = names
    raise KolumnError(f"{folder}: cannot be listed: files in it got other names each of {_LISTINGS} times. Run again when it is quiet")


def looked_at_files(folder: str, unusable: list[str] | None = None) -> list[FolderEntry]:
    """Files and folders in a folder of this machine, sorted by path.

    ``unusable`` takes the paths of broken links, devices, sockets and FIFOs.
    """
    found = list[FolderEntry]()
    entries = scanned(folder)
    if len(entries) > 1:
        entries.sort(key=_path)
    last = max([one.name for one in entries if one.name[-4:] == ".log"], default="")
    files = FilesIn(folder) if len(entries) >= _MANY else None
    try:
        for one in entries:
            if one.is_file():
                # The last segment may be written to: it is looked at once, with its last bytes.
                now = of_growing(one.path) if one.name == last else None
                now = now or (of_file(one.path, None) if files is None else files.of(one.path, one.name))
                found.append(FolderEntry(one.path, now.size, False, True, now))
            elif one.is_dir():
                found.append(FolderEntry(one.path, 0, True))
            elif unusable is not None:
                unusable.append(one.path)
    finally:
        if files is not None:
            files.close()
    return found


def _path(entry: "os.DirEntry[str]") -> str:
    return entry.path


def names_of_files(folder: str) -> list[str]:
    """Names of the files in a folder of this machine, sorted; they are not looked at, so this costs a call or two of the system."""
    try:
        return sorted(one.path for one in scanned(folder) if one.is_file())
    except OSError as error:
        raise StorageError(f"{folder}: cannot be listed: {error}") from error
