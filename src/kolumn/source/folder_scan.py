"""What a folder of this machine holds at one moment, while a broker renames its files."""

import os
import time

from kolumn.errors import KolumnError, StorageError
from kolumn.source.identity import FilesIn, Identity

_ONE_CALL = 100
"""Minimum number of names that the system returns in one call."""
_LISTINGS = 20
_TICK = 1_000_000_000
"""ns: longer than the resolution of a file system's times; some have whole seconds."""


def scanned(folder: str) -> list["os.DirEntry[str]"]:
    """The contents of a folder of this machine at one moment.

    The system lists a large folder in several calls, and misses a file that is renamed between two of them, as at the end of a
    broker's compaction. The folder's time shows that, unless it changed in the same tick of the clock: then two listings have to agree.
    """
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


def looked_at_files(folder: str, unusable: list[str] | None = None) -> list[tuple[str, Identity | None]]:
    """Files and folders in a folder of this machine, sorted: their paths, and the identities of files; None for folders.

    ``unusable`` takes the paths of broken links, devices, sockets and FIFOs.
    """
    found = list[tuple[str, Identity | None]]()
    with FilesIn(folder) as files:
        for one in sorted(scanned(folder), key=_path):
            if one.is_file():
                found.append((one.path, files.of(one.path, one.name)))
            elif one.is_dir():
                found.append((one.path, None))
            elif unusable is not None:
                unusable.append(one.path)
    return found


def _path(entry: "os.DirEntry[str]") -> str:
    return entry.path


def names_of_files(folder: str) -> list[str]:
    """Names of the files in a folder of this machine, sorted; they are not looked at, so this costs a call or two of the system."""
    try:
        return sorted(one.path for one in scanned(folder) if one.is_file())
    except OSError as error:
        raise StorageError(f"{folder}: cannot be listed: {error}") from error
