"""Pieces of the page."""

import json
import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

from kolumn.report import words
from kolumn.report.svg import Chart

_WRAPPED = {
    "reason": "wrap",
    "remark": "wrap",
    "evidence": "wrap",
    "explanation": "wrap",
    "key": "path",
    "group": "path",
}
MOST_ROWS = 200
"""Of a long table; its caption says how many more there are."""
_OPEN_ROWS = 12
_NUMBER = re.compile(r"[<\d.\u202f ]+(%|min|ms|[smhd]|[kMGTP]?B)?|–")
"""Text that is a number, with or without a unit."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The page may load nothing, whatever names of topics and keys in it say."""


def page(title: str, body: str, data: object) -> str:
    """A complete page; ``data`` is in it as JSON, for programs."""
    style = resources.files("kolumn.report").joinpath("style.css").read_text("utf-8")
    # "</script>" in a name would end the element.
    text = json.dumps(data, ensure_ascii=True).replace("<", "\\u003c")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f'<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n<script type="application/json" id="stats">{text}</script>\n'
        "</body>\n</html>\n"
    )


def section(name: str, title: str, *parts: str) -> str:
    """A section with a heading."""
    return "\n".join([f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(title)}</h2>', *filter(None, parts), "</section>"])


def text(*sentences: str) -> str:
    """A paragraph."""
    return f"<p>{escape(' '.join(filter(None, sentences)))}</p>"


def charts(found: Sequence[Chart]) -> str:
    """Charts side by side."""
    figures = [f"<figure><figcaption>{escape(one.title)}</figcaption>{one.svg}</figure>" for one in found]
    return f'<div class="charts">{"".join(figures)}</div>' if figures else ""


def tiles(values: Sequence[tuple[str, str, str]]) -> str:
    """Numbers with names and remarks."""
    made = [
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}{f'<small>{escape(more)}</small>' if more else ''}</dd></div>"
        for name, value, more in values
    ]
    return f'<dl class="tiles">{"".join(made)}</dl>'


def table(caption: str, names: Sequence[str], rows: Sequence[Sequence[Any]], most: int | None = None) -> str:
    """A table; numbers are on the right. Of more than ``most`` rows the first ones."""
    if not rows:
        return ""
    if most is not None and len(rows) > most:
        caption, rows = f"{caption}: the first {most} of {words.number(len(rows))}", rows[:most]
    right = [all(_is_number(row[i]) for row in rows) for i in range(len(names))]
    kinds = [
        ' class="n"' if number else f' class="{_WRAPPED[name]}"' if name in _WRAPPED else ""
        for name, number in zip(names, right, strict=True)
    ]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(names, kinds, strict=True))
    lines = ["".join(f"<td{kind}>{_cell(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    made = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )
    # Pictures come first: a long table is closed until somebody opens it.
    return (
        made
        if len(rows) <= _OPEN_ROWS
        else f"<details><summary>{escape(caption)}: {words.counted(len(rows), 'row')}</summary>{made}</details>"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | None) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return escape(words.number(value) if isinstance(value, int) else str(value))
