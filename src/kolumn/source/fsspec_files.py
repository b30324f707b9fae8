"""What fsspec's file systems say of files, asked for without pyarrow, which makes more requests and leaves properties out."""

from typing import TYPE_CHECKING, Any

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
