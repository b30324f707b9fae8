"""A folder for what tasks have written, until the driver gives it its place; on the file system of the target."""

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
    """One job's folder. Its name is none of a topic-partition, so that whoever reads the log directory passes it over.

    Parameters
    ----------
    target : str
        Path or URL of the folder that it is in; made, if it isn't there.
    name : str
        What the job does.
    by_jvm : bool
        Whether the job lives as long as the JVM that has started this process, and not as long as this process.

    Attributes
    ----------
    root, name : str

    Raises
    ------
    KolumnError
        It can't be made.
    """

    def __init__(self, target: str, name: str, by_jvm: bool = False) -> None:
        self.root = target
        self.name = remote_commit.new_folder(target, name)
        # Behind a URL folders come with what is in them: object stores have no others.
        if not storage.is_url(self.name):
            with writing(self.name):
                make_folders(Path(self.name).parent)
            write_owner(_make(Path(self.name)), by_jvm)

    @contextmanager
    def attempt(self) -> Iterator[tuple[Path, str]]:
        """A new folder that no other attempt of a task has: where to write, and what it is called in the end.

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
        """Take back the names that a commit behind a URL has given which did not come to its end."""
        if storage.is_url(self.name):
            remote_commit.withdraw(self.root, self.name)

    def remove(self) -> None:
        """Remove all of it, unless a later run needs it to complete a commit.

        Behind a URL a task that Spark has not stopped yet may leave some, which nobody takes for segments.
        """
        if storage.is_url(self.name):
            remote_commit.discard(self.name)
        else:
            remove_staging(Path(self.name))


def files_of(folder: str) -> list[str]:
    """Names of the files in an attempt's folder, in the order in which they may appear at their places."""
    return sorted((one.name for one in storage.listing(folder)), key=storage.logs_last)


def adopt(commit: Commit, file: str, final: str) -> None:
    """Let a commit give a staged file its name; the file stays where it is until the job is over, or the commit fails."""
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
