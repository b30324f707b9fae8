"""A folder for what tasks have written, until the driver gives it its place; on the file system of the target."""

import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from kolumn.encode.segments import make_parent
from kolumn.errors import KolumnError


class Staging:
    """One job's folder. Its name is none of a topic-partition, so that whoever reads the log directory passes it over.

    Parameters
    ----------
    target : Path
        The folder that it is in; made, if it isn't there.
    name : str
        What the job does.

    Attributes
    ----------
    path : Path

    Raises
    ------
    KolumnError
        It can't be made.
    """

    def __init__(self, target: Path, name: str) -> None:
        self.path = target / f".kolumn-{name}.{uuid.uuid4().hex}.partial"
        make_parent(self.path)
        try:
            self.path.mkdir()
        except OSError as error:
            raise KolumnError(f"{self.path}: cannot be written: {error.strerror}") from error

    def attempt(self) -> Path:
        """A new folder that no other attempt of a task has.

        Raises
        ------
        KolumnError
            The job is over.
        """
        folder = self.path / uuid.uuid4().hex
        try:
            folder.mkdir()
        except OSError as error:
            raise KolumnError(f"{folder}: cannot be written: {error.strerror}") from error
        return folder

    def remove(self) -> None:
        """Remove all of it.

        It is renamed first: Spark stops the other tasks of a failed job in its own time, and under the old name they make no more files.
        """
        doomed = self.path.with_name(f"{self.path.name}.removed")
        with suppress(OSError):
            self.path.replace(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
