"""Arguments and output that the commands share; exit codes and errors are in `ending.py`."""

import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kolumn.cli.ending import DAMAGE, FAILED, LIMIT, OK, USAGE, command
from kolumn.cli.tables import print_table

if TYPE_CHECKING:
    from kolumn.keywords import Codec as CodecName
    from kolumn.keywords import Decode as DecodeName
    from kolumn.keywords import Format as FormatName
    from kolumn.source.memory import InMemory
else:
    # Typer would check choices itself. The library checks them, so that messages are the same everywhere.
    CodecName = DecodeName = FormatName = str

__all__ = [
    "DAMAGE", "FAILED", "LIMIT", "OK", "USAGE", "CodecName", "DecodeName", "FormatName", "command", "print_json", "print_table",
    "sources_and_target",
]  # fmt: skip

Sources = Annotated[
    list[str], typer.Argument(metavar="SOURCE...", help="Segment files, topic-partition directories, log directories, or globs of those.")
]
Segments = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="Segment files, topic-partition directories, log directories, or globs of those; - is one segment on standard input.",
    ),
]
Paths = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE... [TARGET]", help="Sources as elsewhere; without --output the last one is the target."),
]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="TARGET", help="The target; all arguments are sources then.")]
Json = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output, one object a line.")]
JsonInPipes = Annotated[
    bool | None,
    typer.Option(
        "--json/--text",
        help="JSON, one object a line, or text for people. By default text on a terminal, and JSON in a pipe or a file, unless "
        "KOLUMN_OUTPUT is text or json.",
        show_default=False,
    ),
]


def or_standard_input(given: list[str]) -> "list[str] | InMemory":
    """The sources, or the bytes of standard input for ``-``."""
    if "-" not in given:
        return given
    from kolumn.source.memory import in_memory

    if given != ["-"]:
        raise typer.BadParameter("- is standard input, which is the only source then")
    if sys.stdin is None or sys.stdin.isatty():
        raise typer.BadParameter("- is standard input, and that is a terminal: redirect a segment to it")
    found = in_memory(sys.stdin.buffer)
    assert found is not None
    return found


def sources_and_target(paths: list[str], output: str | None) -> tuple[list[str], str]:
    """The sources and the target: the target is ``--output``, or else the last argument."""
    if output is not None:
        return paths, output
    if len(paths) < 2:
        raise typer.BadParameter("name at least one source, and the target with --output or as the last argument")
    return paths[:-1], paths[-1]


def is_json(given: bool | None) -> bool:
    """Whether to print JSON: as ``--json`` or ``--text`` says, else as KOLUMN_OUTPUT does, else if standard output is no terminal."""
    if given is not None:
        return given
    wanted = os.environ.get("KOLUMN_OUTPUT", "")
    if wanted not in ("", "text", "json"):
        from kolumn.errors import ArgumentError

        raise ArgumentError(f"KOLUMN_OUTPUT={wanted!r}: expected text or json")
    return wanted == "json" if wanted else not sys.stdout.isatty()


def print_json(value: object) -> None:
    """Print one JSON object on its own line."""
    from kolumn.cli.shown import json_text

    sys.stdout.write(json_text(value, _plain) + "\n")


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def counted(number: int, name: str) -> str:
    """A number with a noun: ``1 segment``, ``2 segments``, ``2 batches``."""
    return f"{number} {name}{'' if number == 1 else 'es' if name.endswith('ch') else 's'}"


def size_of(sources: "list[str] | InMemory") -> int:
    """Bytes of the segments of some sources."""
    from kolumn.source.segments import find_segments

    return sum(segment.size for segment in find_segments(sources, faults=True))
