"""Where a run writes what is going to be called something: in its staging folder, for a URL in a folder of this machine that is sent to it.

All names of a run appear together: on this machine by `kolumn.commit.run`, behind a URL by `kolumn.commit.remote`, there one after the
other in the order of `storage.logs_last`: an index without its log is no segment.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from kolumn.commit import remote as remote_commit
from kolumn.commit.leftovers import recover
from kolumn.commit.run import Commit, refuse_existing
from kolumn.commit.staged_file import FILES
from kolumn.errors import ArgumentError, KolumnError
from kolumn.source import storage
from kolumn.source.segments import find_segments

Place = Callable[[str], AbstractContextManager[Path]]
"""From a name to where it has to be written while the context is open: a segment file with its indexes, or a folder of such."""


def name_of(target: str | os.PathLike[str]) -> str:
    """A target as names are made from it."""
    name = storage.plain(os.fspath(target))
    return name.rstrip("/") if storage.is_url(name) else str(Path(name))


@contextmanager
def outgoing(root: str, names: Iterable[str]) -> Iterator[Place]:
    """A run of a writer below a folder, which is made.

    Nothing has its name before the context ends, and nothing is left of one that ends with an error.

    Parameters
    ----------
    root : str
    names : iterable of str
        What may be written: where something is there already, that is known before the work begins.

    Raises
    ------
    ArgumentError
        Something has a name already.
    KolumnError
        It can't be written.
    """
    if storage.is_url(root):
        with _remote(root, names) as place:
            yield place
        return
    with Commit(Path(root)) as commit:
        for name in names:
            refuse_existing(Path(name))
        yield lambda name: nullcontext(commit.place(Path(name)))


def parent_of(target: str) -> str:
    """The folder that a run which writes one thing writes below."""
    if storage.is_url(target):
        if not storage.is_url(storage.parent(target)):
            raise ArgumentError(f"{target}: name a folder in it")
        return storage.parent(target)
    if Path(target).name in ("", ".."):
        raise ArgumentError(f"{target}: name a segment file (*.log), or the folder of a topic-partition")
    return str(Path(target).parent)


def refuse_data_folder(target: str, directly: bool = False) -> None:
    """Refuse a target folder that holds segments of Kafka's, most likely the last of the sources.

    Parameters
    ----------
    target : str
    directly : bool
        Only where they are in the folder itself: a log directory may get more topic-partitions.

    Raises
    ------
    ArgumentError
        It does.
    """
    try:
        found = find_segments(target)
    except ArgumentError:
        return
    top = os.path.abspath(target)
    for segment in found:
        if segment.base_offset is not None and (not directly or os.path.dirname(os.path.abspath(segment.path)) == top):
            raise ArgumentError(
                f"{target} holds segments of Kafka's, like {segment.path}: is it a source? Name a target of its own, last or with --output"
            )


@contextmanager
def _remote(root: str, names: Iterable[str]) -> Iterator[Place]:
    recover(root)
    for name in names:
        there = storage.look(name)
        if there is not None and (not there.is_folder or storage.listing(name)):
            raise ArgumentError(f"{name} is there already: name another target, or remove it")
    folder, moves = remote_commit.new_folder(root), list[tuple[str, str]]()

    @contextmanager
    def place(name: str) -> Iterator[Path]:
        below = storage.parent(name)
        with TemporaryDirectory(prefix="kolumn-") as scratch:
            yield Path(scratch, storage.base_name(name))
            staged = storage.within(folder, FILES, *filter(None, [below[len(root) + 1 :]]))
            moves.extend((one, f"{below}{one[len(staged) :]}") for one in send(Path(scratch), staged))

    try:
        yield place
        remote_commit.commit(root, folder, moves)
    finally:
        remote_commit.discard(folder)


def send(folder: Path, target: str) -> list[str]:
    """Copy the files below a folder to below a URL, all of them, or none where that fails; what they are called there."""
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
