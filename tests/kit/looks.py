"""Every file operation of a reader is a numbered step, at which a test changes the files.

Operations are counted where Python does them: looks at names, listings, opens, reads, and each time that compiled code is handed
a descriptor to read from. Changes are made by one thread while all others that come to a step wait.
"""

import builtins
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kolumn.source import identity, segment_file, storage
from kolumn.source.segment_file import SegmentFile

BY_NAME = ("stat", "lstat", "open", "listdir")
BY_FILE = ("fstat", "pread", "preadv", "close")
Operation = Callable[[], Any]


class Looks:
    """Counts operations below a folder in this process, and makes a change, in parts, before the step ``at``, from 1 on.

    With ``apart`` one part is made before each step from ``at`` on. ``planned`` are the parts that were made when the first segment was
    opened: from there on it is known what is to be read.
    """

    def __init__(self, folder: Path, at: int = 0, operations: Sequence[Operation] = (), apart: bool = False) -> None:
        self.folder, self.at, self.operations, self.apart = str(folder), at, operations, apart
        self.steps: list[str] = []
        self.made = 0
        self.planned: int | None = None
        self._names: dict[int, str] = {}
        self._lock = threading.RLock()
        self._changing: int | None = None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Replace the functions, until the patch is undone."""
        scandir, opened, init = os.scandir, builtins.open, SegmentFile.__init__
        look = identity.seen
        for name in BY_NAME:
            patch.setattr(os, name, self._named(name, getattr(os, name)))
        for name in BY_FILE:
            patch.setattr(os, name, self._on_file(name, getattr(os, name)))

        @contextmanager
        def listing(path: Any) -> Iterator[Any]:
            with scandir(path) as found:
                yield (_Entry(entry, self) for entry in list(found))

        def scan(path: Any = ".") -> Any:
            self.step("scandir", path)
            return listing(path) if str(path).startswith(self.folder) else scandir(path)

        def open_whole(path: Any, *args: Any, **kwargs: Any) -> Any:
            self.step("open", path)
            return opened(path, *args, **kwargs)

        def look_at(path: str, *args: Any, **kwargs: Any) -> Any:
            self.step("statx", path)
            return look(path, *args, **kwargs)

        def begin(file: SegmentFile, segment: Any) -> None:
            with self._lock:
                if self.planned is None and self._changing is None:
                    self.planned = self.made
            init(file, segment)

        def handed(file: SegmentFile) -> int:
            self.step("descriptor", file.path)
            return int(vars(file)["descriptor"])

        def opened_as(file: SegmentFile, descriptor: int) -> None:
            vars(file)["descriptor"] = descriptor

        patch.setattr(os, "scandir", scan)
        patch.setattr(storage, "open", open_whole, raising=False)
        patch.setattr(identity, "seen", look_at)
        patch.setattr(segment_file, "seen", look_at)
        patch.setattr(SegmentFile, "__init__", begin)
        patch.setattr(SegmentFile, "descriptor", property(handed, opened_as), raising=False)

    def step(self, name: str, path: Any) -> None:
        """Count a step, before a file operation is done."""
        if self._changing == threading.get_ident() or not str(path).startswith(self.folder):
            return
        with self._lock:
            self.steps.append(f"{name} {path}")
            if self.at and len(self.steps) >= self.at and self.made < len(self.operations):
                self._changing = threading.get_ident()
                try:
                    for operation in self.operations[self.made : self.made + 1 if self.apart else None]:
                        operation()
                        self.made += 1
                finally:
                    self._changing = None

    def _named(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, int):
                return function(path, *args, **kwargs)
            self.step(name, path)
            result = function(path, *args, **kwargs)
            if name == "open":
                self._names[result] = os.fspath(path)
            return result

        return call

    def _on_file(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: int, *args: Any, **kwargs: Any) -> Any:
            self.step(name, self._names.get(file, ""))
            if name == "close":
                self._names.pop(file, None)
            return function(file, *args, **kwargs)

        return call


class _Entry:
    """An entry of a listing that is looked at alone."""

    def __init__(self, entry: "os.DirEntry[str]", looks: Looks) -> None:
        self._entry, self._looks = entry, looks

    def stat(self) -> os.stat_result:
        self._looks.step("stat", self._entry.path)
        return self._entry.stat()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)
