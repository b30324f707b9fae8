"""One commit at a time to a folder of this machine: what a run checks first, like where a log ends, still holds when it names files."""

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
    """Hold the lock of a folder, which ends with this process; nothing is held if the folder is missing or its file system has no locks.

    Raises
    ------
    KolumnError
        Another run has held it for a minute.
    """
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        # It is missing or can't be opened: the commit will report that.
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
