"""`kolumn.tidy`: leftovers of interrupted runs of any writer below a target are completed or removed, and reported."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, KolumnError, shown
from kolumn.core.keywords import known_keywords
from kolumn.source import storage
from kolumn.source.names import is_partition_folder
from kolumn.source.remote import forget
from kolumn.writers.commit.liveness import OLD_HOURS
from kolumn.writers.commit.manifest import FOLDER, ExportTarget
from kolumn.writers.commit.run import settle, staging_folders


@dataclass(frozen=True)
class Leftover:
    """A file or folder that an interrupted run has left.

    Attributes
    ----------
    path : str
        The folder or file, or its URL.
    action : str
        What was done: "completed" (the target is as after that run), "removed" (the run had changed nothing), "undone" (as before a
        run of an earlier version of Kolumn), "left" (the run lives, or may live), "failed" (the leftover could not be handled).
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
    """Complete interrupted runs of any writer, or remove what they staged, in a target and its topic-partition folders.

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
    how = older_than_hours * 3600, dry_run
    return [one for folder in folders for one in (*_runs(folder, *how), *_exports(folder, *how))]


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


def _runs(root: str, old_s: float, dry_run: bool) -> Iterator[Leftover]:
    """Complete, undo or remove the staging folders in a folder."""
    try:
        names = staging_folders(root)
    except KolumnError as error:
        yield Leftover(root, "failed", str(error))
        return
    for name in names:
        try:
            yield Leftover(name, *settle(root, name, old_s, dry_run))
        except FileNotFoundError:
            # Its own run, or another one that tidies, has removed it since the folder was listed.
            continue
        except KolumnError as error:
            yield Leftover(name, "failed", str(error))


def _exports(root: str, old_s: float, dry_run: bool) -> Iterator[Leftover]:
    """Complete or remove the leftovers of exports in a folder."""
    there = storage.look(storage.within(root, FOLDER))
    if there is None or not there.is_folder:
        return
    target = ExportTarget(*storage.file_system(root))
    try:
        with target.alone():
            for name, action, detail in target.settle(old_s, dry_run):
                yield Leftover(storage.within(root, FOLDER, name), action, detail)
    except KolumnError as error:
        lives = isinstance(error.__cause__, BlockingIOError)
        yield Leftover(storage.within(root, FOLDER), *(("left", "an export is writing") if lives else ("failed", str(error))))
