"""Options of commands for what is in values and keys: the same for both, and for all commands."""

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from kolumn.cli.completion import among
from kolumn.errors import ArgumentError

_HELP = {
    "format": "What {0}s are: avro, protobuf, json, csv, fixed, or registry (as the schemas of the topic say).",
    "schema": 'Schema of {0}s, a file or text: of Avro, .proto, or JSON such as \'{{"id": "int64"}}\'.',
    "schemas": "Where writers' schemas come from: a topic _schemas, a folder, or a registry's URL.",
    "message": "Name of the Protobuf message.",
    "columns": "Fields to decode, comma-separated.",
    "as": "'struct', one column, or 'columns', one for each field.",
    "framing": "What precedes {0}s; by default it is recognised.",
    "errors": "'keep' {0}s that are not valid as nulls, or 'raise' an error.",
    "separator": "Between the fields of csv.",
}


_VALUES = {"format": "PayloadFormat", "as": "PayloadAs", "errors": "PayloadErrors"}
"""Types of the options that have a few values, in `kolumn.keywords`."""


def with_payloads(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command an option for each name in the help above, of values and of keys, in place of its ``**payloads``."""
    own = signature(function)
    added = [
        Parameter(f"{column}_{name}", Parameter.KEYWORD_ONLY, default=None, annotation=_option(name, text.format(column)))
        for column in ("value", "key")
        for name, text in _HELP.items()
    ]
    named = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    function.__dict__["__signature__"] = own.replace(parameters=[*named, *added])
    return function


def _option(name: str, text: str) -> Any:
    return Annotated[str | None, typer.Option(help=text, autocompletion=among(_VALUES[name]) if name in _VALUES else None)]


def payload_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as `kolumn.scan` takes them.

    Raises
    ------
    ArgumentError
        A schema is neither text nor a file.
    """
    from kolumn.options import column_list

    read: dict[str, Callable[[str, str], object]] = {"schema": _schema, "columns": lambda _, text: column_list(text)}
    return {name: read.get(name.partition("_")[2], lambda _, text: text)(name, text) for name, text in given.items() if text is not None}


def _schema(name: str, text: str) -> str | bytes:
    """A schema as text, or the contents of its file; bytes if they are no text."""
    if any(mark in text for mark in '{["\n'):
        return text
    try:
        data = Path(text).read_bytes()
    except OSError as error:
        raise ArgumentError(f"{name}={text!r}: neither a schema nor a file that can be read: {error.strerror}") from error
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
