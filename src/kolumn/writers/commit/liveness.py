"""Whether a run is alive: a lock shows it on this machine, for a Spark job the process that owns it, and elsewhere the age of its files.

The process that lives as long as a Spark job may be a JVM, which cannot hold a lock for us. Therefore a file names the process: its number,
the time of its start, and the machine's boot and namespace in which the number is valid.
"""

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from pyarrow import fs

from kolumn.core.errors import KolumnError
from kolumn.source.storage import fsspec_of

OLD_HOURS = 24.0
"""Age from which staged files are leftovers if it is not known whether their run is dead. A live job writes a file more often."""
NO_LOCKS = "its file system has no locks: its run may be alive"
WAIT_S = 60.0
_LOCK = "lock"
_OWNER = "owner"


@contextmanager
def locked(folder: Path, refusal: str, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold the lock of a folder of this machine, which ends with this process.

    Yields False without it, if the folder or the locks of its file system are missing. Raises `KolumnError` with the text of the
    refusal if another process has held the lock for ``wait_s`` seconds.
    """
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        # Whatever is written to it will report that.
        yield False
        return
    try:
        try:
            held = _lock(file, wait_s)
        except BlockingIOError as error:
            raise KolumnError(f"{folder}: {refusal}") from error
        yield held
    finally:
        os.close(file)


def committing(root: Path) -> AbstractContextManager[bool]:
    """Commit alone to a folder, so that a run's checks, such as where a log ends, are valid until it renames files."""
    return locked(root, "another run is writing to it. Wait for its end, and run this one again", WAIT_S)


def hold(folder: Path, wait_s: float = 0.0) -> int:
    """Hold the lock of this run's staging folder until the returned file is closed. Raises `BlockingIOError` or `FileNotFoundError` if
    another run is removing the folder as a leftover, or has removed it."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(lock, wait_s)
        if os.path.samestat(os.fstat(lock), os.stat(folder / _LOCK)):
            return lock
        raise FileNotFoundError(folder)
    except OSError:
        os.close(lock)
        raise


@contextmanager
def claimed(folder: Path, dry_run: bool = False) -> Iterator[str]:
    """Hold the lock of another run's staging folder. Yields why the run may be alive, an empty text if it is dead."""
    lock = -1
    try:
        if not dry_run or os.path.lexists(folder / _LOCK):
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if dry_run else os.O_CREAT)
            lock = os.open(folder / _LOCK, flags, 0o600)
        reason = "" if lock < 0 or _lock(lock) else NO_LOCKS
    except BlockingIOError:
        reason = "its run lives"
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = f"cannot be looked into: {error.strerror}"
    try:
        yield reason
    finally:
        if lock >= 0:
            os.close(lock)


def is_foreign(folder: Path) -> bool:
    """Whether a staging folder is another user's, or others can write to it. Raises `FileNotFoundError` if it no longer exists."""
    status = os.lstat(folder)
    return not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022 != 0


def _lock(file: int, wait_s: float = 0.0) -> bool:
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.05)
        except OSError:
            return False
        else:
            return True


def write_owner(folder: Path, jvm: bool) -> None:
    """Write the owner of a new folder into it: this process, or with ``jvm`` the JVM that started it, if there is one."""
    with suppress(OSError, ValueError):
        owner = _owner(jvm)
        file = os.open(folder / _OWNER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w") as out:
            json.dump(owner, out)


def is_ours(folder: Path, jvm: bool) -> bool:
    """Whether a folder is this user's, and says no other owner than `write_owner` would write."""
    try:
        if is_foreign(folder):
            return False
        written = (folder / _OWNER).read_bytes()
    except FileNotFoundError:
        # There was no room for it, or this system does not tell who lives.
        return folder.is_dir()
    except OSError:
        return False
    with suppress(OSError, ValueError):
        return bool(json.loads(written) == _owner(jvm))
    return False


def _owner(jvm: bool) -> dict[str, Any]:
    own = os.getpid()
    pid, ancestor = own, own if jvm else 0
    with suppress(OSError, ValueError):
        while ancestor > 1:
            name, fields = _stat(ancestor)
            if name == "java":
                pid = ancestor
                break
            ancestor = int(fields[1])
    return {"pid": pid, "start": _start(pid), **_here()}


def owner_lives(folder: Path) -> bool | None:
    """Whether the owner of a folder lives; None if that is not known."""
    try:
        owner = json.loads((folder / _OWNER).read_bytes())
        pid, start = int(owner["pid"]), owner["start"]
        if _here().items() - owner.items():
            return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    try:
        return bool(_start(pid) == start)
    except (OSError, ValueError):
        return False


def _here() -> dict[str, str]:
    return {"namespace": os.readlink("/proc/self/ns/pid"), "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip()}


def _start(pid: int) -> int:
    state, *fields = _stat(pid)[1]
    # A process in state Z or X is dead, and its parent has not collected it yet.
    return -1 if state in "ZX" else int(fields[18])


def _stat(pid: int) -> tuple[str, list[str]]:
    """Name of a process, and the fields of proc(5) from the third on."""
    head, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    return head.partition("(")[2], rest.split()


def newest_in(system: fs.FileSystem, path: str) -> float | None:
    """Time at which a file, or the newest one in a folder, was written, in seconds since 1970; None if it is not known."""
    infos = [system.get_file_info(path)]
    if infos[0].type == fs.FileType.Directory:
        infos += system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    inner = fsspec_of(system)
    times = [None if info.mtime_ns is None else info.mtime_ns / 1e9 for info in infos]
    files = [_modified(inner, info.path) if inner is not None else time for info, time in zip(infos, times, strict=True) if info.is_file]
    if None in files:
        return None
    return max((time for time in (*files, *times) if time is not None), default=None)


def _modified(inner: Any, path: str) -> float | None:
    try:
        return float(inner.modified(path).timestamp())
    except (OSError, NotImplementedError, AttributeError):
        return None
