"""A folder for files that tasks have written, until the driver moves them to their places; it is on the file system of the target."""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from kolumn.source import storage
from kolumn.writers.commit.liveness import WAIT_S, hold, write_owner
from kolumn.writers.commit.run import commit, discard, new_folder
from kolumn.writers.commit.staged_file import make_folders, writing
from kolumn.writers.outgoing import send


class Staging:
    """One job's folder below a target, a path or URL. Its name is not that of a topic-partition, so readers ignore it.

    The job, of a kind such as "write", lives as long as this process or, with ``by_jvm``, as the JVM that has started it. Raises
    `KolumnError` if the folder cannot be made.
    """

    def __init__(self, target: str, name: str, by_jvm: bool = False) -> None:
        self.root = target
        self.name = new_folder(target, name)
        # At a URL a folder exists once a file is in it: object stores have no empty folders.
        if not storage.is_url(self.name):
            with writing(self.name):
                make_folders(Path(self.name).parent)
            write_owner(_make(Path(self.name)), by_jvm)

    @contextmanager
    def attempt(self) -> Iterator[tuple[Path, str]]:
        """A new folder that no other attempt of a task has: the path to write to, and its name. Raises `KolumnError` if the job is over."""
        name = storage.within(self.name, uuid.uuid4().hex)
        if not storage.is_url(name):
            yield _make(Path(name)), name
            return
        with TemporaryDirectory(prefix="kolumn-") as folder:
            yield Path(folder), name
            send(Path(folder), name)

    def remove(self) -> None:
        """Remove the whole folder, unless a later run needs it to complete a commit.

        At a URL, a task that Spark has not stopped yet may still leave files there; readers ignore them.
        """
        discard(self.name)


def move_all(root: str, staging: str, moves: list[tuple[str, str]], gone: Sequence[str] = ()) -> None:
    """Move staged files to their names below a folder and remove the files ``gone``: all of this is done, or nothing."""
    if storage.is_url(root):
        commit(root, staging, moves, gone)
        return
    with writing(staging):
        # Another run must not take the commit for that of a dead one.
        lock = hold(Path(staging), WAIT_S)
    try:
        commit(root, staging, moves, gone)
    finally:
        os.close(lock)


def files_of(folder: str) -> list[str]:
    """Names of the files in an attempt's folder, in the order in which they must appear at their places: segments last."""
    return sorted((one.name for one in storage.listing(folder)), key=storage.logs_last)


def _make(folder: Path) -> Path:
    with writing(folder):
        folder.mkdir(mode=0o700)
    return folder
