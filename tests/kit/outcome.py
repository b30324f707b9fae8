"""The result of a call: a table or an error."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

import kolumn
from kolumn.core.schema import RECORD_COLUMNS

COLUMNS = [name for name in RECORD_COLUMNS if name != "transaction"]
"""Every column that can be read from one segment alone."""


def outcome(path: Any, **options: Any) -> Any:
    """The table, or the error as text."""
    try:
        return kolumn.read(path, **options).combine_chunks()
    except kolumn.KolumnError as error:
        return f"{type(error).__name__}: {error}"


_Error = TypeVar("_Error", bound=BaseException)


def raises(error: type[_Error], match: str, call: Callable[..., object], /, *arguments: Any, **options: Any) -> _Error:
    """The error of a call, whose text has to match; an empty pattern matches any."""
    with pytest.raises(error, match=match or None) as caught:
        call(*arguments, **options)
    return caught.value
