"""Where to write what is going to be called something: there, or for a URL in a folder of this machine, from which it is sent.

What is sent appears in the order of `storage.logs_last`: an index without its log is no segment.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from kolumn import storage
from kolumn.encode.segments import make_parent
from kolumn.errors import ArgumentError, KolumnError


def name_of(target: str | os.PathLike[str]) -> str:
    """A target as names are made from it."""
    name = storage.plain(os.fspath(target))
    return name.rstrip("/") if storage.is_url(name) else str(Path(name))


@contextmanager
def outgoing(target: str) -> Iterator[Path]:
    """Path to write a target to, a segment file with its indexes or a folder of such; the folder that it is in is made.

    Of a URL nothing is there before all is written, and nothing stays there that was not sent whole.

    Raises
    ------
    ArgumentError
        Something is there already, behind a URL. (`SegmentFiles` looks at paths.)
    KolumnError
        It can't be written.
    """
    if not storage.is_url(target):
        yield make_parent(Path(target))
        return
    if not storage.is_url(storage.parent(target)):
        raise ArgumentError(f"{target}: name a folder in it")
    there = storage.look(target)
    if there is not None and (not there.is_folder or storage.listing(target)):
        raise ArgumentError(f"{target} is there already: name another target, or remove it")
    with TemporaryDirectory(prefix="kolumn-") as folder:
        place = Path(folder, storage.base_name(target))
        yield place
        send(Path(folder), storage.parent(target))


def send(folder: Path, target: str) -> None:
    """Copy the files below a folder to below a URL: all of them, or none where that fails."""
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
