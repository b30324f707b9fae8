"""Requests to file systems far away, made again if they fail."""

import time
from collections.abc import Callable
from typing import TypeVar

from pyarrow import ArrowException

_PAUSES = (0.1, 0.4, 1.6, 6.4)
"""Seconds before a request is repeated; the file systems have repeated it by then as they do."""
_FINAL = ("ACCESS_DENIED", "NO_SUCH_KEY", "NO_SUCH_BUCKET")
"""Words in pyarrow's errors of an S3 that will answer the same again; it has no class of its own for the first."""
T = TypeVar("T")


def repeated(request: Callable[[], T]) -> T:
    """The result of a request. If it fails it is made again, each time after a longer pause; errors are those of the last one.

    What does not exist, or may not be read, is an error at once.
    """
    for pause in _PAUSES:
        try:
            return request()
        except (OSError, ArrowException) as error:
            if is_final(error):
                raise
            time.sleep(pause)
    return request()


def is_final(error: Exception) -> bool:
    """Whether the file system has answered: the file does not exist, or may not be read."""
    return isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError) or any(word in str(error) for word in _FINAL)
