"""What fsspec's file systems say of files, asked for without pyarrow, which makes more requests and leaves properties out.

Requests to file systems far away, made again if they fail.
"""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pyarrow import ArrowException

from kolumn.core.errors import KolumnError

if TYPE_CHECKING:
    from pyarrow import fs


Details = dict[str, Any]
"""Properties of a file by fsspec's names; those that tell versions of an object apart are not the same in all file systems."""


def fsspec_of(system: "fs.FileSystem") -> Any:
    """The fsspec file system that pyarrow calls; None if pyarrow uses its own."""
    return getattr(getattr(system, "handler", None), "fs", None)


def forget(system: "fs.FileSystem") -> None:
    """Clear the cache of a file system, since another process may have changed it."""
    if (inner := fsspec_of(system)) is not None:
        inner.invalidate_cache()


def looked_at(inner: Any, path: str) -> "tuple[fs.FileInfo, Details]":
    """A file or folder."""
    return _info(path, inner.info(path))


def listed(inner: Any, path: str) -> "list[tuple[fs.FileInfo, Details]]":
    """What is in a folder, by one request, or as many as the listing has pages."""
    found = inner.ls(path, detail=True)
    return [_info(one["name"].rstrip("/"), one) for one in found if one["name"].strip("/") != path.strip("/")]


def _info(path: str, details: Details) -> "tuple[fs.FileInfo, Details]":
    from pyarrow import fs

    if details["type"] == "directory":
        return fs.FileInfo(path, fs.FileType.Directory), {}
    return fs.FileInfo(path, fs.FileType.File, size=details["size"], mtime=details.get("mtime")), details


_PAUSES = (0.1, 0.4, 1.6, 6.4)
"""Seconds before a request is repeated; the file systems have repeated it by then as they do."""
_FINAL = re.compile(r"AWS Error (ACCESS_DENIED|NO_SUCH_\w+|INVALID_\w+|SIGNATURE_\w+|UNRECOGNIZED_\w+)|HTTP status 4(?!08|29)\d\d")
"""In pyarrow's errors, of a store of S3's kind that would answer the same again."""
_OF_FOLDERS = IsADirectoryError | NotADirectoryError
T = TypeVar("T")


def repeated(request: Callable[[], T]) -> T:
    """The result of a request. If it fails it is made again, each time after a longer pause; errors are those of the last one.

    What does not exist, or may not be read, is an error at once.
    """
    for pause in _PAUSES:
        try:
            return request()
        except (OSError, ArrowException) as error:
            if is_final(error):
                raise
            time.sleep(pause)
    return request()


def is_final(error: Exception) -> bool:
    """Whether the file system has answered: the file does not exist, or may not be read. Errors of this package were repeated before."""
    return isinstance(error, KolumnError | FileNotFoundError | PermissionError | _OF_FOLDERS) or _FINAL.search(str(error)) is not None
