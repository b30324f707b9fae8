"""Types of the parameters of public functions, and errors for unknown keywords."""

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import wraps
from inspect import Parameter, signature
from types import FunctionType
from typing import BinaryIO, Literal, ParamSpec, Protocol, TypedDict, TypeVar, cast, get_args

from kolumn.errors import ArgumentError
from kolumn.schema import unknown

Path = str | os.PathLike[str]


class Buffer(Protocol):
    """Python's buffer protocol: bytes, bytearray, memoryview, mmap, pyarrow.Buffer, arrays of bytes."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


Source = Path | Iterable[Path] | Buffer | BinaryIO
"""Segments: a file, a ``topic-partition`` directory, a log directory, a glob, a URL, or several of those; or one segment in memory."""
Columns = str | Iterable[str]
Time = int | datetime | str
"""Milliseconds since 1970, a datetime, or ISO 8601 text; UTC if it has no time zone."""
Progress = Callable[[int], None]
Keys = Mapping[str, Path]
"""Files of private keys by the names of the keys."""

# The allowed values. `kolumn.options` checks calls against the same lists.
Format = Literal["kafka", "enriched", "kip98-draft", "v3-compact", "kip87"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
Errors = Literal["raise", "skip"]
Replicas = Literal["raise", "first", "merge"]
Backend = Literal["auto", "cpu", "gpu"]
Binary = Literal["contiguous", "view"]
Payload = Literal["binary", "string"]
PayloadFormat = Literal["avro", "protobuf", "json", "csv", "fixed", "registry"]
PayloadSchema = object
"""Types of the fields by their names, an Arrow schema, or a schema of Avro or Protobuf."""
PayloadSchemas = object
"""Where writers' schemas come from: a path, a folder, a URL, a mapping or a callable."""
PayloadAs = Literal["struct", "columns"]
PayloadErrors = Literal["keep", "raise"]
Decode = Literal["internal"]
Compression = Literal["zstd", "snappy", "gzip", "lz4", "brotli", "none"]


class PayloadOptions(TypedDict, total=False):
    """Options for what is in values and keys: one definition for all functions, which document them as `kolumn.scan` does.

    ``decode`` is about both, ``include_snapshots`` about the files that have messages of internal topics, and
    ``include_deleted_records`` about records that no consumer gets.
    """

    value_format: PayloadFormat | None
    key_format: PayloadFormat | None
    value_schema: PayloadSchema
    key_schema: PayloadSchema
    value_schemas: PayloadSchemas
    key_schemas: PayloadSchemas
    value_message: str | None
    key_message: str | None
    value_columns: Columns | None
    key_columns: Columns | None
    value_framing: str
    key_framing: str
    value_as: PayloadAs | None
    key_as: PayloadAs | None
    value_errors: PayloadErrors
    key_errors: PayloadErrors
    value_separator: str
    key_separator: str
    value_skip: int
    key_skip: int
    value_sample: int
    key_sample: int
    decode: Decode | None
    include_snapshots: bool
    include_deleted_records: bool | None


_OF_ONE: dict[str, object] = {
    "framing": "auto",
    "errors": "keep",
    "separator": ",",
    "skip": 0,
    "sample": 1000,
    "snapshots": False,
    "deleted_records": False,
}
PAYLOAD_DEFAULTS: dict[str, object] = {name: _OF_ONE.get(name.partition("_")[2]) for name in PayloadOptions.__annotations__}
"""Defaults of `PayloadOptions`."""


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
        code = cast(FunctionType, function).__code__
        every = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        accepted, options = frozenset(every), every[code.co_argcount :] or every
        payloads = _payload_parameters(function)
        accepted, options = accepted.union(payloads), (*options, *payloads)

        @wraps(function)
        def checked(*args: _Parameters.args, **given: _Parameters.kwargs) -> _Result:
            for name in given:
                if name not in accepted:
                    raise ArgumentError((refused or {}).get(name) or unknown("option", name, options))
            return function(*args, **given)

        if payloads:
            own = signature(function)
            named = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
            cast(FunctionType, checked).__dict__["__signature__"] = own.replace(parameters=[*named, *payloads.values()])
        return checked

    return decorate


def _payload_parameters(function: Callable[..., object]) -> dict[str, Parameter]:
    """The parameters of a function that takes ``**payloads: Unpack[PayloadOptions]``, one by one."""
    if get_args(function.__annotations__.get("payloads")) != (PayloadOptions,):
        return {}
    return {
        name: Parameter(name, Parameter.KEYWORD_ONLY, default=PAYLOAD_DEFAULTS[name], annotation=kind)
        for name, kind in PayloadOptions.__annotations__.items()
    }
