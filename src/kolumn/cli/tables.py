"""Tables for people: as wide as necessary, or one line for each cell if the terminal is too narrow."""

import codecs
import os
import shutil
import sys
import textwrap
from typing import Any

import typer

from kolumn.core.errors import escaped, shown

NAMES = "kolumn-names"
"""Error handler of streams on which names of files are printed."""
_PROSE = {"reason", "remark", "evidence"}
"""Columns whose cells are sentences. Others are names and numbers, which are never folded."""


def print_table(title: str, names: list[str], rows: list[list[Any]]) -> None:
    """Print a table; plain text if standard output is not a terminal. No cell is ever folded."""
    print("\n".join(layout(title, names, rows, terminal_width(), sys.stdout.isatty())))


def terminal_width() -> int | None:
    """Columns of the terminal, or those that are asked for by KOLUMN_OUTPUT=text and COLUMNS; None for a file or pipe otherwise."""
    is_asked = os.environ.get("KOLUMN_OUTPUT") == "text" and "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or is_asked else None


def fits(names: list[str], rows: list[list[Any]], width: int | None) -> bool:
    """Whether a table fits into ``width`` columns."""
    return width is None or sum(_widths(names, _cells(rows))) + 2 * (len(names) - 1) <= width


def layout(title: str, names: list[str], rows: list[list[Any]], width: int | None, bold: bool) -> list[str]:
    """Lines of a table of at most ``width`` columns, or of any; whether the names of columns are bold."""
    lines = [title] if title else []
    return lines + (_grid(names, rows, bold) if fits(names, rows, width) else _blocks(names, rows, width))


def note(text: str) -> None:
    """Print a line on standard error, whatever names of files are in it."""
    typer.echo(shown(text), err=True)


def _for_stream(error: UnicodeError) -> tuple[str, int]:
    """What cannot be written to a stream: bytes that are not UTF-8, surrogates in Python's names of files."""
    assert isinstance(error, UnicodeEncodeError)
    return escaped(error.object[error.start : error.end]), error.end


codecs.register_error(NAMES, _for_stream)


def _grid(names: list[str], rows: list[list[Any]], bold: bool) -> list[str]:
    cells = _cells(rows)
    widths = _widths(names, cells)
    right = [bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(names))]
    head, *lines = ("  ".join(map(_padded, line, widths, right)).rstrip() for line in (names, *cells))
    return [f"\x1b[1m{head}\x1b[0m" if bold else head, *lines]


def wrapped(label: str, text: str, width: int | None) -> list[str]:
    """A label and a text after it. A text that is longer than a line goes on below itself; no word is folded."""
    if width is None or len(label) + len(text) <= width:
        return [label + text]
    most = max(width - len(label), 20)
    lines = textwrap.wrap(text, most, break_long_words=False, break_on_hyphens=False)
    return [f"{' ' * len(label) if i else label}{line}" for i, line in enumerate(lines)]


def _blocks(names: list[str], rows: list[list[Any]], width: int | None) -> list[str]:
    longest = max(map(len, names))
    lines: list[str] = []
    for row in _cells(rows):
        lines += [""] if lines else []
        for name, cell in zip(names, row, strict=True):
            if cell:
                lines += wrapped(f"{name:{longest}}  ", cell, width if name in _PROSE else None)
    return lines


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
