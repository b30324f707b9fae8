"""An object store for tests, ``objects://<path>``: what any process can open, on the disk, with the ways of S3.

An object appears whole when it is closed. There is no renaming: moving is copying and removing. There are no folders: one is there as
long as an object is in it, and making one does nothing. Its operations on the disk are steps of `kit.faults`.
"""

import os
import uuid
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import fsspec
from fsspec import AbstractFileSystem

_DRAFT = ".kolumn-put-"
"""Prefix of an object that is being put; listings leave it out."""


def objects(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if _DRAFT not in name}


class _Put(BytesIO):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def close(self) -> None:
        if not self.closed:
            _put(self.path, self.getvalue())
        super().close()


class ObjectStore(AbstractFileSystem):
    protocol = "objects"
    root_marker = "/"

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return "/" + str(path).removeprefix("objects://").strip("/")

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if os.path.isfile(path):
            return {"name": path, "size": os.path.getsize(path), "type": "file"}
        if any(_DRAFT not in name for _, _, names in os.walk(path) for name in names):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        found = self.info(path)
        if found["type"] == "directory":
            names = [f"{found['name'].rstrip('/')}/{name}" for name in sorted(os.listdir(found["name"])) if _DRAFT not in name]
            some = [self.info(name) for name in names if self.exists(name)]
        else:
            some = [found]
        return some if detail else [one["name"] for one in some]

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(os.stat(self._strip_protocol(path)).st_mtime, UTC)

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        return open(path, "rb") if mode == "rb" else _Put(path)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        _put(self._strip_protocol(path2), Path(self._strip_protocol(path1)).read_bytes())

    def rm_file(self, path: str) -> None:
        path = self._strip_protocol(path)
        if os.path.isfile(path):
            os.unlink(path)


def _put(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    draft = os.path.join(os.path.dirname(path), f"{_DRAFT}{uuid.uuid4().hex}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600)
    view = memoryview(data)
    while view.nbytes:
        view = view[os.write(file, view) :]
    os.close(file)
    os.replace(draft, path)


fsspec.register_implementation("objects", ObjectStore, clobber=True)
