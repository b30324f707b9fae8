"""Runs of writers: all files of a run get their names when it ends, or no file does, even if the run is killed at any moment.

    <root>/.kolumn-<run>.partial/          staging folder, which readers ignore; on this machine with mode 0700
    <root>/.kolumn-<job>.<run>.partial/    that of a Spark job, into which many processes write
        lock, owner     on this machine they show whether the run is alive (`kolumn.writers.commit.liveness`)
        files/…         the files that are written, laid out as below the root; a job has a folder for each attempt of a task instead
        redo.json       the journal, written when all files are complete: which file gets which name, and which older files are removed
    <root>/.kolumn-streams/<stream>.json   the last epoch that a stream of Spark has committed; it moves with the epoch's files

Before there is a journal only this folder has changed, and a later run removes it. From then on the run is only completed, by itself or by
a later run: files get their names, older files are removed, then the journal, then the folder. Each of these steps can be repeated. A run
that fails takes its names back, unless it replaces older files, which are not kept.

Others may be able to write to a target. Therefore on this machine a staging folder has to be the user's own, and no other user may be able
to write to it. At a URL a journal may only rename a run's own files to names of files of a topic-partition, or of a stream's epoch, and
remove those.
"""

import errno
import json
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from kolumn.core.amounts import age
from kolumn.core.errors import ArgumentError, KolumnError, StorageError, shown
from kolumn.source import storage
from kolumn.source.names import LOG, MANIFEST
from kolumn.source.segments import SIDE_FILES
from kolumn.source.side_files import CHECKPOINT, METADATA
from kolumn.source.storage import forget
from kolumn.source.tier_manifest import INDEX_NAMES
from kolumn.writers.commit.liveness import NO_LOCKS, OLD_HOURS, claimed, hold, is_foreign, newest_in, owner_lives
from kolumn.writers.commit.staged_file import FILES, StagedFile, make_folders, sync, writing

_JOURNAL = "redo.json"
_EARLIER = "journal"  # journal of Kolumn versions that undid killed runs on this machine. It lists their files by inode, size and time
_REMOVED = ".removed"
_RUN = r"\.kolumn-[0-9a-f]{32}\.partial"
_JOB = r"\.kolumn-[a-z]+\.[0-9a-f]{32}\.partial"
_BESIDE = (CHECKPOINT, METADATA)
_SEGMENT = rf"(?:[^/]+(?:{'|'.join(map(re.escape, (LOG, *SIDE_FILES)))})|{'|'.join(map(re.escape, _BESIDE))})"
_NAME = r"(?!\.{1,2}/|\.kolumn-)[^/]+/"
STREAMS = ".kolumn-streams"
_EPOCH = r"[0-9a-f-]{36}\.json"
_OF_TIER = rf"{_NAME}(?:[0-9]{{1,10}}(?:_[0-9]+)?/)?[^/]+(?:{'|'.join(map(re.escape, (LOG, *INDEX_NAMES.values(), '.indexes', MANIFEST)))})"
_STAGED = re.compile(rf"(?:{FILES}|[0-9a-f]{{32}})/(?:(?:{_NAME})?{_SEGMENT}|{_OF_TIER}|{_EPOCH})", re.DOTALL)
_FINAL = re.compile(rf"(?:{_NAME})?{_SEGMENT}|{_OF_TIER}|{re.escape(STREAMS)}/{_EPOCH}", re.DOTALL)
_GONE = re.compile(rf"{_NAME}{_SEGMENT}|{re.escape(STREAMS)}/{_EPOCH}", re.DOTALL)
_INSIDE = re.compile(r"(?!/)(?!(?:.*/)?\.\.(?:/|$)).+", re.DOTALL)  # a relative path that does not leave its folder
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
_VERSION = 1
_BLOCK = 8 << 20
_TRIES = 100

logger = logging.getLogger("kolumn")


class _Journal(NamedTuple):
    """The final names, below the root, of staged files, below the staging folder, and names of files that are removed or replaced."""

    moves: dict[str, str]
    gone: list[str]


class Commit:
    """A run that writes below a folder of this machine, which is made with the first file. Its end raises errors as `commit` does. Only
    with ``replace`` are files of the same names replaced."""

    def __init__(self, root: Path, replace: bool = False) -> None:
        self.root, self.replace = root, replace
        self._folder: Path | None = None
        self._lock = -1
        self._made: list[Path] = []
        self._removed: list[Path] = []

    def __enter__(self) -> Self:
        recover(str(self.root))
        return self

    def __exit__(self, failed: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if failed is None and self._folder is not None:
                self._publish(self._folder)
        finally:
            folder, lock, made = self._folder, self._lock, self._made
            self._folder, self._lock, self._made = None, -1, []
            try:
                if folder is not None:
                    discard(str(folder))
                for parent in reversed(made):
                    with suppress(OSError):
                        os.rmdir(parent)
            finally:
                if lock >= 0:
                    os.close(lock)

    def place(self, final: Path) -> Path:
        """The path to write to for the file or folder ``final`` below the root; its parent folder is made."""
        leaving = {*self._removed, *(path.parent for path in self._removed)}
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
            for _ in range(_TRIES):
                folder = Path(new_folder(str(self.root)))
                os.mkdir(folder, 0o700)
                # Until its lock is held, another run may take it for a leftover and remove it.
                with suppress(FileNotFoundError, BlockingIOError):
                    self._folder, self._lock = folder, hold(folder)
                    break
            else:
                raise StorageError(f"{self.root}: folders that are made in it disappear at once: another process removes them")
            os.mkdir(folder / FILES, 0o700)
        return self._folder

    def _publish(self, folder: Path) -> None:
        folders, moves = list[Path](), list[tuple[str, str]]()
        for below, _, names in os.walk(folder / FILES):
            folders.append(self.root / os.path.relpath(below, folder / FILES))
            moves += [(os.path.join(below, name), str(folders[-1] / name)) for name in names]
        moves.sort(key=lambda move: storage.logs_last(move[1]))
        replaced = [final for _, final in moves if self.replace and os.path.lexists(final)]
        commit(str(self.root), str(folder), moves, [*map(str, self._removed), *replaced])
        with writing(self.root):
            # A folder without records has no file that would make it.
            for final in folders:
                make_folders(final)
        self._made = []


def refuse_existing(final: Path, replace: bool = False) -> None:
    """Raise `ArgumentError` if a file, an index of the segment or a folder with contents exists; with ``replace`` only for a folder."""
    if replace:
        if final.is_dir():
            raise ArgumentError(f"{final} is a folder, expected a file: name another target, or remove it")
        return
    names = [final, *(final.with_suffix(suffix) for suffix in SIDE_FILES)] if final.suffix == ".log" else [final]
    for name in names:
        if os.path.lexists(name) and (name.suffix == ".log" or not name.is_dir() or any(name.iterdir())):
            raise ArgumentError(f"{name} already exists: name another target, or remove it")


def new_folder(root: str, job: str = "", number: str = "") -> str:
    """Name of a staging folder below a root, for a job of this name; without a ``number`` of 32 hexadecimal digits no other run has it.
    The folder is not made: object stores have no empty folders."""
    return storage.within(root, f".kolumn-{f'{job}.' if job else ''}{number or uuid.uuid4().hex}.partial")


# Each function from here on takes the names of the root and of the run's staging folder in it, paths or URLs.


def commit(root: str, folder: str, moves: list[tuple[str, str]], gone: Iterable[str] = ()) -> None:
    """Rename staged files to their final names, in this order, and remove the files ``gone``, unless they are replaced.

    Raises `ArgumentError` if a file of one of these names exists already, and `KolumnError` if a file cannot be moved or removed. Nothing
    has changed then, except if files are removed or replaced: from the journal on, the next run below the same root continues.
    """
    finals = [final for _, final in moves]
    journal = _Journal({_below(folder, staged): _below(root, final) for staged, final in moves}, [_below(root, name) for name in gone])
    for parent in {storage.parent(final) for final in finals}:
        there = storage.look(parent)
        if there is not None and not there.is_folder:
            raise StorageError(f"{parent}: cannot be written: it is a file, expected a folder")
    replaced = set(journal.gone)
    for name, final in zip(journal.moves.values(), finals, strict=True):
        # A link to a folder may be replaced by a folder.
        if replaced.isdisjoint((name, storage.parent(name))) and _exists(final):
            raise ArgumentError(f"{final} already exists: another run has made it")
    if not moves and not replaced:
        return
    new = [path for path in _folders(root, finals) if not path.is_dir()]
    try:
        _write(root, folder, journal)
        _forward(root, folder, journal)
    except BaseException as error:
        is_over = withdraw(root, folder)
        for path in reversed(new):
            with suppress(OSError):
                path.rmdir()
        if isinstance(error, KolumnError) and not is_over and replaced:
            raise KolumnError(f"{error}. What replaces older files goes on with the next run below {root}, or with kolumn tidy") from error
        raise


def pending(folder: str) -> bool:
    if storage.is_url(folder):
        forget(storage.file_system(folder)[0])
    return _exists(storage.within(folder, _JOURNAL))


def withdraw(root: str, folder: str) -> bool:
    """Move the files of a failed run back to its folder; returns whether all are. If it replaces older files, a later run completes it."""
    with suppress(KolumnError):
        if not pending(folder):
            return True
        journal = _read(folder)
        if journal.gone:
            return False
        # If this process is killed here, the journal is still complete, and the next run carries it out.
        for staged, final in reversed(journal.moves.items()):
            draft, path = storage.within(folder, staged), storage.within(root, final)
            if _exists(path) and (not _exists(draft) or _same(draft, path)):
                _name(path, draft, replaces=False)
        storage.remove(storage.within(folder, _JOURNAL))
        return True
    return False


def discard(folder: str) -> None:
    """Remove a staging folder as far as possible, unless it still has a journal, which a later run needs. The folder of a job on this
    machine is renamed first: Spark may stop the tasks of a failed job later, and they cannot make more files under the old name."""
    with suppress(KolumnError):
        if pending(folder):
            return
        if storage.is_url(folder):
            storage.remove(folder)
            return
        doomed = f"{folder}{_REMOVED}" if re.fullmatch(_JOB, os.path.basename(folder)) else folder
        # One whose removal was interrupted may have the name.
        for _ in range(2 if os.path.lexists(doomed) and doomed != folder else 1):
            with suppress(OSError):
                os.replace(folder, doomed)
            shutil.rmtree(doomed, ignore_errors=True)


def _write(root: str, folder: str, journal: _Journal) -> None:
    data = json.dumps({"version": _VERSION, **journal._asdict()}, indent=1).encode()
    if storage.is_url(folder):
        storage.put(storage.within(folder, _JOURNAL), data)
        return
    with writing(root):
        for path in _folders(root, [os.path.join(folder, staged) for staged in journal.moves]):
            sync(path)
    with StagedFile(Path(folder, _JOURNAL)) as file:
        file.write(data)


def _read(folder: str) -> _Journal:
    """The journal of a run, after a check: anyone with write access to the target could have put it there."""
    name = storage.within(folder, _JOURNAL)
    known_names = (_STAGED, _FINAL, _GONE) if storage.is_url(folder) else (_INSIDE, _INSIDE, _INSIDE)
    try:
        content = json.loads(storage.read_bytes(name) or b"")
        version, journal = content["version"], _Journal(dict(content["moves"]), list(content["gone"]))
        names = zip(known_names, (journal.moves, journal.moves.values(), journal.gone), strict=True)
        wrong = [path for known, some in names for path in some if not known.fullmatch(path)]
        wrong += [staged for staged, final in journal.moves.items() if storage.base_name(staged) != storage.base_name(final)]
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        wrong, version = [f"{type(error).__name__}: {error}"], _VERSION
    if version != _VERSION:
        raise KolumnError(f"{name} has version {version}, this Kolumn knows {_VERSION}: update it")
    if wrong:
        raise _planted(name, wrong)
    return journal


def _planted(name: object, wrong: list[str]) -> KolumnError:
    return KolumnError(f"{name}: Kolumn did not write the entry {wrong[0]!r}. Nothing was moved. Find out who put it there, and remove it")


def _forward(root: str, folder: str, journal: _Journal) -> None:
    """Carry out a journal. Every step may already have been done, or may be done by another run at the same time."""
    local = not storage.is_url(root)
    moves = {storage.within(folder, staged): storage.within(root, final) for staged, final in journal.moves.items()}
    gone = {storage.within(root, name) for name in journal.gone}
    with writing(root):
        if local:
            sync(folder)
        for name in gone if local else ():
            # What replaces a folder's link must not get into the folder that it leads to.
            if os.path.islink(name):
                os.unlink(name)
        for staged, final in moves.items():
            _name(staged, final, final in gone)
        for name in gone - set(moves.values()):
            if not pending(folder):
                # Another run has completed this journal, and a file of this name may be newer by now.
                return
            there = storage.look(name)
            if there is not None and not there.is_folder:
                storage.remove(name)
        if local:
            for emptied in {os.path.dirname(name) for name in gone} - {root}:
                with suppress(OSError):
                    os.rmdir(emptied)
            for path in _folders(root, [*moves.values(), *gone]):
                if path.is_dir():
                    sync(path)
        storage.remove(storage.within(folder, _JOURNAL))
        if local:
            # A journal that a loss of power brings back would remove files that later runs have made.
            with suppress(OSError):
                sync(folder)


def _name(staged: str, final: str, replaces: bool) -> None:
    try:
        if not _exists(staged) and _exists(final):
            return
        if replaces or not _exists(final):
            storage.make_folder(storage.parent(final))
            _move(staged, final, replaces)
        elif _same(staged, final):
            storage.remove(staged)
        else:
            raise KolumnError(f"{final} already exists with other contents than {staged}: another run has made it. Remove one of the two")
    except KolumnError:
        if _exists(staged):
            raise
        # Another run may have renamed it meanwhile.
        if not _exists(final):
            raise StorageError(f"{final}: cannot be written: {staged} no longer exists: it was removed") from None


def _move(staged: str, final: str, replaces: bool) -> None:
    """Rename a file; on this machine only ``replaces`` takes the name from another file."""
    if storage.is_url(final):
        storage.move(staged, final)
        return
    with writing(final):
        if replaces:
            os.replace(staged, final)
            return
        try:
            os.link(staged, final)
        except OSError as error:
            if os.path.lexists(final):
                raise ArgumentError(f"{final} already exists: another run has made it") from error
            if error.errno not in _NO_LINKS:
                raise
            os.rename(staged, final)
        else:
            os.unlink(staged)


def _exists(name: str) -> bool:
    return storage.look(name) is not None if storage.is_url(name) else os.path.lexists(name)


def _same(left: str, right: str) -> bool:
    """Whether two files have the same bytes: if moving means copying and removing, a killed run leaves both."""
    here, there = storage.look(left), storage.look(right)
    if here is None or there is None or here.is_folder or there.is_folder or here.size != there.size:
        return False
    with storage.open_input(left) as first, storage.open_input(right) as second:
        while data := first.read(_BLOCK):
            if data != second.read(_BLOCK):
                return False
    return True


def _folders(root: str, names: Iterable[str]) -> list[Path]:
    """The folders of this machine that contain the named files, from the root downwards, outermost first; none for a URL."""
    if storage.is_url(root):
        return []
    return sorted({folder for name in names for folder in Path(name).parents if folder.is_relative_to(root)})


def _below(root: str, name: str) -> str:
    if not storage.is_url(root):
        return os.path.relpath(name, root)
    top, whole = (re.sub(r"(?<=[^:/])/{2,}", "/", path) for path in (root, name))
    assert whole.startswith(f"{top}/")
    return whole[len(top) + 1 :]


def recover(root: str, own: str = "") -> None:
    """Complete or remove what interrupted runs left in a folder, except ``own``, the staging folder of this run.

    Raises `KolumnError` if an interrupted run cannot be completed.
    """
    names: list[str] = []
    # Without access, the run's first file will report the error.
    with suppress(KolumnError):
        names = staging_folders(root)
    for name in names:
        if name != own:
            with suppress(FileNotFoundError):
                settle(root, name)


def staging_folders(root: str) -> list[str]:
    """Names of the staging folders in a folder. Raises `KolumnError` if it cannot be listed."""
    if storage.is_url(root):
        forget(storage.file_system(root)[0])
    there = storage.look(root)
    names = [inner.name for inner in storage.listing(root) if inner.is_folder] if there is not None and there.is_folder else []
    return [name for name in names if re.fullmatch(rf"{_RUN}|{_JOB}(?:{re.escape(_REMOVED)})?", storage.base_name(name))]


def settle(root: str, folder: str, old_s: float = OLD_HOURS * 3600, dry_run: bool = False) -> tuple[str, str]:
    """Complete a run that was interrupted in its commit, or remove the staged files of a dead run.

    Returns the action as in `kolumn.writers.outgoing.Leftover`, and a sentence. With ``dry_run`` nothing is changed. Raises
    `KolumnError` if a run cannot be completed, and `FileNotFoundError` if another process has removed the folder meanwhile.
    """
    if storage.is_url(folder):
        if pending(folder):
            return _complete(root, folder, dry_run)
        done = _by_age(folder, old_s)
        if done[0] == "removed" and not dry_run:
            storage.remove(folder)
        return done
    path = Path(folder)
    if is_foreign(path):
        return "left", "another user's, or others can write to it"
    is_job = re.fullmatch(_RUN, path.name) is None
    alive = owner_lives(path) if is_job and not path.name.endswith(_REMOVED) else False
    done = _by_age(folder, old_s) if alive is None else ("removed", f"staged files of a {'Spark job' if is_job else 'run'} that is dead")
    done = ("left", "its job lives") if alive else done
    if done[0] == "left" and not pending(folder):
        return done
    with claimed(path, dry_run) as reason:
        if reason and not (reason == NO_LOCKS and (is_job or pending(folder))):
            return "left", reason
        if pending(folder):
            return _complete(root, folder, dry_run)
        if os.path.lexists(path / _EARLIER):
            done = "undone", "a run of an earlier version of Kolumn was killed while it gave its files their names"
            if not dry_run:
                _undo(Path(root), path)
        if done[0] != "left" and not dry_run:
            discard(folder)
    return done


def _complete(root: str, folder: str, dry_run: bool) -> tuple[str, str]:
    journal = _Journal({}, [])
    try:
        journal = _read(folder)
        if not dry_run:
            logger.warning("%s: a run was interrupted in its commit; completing it", shown(folder))
            _forward(root, folder, journal)
    except KolumnError:
        # Without a journal, its run lives and has finished meanwhile.
        if pending(folder):
            raise
    if not dry_run:
        discard(folder)
    return "completed", f"a run was interrupted while it gave {len(journal.moves)} files their names"


def _by_age(folder: str, old_s: float) -> tuple[str, str]:
    newest = newest_in(*storage.file_system(folder))
    if newest is None:
        return "left", "staged files of a run; nothing tells how old they are. Remove them when no run writes to the target"
    age_s = time.time() - newest
    detail = f"staged files of a run, the newest {age(1000 * max(0.0, age_s))} old"
    return ("removed", detail) if age_s >= old_s else ("left", f"{detail}: it may still run. After {age(1000 * old_s)} they are removed")


def _undo(root: Path, folder: Path) -> None:
    """Carry out the journal of an earlier version: the run's files lose their names, and those that it replaced get theirs back."""
    name = folder / _EARLIER
    try:
        content = json.loads(name.read_bytes())
        files, folders, removed = dict(content["files"]), list(content["folders"]), list(content["removed"])
        wrong = [path for path in (*files, *folders, *removed) if not _INSIDE.fullmatch(path)]
    except (ValueError, KeyError, TypeError) as error:
        wrong = [f"{type(error).__name__}: {error}"]
    if wrong:
        raise _planted(name, wrong)
    with writing(root):
        for file, identity in files.items():
            with suppress(FileNotFoundError, NotADirectoryError):
                now = os.lstat(root / file)
                if [now.st_ino, now.st_size, now.st_mtime_ns] == identity:
                    os.unlink(root / file)
        for kept in sorted((folder / "replaced").rglob("*")):
            final = root / kept.relative_to(folder / "replaced")
            if (kept.is_symlink() or not kept.is_dir()) and not os.path.lexists(final):
                make_folders(final.parent)
                os.rename(kept, final)
        for below in reversed(folders):
            if not (folder / FILES / below).exists():
                with suppress(OSError):
                    os.rmdir(root / below)
        name.unlink()
