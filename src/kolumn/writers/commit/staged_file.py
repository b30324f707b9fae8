"""Staged files: each is written under a name that readers ignore, synced, then renamed to its final name.

Every file that Kolumn makes on this machine is a `StagedFile`, in a folder of a `kolumn.writers.commit.run.Commit` or of a Spark job.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kolumn.core.errors import KolumnError, StorageError

PARTIAL = ".partial"
FILES = "files"  # folder in a staging folder in which files are laid out as below the target
_BUFFER = 1 << 18
_STAGED = re.compile(r"\.kolumn-(?:[a-z]+\.)?[0-9a-f]{32}\.partial/(?:files|[0-9a-f]{32})/")
_NOT_COPIED = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM, errno.EBADF, errno.EIO)
"""What the system says where it can't copy from file to file. Who then reads and writes the bytes learns whether one of the disks fails."""
_MOST_COPIED = 64 << 20  # bytes of one call, which signals wait for
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)


def final_name(path: str | os.PathLike[str]) -> str:
    """The final name of a staged file, for messages; other names are returned unchanged."""
    return _STAGED.sub("", os.fspath(path)).removesuffix(PARTIAL)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an `OSError` of the system into a `StorageError` with the file's final name."""
    try:
        yield
    except KolumnError:
        raise
    except OSError as error:
        raise StorageError(f"{final_name(path)}: cannot be written: {error.strerror or error}") from error


class StagedFile:
    """A file that is being written. It has mode 0600, and ``.partial`` at the end of its name until it is complete and on disk.

    As a context manager, it completes the file at the end, unless there is an error. It has the methods that `pyarrow.PythonFile` needs.
    Each of them raises `KolumnError` with the final name and the reason if the file cannot be written.
    """

    closed = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._draft = path.with_name(f"{path.name}{PARTIAL}")
        self._waiting = bytearray()
        with writing(path):
            self._file = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if failed is None:
                self.complete()
        finally:
            self.abandon()

    def write(self, data: Any) -> int:
        """Write bytes, anything with a contiguous buffer, and return how many."""
        view = memoryview(data)
        if len(self._waiting) + view.nbytes > _BUFFER:
            self.flush()
        if view.nbytes > _BUFFER:
            self._out(view.cast("B"))
        elif view.nbytes:
            self._waiting += view.cast("B")
        return view.nbytes

    def copy(self, file: int, start: int, size: int) -> int:
        """Write bytes of another open file, which need not pass through this process; returns how many the system has copied."""
        copy, done = getattr(os, "copy_file_range", None), 0
        if copy is None:
            return 0
        self.flush()
        with writing(self.path):
            try:
                while done < size and (more := copy(file, self._file, min(size - done, _MOST_COPIED), start + done)):
                    done += more
            except OSError as error:
                if error.errno not in _NOT_COPIED:
                    raise
        return done

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, bytearray()
        self._out(memoryview(waiting))

    def complete(self) -> None:
        """Flush the file to disk and rename it to its name, with the mode of the user's umask."""
        self.flush()
        with writing(self.path):
            os.fchmod(self._file, 0o666 & ~umask())
            os.fsync(self._file)
            self._close()
            os.rename(self._draft, self.path)

    def abandon(self) -> None:
        """Close the file; unless it is complete it stays partial. Bytes written later, like a footer, are discarded."""
        with suppress(OSError):
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _out(self, view: memoryview) -> None:
        with writing(self.path):
            while view.nbytes and self._file >= 0:
                view = view[os.write(self._file, view) :]


def umask() -> int:
    """The process's umask, if possible without setting it, since other threads make files too."""
    with suppress(OSError, StopIteration), open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return int(next(line for line in status if line.startswith("Umask:")).split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def sync(path: str | os.PathLike[str]) -> None:
    """Flush a file, or the names in a folder, to disk. Some network file systems cannot sync folders: they sync names when made."""
    is_folder = os.path.isdir(path)
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        if not is_folder or error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(file)


def make_folders(folder: Path, mode: int = 0o777) -> list[Path]:
    """Make a folder and its missing parents. Returns the folders that were made, outermost first; raises `OSError` if that fails."""
    made: list[Path] = []
    for path in (*reversed(folder.parents), folder):
        if path.is_dir():
            continue
        try:
            os.mkdir(path, mode)
        except FileExistsError as error:
            if not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error
        else:
            made.append(path)
    return made
