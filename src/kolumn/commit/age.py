"""How long ago a file or folder was written, on this machine or at a URL."""

from typing import Any

from pyarrow import fs

from kolumn.source.fsspec_files import fsspec_of


def newest_in(system: fs.FileSystem, path: str) -> float | None:
    """Time at which a file, or the newest one in a folder, was written, in seconds since 1970; None if it is not known."""
    infos = [system.get_file_info(path)]
    if infos[0].type == fs.FileType.Directory:
        infos += system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    inner = fsspec_of(system)
    files = [_modified(inner, one.path) if inner is not None else _seconds(one) for one in infos if one.is_file]
    if None in files:
        return None
    return max((time for time in (*files, *map(_seconds, infos)) if time is not None), default=None)


def _seconds(info: fs.FileInfo) -> float | None:
    return None if info.mtime_ns is None else info.mtime_ns / 1e9


def _modified(inner: Any, path: str) -> float | None:
    try:
        return float(inner.modified(path).timestamp())
    except (OSError, NotImplementedError, AttributeError):
        return None
