"""Damage and remarks as HTML, for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape

from kolumn.errors import escaped

MOST_ROWS = 50


def html_table(names: Sequence[str], rows: Sequence[Iterable[object]], total: int | None = None) -> str:
    """A table of the first rows; ``total`` is how many there are."""
    head = "".join(f"<th>{escape(escaped(name))}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS])
    more = (len(rows) if total is None else total) - min(len(rows), MOST_ROWS)
    said = f"<p>and {more} more</p>" if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{said}"


def _cell(value: object) -> str:
    text = "" if value is None else escape(escaped(str(value)))
    return f'<td style="text-align: right">{text}</td>' if isinstance(value, int) else f'<td style="text-align: left">{text}</td>'
