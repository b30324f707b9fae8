"""Output that the commands share: JSON, tables for people, and what was left out; exit codes and errors are in `ending.py`.

A table is as wide as necessary, or has one line for each cell if the terminal is too narrow.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from kolumn.cli.ending import DAMAGE, LIMIT, OK
from kolumn.core.errors import ArgumentError, escaped, shown

if TYPE_CHECKING:
    from kolumn.damage.findings import Skipped
    from kolumn.source.segments import InMemory

Rows = list[dict[str, Any]]
_PROSE = {"reason", "remark", "evidence"}  # columns whose cells are sentences. Others are names and numbers, which are never folded
_MOST_POSITIONS = 6


def note(text: str) -> None:
    typer.echo(shown(text), err=True)


def is_json(given: bool | None) -> bool:
    """Whether to print JSON: as ``--json`` or ``--text`` says, else as KOLUMN_OUTPUT does, else if standard output is no terminal."""
    if given is not None:
        return given
    wanted = os.environ.get("KOLUMN_OUTPUT", "")
    if wanted not in ("", "text", "json"):
        raise ArgumentError(f"KOLUMN_OUTPUT={wanted!r}: expected text or json")
    return wanted == "json" if wanted else not sys.stdout.isatty()


def print_json(*values: object) -> None:
    from kolumn.cli.lines import json_text

    for value in values:
        sys.stdout.write(json_text(value, _plain) + "\n")


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def counted(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 'es' if name.endswith('ch') else 's'}"


def size_of(sources: "list[str] | InMemory") -> int:
    from kolumn.source.segments import find_segments

    return sum(segment.size for segment in find_segments(sources, faults=True))


def short_name(path: str) -> str:
    return "/".join(path.rstrip("/").split("/")[-2:])


def say(skipped: "Skipped") -> int:
    """Print one line on standard error if something was left out. Returns the exit code."""
    if not skipped.pieces:
        return OK
    positions: dict[str, list[str]] = {}
    for piece in skipped.pieces[:_MOST_POSITIONS]:
        positions.setdefault(short_name(piece.segment), []).append(str(piece.position))
    parts = [f"{name} at {', '.join(own)}" for name, own in positions.items()]
    if len(skipped.pieces) > _MOST_POSITIONS:
        parts.append(f"and {len(skipped.pieces) - _MOST_POSITIONS} more")
    note(f"{skipped} ({'; '.join(parts)}); `kolumn verify` lists {'it' if len(skipped.pieces) == 1 else 'them'}")
    return DAMAGE if skipped.damage else LIMIT


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
    return {"damaged": len(done.damage)} | counts(done.skipped)


def print_table(title: str, names: Iterable[str], rows: list[list[Any]]) -> None:
    """Print a table; plain text if standard output is not a terminal. No cell is ever folded."""
    print("\n".join(layout(title, list(names), rows, terminal_width(), sys.stdout.isatty())))


def print_rows(title: str, rows: Rows) -> None:
    print_table(title, rows[0], [list(row.values()) for row in rows])


def print_left_out(rows: Rows) -> None:
    if rows:
        print_rows("Left out, since no part of the log; what is named is read", rows)
        print()


def terminal_width() -> int | None:
    """Columns of the terminal, or those that are asked for by KOLUMN_OUTPUT=text and COLUMNS; None for a file or pipe otherwise."""
    is_asked = os.environ.get("KOLUMN_OUTPUT") == "text" and "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or is_asked else None


def fits(names: list[str], rows: list[list[Any]]) -> bool:
    return _fits(names, _cells(rows), terminal_width())


def _fits(names: list[str], cells: list[list[str]], width: int | None) -> bool:
    return width is None or sum(_widths(names, cells)) + 2 * (len(names) - 1) <= width


def layout(title: str, names: list[str], rows: list[list[Any]], width: int | None, bold: bool) -> list[str]:
    """Lines of a table of at most ``width`` columns, or of any; whether the names of columns are bold."""
    lines, cells = [title] if title else [], _cells(rows)
    if _fits(names, cells, width):
        widths = _widths(names, cells)
        right = [bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(names))]
        head, *body = ("  ".join(map(_padded, line, widths, right)).rstrip() for line in (names, *cells))
        return [*lines, f"\x1b[1m{head}\x1b[0m" if bold else head, *body]
    longest = max(map(len, names))
    for number, row in enumerate(cells):
        lines += [""] if number else []
        for name, cell in zip(names, row, strict=True):
            if cell:
                lines += wrapped(f"{name:{longest}}  ", cell, width if name in _PROSE else None)
    return lines


def wrapped(label: str, text: str, width: int | None) -> list[str]:
    """A label and a text after it. A text that is longer than a line goes on below itself; no word is folded."""
    if width is None or len(label) + len(text) <= width:
        return [label + text]
    lines = textwrap.wrap(text, max(width - len(label), 20), break_long_words=False, break_on_hyphens=False)
    return [f"{' ' * len(label) if i else label}{line}" for i, line in enumerate(lines)]


def _cells(rows: list[list[Any]]) -> list[list[str]]:
    return [["" if cell is None else escaped(str(cell)) for cell in row] for row in rows]


def _widths(names: list[str], cells: list[list[str]]) -> list[int]:
    return [max(map(_width, column)) for column in zip(names, *cells, strict=True)]


def _width(text: str) -> int:
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks
