"""Staging of a writer's output: in a staging folder of the target, or for a URL in a local folder that is then copied to the URL.

Files appear at the end of a run, one after the other (`kolumn.writers.commit.run`), in the order of `storage.logs_last`: readers ignore an
index without its log. `kolumn.tidy` completes or removes what interrupted runs of any writer left below a target.
"""

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, KolumnError, shown
from kolumn.core.keywords import known_keywords
from kolumn.source import storage
from kolumn.source.names import is_partition_folder
from kolumn.source.segments import find_segments
from kolumn.source.storage import forget
from kolumn.writers.commit.liveness import OLD_HOURS
from kolumn.writers.commit.run import Commit, commit, discard, new_folder, recover, refuse_existing, settle, staging_folders
from kolumn.writers.commit.staged_file import FILES

Place = Callable[[str], AbstractContextManager[Path]]
"""From a final name to the path to write to while the context is open: a segment file with its indexes, or a folder of segments."""


def name_of(target: str | os.PathLike[str]) -> str:
    """A target in the form from which names are made."""
    name = storage.plain(os.fspath(target))
    return name.rstrip("/") if storage.is_url(name) else str(Path(name))


@contextmanager
def outgoing(root: str, names: Iterable[str]) -> Iterator[Place]:
    """Run a writer below a folder; the folder is made if it does not exist.

    No file has its final name before the context ends. If it ends with an error, no file is left. Raises `ArgumentError` at the start if
    one of the names, of files or folders that may be written, exists already.
    """
    if storage.is_url(root):
        with _remote(root, names) as place:
            yield place
        return
    with Commit(Path(root)) as run:
        for name in names:
            refuse_existing(Path(name))
        yield lambda name: nullcontext(run.place(Path(name)))


@contextmanager
def _remote(root: str, names: Iterable[str]) -> Iterator[Place]:
    recover(root)
    for name in names:
        there = storage.look(name)
        if there is not None and (not there.is_folder or storage.listing(name)):
            raise ArgumentError(f"{name} already exists: name another target, or remove it")
    folder, moves = new_folder(root), list[tuple[str, str]]()

    @contextmanager
    def place(name: str) -> Iterator[Path]:
        below = storage.parent(name)
        with TemporaryDirectory(prefix="kolumn-") as scratch:
            yield Path(scratch, storage.base_name(name))
            staged = storage.within(folder, FILES, *filter(None, [below[len(root) + 1 :]]))
            moves.extend((file, f"{below}{file[len(staged) :]}") for file in send(Path(scratch), staged))

    try:
        yield place
        commit(root, folder, moves)
    finally:
        discard(folder)


def send(folder: Path, target: str) -> list[str]:
    """Copy the files below a folder to a URL; if that fails, no file is left there. Returns their names at the URL."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    sent: list[str] = []
    try:
        for path in sorted(files, key=lambda path: storage.logs_last(str(path))):
            sent.append(f"{target}/{path.relative_to(folder).as_posix()}")
            storage.send(str(path), sent[-1])
    except BaseException:
        for name in sent:
            with suppress(KolumnError):
                storage.remove(name)
        raise
    return sent


def parent_of(target: str) -> str:
    """The folder that contains the target of a run with only one target."""
    if storage.is_url(target):
        if not storage.is_url(storage.parent(target)):
            raise ArgumentError(f"{target}: name a folder in it")
        return storage.parent(target)
    if Path(target).name in ("", ".."):
        raise ArgumentError(f"{target}: name a segment file (*.log), or the folder of a topic-partition")
    return str(Path(target).parent)


def refuse_data_folder(target: str, directly: bool = False, advice: str = "Name another target, last or with --output") -> None:
    """Raise `ArgumentError` for a target folder that contains Kafka segments: it is most likely the last of the sources. With ``directly``
    only segments in the folder itself count: a log directory may get more topic-partitions."""
    # No folder below is listed then, of which a home directory may have many.
    logs = filter(os.path.isfile, glob.glob(os.path.join(glob.escape(target), "*.log")))
    try:
        segments = find_segments(list(logs) if directly and not storage.is_url(target) else target)
    except ArgumentError:
        return
    top = os.path.abspath(target)
    for segment in segments:
        if segment.base_offset is not None and (not directly or os.path.dirname(os.path.abspath(segment.path)) == top):
            raise ArgumentError(f"{target} contains Kafka segments, such as {segment.path}: is it a source? {advice}")


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
    root = name_of(target)
    forget(storage.file_system(root)[0])
    folders = list(_folders(root))
    if not folders and not storage.is_url(root):
        raise ArgumentError(f"{root}: no such folder")
    how = older_than_hours * 3600, dry_run
    return [leftover for folder in folders for leftover in _runs(folder, *how)]


def _folders(root: str) -> Iterator[str]:
    """Folders with possible leftovers: a target and its topic-partitions; the parent, if the target is a topic-partition or a segment."""
    is_url = storage.is_url(root)
    name = storage.base_name(root if is_url else os.path.abspath(root))
    above = storage.parent(root) if is_url else os.path.dirname(root) or "."
    if (name.endswith(".log") or is_partition_folder(name)) and (not is_url or storage.is_url(above)) and _is_folder(above):
        yield above
    if _is_folder(root):
        yield root
        for inner in storage.listing(root):
            if inner.is_folder and is_partition_folder(inner.name) and not os.path.islink(inner.name):
                yield inner.name


def _is_folder(name: str) -> bool:
    there = storage.look(name)
    return there is not None and there.is_folder


def _runs(root: str, old_s: float, dry_run: bool) -> Iterator[Leftover]:
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
