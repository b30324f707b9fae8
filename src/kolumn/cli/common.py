"""Arguments and output that the commands share; exit codes and errors are in `ending.py`."""

import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kolumn.cli.completion import among, column_names
from kolumn.cli.ending import DAMAGE, FAILED, LIMIT, OK, USAGE, command
from kolumn.cli.tables import print_table

if TYPE_CHECKING:
    from kolumn.keywords import Codec as CodecName
    from kolumn.keywords import Errors as ErrorsName
    from kolumn.keywords import Format as FormatName
    from kolumn.keywords import IsolationLevel as IsolationName
    from kolumn.keywords import Replicas as ReplicasName
    from kolumn.source.memory import InMemory
else:
    # Typer would check choices itself. The library checks them, so that messages are the same everywhere.
    CodecName = ErrorsName = FormatName = IsolationName = ReplicasName = str

__all__ = [
    "DAMAGE", "FAILED", "LIMIT", "OK", "USAGE", "CodecName", "FormatName", "command", "print_json", "print_table", "sources_and_target",
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
Topic = Annotated[str | None, typer.Option(help="Topic, instead of the one in the directory's name.")]
Partition = Annotated[int | None, typer.Option(help="Partition, instead of the one in the directory's name.")]
CheckCrcs = Annotated[bool, typer.Option("--check-crcs/--no-check-crcs", help="Compare checksums before a batch is parsed.")]
Format = Annotated[
    FormatName,
    typer.Option(autocompletion=among("Format"), help="'kafka', or a draft: 'enriched', 'kip98-draft', 'v3-compact', 'kip87'."),
]
Errors = Annotated[
    ErrorsName, typer.Option(autocompletion=among("Errors"), help="'raise' stops at the first damage, 'skip' continues after it.")
]
Replicas = Annotated[
    ReplicasName,
    typer.Option(
        autocompletion=among("Replicas"),
        help="Directories of one partition with the same offsets: 'raise' an error, read the 'first' alone, or 'merge' them, each "
        "offset once, damage filled from the others.",
    ),
]
Columns = Annotated[
    str | None, typer.Option(autocompletion=column_names, help="Record columns, comma-separated; `kolumn columns` lists them.")
]
StartOffset = Annotated[int | None, typer.Option(help="First offset.")]
EndOffset = Annotated[int | None, typer.Option(help="Offset to stop before.")]
StartTimestamp = Annotated[
    str | None,
    typer.Option("--start-timestamp", "--since", help="First timestamp: ms since 1970, or ISO 8601 (UTC unless it has a time zone)."),
]
EndTimestamp = Annotated[str | None, typer.Option("--end-timestamp", "--until", help="Timestamp to stop before, likewise.")]
IsolationLevel = Annotated[
    IsolationName,
    typer.Option(
        autocompletion=among("IsolationLevel"),
        help="'read_committed' leaves out aborted transactions, and all from the first open one on.",
    ),
]
IncludeHeaders = Annotated[bool, typer.Option("--include-headers", help="Record headers too.")]
MaxBatchBytes = Annotated[int | None, typer.Option(min=1, help="Largest decompressed size of one batch; by default 2 GiB.")]
MaxRatio = Annotated[
    float | None, typer.Option(help="Largest ratio of decompressed to compressed size of a batch above 64 MiB; by default 1032.")
]
KeyFile = Annotated[
    list[str] | None,
    typer.Option("--key-file", metavar="NAME=PATH", help="Private RSA key of an encrypted tier; may be repeated."),
]
IncludeControl = Annotated[bool, typer.Option("--include-control", help="Records of control batches too.")]


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


def key_files(given: list[str] | None) -> dict[str, str] | None:
    """Files of keys by the names of the keys."""
    named = [one.partition("=") for one in given or ()]
    for name, equals, path in named:
        if not (name and equals and path):
            raise typer.BadParameter(f"--key-file {name}{equals}{path}: expected NAME=PATH")
    return {name: path for name, _, path in named} or None


def limits(max_batch_bytes: int | None, max_ratio: float | None) -> dict[str, Any]:
    """The limits that the user has set; the others keep the library's defaults."""
    given = {"max_batch_bytes": max_batch_bytes, "max_ratio": max_ratio}
    return {name: value for name, value in given.items() if value is not None}


def size_of(sources: "list[str] | InMemory") -> int:
    """Bytes of the segments of some sources."""
    from kolumn.source.segments import find_segments

    return sum(segment.size for segment in find_segments(sources, faults=True))
