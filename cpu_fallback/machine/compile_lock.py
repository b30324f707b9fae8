"""A lock among processes, which the system releases if its owner dies, and the progress of the owner."""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

logger = logging.getLogger("kolumn")
_POLL = 0.1

Waiting = Callable[[int, int], AbstractContextManager[Callable[[int], None]]]
Told = Callable[[int, int], None]


@contextmanager
def locked(path: Path, waiting: Waiting) -> Iterator[Told]:
    """Hold the lock of a file. The file is created if it is missing, and is not removed.

    Parameters
    ----------
    path : Path
    waiting : callable
        Called, with the id of the owner and its number of steps, if another process has the lock. The yielded function is called with
        the number of newly done steps of the owner.

    Yields
    ------
    callable
        Takes the number of done steps and of all steps, for the processes that wait.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    with open(path, "r+b", buffering=0, opener=_opener) as file:
        if not _try(file):
            _wait(file, waiting)

        def told(done: int, steps: int) -> None:
            os.pwrite(file.fileno(), f"{os.getpid():9} {done:9} {steps:9}\n".encode(), 0)

        told(0, 0)
        try:
            yield told
        finally:
            # Closing the file is not enough: a process that was forked meanwhile has it open too.
            _flock(file, fcntl.LOCK_UN)


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o644)


def _wait(file: IO[bytes], waiting: Waiting) -> None:
    pid, past, steps = _state(file)
    with waiting(pid, steps) as step:
        step(past)
        while not _try(file):
            _, done, _ = _state(file)
            step(max(0, done - past))
            past = max(past, done)
            time.sleep(_POLL)


def _state(file: IO[bytes]) -> tuple[int, int, int]:
    """The owner's process id, its done steps, and all its steps; zeros if they are not known."""
    try:
        pid, done, steps = map(int, os.pread(file.fileno(), 64, 0).split())
    except ValueError:
        return 0, 0, 0
    return pid, done, steps


def _try(file: IO[bytes]) -> bool:
    try:
        _flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _flock(file: IO[bytes], operation: int) -> None:
    try:
        fcntl.flock(file, operation)
    except BlockingIOError:
        raise
    except OSError as error:
        # Some network file systems have no locks. Then two processes may compile the same code, which is harmless.
        logger.info("%s: no lock: %s", file.name, error)
