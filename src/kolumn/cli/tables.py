"""Tables for people: as wide as necessary, or one line for each cell if the terminal is too narrow."""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Any

from kolumn.core.errors import escaped

Rows = list[dict[str, Any]]
_PROSE = {"reason", "remark", "evidence"}  # columns whose cells are sentences. Others are names and numbers, which are never folded


def print_table(title: str, names: Iterable[str], rows: list[list[Any]]) -> None:
    """Print a table; plain text if standard output is not a terminal. No cell is ever folded."""
    print("\n".join(layout(title, list(names), rows, terminal_width(), sys.stdout.isatty())))


def print_rows(title: str, rows: Rows) -> None:
    print_table(title, rows[0], [list(row.values()) for row in rows])


def print_left_out(rows: Rows) -> None:
    if rows:
        print_rows("Left out, since no part of the log; what is named is read", rows)
        print()


def json_lines(value: object) -> str:
    """JSON to edit, on several lines; ASCII alone if a text in it would make a terminal act."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if text.replace("\n", "").isprintable() else json.dumps(value, indent=2)


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
