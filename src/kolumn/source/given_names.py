"""Names in what a caller gives as a source, and which of them are the same file."""

import os
import reprlib
from collections.abc import Iterable, Iterator
from typing import Any

from kolumn.errors import ArgumentError
from kolumn.source import storage


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
