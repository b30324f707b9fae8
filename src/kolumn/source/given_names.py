"""Names in what a caller gives as a source, and which of them are the same file."""

import os
import reprlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kolumn.errors import ArgumentError
from kolumn.source import storage
from kolumn.source.log_names import LOG, PARTITION


def names_in(source: Any) -> list[str]:
    """Names in a source argument."""
    if isinstance(source, str):
        return [source]
    many = isinstance(source, Iterable) and not isinstance(source, str | bytes | bytearray | os.PathLike) and not hasattr(source, "read")
    parts = list(source) if many else [source]
    if not parts:
        raise ArgumentError("no source given: name a segment file, a topic-partition directory, a log directory or a glob")
    for part in parts:
        if not isinstance(part, str | os.PathLike) or not isinstance(os.fspath(part), str):
            found = f"{reprlib.repr(part)}{' in a list' if many else ''}"
            raise ArgumentError(f"source: expected a path as str or os.PathLike, or a list of paths, found {found}")
    return [os.fspath(part) for part in parts]


def checked(file: storage.FolderEntry) -> storage.FolderEntry:
    """Check a file that the caller names."""
    if not file.is_regular or (not file.size and not storage.is_url(file.name) and not storage.holds_nothing(file.name)):
        raise ArgumentError(
            f"{file.name}: not a regular file: a device, a socket, a pipe, or a file that the system makes up has no size or positions. "
            "Copy what comes out of it to a file, and name that"
        )
    return file


def nearby(folder: str, find: Callable[[str], list[Any]]) -> str:
    """Hint for an error message about a folder in which ``find`` found no segment: where there are some; empty if there are none.

    That is a file or a folder that is no part of the log, or a glob that matches segments on deeper levels, in the first 100 folders.
    """
    for one in storage.listing(folder):
        if not one.is_folder and f"{LOG}." in storage.base_name(one.name):
            return f"; {one.name!r} is a segment that brokers delete, which is read if it is named"
    names, pattern = [folder], folder
    for _ in range(3):
        pattern = storage.within(pattern, "*")
        names = [below.name for name in names for below in storage.listing(name) if below.is_folder][:100]
        for name in names:
            if (match := PARTITION.fullmatch(storage.base_name(name))) is not None and match["state"]:
                return f"; {name!r} is a {match['state']} replica, which is read if it is named"
        if any(find(name) for name in names):
            return f"; there are some further down: name {pattern!r}"
    return ""


def real_names(names: Iterable[str]) -> Iterator[str]:
    """For each name one that is the same for all links and relative paths to a file; URLs stay what they are."""
    folders: dict[str, str] = {}
    for name in names:
        if storage.is_url(name):
            yield name
            continue
        folder = storage.parent(name)
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        yield os.path.realpath(name) if os.path.islink(name) else os.path.join(folders[folder], os.path.basename(name))
