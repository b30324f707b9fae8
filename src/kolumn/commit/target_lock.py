"""One commit at a time to a folder of this machine, so that a run's checks, such as where a log ends, are valid until it renames files."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kolumn.errors import KolumnError

WAIT_S = 60.0


@contextmanager
def committing(root: Path) -> Iterator[None]:
    """Hold the lock of a folder; the lock ends with this process. Nothing is locked if the folder or the file system's locks are missing.

    Raises
    ------
    KolumnError
        Another run has held it for a minute.
    """
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        # The folder is missing or cannot be opened: the commit will report that.
        yield
        return
    try:
        end = time.monotonic() + WAIT_S
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= end:
                    raise KolumnError(f"{root}: another run is writing to it. Wait for its end, and run this one again") from error
                time.sleep(0.05)
            except OSError:
                break
        yield
    finally:
        os.close(folder)
