"""Leftovers of interrupted runs of any writer below a target are found, completed or undone, and reported.

.kolumn-<run>.partial          on this machine (`kolumn.commit.run`): undone; its lock tells whether the run is dead
.kolumn-<run>.partial          at a URL (`kolumn.commit.remote`): completed if it has a journal, removed when it is old
.kolumn-<job>.<run>.partial    of a Spark job: here its owner (`kolumn.commit.job_owner`) shows whether it is dead; at a URL as above
_kolumn/                       of an export (`kolumn.commit.manifest`): intents are completed; staged files are removed
"""

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyarrow.fs import FileSystem

from kolumn import keywords
from kolumn.commit import job_owner
from kolumn.commit import remote as remote_commit
from kolumn.commit import run as commit
from kolumn.commit.age import newest_in
from kolumn.commit.manifest import FOLDER, ExportTarget
from kolumn.commit.remote import OLD_HOURS
from kolumn.errors import ArgumentError, KolumnError, shown
from kolumn.keywords import known_keywords
from kolumn.source import storage
from kolumn.source.fsspec_files import forget
from kolumn.source.log_names import is_partition_folder

_REMOVED = ".removed"
_JOB = re.compile(r"\.kolumn-[a-z]+\.[0-9a-f]{32}\.partial(?:\.removed)?")


@dataclass(frozen=True)
class Leftover:
    """A file or folder that an interrupted run has left.

    Attributes
    ----------
    path : str
        The folder or file, or its URL.
    action : str
        What was done: "undone" (the target is as before that run), "completed" (as after it), "removed" (the run had changed
        nothing), "left" (the run lives, or may live), "failed" (the leftover could not be handled).
    detail : str
        A description of the leftover, or the reason why it is left.
    """

    path: str
    action: str
    detail: str

    def __str__(self) -> str:
        return f"{self.action}: {shown(self.path)}: {self.detail}"


@known_keywords()
def tidy(target: keywords.Path, *, older_than_hours: float = OLD_HOURS, dry_run: bool = False) -> list[Leftover]:
    """Complete or undo interrupted runs of any writer in a target, and in the topic-partition folders in it.

    Only folders and files that Kolumn's writers make are changed. Files of a run that lives, or may live, are left.

    Parameters
    ----------
    target : str or PathLike
        The target of the writer, a path or URL. For the folder of a topic-partition, or a segment file, its parent folder is tidied
        too: a run stages its files there.
    older_than_hours : float
        The age from which staged files are leftovers if no lock and no process shows it: at URLs, and for Spark jobs whose driver
        was on another machine.
    dry_run : bool
        Only report what would be done.

    Returns
    -------
    list of Leftover
        Empty if there is nothing to tidy.

    Raises
    ------
    ArgumentError
        The target is a path that does not exist, or the age is negative. (At a URL, a folder without files does not exist.)
    """
    if older_than_hours < 0:
        raise ArgumentError(f"older_than_hours={older_than_hours}: expected at least 0")
    root = storage.plain(os.fspath(target))
    root = root.rstrip("/") if storage.is_url(root) else str(Path(root))
    forget(storage.file_system(root)[0])
    folders = list(_folders(root))
    if not folders and not storage.is_url(root):
        raise ArgumentError(f"{root}: no such folder")
    how = _How(older_than_hours * 3600, dry_run)
    return [one for folder in folders for one in (*how.runs(folder), *how.exports(folder))]


def recover(root: str, own: str = "") -> None:
    """Tidy one folder before a Spark job, or a run at a URL, begins; exports are not tidied.

    Parameters
    ----------
    root : str
    own : str
        The staging folder of this run.

    Raises
    ------
    KolumnError
        An interrupted run cannot be completed or undone.
    """
    forget(storage.file_system(root)[0])
    for _ in _How(OLD_HOURS * 3600, dry_run=False, strict=True, own=own).runs(root):
        pass


def _folders(root: str) -> Iterator[str]:
    """Folders with possible leftovers: a target and its topic-partitions; the parent, if the target is a topic-partition or a segment."""
    name = storage.base_name(root if storage.is_url(root) else os.path.abspath(root))
    above = storage.parent(root) if storage.is_url(root) else os.path.dirname(root) or "."
    if (name.endswith(".log") or is_partition_folder(name)) and (not storage.is_url(root) or storage.is_url(above)):
        there = storage.look(above)
        if there is not None and there.is_folder:
            yield above
    there = storage.look(root)
    if there is None or not there.is_folder:
        return
    yield root
    for one in storage.listing(root):
        if one.is_folder and is_partition_folder(one.name) and not os.path.islink(one.name):
            yield one.name


@dataclass(frozen=True)
class _How:
    """How leftovers are handled: seconds after which they are old, whether nothing is changed, and whether a failure is raised."""

    old: float
    dry_run: bool
    strict: bool = False
    own: str = ""

    def runs(self, root: str) -> Iterator[Leftover]:
        """Complete, undo or remove the staging folders in a folder."""
        try:
            names = [one.name for one in storage.listing(root) if one.is_folder] if storage.look(root) is not None else []
        except KolumnError as error:
            names = []
            # Without access, the run's first file will report the error.
            if not self.strict:
                yield Leftover(root, "failed", str(error))
        for name in names:
            base = storage.base_name(name)
            if name == self.own or not (remote_commit.FOLDER.fullmatch(base) or _JOB.fullmatch(base)):
                continue
            try:
                done = self._run(root, name)
            except FileNotFoundError:
                # Its own run, or another one that tidies, has removed it since the folder was listed.
                continue
            except KolumnError as error:
                if self.strict:
                    raise
                done = "failed", str(error)
            yield Leftover(name, *done)

    def _run(self, root: str, name: str) -> tuple[str, str]:
        if storage.is_url(name):
            return self._remote(root, name)
        if os.path.lexists(os.path.join(name, commit.REDO)):
            return "left", f"a job wrote to a URL of this folder and was interrupted in its commit: tidy that URL, not {root}"
        if _JOB.fullmatch(os.path.basename(name)):
            return self._job(Path(name))
        return commit.settle(Path(name), Path(root), self.dry_run)

    def _remote(self, root: str, name: str) -> tuple[str, str]:
        if remote_commit.pending(name):
            moves = len(remote_commit.read(name)["moves"]) if self.dry_run else remote_commit.complete(root, name)
            if not self.dry_run:
                remote_commit.discard(name)
            return "completed", f"a run was interrupted while it gave {moves} files their names"
        done = self._by_age(*storage.file_system(name))
        if done[0] == "removed" and not self.dry_run:
            storage.remove(name)
        return done

    def _job(self, folder: Path) -> tuple[str, str]:
        found = os.lstat(folder)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022 or not stat.S_ISDIR(found.st_mode):
            return "left", "another user's, or others can write to it"
        alive = None if folder.name.endswith(_REMOVED) else job_owner.lives(folder)
        if alive:
            return "left", "its job lives"
        done = "removed", "staged files of a Spark job that is dead"
        if alive is None and not folder.name.endswith(_REMOVED):
            done = self._by_age(*storage.file_system(str(folder)))
        if done[0] == "removed" and not self.dry_run:
            remove_staging(folder)
        return done

    def _by_age(self, system: FileSystem, path: str) -> tuple[str, str]:
        newest = newest_in(system, path)
        if newest is None:
            return "left", "staged files of a run; nothing tells how old they are. Remove them when no run writes to the target"
        age = time.time() - newest
        if age < self.old:
            return "left", f"staged files of a run, the newest {_span(age)} old: it may still run. After {_span(self.old)} they are removed"
        return "removed", f"staged files of a run, the newest {_span(age)} old"

    def exports(self, root: str) -> Iterator[Leftover]:
        """Complete or remove the leftovers of exports in a folder."""
        there = storage.look(storage.within(root, FOLDER))
        if there is None or not there.is_folder:
            return
        target = ExportTarget(*storage.file_system(root))
        try:
            with target.alone():
                for name, action, detail in target.settle(self.old, self.dry_run):
                    yield Leftover(storage.within(root, FOLDER, name), action, detail)
        except KolumnError as error:
            lives = isinstance(error.__cause__, BlockingIOError)
            yield Leftover(storage.within(root, FOLDER), *(("left", "an export is writing") if lives else ("failed", str(error))))


def remove_staging(folder: Path) -> None:
    """Remove the staging folder of a job.

    It is renamed first: Spark may stop the tasks of a failed job later, and they cannot make more files under the old name.
    """
    doomed = folder if folder.name.endswith(_REMOVED) else folder.with_name(f"{folder.name}{_REMOVED}")
    with suppress(OSError):
        folder.replace(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _span(seconds: float) -> str:
    seconds = max(0.0, seconds)
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
