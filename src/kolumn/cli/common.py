"""Arguments and output that the commands share; exit codes and errors are in `ending.py`.

Which records `kolumn cat` prints: ``--key`` and ``--grep``.

Reports of commands about what they left out: damage, and files and folders that are no part of the log.
"""

import base64
import binascii
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kolumn.cli.ending import DAMAGE, FAILED, LIMIT, OK, USAGE, command
from kolumn.cli.tables import note, print_table
from kolumn.core.errors import ArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

    from kolumn.damage.findings import Skipped


if TYPE_CHECKING:
    from kolumn.core.keywords import Codec as CodecName
    from kolumn.core.keywords import Decode as DecodeName
    from kolumn.core.keywords import Format as FormatName
    from kolumn.source.segments import InMemory
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
    from kolumn.source.segments import in_memory

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
        from kolumn.core.errors import ArgumentError

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


_BASE64 = "base64:"


class RecordFilter:
    """Chooses records by their stored key and value, whatever is printed of them.

    Parameters
    ----------
    key : str, optional
        The key, as text or, after ``base64:``, as base64: the form in which `kolumn cat` prints it.
    grep : str, optional
        A regular expression (RE2) that is searched in keys and values, as bytes.
    typed : collection of str
        Which of "key" and "value" are decoded, so that their stored bytes are in another column.

    Raises
    ------
    ArgumentError
        The key is not base64, or the regular expression is not one.
    """

    def __init__(self, key: str | None, grep: str | None, typed: Collection[str]) -> None:
        self._key = None if key is None else _bytes(key)
        self._grep = None if grep is None else _checked(grep)
        self._names = {name: f"{name}Raw" if name in typed else name for name in ("key", "value")}

    @property
    def columns(self) -> list[str]:
        """The columns by which records are chosen."""
        found = [self._names["key"]] if self._key is not None or self._grep is not None else []
        return found + ([self._names["value"]] if self._grep is not None else [])

    def of(self, batches: "Iterable[pa.RecordBatch]", printed: Collection[str] | None) -> "Iterator[pa.RecordBatch]":
        """The chosen records, without the columns that are there only to choose them."""
        if not self.columns:
            yield from batches
            return
        extra = [] if printed is None else [name for name in self.columns if name not in printed]
        for batch in batches:
            batch = batch.filter(self._mask(batch))
            yield batch.drop_columns(extra) if extra else batch

    def _mask(self, batch: "pa.RecordBatch") -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        mask = pa.scalar(True)
        if self._key is not None:
            mask = pc.equal(batch[self._names["key"]], pa.scalar(self._key, pa.binary()))
        if self._grep is not None:
            found = [pc.fill_null(pc.match_substring_regex(batch[name], self._grep), False) for name in self._names.values()]
            mask = pc.and_(mask, pc.or_(*found))
        return mask


def _bytes(text: str) -> bytes:
    if not text.startswith(_BASE64):
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text.removeprefix(_BASE64), validate=True)
    except binascii.Error as error:
        raise ArgumentError(f"--key {text}: what follows {_BASE64} is not base64: {error}") from error


def _checked(pattern: str) -> str:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([b""]), pattern)
    except pa.ArrowInvalid as error:
        raise ArgumentError(f"--grep {pattern}: not a regular expression: {error}") from error
    return pattern


_PLACES = 6


def say(skipped: "Skipped") -> int:
    """Print one line on standard error if something was left out. Returns the exit code."""
    if not skipped.pieces:
        return OK
    note(f"{skipped} ({_places(skipped)}); `kolumn verify` lists {'it' if len(skipped.pieces) == 1 else 'them'}")
    return DAMAGE if skipped.damage else LIMIT


def print_left_out(rows: list[dict[str, Any]]) -> None:
    """Print the files and folders that a read does not return, if there are any."""
    if rows:
        print_table("Left out, since no part of the log; what is named is read", list(rows[0]), [list(row.values()) for row in rows])
        print()


def say_unknown(unknown: Mapping[str, int]) -> None:
    """Print one line on standard error for each kind of message that was not decoded."""
    for name, count in sorted(unknown.items()):
        note(f"not decoded, kept as bytes: {count} of {name}")


def counts(skipped: "Skipped") -> dict[str, int]:
    """Counts for summaries in JSON. ``recordsLost`` includes only stretches whose number of records is known."""
    return {
        "damagedStretches": skipped.stretches, "damagedBytes": skipped.bytes, "recordsLost": skipped.records,
        "batchesOverLimit": len(skipped.limits),
    }  # fmt: skip


def say_of(done: Any) -> int:
    """Print one line for each stretch that a conversion or compaction left out, then the summary. Returns the exit code."""
    for piece in done.skipped.pieces:
        note(f"left out: {piece.segment}: position {piece.position}: {piece.reason}")
    return say(done.skipped)


def counts_of(done: Any) -> dict[str, int]:
    """Summary of a conversion or compaction."""
    return {"damaged": len(done.damage)} | counts(done.skipped)


def short_name(path: str) -> str:
    """Name of a segment and of its folder."""
    return "/".join(path.rstrip("/").split("/")[-2:])


def _places(skipped: "Skipped") -> str:
    found: dict[str, list[str]] = {}
    for piece in skipped.pieces[:_PLACES]:
        found.setdefault(short_name(piece.segment), []).append(str(piece.position))
    more = [f"and {len(skipped.pieces) - _PLACES} more"] if len(skipped.pieces) > _PLACES else []
    return "; ".join([f"{name} at {', '.join(positions)}" for name, positions in found.items()] + more)
