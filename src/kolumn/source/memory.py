"""Sources that are in memory: one segment as a buffer, or as a file object, which is read to its end."""

import os
import reprlib
from typing import Any, NamedTuple

import pyarrow as pa

from kolumn.errors import ArgumentError

NAME = "<memory>"
"""Name of a segment in memory in errors and in the column ``segment``."""
_LONGEST_PATH = 4096
"""Fewer bytes without a zero among them are more likely to be a path: the offset at the beginning of a segment has zeros."""


class InMemory(NamedTuple):
    """A segment in memory, and its name in messages."""

    name: str
    memory: pa.Buffer


def in_memory(source: Any) -> InMemory | None:
    """The bytes of a source that is in memory; None for a path, a list of paths, and what else is no bytes.

    Parameters
    ----------
    source : pyarrow.Buffer, contiguous buffer of bytes, binary file object, or what this function has returned
        ``bytes``, ``bytearray``, ``memoryview``, ``mmap`` and arrays of bytes are not copied. They must not change while the data made
        from them are in use. A file object is read from its present position to its end.

    Raises
    ------
    ArgumentError
        The buffer does not consist of contiguous bytes, the file object is open for text or closed, or bytes look like a path.
    """
    if isinstance(source, str | os.PathLike):
        return None
    if isinstance(source, InMemory):
        return source
    if hasattr(source, "read") and not _is_buffer(source):
        return _of_file(source)
    if not _is_buffer(source):
        return None
    view = memoryview(source)
    if not view.c_contiguous:
        raise ArgumentError(f"source: expected contiguous bytes, found {view.nbytes} bytes with strides {view.strides}")
    if isinstance(source, bytes | bytearray) and 0 < len(source) < _LONGEST_PATH and 0 not in source:
        found = f"{reprlib.repr(source)}: bytes are taken for a segment, but these are not one"
        raise ArgumentError(f"source: expected a path as str or os.PathLike, or a list of paths, found {found}")
    return InMemory(NAME, source if isinstance(source, pa.Buffer) else pa.py_buffer(view.cast("B") if view.nbytes else b""))


def named_parts(source: Any) -> list[Any]:
    """The paths in a source; none if it is in memory."""
    if isinstance(source, str | os.PathLike):
        return [source]
    return [] if source is None or isinstance(source, InMemory) or hasattr(source, "read") or _is_buffer(source) else list(source)


def _is_buffer(source: object) -> bool:
    if isinstance(source, pa.Buffer):
        return True
    try:
        with memoryview(source) as view:  # type: ignore[arg-type]
            # Arrays of strings are lists of paths.
            return view.format in ("B", "b", "c")
    except (TypeError, ValueError, BufferError):
        return False


def _of_file(file: Any) -> InMemory:
    try:
        data = file.read_buffer() if hasattr(file, "read_buffer") else file.read()
    except (ValueError, OSError) as error:
        raise ArgumentError(f"source: {reprlib.repr(file)} cannot be read: {error}") from error
    if not _is_buffer(data):
        found = f"{reprlib.repr(file)}, which returns {type(data).__name__} and not bytes: open a file with mode 'rb'"
        raise ArgumentError(f"source: expected a path as str or os.PathLike, or a list of paths, found {found}")
    name = getattr(file, "name", None)
    return InMemory(name if isinstance(name, str) else NAME, data if isinstance(data, pa.Buffer) else pa.py_buffer(data))
