"""Names in what a caller gives as a source."""

import os
import reprlib
from collections.abc import Iterable
from typing import Any

from kolumn.errors import ArgumentError


def names_in(source: Any) -> list[str]:
    """Names in a source argument."""
    many = isinstance(source, Iterable) and not isinstance(source, str | bytes | bytearray | os.PathLike) and not hasattr(source, "read")
    parts = list(source) if many else [source]
    if not parts:
        raise ArgumentError("no source given: name a segment file, a topic-partition directory, a log directory or a glob")
    for part in parts:
        if not isinstance(part, str | os.PathLike) or not isinstance(os.fspath(part), str):
            found = f"{reprlib.repr(part)}{' in a list' if many else ''}"
            raise ArgumentError(f"source: expected a path as str or os.PathLike, or a list of paths, found {found}")
    return [os.fspath(part) for part in parts]
