"""The charts of a report."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from kolumn.core.arrays import Int64s
from kolumn.damage.findings import Damage
from kolumn.tools.report import html
from kolumn.tools.report.gather import BATCHES, Findings
from kolumn.tools.report.html import BAD, FIRST, INK, MUTED, SECOND, THIRD, Chart
from kolumn.tools.report.tallies import Drawn, Powers
from kolumn.tools.sizes import Space

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BINS = 90
_LONGEST_MS = 253_402_300_799_000


def over_time(name: str, title: str, drawn: Drawn, values: Int64s, unit: Callable[[float], str], colour: str = FIRST) -> Chart:
    """Bars over time."""
    peak = int(np.argmax(values))
    description = (
        f"{len(values)} bars of {html.duration(drawn.width_ms)} from {html.moment(drawn.start_ms)}. Highest: {unit(float(values[peak]))} "
        f"from {html.moment(drawn.start_ms + peak * drawn.width_ms)}."
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
    """Marks of a vertical axis at whole numbers of records or bytes."""
    axes.locator_params(axis="y", integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: unit(value))


def _time_axis(axes: "Axes", start: int, end: int) -> None:
    """Four times under an axis of ms since 1970."""
    span = end - start
    form = "%Y-%m-%d" if span > 4 * 86_400_000 else "%m-%d %H:%M" if span > 20 * 3_600_000 else "%H:%M" if span > 480_000 else "%H:%M:%S"
    places = [start + span * (1 + 2 * i) // 8 for i in range(4)]
    if start >= 0 and end < _LONGEST_MS:
        moments = [datetime.fromtimestamp(place / 1000, UTC) for place in places]
        # Within some seconds all would have the same label.
        axes.set_xticks(places, [one.strftime(form) if span > 8000 else f"{one:%S}.{one.microsecond // 1000:03} s" for one in moments])
        first = datetime.fromtimestamp(start / 1000, UTC)
        axes.set_xlabel(f"UTC, from {first:%Y-%m-%d}{'' if span > 8000 else f' {first:%H:%M}'}", fontsize=9)
    else:
        axes.set_xticks(places, [html.short(place) for place in places])
        axes.set_xlabel("ms since 1970", fontsize=9)


def powers(name: str, title: str, found: Powers, label: str, unit: Callable[[float], str], name_of: Callable[[int], str]) -> Chart:
    """Bars by powers of two: the share of each in the weights, or in the counts if nothing has a weight."""
    values = found.weights if found.weights.any() else found.counts
    places = found.span
    top = max(places, key=lambda place: values[place])
    chart = Chart(name, title, f"{len(places)} bars by powers of two. Most, {unit(float(values[top]))}, are below {name_of(top)}.")
    with chart as axes:
        axes.bar([name_of(place) for place in places], [int(values[place]) for place in places], color=SECOND, width=0.8)
        # A few bars are as wide as one of many.
        room = max(len(places), 7) / 2
        axes.set_xlim(len(places) / 2 - 0.5 - room, len(places) / 2 - 0.5 + room)
        _whole_numbers(axes, unit)
        axes.set_xlabel(label, fontsize=9)
        axes.grid(visible=False, axis="x")
        if len(places) > 7:
            axes.tick_params(axis="x", labelrotation=60, labelsize=8)
    return chart


def bars(name: str, title: str, rows: list[tuple[str, float]], unit: Callable[[float], str], colours: list[str] | None = None) -> Chart:
    """Horizontal bars with their numbers."""
    text = "; ".join(f"{label}: {unit(value)}" for label, value in rows)
    chart = Chart(name, title, text, 0.7 + 0.27 * len(rows))
    with chart as axes:
        labels = [_label(label) for label, _ in rows]
        drawn = axes.barh(range(len(rows)), [value for _, value in rows], color=colours or FIRST, height=0.72)
        axes.set_yticks(range(len(rows)), labels)
        axes.bar_label(drawn, [unit(value) for _, value in rows], padding=3, color=INK, fontsize=9)
        axes.invert_yaxis()
        axes.margins(x=0.24)
        axes.set_xlim(left=0)
        axes.tick_params(axis="x", labelbottom=False, length=0)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
    return chart


def shortened(text: str) -> str:
    """The beginning and the end of a name that is long."""
    return text if len(text) <= 24 else f"{text[:14]}…{text[-9:]}"


def _label(text: str) -> str:
    # A dollar sign begins a formula.
    return shortened(text).replace("$", r"\$")


def damage(name: str, pieces: list[Damage], sizes: dict[str, int], name_of: Callable[[str], str]) -> Chart:
    """Where in the damaged segments the damage is: at most 12 of them, those with most damaged bytes."""
    lost: dict[str, int] = dict.fromkeys(sizes, 0)
    for one in pieces:
        lost[one.segment] += one.size
    chosen = sorted(lost, key=lambda path: -lost[path])[:12]
    text = "; ".join(f"{name_of(path)}: {html.size(lost[path])} of {html.size(sizes[path])}" for path in chosen)
    chart = Chart(name, "Where the damage is in its segments", text, 0.9 + 0.3 * len(chosen))
    with chart as axes:
        axes.barh(range(len(chosen)), [sizes[path] for path in chosen], color=MUTED, alpha=0.35, height=0.6)
        # A stretch is at least as wide as can be seen.
        least = max(map(sizes.__getitem__, chosen)) / 200
        for row, path in enumerate(chosen):
            own = [(one.position, max(one.size, least)) for one in pieces if one.segment == path]
            axes.broken_barh(own[:1000], (row - 0.3, 0.6), color=BAD)
        axes.set_yticks(range(len(chosen)), [_label(name_of(path)) for path in chosen])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(lambda value, _: html.size(value))
        axes.locator_params(axis="x", nbins=4)
        axes.set_xlabel("position in the segment", fontsize=9)
        axes.grid(visible=False)
    return chart


def savings(name: str, written: list[tuple[str, int, int]]) -> Chart:
    """The sample with each codec and batch size."""
    codecs = list(dict.fromkeys(codec for codec, _, _ in written))
    sizes = {(codec, batch): size for codec, batch, size in written}
    text = "; ".join(f"{codec} in batches of {html.binary(batch)}: {html.size(size)}" for codec, batch, size in written)
    chart = Chart(name, "The sample with other codecs and batch sizes", text, 3.2)
    with chart as axes:
        for number, (batch, colour) in enumerate(zip(BATCHES, (FIRST, SECOND, THIRD), strict=True)):
            places = [i + (number - 1) * 0.27 for i, codec in enumerate(codecs) if (codec, batch) in sizes]
            values = [sizes[codec, batch] for codec in codecs if (codec, batch) in sizes]
            axes.bar(places, values, width=0.25, color=colour, label=html.binary(batch))
        axes.set_xticks(range(len(codecs)), codecs)
        axes.yaxis.set_major_formatter(lambda value, _: html.size(value))
        axes.legend(title="batches of", ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9, title_fontsize=9)
        axes.grid(visible=False, axis="x")
    return chart


def overhead(name: str, found: list[Space], name_of: Callable[[Space], str]) -> Chart:
    """Bytes that each format adds to a record."""
    kinds = {"offsets, timestamps": ("offsets", "timestamps"), "lengths": ("lengths",), "other fields": ("crc", "producer", "attributes")}
    rows = [(name_of(one), [sum(one.parts[part] for part in parts) / max(one.records, 1) for parts in kinds.values()]) for one in found]
    text = "; ".join(f"{label}: {sum(parts):.1f}" for label, parts in rows)
    chart = Chart(name, "Bytes that a format adds to a record", text, 1.2 + 0.27 * len(rows))
    with chart as axes:
        left = [0.0] * len(rows)
        for number, (kind, colour) in enumerate(zip(kinds, (FIRST, SECOND, THIRD), strict=True)):
            widths = [parts[number] for _, parts in rows]
            drawn = axes.barh(range(len(rows)), widths, left=left, color=colour, height=0.72, label=kind)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.bar_label(drawn, [f"{end:.1f} B" for end in left], padding=3, color=INK, fontsize=9)
        axes.set_yticks(range(len(rows)), [label for label, _ in rows])
        axes.invert_yaxis()
        axes.margins(x=0.2)
        axes.set_xlim(left=0)
        axes.tick_params(axis="x", labelbottom=False, length=0)
        axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.4, 1.0), fontsize=9)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
    return chart


def transactions(name: str, found: Findings) -> Chart:
    """A line for each transaction, by producer."""
    shown = sorted(found.transactions.found, key=lambda one: one.start_ms)[:400]
    producers = {number: row for row, number in enumerate(dict.fromkeys(one.producer for one in shown))}
    chart = Chart(
        name, "Transactions by producer over time", f"{len(shown)} transactions of {len(producers)} producers: see the table.",
        min(1.3 + 0.2 * len(producers), 6),
    )  # fmt: skip
    low, high = min(one.start_ms for one in shown), max(one.end_ms for one in shown)
    least = max((high - low) // 150, 1)
    with chart as axes:
        for outcome, colour in (("committed", FIRST), ("aborted", BAD), ("open", MUTED)):
            own = [one for one in shown if one.outcome == outcome]
            if own:
                rows = [producers[one.producer] for one in own]
                ends = [max(one.end_ms, one.start_ms + least) for one in own]
                axes.hlines(rows, [one.start_ms for one in own], ends, colors=colour, linewidth=5, label=outcome)
        axes.set_yticks(range(len(producers)), list(map(str, producers)) if len(producers) <= 25 else [""] * len(producers))
        axes.set_ylim(len(producers) - 0.4, -0.6)
        axes.set_xlim(low - least, high + least)
        _time_axis(axes, low - least, high + least)
        axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9)
        axes.grid(visible=False, axis="y")
    return chart
