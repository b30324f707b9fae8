"""Tables for people: as wide as necessary. In a terminal that is too narrow a table says above it what is equal in all rows, sentences go
below their rows, and what is still too wide becomes several tables one below the other, or one line for each cell.
"""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from kolumn.core.amounts import age, size
from kolumn.core.errors import escaped

Rows = list[dict[str, Any]]
LEFT_OUT = "Left out because not part of the log (name a path to read it anyway)"
_PROSE = {"reason", "remark", "evidence"}  # columns whose cells are sentences. Others are names and numbers, which are never folded
_PATHS = {"segment", "folder", "path", "source"}
_KEYS = {"group", "topic", "partition", "segment", "path", "format", "magic", "offset", "kind", "offsets"}
"""Columns that say what a row is about, where they are the first ones."""
_AMOUNT = re.compile(r"~?\d[\d.]*( [a-zA-Z]+)?|null")
_FOR_PEOPLE = {
    "bytes": ("size", size), "bytesRead": ("read", size), "damagedBytes": ("damaged", size), "bytesAboveStable": ("sizeAboveStable", size),
    "bytesRemoved": ("removed", size), "meanKeyBytes": ("meanKey", size), "meanValueBytes": ("meanValue", size), "ageMs": ("age", age),
}  # fmt: skip
"""Columns of numbers that JSON has exactly: their names in tables, and how a number is printed."""


def print_table(title: str, names: Iterable[str], rows: list[list[Any]]) -> None:
    """Print a table; plain text if standard output is not a terminal. No cell is ever folded."""
    print("\n".join(layout(title, list(names), rows, terminal_width(), sys.stdout.isatty())))


def print_rows(title: str, rows: Rows, names: Iterable[str] | None = None) -> None:
    """Print some columns of rows, or all, as people read them."""
    chosen = list(rows[0] if names is None else names)
    first = next((name for name in ("firstOffset", "baseOffset") if name in chosen), None)
    if first is not None and "lastOffset" in chosen:
        rows = [row | {"offsets": _offsets(row[first], row["lastOffset"])} for row in rows]
        chosen = ["offsets" if name == first else name for name in chosen if name != "lastOffset"]
    known = {name: _FOR_PEOPLE.get(name, (name, _cell)) for name in chosen}
    cells = [[None if row[name] is None else known[name][1](row[name]) for name in chosen] for row in rows]
    print_table(title, [shown for shown, _ in known.values()], cells)


def _offsets(first: int | None, last: int | None) -> str | None:
    if first == last:
        return None if first is None else str(first)
    return f"{'?' if first is None else first}..{'?' if last is None else last}"


def print_some(title: str, rows: Rows, names: Iterable[str] | None = None) -> None:
    """Print a part of a report, with an empty line before it; nothing if there are no rows."""
    if rows:
        print()
        print_rows(title, rows, names)


def _cell(value: object) -> object:
    return ("yes" if value else "no") if isinstance(value, bool) else value


def print_left_out(rows: Rows) -> None:
    print_some(LEFT_OUT, rows)


def json_lines(value: object) -> str:
    """JSON to edit, on several lines; ASCII alone if a text in it would make a terminal act."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if text.replace("\n", "").isprintable() else json.dumps(value, indent=2)


def terminal_width() -> int | None:
    """Columns of the terminal, or those that are asked for by KOLUMN_OUTPUT=text and COLUMNS; None for a file or pipe otherwise."""
    is_asked = os.environ.get("KOLUMN_OUTPUT") == "text" and "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or is_asked else None


def fits(names: list[str], rows: list[list[Any]]) -> bool:
    return _Table(names, rows).within(terminal_width()) is not None


def layout(title: str, names: list[str], rows: list[list[Any]], width: int | None, bold: bool) -> list[str]:
    """Lines of a table of at most ``width`` columns, or of any; whether the names of columns are bold."""
    whole = _Table(names, rows)
    table = whole.within(width)
    if table is not None or width is None:
        return [*(table or whole).heading(title, width), *(table or whole).lines(bold)]
    table = whole.reduced()
    return [*table.heading(title, width), *(table.parts(width, bold) or table.blocks(width))]


class _Table:
    """Cells as text in columns. ``about`` is what was left out of the columns, since it is equal in all rows."""

    def __init__(self, names: list[str], rows: list[list[Any]], about: tuple[str, ...] = ()) -> None:
        self.names, self.rows, self.about = names, rows, about
        self.cells = [["" if cell is None else escaped(str(cell)) for cell in row] for row in rows]
        self.widths = [max(map(_width, column)) for column in zip(names, *self.cells, strict=True)]

    @property
    def width(self) -> int:
        return sum(self.widths) + 2 * (len(self.names) - 1)

    def within(self, width: int | None) -> "_Table | None":
        """A table of that width, as it is or without what is equal in all rows; None if there is none."""
        if width is None or self.width <= width:
            return self
        table = self.reduced()
        return table if table.width <= width else None

    def reduced(self) -> "_Table":
        """Without columns that are empty or equal in all rows, and without what paths begin with."""
        if len(self.rows) < 2:
            return self
        about, kept = list[str](), list[tuple[str, list[Any]]]()
        for name, *column in zip(self.names, *self.rows, strict=True):
            texts = {str(cell) for cell in column if cell is not None}
            if not texts - {""}:
                continue
            if len(texts) == 1 and None not in column:
                about.append(f"{name} {escaped(next(iter(texts)))}")
                continue
            if name in _PATHS and (start := os.path.commonprefix(sorted(texts)).rpartition("/")[0]):  # noqa: RUF071
                about.append(f"{name} in {escaped(start)}")
                column = [None if cell is None else cell[len(start) + 1 :] for cell in column]
            kept.append((name, column))
        names, columns = [name for name, _ in kept], [column for _, column in kept]
        return _Table(names, [list(row) for row in zip(*columns, strict=True)], tuple(about)) if kept else self

    def heading(self, title: str, width: int | None) -> list[str]:
        if not self.about:
            return [title] if title else []
        return wrapped(f"{title}: " if title else "", ", ".join(self.about), width)

    def lines(self, bold: bool) -> list[str]:
        right = [all(map(_is_amount, column)) for column in zip(*self.rows, strict=True)] or [False] * len(self.names)
        head, *body = ("  ".join(map(_padded, line, self.widths, right)).rstrip() for line in (self.names, *self.cells))
        return [f"\x1b[1m{head}\x1b[0m" if bold else head, *body]

    def parts(self, width: int, bold: bool) -> list[str]:
        """Lines of tables of some columns each; the last one has sentences below its rows. None if a single column is too wide. All tables
        have the columns that say what a row is about, or the first of these, if there is no room for more."""
        prose = [i for i, name in enumerate(self.names) if name in _PROSE]
        plain = [i for i in range(len(self.names)) if i not in prose]
        about = list(takewhile(lambda i: self.names[i] in _KEYS, plain))
        chosen = [parts for keys in (about, about[:1]) if (parts := self._columns(keys, plain[len(keys) :], width))]
        # More than two tables of a few rows are harder to read than a block for each row.
        if not chosen or len(self.rows) < 2 or len(self.rows) <= len(chosen[0]) > 2:
            return []
        tables = [_Table([self.names[i] for i in part], [[row[i] for i in part] for row in self.rows]) for part in chosen[0]]
        below = [[line for i in prose if row[i] for line in wrapped("    ", row[i], width)] for row in self.cells]
        lines = [line for table in tables[:-1] for line in (*table.lines(bold), "")]
        head, *body = tables[-1].lines(bold)
        return [*lines, head, *(line for row, own in zip(body, below, strict=True) for line in (row, *own))]

    def _columns(self, keys: list[int], rest: list[int], width: int) -> list[list[int]]:
        """The columns of tables of that width, each with the keys; none if a column has no room, or nothing tells rows apart."""
        room = width + 2 - sum(self.widths[i] + 2 for i in keys)
        parts, used = [list(keys)], 0
        for i in rest:
            used += self.widths[i] + 2
            if used > room and len(parts[-1]) > len(keys):
                parts, used = [*parts, list(keys)], self.widths[i] + 2
            if used > room:
                return []
            parts[-1].append(i)
        return parts if parts[0] and (keys or len(parts) == 1) and room >= 0 else []

    def blocks(self, width: int) -> list[str]:
        """A line for each cell, and an empty one between rows."""
        longest, lines = max(map(len, self.names)), list[str]()
        for number, row in enumerate(self.cells):
            lines += [""] if number else []
            for name, cell in zip(self.names, row, strict=True):
                if cell:
                    lines += wrapped(f"{name:{longest}}  ", cell, width if name in _PROSE else None)
        return lines


def _is_amount(cell: object) -> bool:
    return isinstance(cell, int | float | None) or _AMOUNT.fullmatch(str(cell)) is not None


def wrapped(label: str, text: str, width: int | None) -> list[str]:
    """A label and a text after it. A text that is longer than a line goes on below itself; no word is folded."""
    if width is None or len(label) + len(text) <= width:
        return [label + text]
    lines = textwrap.wrap(text, max(width - len(label), 20), break_long_words=False, break_on_hyphens=False)
    return [f"{' ' * len(label) if i else label}{line}" for i, line in enumerate(lines)]


def _width(text: str) -> int:
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks
