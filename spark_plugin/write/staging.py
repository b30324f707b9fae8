"""A folder for files that tasks have written, until the driver moves them to their places; it is on the file system of the target."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from kolumn.commit import remote as remote_commit
from kolumn.commit.job_owner import write_owner
from kolumn.commit.leftovers import remove_staging
from kolumn.commit.run import NO_LINKS, Commit
from kolumn.commit.staged_file import make_folders, writing
from kolumn.encode.outgoing import send
from kolumn.source import storage


class Staging:
    """One job's folder. Its name is not that of a topic-partition, so readers of the log directory ignore it.

    Parameters
    ----------
    target : str
        Path or URL of the parent folder; it is made if it does not exist.
    name : str
        Name of the job's kind, such as "write"; it becomes part of the folder's name.
    by_jvm : bool
        Whether the job lives as long as the JVM that has started this process, instead of as long as this process.

    Attributes
    ----------
    root, name : str

    Raises
    ------
    KolumnError
        The folder cannot be made.
    """

    def __init__(self, target: str, name: str, by_jvm: bool = False) -> None:
        self.root = target
        self.name = remote_commit.new_folder(target, name)
        # At a URL a folder exists once a file is in it: object stores have no empty folders.
        if not storage.is_url(self.name):
            with writing(self.name):
                make_folders(Path(self.name).parent)
            write_owner(_make(Path(self.name)), by_jvm)

    @contextmanager
    def attempt(self) -> Iterator[tuple[Path, str]]:
        """A new folder that no other attempt of a task has: the path to write to, and the folder's final name.

        Raises
        ------
        KolumnError
            The job is over.
        """
        name = storage.within(self.name, uuid.uuid4().hex)
        if not storage.is_url(name):
            yield _make(Path(name)), name
            return
        with TemporaryDirectory(prefix="kolumn-") as folder:
            yield Path(folder), name
            send(Path(folder), name)

    def withdraw(self) -> None:
        """Move the files of an unfinished commit at a URL back to the staging folder, unless the commit replaces older files."""
        if storage.is_url(self.name):
            remote_commit.withdraw(self.root, self.name)

    def remove(self) -> None:
        """Remove the whole folder, unless a later run needs it to complete a commit.

        At a URL, a task that Spark has not stopped yet may still leave files there; readers ignore them.
        """
        if storage.is_url(self.name):
            remote_commit.discard(self.name)
        else:
            remove_staging(Path(self.name))


def files_of(folder: str) -> list[str]:
    """Names of the files in an attempt's folder, in the order in which they must appear at their places: segments last."""
    return sorted((one.name for one in storage.listing(folder)), key=storage.logs_last)


def adopt(commit: Commit, file: str, final: str) -> None:
    """Add a staged file to a commit under its final name; it also stays in the staging folder until the job is over, where links exist."""
    place = commit.place(Path(final))
    with writing(final):
        try:
            os.link(file, place)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            os.rename(file, place)


def _make(folder: Path) -> Path:
    with writing(folder):
        folder.mkdir(mode=0o700)
    return folder
