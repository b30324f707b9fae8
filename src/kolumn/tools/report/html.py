"""Pieces of the page.

Charts as SVG for a page: drawn by matplotlib, coloured by the page, with a title and a text for screen readers.

Numbers and times as people read them.
"""

import json
import re
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from io import StringIO
from types import TracebackType
from typing import Any, TypeAlias

from kolumn.core.errors import MissingPackageError

# matplotlib knows no variables of CSS: each of these colours stands for one, and is drawn nowhere else.
INK, MUTED, FIRST, SECOND, THIRD, GOOD, BAD = (f"#0102{number:02x}" for number in range(7))
_VARIABLES = {INK: "ink", MUTED: "muted", FIRST: "first", SECOND: "second", THIRD: "third", GOOD: "good", BAD: "bad"}
_STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "kolumn", "font.size": 10, "font.family": "sans-serif", "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": MUTED, "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK,
    "ytick.labelcolor": INK, "grid.color": MUTED, "grid.alpha": 0.25, "axes.grid": True, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
}  # fmt: skip
WIDTH, HEIGHT = 5.2, 2.5
"""Inches: on a phone a chart is as wide as the screen, and its text is about as large as it is drawn."""


_Failed: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Chart:
    """One chart. Draw into ``axes`` within ``with``; then `svg` is the text.

    ``name`` is the prefix of the ids in the SVG, which have to be unique in a page; ``title`` and ``description`` are for screen readers;
    ``height`` is in inches.
    """

    def __init__(self, name: str, title: str, description: str, height: float = HEIGHT) -> None:
        self.name, self.title, self.description = name, title, description
        self._height = height
        self.svg = ""

    def __enter__(self) -> Any:
        try:
            import matplotlib as mpl
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingPackageError("reports need matplotlib: pip install 'kolumn[report]'") from error
        self._context = mpl.rc_context(_STYLE)
        self._context.__enter__()
        self._figure = Figure(figsize=(WIDTH, self._height), layout="constrained")
        return self._figure.add_subplot()

    def __exit__(self, *failed: *_Failed) -> None:
        try:
            if failed[0] is None:
                self.svg = self._finished()
        finally:
            self._context.__exit__(*failed)

    def _finished(self) -> str:
        drawn = StringIO()
        metadata = dict.fromkeys(("Date", "Creator", "Type", "Format"))
        with warnings.catch_warnings():
            # Text stays text: the browser's fonts draw it, not matplotlib's.
            warnings.filterwarnings("ignore", "Glyph .* missing")
            self._figure.savefig(drawn, format="svg", transparent=True, metadata=metadata)
        text = drawn.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        for colour, variable in _VARIABLES.items():
            text = text.replace(colour, f"var(--{variable})")
        # Fonts of the page; sizes stay.
        text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
        text = re.sub(r'\bid="([^"]+)"', rf'id="{self.name}-\1"', text)
        text = re.sub(r'(xlink:href="|url\()#', rf"\1#{self.name}-", text)
        box = re.search(r'viewBox="[^"]+"', text)
        said = f'role="img" aria-labelledby="{self.name}-t {self.name}-d"'
        opening = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {box[0] if box else ""} {said}>'
        labels = f'<title id="{self.name}-t">{escape(self.title)}</title><desc id="{self.name}-d">{escape(self.description)}</desc>'
        return opening + labels + text[text.index(">") + 1 :].strip()


_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def number(value: float) -> str:
    """A whole number with thin spaces: 2 000 000."""
    return f"{round(value):,}".replace(",", "\u202f")


def counted(value: int, name: str) -> str:
    """A number with a noun: 1 segment, 2 segments, 2 batches."""
    return f"{number(value)} {name}{'' if value == 1 else 'es' if name.endswith('ch') else 's'}"


def size(value: float) -> str:
    """Bytes in decimal units."""
    for unit in _UNITS:
        if abs(value) < 1000 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def binary(value: int) -> str:
    """A power of two of at least 1 KiB, in bytes."""
    return f"{value >> 10} KiB" if value < 1 << 20 else f"{value >> 20} MiB"


def short(value: float) -> str:
    """A count for an axis: 2.5 M."""
    length, unit = next(((length, unit) for length, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")) if abs(value) >= length), (1, ""))
    value /= length
    return f"{value:g}{unit}" if value == round(value) else f"{value:.1f}{unit}"


def share(part: float, whole: float) -> str:
    """A percentage."""
    if not whole:
        return "–"
    value = 100 * part / whole
    return "< 0.1 %" if 0 < value < 0.1 else f"{value:.1f} %"


def moment(ms: int | None) -> str:
    """A time in UTC."""
    if ms is None:
        return "–"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def duration(ms: float) -> str:
    """A length of time."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= length:
            return f"{number(ms / length) if ms >= 100 * length else f'{ms / length:.3g}'} {unit}"
    return f"{ms:.0f} ms"


def power(place: int) -> str:
    """The sizes in one place of `kolumn.tools.report.tallies.Powers`: its upper bound."""
    return "0" if place == 0 else binary(2**place) if place >= 10 else str(2**place)


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
    style = resources.files("kolumn.tools.report").joinpath("style.css").read_text("utf-8")
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
        caption, rows = f"{caption}: the first {most} of {number(len(rows))}", rows[:most]
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
        made if len(rows) <= _OPEN_ROWS else f"<details><summary>{escape(caption)}: {counted(len(rows), 'row')}</summary>{made}</details>"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | None) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return escape(number(value) if isinstance(value, int) else str(value))
