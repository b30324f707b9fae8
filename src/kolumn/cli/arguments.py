"""Arguments of commands: sources and targets, and options of a read with the names, defaults and help of `kolumn.core.keywords`."""

import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_origin

import typer

from kolumn.cli.ending import SHORT_NAMES
from kolumn.cli.help import DAMAGE, LIMITS, OUTPUT, SELECT, VALUES
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import OPTIONS, PAYLOAD_DEFAULTS, ChoiceOptions

if TYPE_CHECKING:
    from kolumn.core.keywords import Codec, Decode, Format
    from kolumn.source.segments import InMemory

    CodecName: TypeAlias = Codec
    DecodeName: TypeAlias = Decode
    FormatName: TypeAlias = Format
else:
    # Typer would check choices itself. The library checks them, so that messages are the same everywhere.
    CodecName = DecodeName = FormatName = str

SOURCES = "Segment files, topic-partition directories, log directories, or globs of those"
Sources = Annotated[list[str], typer.Argument(metavar="SOURCE...", help=f"{SOURCES}.")]
Segments = Annotated[list[str], typer.Argument(metavar="SOURCE...", help=f"{SOURCES}; - is one segment on standard input.")]
Paths = Annotated[
    list[str], typer.Argument(metavar="SOURCE... [TARGET]", help="Sources as elsewhere; without --output the last one is the target.")
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="TARGET", rich_help_panel=OUTPUT, help="The target; all arguments are sources then.")
]
Json = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="For programs: JSON on standard output, one object a line.")]
JsonInPipes = Annotated[
    bool | None,
    typer.Option(
        "--json/--text",
        help="JSON, one object a line, or text for people. By default text on a terminal, and JSON in a pipe or a file, unless "
        "KOLUMN_OUTPUT is text or json.",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
_MOMENT = "2026-01-31T12:00 (UTC unless it has a zone), 7d or 2h (ago), yesterday, last-tuesday, or ms since 1970"
Now = Annotated[str | None, typer.Option(help=f"Moment at which ages end, by default the present: {_MOMENT}.")]
AsOf = Annotated[str | None, typer.Option(help=f"A moment, inclusive: {_MOMENT}.")]
IndexInterval = Annotated[int, typer.Option(min=1, help="Bytes of the log between two entries of an index.")]


def or_standard_input(given: list[str]) -> "list[str] | InMemory":
    if "-" not in given:
        return given
    from kolumn.source.segments import in_memory

    if given != ["-"]:
        raise typer.BadParameter("- is standard input, which is the only source then")
    if sys.stdin is None or sys.stdin.isatty():
        raise typer.BadParameter("- is standard input, and that is a terminal: redirect a segment to it")
    segment = in_memory(sys.stdin.buffer)
    assert segment is not None
    return segment


def sources_and_target(paths: list[str], output: str | None) -> tuple[list[str], str]:
    """The sources and the target: the target is ``--output``, or else the last argument."""
    if output is not None:
        return paths, output
    if len(paths) < 2:
        raise typer.BadParameter("name at least one source, and the target with --output or as the last argument")
    return paths[:-1], paths[-1]


def among(type: object) -> Callable[[str], list[str]] | None:
    """Completes the values of a type in shells; None if it has no list of values."""
    known = [value for part in (type, *get_args(type)) if get_origin(part) is Literal for value in get_args(part)]
    return (lambda incomplete: [value for value in known if value.startswith(incomplete)]) if known else None


def _column_names(incomplete: str) -> list[str]:
    from kolumn.core.schema import RECORD_COLUMNS

    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in RECORD_COLUMNS if name.startswith(begun) and name not in before.split(",")]


OptionValue = Any  # what a command gets of an option: the form that `kolumn.scan` takes
SELECTION = (
    *("columns", "include_headers", "include_control", "start_offset", "end_offset", "start_timestamp", "end_timestamp"),
    *("isolation_level", "open_transactions"),
)  # fmt: skip
READING = ("errors", "replicas", "check_crcs", "max_batch_bytes", "max_ratio", "format", "topic", "partition")
READ_TOO = ("private_keys", "include_snapshots", "include_deleted_records", "include_deleted_segments")
TRANSLATED = (*READING, "start_delta")
"""Of commands that return consumer offsets, which are not those of Redpanda's segments."""
READING_KAFKA = tuple(name for name in READING if name != "format")
PAYLOADS = tuple(
    name for column in ("value_", "key_") for name in PAYLOAD_DEFAULTS if name.startswith(column) and not name.endswith("sample")
)
DECODED = tuple(name for name in PAYLOADS if not name.endswith(("_as", "_errors")))
"""Of commands that count what of keys and values cannot be decoded."""
_FIELDS = {"help": "Fields to decode, comma-separated."}
_SCHEMA = 'Schema of {0}, a file or text: of Avro, .proto, or JSON such as \'{{"id": "int64"}}\'.'
_SETTINGS: dict[str, dict[str, Any]] = {
    "columns": {"help": "Record columns, comma-separated; `kolumn columns` lists them.", "autocompletion": _column_names},
    "max_batch_bytes": {"min": 1},
    "private_keys": {"help": "Private RSA key of an encrypted tier; may be repeated.", "metavar": "NAME=PATH"},
    "value_schema": {"help": _SCHEMA.format("values")},
    "key_schema": {"help": _SCHEMA.format("keys")},
    "value_columns": _FIELDS,
    "key_columns": _FIELDS,
}
"""What is different here from the list."""
_GROUPS = {
    **dict.fromkeys(ChoiceOptions.__annotations__, SELECT),
    **dict.fromkeys(("errors", "replicas", "check_crcs", "include_deleted_records", "include_deleted_segments"), DAMAGE),
    **dict.fromkeys(PAYLOAD_DEFAULTS, VALUES),
}
"""Titles in help; of the others it is `LIMITS`."""
_NAMES = {name: (short, f"--{name.replace('_', '-')}") for name, short in SHORT_NAMES.items()} | {"private_keys": ("--key-file",)}


def with_read_options(*names: str, **defaults: str) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Decorator of a command: it takes these options, some with other defaults, and gets those that have a value as ``**options``, in the
    form that `kolumn.scan` takes."""

    def decorate(function: Callable[..., int | None]) -> Callable[..., int | None]:
        @wraps(function)
        def run(**given: OptionValue) -> int | None:
            own = {name: given.pop(parameter) for name, parameter in parameters.items()}
            read = {name: _read(name, value) for name, value in own.items() if value is not None}
            return function(**given, **{name: value for name, value in read.items() if value is not None})

        parameters = {name: "key_file" if name == "private_keys" else name for name in names}
        named = [parameter for parameter in signature(function).parameters.values() if parameter.kind is not Parameter.VAR_KEYWORD]
        added = [_parameter(name, parameter, defaults.get(name)) for name, parameter in parameters.items()]
        run.__dict__["__signature__"] = signature(function).replace(parameters=[*named, *added])
        return run

    return decorate


def _parameter(name: str, parameter: str, default: object) -> Parameter:
    option = OPTIONS[name]
    kind: Any = (
        list[str] if name == "private_keys" else next((kind for kind in (bool, int, float) if option.type in (kind, kind | None)), str)
    )
    if default is None and isinstance(option.default, bool | str) and name not in PAYLOAD_DEFAULTS:
        default = option.default
    flags = (f"--{name.replace('_', '-')}",) if default is False else ()
    settings: dict[str, Any] = {"help": option.meaning, "autocompletion": among(option.type), "rich_help_panel": _GROUPS.get(name, LIMITS)}
    settings |= _SETTINGS.get(name, {})
    kind = Annotated[kind if default is not None else kind | None, typer.Option(*_NAMES.get(name, flags), **settings)]
    return Parameter(parameter, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _read(name: str, given: OptionValue) -> OptionValue:
    from kolumn.options import column_list

    if name.endswith("columns"):
        return column_list(given)
    if name.endswith("schema"):
        return _schema(name, given)
    if name != "private_keys":
        return given
    named = [text.partition("=") for text in given]
    for key, equals, path in named:
        if not (key and equals and path):
            raise typer.BadParameter(f"--key-file {key}{equals}{path}: expected NAME=PATH")
    return {key: path for key, _, path in named} or None


def _schema(name: str, text: str) -> str | bytes:
    """A schema as text, or the contents of its file; bytes if they are no text. Raises `ArgumentError` if it is neither text nor a file."""
    if text == "json" or any(mark in text for mark in '{["<\n'):
        return text
    try:
        data = Path(text).read_bytes()
    except OSError as error:
        raise ArgumentError(f"{name}={text!r}: neither a schema nor a file that can be read: {error.strerror}") from error
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
