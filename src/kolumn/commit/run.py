"""One run of a writer: all of its files appear when it ends, or no file does, even if it is killed at any moment.

    <root>/.kolumn-<run>.partial/     mode 0700; a hidden folder, which readers ignore
        lock        the run holds it (flock) as long as it lives: a folder whose lock is free is a leftover
        files/…     the files that are written, laid out as below the root
        journal     written before the first file is renamed, removed after the last: lists the files by inode, size and time
        replaced/…  the files that the run replaces or removes

A run that dies before it removes its journal is undone by the next run below the same root: files that match the journal are removed,
and the files that they replaced are restored. The lock, not a process number, shows which run is dead: it works across containers, and
on network file systems that have locks. Without locks it is not known whether a run is dead, and its folder stays.
"""

import errno
import fcntl
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Self

from kolumn.commit.staged_file import FILES, StagedFile, make_folders, open_to_others, sync, writing
from kolumn.errors import ArgumentError, KolumnError, StorageError
from kolumn.source.segments import SIDE_FILES
from kolumn.source.storage import logs_last

REPLACED = "replaced"
REDO = "redo.json"
"""The journal of a run at a URL (`kolumn.commit.remote`); this machine may have the file system of that URL too."""
_LEFTOVER = re.compile(r"\.kolumn-[0-9a-f]{32}\.partial")
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
_TRIES = 100


class Commit:
    """A run that writes below a folder.

    Parameters
    ----------
    root : Path
        Made with the first file, if it does not exist.
    replace : bool
        Whether existing files of the same names are replaced. Otherwise no file is overwritten.

    Raises
    ------
    ArgumentError
        A file of the same name exists already.
    KolumnError
        Files cannot be written or renamed. Nothing has changed below the root then.
    """

    def __init__(self, root: Path, replace: bool = False) -> None:
        self.root, self.replace = root, replace
        self._folder: Path | None = None
        self._lock = -1
        self._made: list[Path] = []
        self._removed: list[Path] = []

    def __enter__(self) -> Self:
        remove_leftovers(self.root)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None and self._folder is not None:
                with writing(self.root):
                    self._publish(self._folder)
                self._made = []
        finally:
            self._discard()

    def place(self, final: Path) -> Path:
        """The path to write to for the file or folder ``final`` below the root; its parent folder is made."""
        leaving = {*self._removed, *(one.parent for one in self._removed)}
        if leaving.isdisjoint((final, *final.parents)):
            refuse_existing(final, self.replace)
        with writing(final):
            staged = self._start() / FILES / final.relative_to(self.root)
            make_folders(staged.parent, 0o700)
        return staged

    def remove(self, final: Path) -> None:
        """Remove a file or a link when the run ends, and its folder, if nothing else is in it."""
        self._removed.append(final)
        with writing(final):
            self._start()

    def _start(self) -> Path:
        if self._folder is None:
            # A failed run removes the folders that it made, if they are empty.
            self._made = make_folders(self.root)
            for made in self._made:
                sync(made.parent)
            self._folder, self._lock = _new_folder(self.root)
            os.mkdir(self._folder / FILES, 0o700)
        return self._folder

    def _publish(self, folder: Path) -> None:
        files = folder / FILES
        for below, _, _ in os.walk(files, topdown=False):
            open_to_others(Path(below))
            sync(below)
        removed = {final: folder / REPLACED / final.relative_to(self.root) for final in self._removed}
        try:
            _write_journal(folder, [str(final.relative_to(self.root)) for final in removed])
            for final, kept in removed.items():
                with writing(final):
                    make_folders(kept.parent, 0o700)
                    os.rename(final, kept)
            moves = list(_moves(files, self.root))
            for staged, final in moves:
                self._move(staged, final, folder / REPLACED / final.relative_to(self.root))
            for emptied in {final.parent for final in removed} - {self.root}:
                with suppress(OSError):
                    os.rmdir(emptied)
            for parent in {self.root, *(final.parent for final in removed), *(final.parent for _, final in moves)}:
                if parent.is_dir():
                    sync(parent)
        except BaseException:
            _undo(folder, self.root)
            raise
        # From here on the run is complete; after a power loss the next run must not find the journal again.
        os.unlink(folder / "journal")
        sync(folder)

    def _move(self, staged: Path, final: Path, kept: Path) -> None:
        with writing(final):
            if staged.is_dir():
                os.rename(staged, final)
            elif self.replace and os.path.lexists(final):
                make_folders(kept.parent, 0o700)
                _second_name(final, kept)
                os.replace(staged, final)
            else:
                _name_new(staged, final)

    def _discard(self) -> None:
        folder, lock, made = self._folder, self._lock, self._made
        self._folder, self._lock, self._made = None, -1, []
        try:
            # If the journal still exists, it could not be undone: the next run tries again.
            if folder is not None and not os.path.lexists(folder / "journal"):
                shutil.rmtree(folder, ignore_errors=True)
            for one in reversed(made):
                with suppress(OSError):
                    os.rmdir(one)
        finally:
            if lock >= 0:
                os.close(lock)


def refuse_existing(final: Path, replace: bool = False) -> None:
    """Reject a name that exists, or that of a segment whose index exists; with ``replace`` only that of a folder.

    Raises
    ------
    ArgumentError
        A file, or a folder that is not empty, exists there.
    """
    if replace:
        if final.is_dir():
            raise ArgumentError(f"{final} is a folder, expected a file: name another target, or remove it")
        return
    names = [final, *(final.with_suffix(suffix) for suffix in SIDE_FILES)] if final.suffix == ".log" else [final]
    for name in names:
        if os.path.lexists(name) and (name.suffix == ".log" or not name.is_dir() or any(name.iterdir())):
            raise ArgumentError(f"{name} already exists: name another target, or remove it")


def leftovers(root: Path) -> list[Path]:
    """Staging folders of runs below a folder, dead or alive; only of runs that write to it as a path of this machine."""
    try:
        with os.scandir(root) as found:
            names = sorted(one.name for one in found if _LEFTOVER.fullmatch(one.name))
    except OSError:
        # Without access, the first file will report the error.
        return []
    return [root / name for name in names if not os.path.lexists(root / name / REDO)]


def remove_leftovers(root: Path) -> None:
    """Undo and remove the leftovers of this user's dead runs below a folder.

    Raises
    ------
    KolumnError
        The files that a run had renamed before it died cannot be undone.
    """
    for folder in leftovers(root):
        settle(folder, root)


def settle(folder: Path, root: Path, dry_run: bool = False) -> tuple[str, str]:
    """Undo and remove the leftovers of a run, if it is dead. Returns the action (with ``dry_run`` the possible one), and a sentence.

    The action is "undone" if files had been renamed, "removed" if no file had been, or "left".

    Raises
    ------
    KolumnError
        As in `remove_leftovers`.
    """
    lock = _claim(folder, dry_run)
    if isinstance(lock, str):
        return "left", lock
    try:
        files, _, removed = _journal(folder, root)
        named = sum(identity is not None and _identity(root / name) == identity for name, identity in files.items())
        gone = sum(os.path.lexists(folder / REPLACED / name) for name in (*files, *removed))
        staged = sum(len(names) for _, _, names in os.walk(folder / FILES))
        if not dry_run:
            _undo(folder, root)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise StorageError(f"{folder}: what an interrupted run left cannot be undone: {error.strerror}: {error.filename}") from error
    finally:
        os.close(lock)
    if named or gone:
        return "undone", f"a killed run had given {named} of {len(files)} files their names and taken {gone} away"
    return "removed", f"a killed run had staged {staged} files and named none"


def _new_folder(root: Path) -> tuple[Path, int]:
    """Make a staging folder; returns it and its lock."""
    for _ in range(_TRIES):
        folder = root / f".kolumn-{uuid.uuid4().hex}.partial"
        os.mkdir(folder, 0o700)
        try:
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            # Here and below: another run has meanwhile removed the empty folder as a leftover.
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        except OSError:
            # The file system has no locks, so no other run can claim the folder either.
            return folder, lock
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(folder / "lock")):
                return folder, lock
        os.close(lock)
    raise StorageError(f"{root}: folders that are made in it disappear at once: another process removes them")


def _claim(folder: Path, dry_run: bool = False) -> int | str:
    """The lock of a folder whose run is dead; otherwise the reason why it is left: its run may live, or it is another user's."""
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            return "another user's, or others can write to it"
        if dry_run and not os.path.lexists(folder / "lock"):
            return os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        lock = os.open(folder / "lock", os.O_RDWR | (0 if dry_run else os.O_CREAT) | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        return f"cannot be looked into: {error.strerror}"
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        return "its run lives" if isinstance(error, BlockingIOError) else "its file system has no locks: its run may be alive"
    return lock


def _moves(staged: Path, final: Path) -> Iterator[tuple[Path, Path]]:
    """Pairs of staged and final names: whole folders if their names are free, otherwise single files, logs after their indexes."""
    with os.scandir(staged) as found:
        entries = sorted(found, key=lambda one: logs_last(one.name))
    for one in entries:
        place = final / one.name
        if one.is_dir() and (place.is_symlink() or (place.is_dir() and any(place.iterdir()))):
            yield from _moves(Path(one.path), place)
        else:
            yield Path(one.path), place


def _name_new(staged: Path, final: Path) -> None:
    """Rename a file without ever replacing another file."""
    try:
        os.link(staged, final)
    except FileExistsError as error:
        raise ArgumentError(f"{final} already exists: another run has made it") from error
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if os.path.lexists(final):
            raise ArgumentError(f"{final} already exists: another run has made it") from error
        os.rename(staged, final)
    else:
        os.unlink(staged)


def _second_name(final: Path, kept: Path) -> None:
    try:
        os.link(final, kept, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        os.rename(final, kept)


def _identity(path: str | Path) -> list[int] | None:
    """Inode, size and time of a file, which a rename does not change; None if there is no file."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns] if stat.S_ISREG(found.st_mode) else None


def _write_journal(folder: Path, removed: list[str]) -> None:
    files: dict[str, Any] = {}
    folders: list[str] = []
    top = folder / FILES
    for below, names, own in os.walk(top):
        folders += [os.path.relpath(os.path.join(below, name), top) for name in names]
        paths = [os.path.join(below, name) for name in own]
        files |= {os.path.relpath(path, top): _identity(path) for path in paths}
    with StagedFile(folder / "journal") as journal:
        journal.write(json.dumps({"files": files, "folders": folders, "removed": removed}).encode())
    sync(folder)


def _undo(folder: Path, root: Path) -> None:
    """Undo the renames of a run according to its journal; a part of that may already have been done."""
    files, folders, removed = _journal(folder, root)
    parents = {(root / name).parent for name in (*files, *removed)}
    for name, identity in files.items():
        final, kept = root / name, folder / REPLACED / name
        ours = identity is not None and _identity(final) == identity
        if os.path.lexists(kept) and name not in removed:
            if ours or not os.path.lexists(final):
                os.replace(kept, final)
        elif ours:
            os.unlink(final)
    for name in reversed(folders):
        if not (folder / FILES / name).exists():
            # A folder that was renamed has this name now; it is removed unless other files were added to it.
            with suppress(OSError):
                os.rmdir(root / name)
    for name in removed:
        final, kept = root / name, folder / REPLACED / name
        if os.path.lexists(kept) and not os.path.lexists(final):
            make_folders(final.parent)
            os.rename(kept, final)
    for parent in parents:
        if parent.is_dir():
            sync(parent)
    (folder / "journal").unlink(missing_ok=True)


def _journal(folder: Path, root: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """The files and folders of a run that was renaming files, and the files that it removed; empty if it had not started.

    Raises
    ------
    KolumnError
        The journal was not written by a run.
    """
    try:
        content = json.loads((folder / "journal").read_bytes())
        files, folders, removed = dict(content["files"]), list(content["folders"]), list(content["removed"])
        names = [PurePosixPath(name) for name in (*files, *folders, *removed)]
    except FileNotFoundError:
        return {}, [], []
    except (ValueError, KeyError, TypeError) as error:
        raise KolumnError(f"{folder / 'journal'}: not a journal of Kolumn: remove {folder} by hand") from error
    for name in names:
        if name.is_absolute() or ".." in name.parts:
            raise KolumnError(f"{folder / 'journal'}: {str(name)!r} does not lie below {root}: remove {folder} by hand")
    return files, folders, removed
