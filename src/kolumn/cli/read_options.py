"""The options of a read on the command line: names, defaults and help from the list in `kolumn.core.keywords`."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from kolumn.cli.completion import among, column_names
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import OPTIONS, PAYLOAD_DEFAULTS

OptionValue = Any
"""What a command gets of an option: the form that `kolumn.scan` takes."""
SELECTION = (
    *("columns", "include_headers", "include_control", "start_offset", "end_offset", "start_timestamp", "end_timestamp"),
    "isolation_level",
)
READING = ("errors", "replicas", "check_crcs", "max_batch_bytes", "max_ratio", "format", "topic", "partition")
PAYLOADS = tuple(
    name for column in ("value_", "key_") for name in PAYLOAD_DEFAULTS if name.startswith(column) and not name.endswith(("skip", "sample"))
)
_FIELDS = {"help": "Fields to decode, comma-separated."}
_SCHEMA = 'Schema of {0}, a file or text: of Avro, .proto, or JSON such as \'{{"id": "int64"}}\'.'
_SETTINGS: dict[str, dict[str, Any]] = {
    "columns": {"help": "Record columns, comma-separated; `kolumn columns` lists them.", "autocompletion": column_names},
    "max_batch_bytes": {"min": 1},
    "keys": {"help": "Private RSA key of an encrypted tier; may be repeated.", "metavar": "NAME=PATH"},
    "value_schema": {"help": _SCHEMA.format("values")},
    "key_schema": {"help": _SCHEMA.format("keys")},
    "value_columns": _FIELDS,
    "key_columns": _FIELDS,
}
"""What is different here from the list."""
_NAMES = {
    "start_timestamp": ("--start-timestamp", "--since"),
    "end_timestamp": ("--end-timestamp", "--until"),
    "keys": ("--key-file",),
}


def with_read_options(*names: str, **defaults: str) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Decorator of a command: it takes these options, some with other defaults, and gets those that have a value as ``**options``, in
    the form that `kolumn.scan` takes.
    """

    def decorate(function: Callable[..., int | None]) -> Callable[..., int | None]:
        @wraps(function)
        def run(**given: OptionValue) -> int | None:
            own = {name: given.pop(parameter) for name, parameter in parameters.items()}
            read = {name: _read(name, value) for name, value in own.items() if value is not None}
            return function(**given, **{name: value for name, value in read.items() if value is not None})

        parameters = {name: "key_file" if name == "keys" else name for name in names}
        named = [one for one in signature(function).parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        added = [_parameter(name, parameter, defaults.get(name)) for name, parameter in parameters.items()]
        run.__dict__["__signature__"] = signature(function).replace(parameters=[*named, *added])
        return run

    return decorate


def _parameter(name: str, parameter: str, default: object) -> Parameter:
    one = OPTIONS[name]
    kind: Any = list[str] if name == "keys" else next((kind for kind in (bool, int, float) if one.type in (kind, kind | None)), str)
    if default is None and isinstance(one.default, bool | str) and name not in PAYLOAD_DEFAULTS:
        default = one.default
    flags = (f"--{name.replace('_', '-')}",) if default is False else ()
    settings = {"help": one.meaning, "autocompletion": among(one.type)} | _SETTINGS.get(name, {})
    kind = Annotated[kind if default is not None else kind | None, typer.Option(*_NAMES.get(name, flags), **settings)]
    return Parameter(parameter, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _read(name: str, given: OptionValue) -> OptionValue:
    from kolumn.options import column_list

    if name.endswith("columns"):
        return column_list(given)
    if name.endswith("schema"):
        return _schema(name, given)
    return _key_files(given) if name == "keys" else given


def _key_files(given: list[str]) -> dict[str, str] | None:
    """Files of keys by the names of the keys."""
    named = [one.partition("=") for one in given]
    for name, equals, path in named:
        if not (name and equals and path):
            raise typer.BadParameter(f"--key-file {name}{equals}{path}: expected NAME=PATH")
    return {name: path for name, _, path in named} or None


def _schema(name: str, text: str) -> str | bytes:
    """A schema as text, or the contents of its file; bytes if they are no text.

    Raises
    ------
    ArgumentError
        It is neither text nor a file.
    """
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
