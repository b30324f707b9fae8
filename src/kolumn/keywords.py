"""Types of the parameters of public functions, and errors for unknown keywords."""

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import wraps
from typing import Literal, ParamSpec, Protocol, TypeVar

from kolumn.errors import ArgumentError
from kolumn.schema import unknown

Path = str | os.PathLike[str]
Source = Path | Iterable[Path]
"""Segments: a file, a ``topic-partition`` directory, a log directory, a glob, a URL, or several of those."""
Columns = str | Iterable[str]
Time = int | datetime | str
"""Milliseconds since 1970, a datetime, or ISO 8601 text; UTC if it has no time zone."""
Progress = Callable[[int], None]

# The allowed values. `kolumn.options` checks calls against the same lists.
Format = Literal["kafka", "enriched", "kip98-draft", "v3-compact", "kip87"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
Errors = Literal["raise", "skip"]
Replicas = Literal["raise", "first", "merge"]
Backend = Literal["auto", "cpu", "gpu"]
Binary = Literal["contiguous", "view"]
Payload = Literal["binary", "string"]
ValueFormat = Literal["json", "csv", "avro", "fixed"]
ValueSchema = str | Mapping[str, object]
"""Types of the fields by their names, or an Avro schema."""
Compression = Literal["zstd", "snappy", "gzip", "lz4", "brotli", "none"]


class ArrowStream(Protocol):
    """Arrow data of any library."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The data by the Arrow PyCapsule interface."""


_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def known_keywords(
    refused: Mapping[str, str] | None = None,
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Decorator of public functions: a keyword that does not exist is an `ArgumentError` that names the nearest one.

    Python's own TypeError would not suggest a keyword. The signature is unchanged, for `inspect`, for editors and for type checkers.

    Parameters
    ----------
    refused : mapping, optional
        Keywords of similar functions that this function does not have, each with the text of its error.
    """

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        code = function.__code__
        every = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        accepted, options = frozenset(every), every[code.co_argcount :] or every

        @wraps(function)
        def checked(*args: _Parameters.args, **given: _Parameters.kwargs) -> _Result:
            for name in given:
                if name not in accepted:
                    raise ArgumentError((refused or {}).get(name) or unknown("option", name, options))
            return function(*args, **given)

        return checked

    return decorate
