"""Staging of a writer's output: in a staging folder of the target, or for a URL in a local folder that is then copied to the URL.

Files appear at the end of a run, one after the other (`kolumn.writers.commit.run`), in the order of `storage.logs_last`: readers ignore an
index without its log.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.source import storage
from kolumn.source.segments import find_segments
from kolumn.writers.commit.run import Commit, commit, discard, new_folder, recover, refuse_existing
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


def parent_of(target: str) -> str:
    """The folder that contains the target of a run with only one target."""
    if storage.is_url(target):
        if not storage.is_url(storage.parent(target)):
            raise ArgumentError(f"{target}: name a folder in it")
        return storage.parent(target)
    if Path(target).name in ("", ".."):
        raise ArgumentError(f"{target}: name a segment file (*.log), or the folder of a topic-partition")
    return str(Path(target).parent)


def refuse_data_folder(target: str, directly: bool = False) -> None:
    """Reject a target folder that contains Kafka segments: it is most likely the last of the sources.

    Parameters
    ----------
    target : str
    directly : bool
        Reject only segments in the folder itself: a log directory may get more topic-partitions.

    Raises
    ------
    ArgumentError
        The folder contains Kafka segments.
    """
    try:
        found = find_segments(target)
    except ArgumentError:
        return
    top = os.path.abspath(target)
    for segment in found:
        if segment.base_offset is not None and (not directly or os.path.dirname(os.path.abspath(segment.path)) == top):
            raise ArgumentError(
                f"{target} contains Kafka segments, such as {segment.path}: is it a source? Name another target, last or with --output"
            )


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
            moves.extend((one, f"{below}{one[len(staged) :]}") for one in send(Path(scratch), staged))

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
