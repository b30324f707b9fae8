"""Pieces of the page: charts as SVG, drawn by matplotlib and coloured by the page; numbers and times as people read them; tables."""

import json
import re
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from io import StringIO
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from kolumn.core import times
from kolumn.core.amounts import age, size
from kolumn.core.arrays import Int64s
from kolumn.core.packages import missing_package
from kolumn.damage.findings import Damage
from kolumn.tools.report.gather import BATCHES
from kolumn.tools.report.tallies import Drawn, Powers, Transaction
from kolumn.tools.sizes import Space

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# matplotlib knows no variables of CSS: each of these colours stands for one, and is drawn nowhere else.
INK, MUTED, FIRST, SECOND, THIRD, GOOD, BAD = (f"#0102{number:02x}" for number in range(7))
_VARIABLES = {INK: "ink", MUTED: "muted", FIRST: "first", SECOND: "second", THIRD: "third", GOOD: "good", BAD: "bad"}
_STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "kolumn", "font.size": 10, "font.family": "sans-serif", "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": MUTED, "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK,
    "ytick.labelcolor": INK, "grid.color": MUTED, "grid.alpha": 0.25, "axes.grid": True, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
}  # fmt: skip
WIDTH, HEIGHT = 5.2, 2.5  # inches: on a phone a chart is as wide as the screen, and its text is about as large as it is drawn


_Failed: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Chart:
    """One chart. Draw into ``axes`` within ``with``; then `svg` is the text. ``name`` is the prefix of the ids in the SVG, which have to be
    unique in a page; ``title`` and ``description`` are for screen readers; ``height`` is in inches."""

    def __init__(self, name: str, title: str, description: str, height: float = HEIGHT) -> None:
        self.name, self.title, self.description = name, title, description
        self._height = height
        self.svg = ""

    def __enter__(self) -> Any:
        try:
            import matplotlib as mpl
            from matplotlib.figure import Figure
        except ImportError as error:
            raise missing_package("reports need matplotlib", "matplotlib", "datasketches") from error
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


def number(value: float) -> str:
    """A whole number with thin spaces: 2 000 000."""
    return f"{round(value):,}".replace(",", "\u202f")


def counted(value: int, name: str) -> str:
    return f"{number(value)} {name}{'' if value == 1 else 'es' if name.endswith('ch') else 's'}"


def binary(value: int) -> str:
    """A power of two of at least 1 KiB, in bytes."""
    return f"{value >> 10} KiB" if value < 1 << 20 else f"{value >> 20} MiB"


def short(value: float) -> str:
    """A count for an axis: 2.5 M."""
    length, unit = next(((length, unit) for length, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")) if abs(value) >= length), (1, ""))
    value /= length
    return f"{value:g}{unit}" if value == round(value) else f"{value:.1f}{unit}"


def share(part: float, whole: float) -> str:
    if not whole:
        return "–"
    value = 100 * part / whole
    return "< 0.1 %" if 0 < value < 0.1 else f"{value:.1f} %"


def moment(ms: int | None) -> str:
    return "–" if ms is None else times.moment(ms)


def power(number: int) -> str:
    """The sizes of a power of two in `kolumn.tools.report.tallies.Powers`: their upper bound."""
    return "0" if number == 0 else binary(2**number) if number >= 10 else str(2**number)


_WRAPPED = {"reason": "wrap", "remark": "wrap", "evidence": "wrap", "explanation": "wrap", "key": "path", "group": "path"}
MOST_ROWS = 200  # of a long table; its caption says how many more there are
_OPEN_ROWS = 12
_NUMBER = re.compile(r"[<\d.\u202f ]+(%|min|ms|[smhd]|[kMGTP]?B)?|–")  # text that is a number, with or without a unit
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
    return "\n".join([f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(title)}</h2>', *filter(None, parts), "</section>"])


def text(*sentences: str) -> str:
    return f"<p>{escape(' '.join(filter(None, sentences)))}</p>"


def charts(drawn: Sequence[Chart]) -> str:
    figures = [f"<figure><figcaption>{escape(chart.title)}</figcaption>{chart.svg}</figure>" for chart in drawn]
    return f'<div class="charts">{"".join(figures)}</div>' if figures else ""


def tiles(values: Sequence[tuple[str, str, str]]) -> str:
    tiles = ""
    for name, value, more in values:
        tiles += f"<div><dt>{escape(name)}</dt><dd>{escape(value)}{f'<small>{escape(more)}</small>' if more else ''}</dd></div>"
    return f'<dl class="tiles">{tiles}</dl>'


def table(caption: str, names: Sequence[str], rows: Sequence[Sequence[Any]], most: int | None = None) -> str:
    """A table; numbers are on the right. Of more than ``most`` rows the first ones."""
    if not rows:
        return ""
    if most is not None and len(rows) > most:
        caption, rows = f"{caption}: the first {most} of {number(len(rows))}", rows[:most]
    styles = ["n" if all(map(_is_number, column)) else _WRAPPED.get(name) for name, *column in zip(names, *rows, strict=True)]
    classes = [f' class="{style}"' if style else "" for style in styles]
    head = "".join(f'<th scope="col"{own}>{escape(name)}</th>' for name, own in zip(names, classes, strict=True))
    cells = [["–" if cell is None else escape(number(cell) if isinstance(cell, int) else str(cell)) for cell in row] for row in rows]
    lines = ["".join(f"<td{own}>{cell}</td>" for cell, own in zip(row, classes, strict=True)) for row in cells]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    made = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )
    if len(rows) <= _OPEN_ROWS:
        return made
    # Pictures come first: a long table is closed until somebody opens it.
    return f"<details><summary>{escape(caption)}: {counted(len(rows), 'row')}</summary>{made}</details>"


def _is_number(value: object) -> bool:
    return isinstance(value, int | None) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


MOST_BINS = 90
_LONGEST_MS = 253_402_300_799_000


def over_time(name: str, title: str, drawn: Drawn, values: Int64s, unit: Callable[[float], str], colour: str = FIRST) -> Chart:
    peak = int(np.argmax(values))
    description = (
        f"{len(values)} bars of {age(drawn.width_ms)} from {moment(drawn.start_ms)}. Highest: {unit(float(values[peak]))} "
        f"from {moment(drawn.start_ms + peak * drawn.width_ms)}."
    )
    chart = Chart(name, title, description)
    with chart as axes:
        # As floats: the end of a log with timestamps in other units need not fit 64 bits.
        starts = drawn.start_ms + np.arange(len(values) + 1, dtype=np.float64) * drawn.width_ms
        axes.stairs(values, starts, fill=True, color=colour)
        axes.set_ylim(bottom=0)
        axes.set_xlim(starts[0], starts[-1])
        _time_axis(axes, int(drawn.start_ms), int(drawn.start_ms) + len(values) * int(drawn.width_ms))
        _whole_numbers(axes, unit)
        axes.grid(visible=False, axis="x")
    return chart


def _whole_numbers(axes: "Axes", unit: Callable[[float], str]) -> None:
    axes.locator_params(axis="y", integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: unit(value))


def _time_axis(axes: "Axes", start: int, end: int) -> None:
    span = end - start
    form = "%Y-%m-%d" if span > 4 * 86_400_000 else "%m-%d %H:%M" if span > 20 * 3_600_000 else "%H:%M" if span > 480_000 else "%H:%M:%S"
    ticks = [start + span * (1 + 2 * i) // 8 for i in range(4)]
    if start >= 0 and end < _LONGEST_MS:
        moments = [datetime.fromtimestamp(tick / 1000, UTC) for tick in ticks]
        # Within some seconds all would have the same label.
        axes.set_xticks(ticks, [time.strftime(form) if span > 8000 else f"{time:%S}.{time.microsecond // 1000:03} s" for time in moments])
        first = datetime.fromtimestamp(start / 1000, UTC)
        axes.set_xlabel(f"UTC, from {first:%Y-%m-%d}{'' if span > 8000 else f' {first:%H:%M}'}", fontsize=9)
    else:
        axes.set_xticks(ticks, [short(tick) for tick in ticks])
        axes.set_xlabel("ms since 1970", fontsize=9)


def powers(name: str, title: str, numbers: Powers, label: str, unit: Callable[[float], str], name_of: Callable[[int], str]) -> Chart:
    """Bars by powers of two: the share of each in the weights, or in the counts if nothing has a weight."""
    values = numbers.weights if numbers.weights.any() else numbers.counts
    span = numbers.span
    top = max(span, key=lambda power: values[power])
    chart = Chart(name, title, f"{len(span)} bars by powers of two. Most, {unit(float(values[top]))}, are below {name_of(top)}.")
    with chart as axes:
        axes.bar([name_of(power) for power in span], [int(values[power]) for power in span], color=SECOND, width=0.8)
        # A few bars are as wide as one of many.
        room = max(len(span), 7) / 2
        axes.set_xlim(len(span) / 2 - 0.5 - room, len(span) / 2 - 0.5 + room)
        _whole_numbers(axes, unit)
        axes.set_xlabel(label, fontsize=9)
        axes.grid(visible=False, axis="x")
        if len(span) > 7:
            axes.tick_params(axis="x", labelrotation=60, labelsize=8)
    return chart


def bars(name: str, title: str, rows: list[tuple[str, float]], unit: Callable[[float], str], colours: list[str] | None = None) -> Chart:
    text = "; ".join(f"{label}: {unit(value)}" for label, value in rows)
    chart = Chart(name, title, text, 0.7 + 0.27 * len(rows))
    with chart as axes:
        drawn = axes.barh(range(len(rows)), [value for _, value in rows], color=colours or FIRST, height=0.72)
        axes.bar_label(drawn, [unit(value) for _, value in rows], padding=3, color=INK, fontsize=9)
        _rows(axes, [axis_label(label) for label, _ in rows], 0.24)
    return chart


def _rows(axes: "Axes", labels: list[str], margin: float) -> None:
    """Rows of horizontal bars, from the top; bars have their numbers, so there is no scale."""
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.margins(x=margin)
    axes.set_xlim(left=0)
    axes.tick_params(axis="x", labelbottom=False, length=0)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)


def shortened(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:14]}…{text[-9:]}"


def axis_label(text: str) -> str:
    # A dollar sign begins a formula.
    return shortened(text).replace("$", r"\$")


def damage(name: str, pieces: list[Damage], sizes: dict[str, int], name_of: Callable[[str], str]) -> Chart:
    """Where in the damaged segments the damage is: at most 12 of them, those with most damaged bytes."""
    lost: dict[str, int] = dict.fromkeys(sizes, 0)
    for piece in pieces:
        lost[piece.segment] += piece.size
    chosen = sorted(lost, key=lambda path: -lost[path])[:12]
    text = "; ".join(f"{name_of(path)}: {size(lost[path])} of {size(sizes[path])}" for path in chosen)
    chart = Chart(name, "Where the damage is in its segments", text, 0.9 + 0.3 * len(chosen))
    with chart as axes:
        axes.barh(range(len(chosen)), [sizes[path] for path in chosen], color=MUTED, alpha=0.35, height=0.6)
        # A stretch is at least as wide as can be seen.
        least = max(map(sizes.__getitem__, chosen)) / 200
        for row, path in enumerate(chosen):
            own = [(piece.position, max(piece.size, least)) for piece in pieces if piece.segment == path]
            axes.broken_barh(own[:1000], (row - 0.3, 0.6), color=BAD)
        axes.set_yticks(range(len(chosen)), [axis_label(name_of(path)) for path in chosen])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(lambda value, _: size(value))
        axes.locator_params(axis="x", nbins=4)
        axes.set_xlabel("position in the segment", fontsize=9)
        axes.grid(visible=False)
    return chart


def savings(name: str, written: list[tuple[str, int, int]]) -> Chart:
    codecs = list(dict.fromkeys(codec for codec, _, _ in written))
    sizes = {(codec, batch): stored for codec, batch, stored in written}
    text = "; ".join(f"{codec} in batches of {binary(batch)}: {size(stored)}" for codec, batch, stored in written)
    chart = Chart(name, "The sample with other codecs and batch sizes", text, 3.2)
    with chart as axes:
        for number, (batch, colour) in enumerate(zip(BATCHES, (FIRST, SECOND, THIRD), strict=True)):
            positions = [i + (number - 1) * 0.27 for i, codec in enumerate(codecs) if (codec, batch) in sizes]
            values = [sizes[codec, batch] for codec in codecs if (codec, batch) in sizes]
            axes.bar(positions, values, width=0.25, color=colour, label=binary(batch))
        axes.set_xticks(range(len(codecs)), codecs)
        axes.yaxis.set_major_formatter(lambda value, _: size(value))
        axes.legend(title="batches of", ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9, title_fontsize=9)
        axes.grid(visible=False, axis="x")
    return chart


def overhead(name: str, spaces: list[Space]) -> Chart:
    purposes = {
        "offsets, timestamps": ("offsets", "timestamps"),
        "lengths": ("lengths",),
        "other fields": ("crc", "producer", "attributes"),
    }
    rows: list[tuple[str, list[float]]] = []
    for own in spaces:
        rows.append((f"v{own.magic}", [sum(own.parts[part] for part in parts) / max(own.records, 1) for parts in purposes.values()]))
    text = "; ".join(f"{label}: {sum(parts):.1f}" for label, parts in rows)
    chart = Chart(name, "Bytes that a format adds to a record", text, 1.2 + 0.27 * len(rows))
    with chart as axes:
        left = [0.0] * len(rows)
        for number, (purpose, colour) in enumerate(zip(purposes, (FIRST, SECOND, THIRD), strict=True)):
            widths = [parts[number] for _, parts in rows]
            drawn = axes.barh(range(len(rows)), widths, left=left, color=colour, height=0.72, label=purpose)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.bar_label(drawn, [f"{end:.1f} B" for end in left], padding=3, color=INK, fontsize=9)
        _rows(axes, [label for label, _ in rows], 0.2)
        axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.4, 1.0), fontsize=9)
    return chart


def transactions(name: str, known: list[Transaction]) -> Chart:
    shown = sorted(known, key=lambda transaction: transaction.start_ms)[:400]
    producers = {number: row for row, number in enumerate(dict.fromkeys(transaction.producer for transaction in shown))}
    text = f"{len(shown)} transactions of {len(producers)} producers: see the table."
    chart = Chart(name, "Transactions by producer over time", text, min(1.3 + 0.2 * len(producers), 6))
    low, high = min(transaction.start_ms for transaction in shown), max(transaction.end_ms for transaction in shown)
    least = max((high - low) // 150, 1)
    with chart as axes:
        for outcome, colour in (("committed", FIRST), ("aborted", BAD), ("open", MUTED)):
            own = [transaction for transaction in shown if transaction.outcome == outcome]
            if own:
                rows = [producers[transaction.producer] for transaction in own]
                ends = [max(transaction.end_ms, transaction.start_ms + least) for transaction in own]
                axes.hlines(rows, [transaction.start_ms for transaction in own], ends, colors=colour, linewidth=5, label=outcome)
        axes.set_yticks(range(len(producers)), list(map(str, producers)) if len(producers) <= 25 else [""] * len(producers))
        axes.set_ylim(len(producers) - 0.4, -0.6)
        axes.set_xlim(low - least, high + least)
        _time_axis(axes, low - least, high + least)
        axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9)
        axes.grid(visible=False, axis="y")
    return chart
