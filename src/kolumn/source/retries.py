"""Requests to file systems far away, made again if they fail."""

import re
import time
from collections.abc import Callable
from typing import TypeVar

from pyarrow import ArrowException

from kolumn.errors import KolumnError

_PAUSES = (0.1, 0.4, 1.6, 6.4)
"""Seconds before a request is repeated; the file systems have repeated it by then as they do."""
_FINAL = re.compile(r"AWS Error (ACCESS_DENIED|NO_SUCH_\w+|INVALID_\w+|SIGNATURE_\w+|UNRECOGNIZED_\w+)|HTTP status 4(?!08|29)\d\d")
"""In pyarrow's errors, of a store of S3's kind that would answer the same again."""
_OF_FOLDERS = IsADirectoryError | NotADirectoryError
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
    """Whether the file system has answered: the file does not exist, or may not be read. Errors of this package were repeated before."""
    return isinstance(error, KolumnError | FileNotFoundError | PermissionError | _OF_FOLDERS) or _FINAL.search(str(error)) is not None
