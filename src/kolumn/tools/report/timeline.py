"""The section about the audit: what needs attention, and where it is in the logs: a lane of offsets for each partition."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kolumn.tools.auditing.absent import Reason
from kolumn.tools.auditing.partition import ERROR, NOTE
from kolumn.tools.report import html
from kolumn.tools.report.gather import Findings, partition_name
from kolumn.tools.report.html import BAD, GOOD, INK, MUTED, SECOND, THIRD, Chart

_MOST_LANES = 8
_MOST_MARKS = 300  # of one kind in a lane
_Bar = tuple[int, int]  # first and last offset
_OUTCOMES = {"committed": GOOD, "aborted": THIRD, "open": SECOND}
_GONE = (Reason.LOST, Reason.DAMAGE, Reason.UNKNOWN)


@dataclass
class _Lane:
    """What is drawn of a partition; ``more`` are marks and bars that are not."""

    name: str
    first: int
    last: int
    bars: dict[str, list[_Bar]] = field(default_factory=dict)
    marks: dict[str, list[int]] = field(default_factory=dict)
    more: int = 0

    def bar(self, kind: str, first: int, last: int) -> None:
        self._room(self.bars.setdefault(kind, []), (max(first, self.first), min(last, self.last)))

    def mark(self, severity: str, offset: int) -> None:
        self._room(self.marks.setdefault(severity, []), min(max(offset, self.first), self.last))

    def _room(self, drawn: list[Any], one: Any) -> None:
        if len(drawn) < _MOST_MARKS:
            drawn.append(one)
        else:
            self.more += 1

    def __str__(self) -> str:
        said = [f"{len(own)} {kind}" for kind, own in self.bars.items()] + [f"{len(own)} {kind}s" for kind, own in self.marks.items()]
        return f"{self.name}, offsets {self.first} to {self.last}: {', '.join(said)}"


def needs_person(findings: Findings) -> str:
    """The findings of the audit, with a picture of the partitions that have most of them."""
    if findings.audit is None:
        return html.text("Logs of drafts are not audited.")
    audit, rows = findings.audit, findings.audit.findings.to_pylist()
    if not audit.partitions.num_rows:
        return ""
    counts = Counter(row["severity"] for row in rows)
    said = ["Nothing needs attention: sequences, epochs, transactions, offsets and timestamps are as brokers and producers write them."]
    if not audit.ok:
        said = [f"{html.counted(counts[severity], severity)}." for severity in counts]
    lanes, others = _lanes(findings)
    if others:
        said.append(f"Not drawn: {html.counted(others, 'more partition')} with findings or open transactions.")
    if more := sum(lane.more for lane in lanes):
        said.append(f"Not drawn of these partitions: {html.number(more)} transactions, stretches or findings.")
    order = {ERROR: 0, NOTE: 2}
    lines = [
        [row["severity"], row["kind"], partition_name(row["topic"], row["partition"]), row["firstOffset"],
         None if row["producerId"] is None else f"{row['producerId']}/{row['producerEpoch']}", row["transactionalId"], row["detail"]]
        for row in sorted(rows, key=lambda row: order.get(row["severity"], 1))
    ]  # fmt: skip
    gone = [row for row in audit.offsets.to_pylist() if row["reason"] in _GONE]
    shown_of = ("firstOffset", "lastOffset", "offsets", "reason", "evidence")
    absent = [[partition_name(row["topic"], row["partition"]), *(row[name] for name in shown_of)] for row in gone]
    left_out = [[row["path"], row["records"], row["reason"]] for row in audit.left_out.to_pylist() if row["kind"] == "limit"]
    names = ["severity", "kind", "partition", "first offset", "producer", "transactional id", "reason"]
    return (
        html.charts([_drawn(lanes)] if lanes else [])
        + html.text(*said)
        + html.table("Findings of the audit", names, lines, html.MOST_ROWS)
        + html.table("Offsets without a good reason", ["partition", "first", "last", "offsets", "why", "evidence"], absent, html.MOST_ROWS)
        + html.table("Above a limit", ["partition", "how many", "reason"], left_out, html.MOST_ROWS)
    )


def _lanes(findings: Findings) -> tuple[list[_Lane], int]:
    """Lanes of the partitions that have most errors and warnings, and how many others have some."""
    assert findings.audit is not None
    found = findings.audit.partitions.to_pylist()
    worst = sorted(found, key=lambda row: (-row["errors"], -row["warnings"], -row["openTransactions"]))
    worst = [row for row in worst if row["errors"] or row["warnings"] or row["openTransactions"]]
    lanes: dict[str, _Lane] = {}
    for row in worst[:_MOST_LANES]:
        if row["lastOffset"] is not None:
            name = partition_name(row["topic"], row["partition"])
            lanes[name] = _Lane(name, min(row["firstOffset"], row["logStartOffset"]), row["lastOffset"])
    for own in findings.transactions.kept:
        if own.partition in lanes:
            lane = lanes[own.partition]
            lane.bar(own.outcome, own.first_offset, lane.last if own.last_offset is None else own.last_offset)
    for row in findings.audit.offsets.to_pylist():
        if row["reason"] in _GONE and (name := partition_name(row["topic"], row["partition"])) in lanes:
            lanes[name].bar("absent stretches", row["firstOffset"], row["lastOffset"])
    for row in findings.audit.findings.to_pylist():
        name = partition_name(row["topic"], row["partition"])
        if row["severity"] != NOTE and row["firstOffset"] is not None and name in lanes:
            lanes[name].mark(row["severity"], row["firstOffset"])
    return list(lanes.values()), len(worst) - len(lanes)


def _drawn(lanes: list[_Lane]) -> Chart:
    """Transactions above each other within a lane, absent offsets across it, and a triangle above it for each finding."""
    chart = Chart("audit", "Where it is in the log", "; ".join(map(str, lanes)), 1.3 + 0.55 * len(lanes))
    with chart as axes:
        labels: set[str] = set()
        for number, lane in enumerate(lanes):
            _lane(axes, number, lane, labels)
        axes.set_yticks(range(len(lanes)), [html.axis_label(lane.name) for lane in lanes])
        axes.set_ylim(len(lanes) - 0.4, -0.6)
        axes.set_xlim(-0.02, 1.02)
        axes.set_xticks([0, 1], ["first offset", "last offset"])
        axes.grid(visible=False)
        if labels:
            axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.4, 1.0), fontsize=9)
    return chart


def _lane(axes: Any, number: int, lane: _Lane, labels: set[str]) -> None:
    span = max(lane.last - lane.first + 1, 1)

    def named(kind: str) -> str:
        # One entry of the legend for all lanes.
        is_known = kind in labels
        labels.add(kind)
        return f"_{kind}" if is_known else kind

    axes.hlines(number, 0, 1, colors=MUTED, linewidth=1)
    levels = (*_OUTCOMES.items(), ("absent stretches", BAD))
    for level, (kind, colour) in enumerate(levels):
        # Of nothing that is there too little to be seen is drawn.
        bars = [((first - lane.first) / span, max((last - first + 1) / span, 0.004)) for first, last in lane.bars.get(kind, ())]
        place = (number - 0.3, 0.6) if kind == "absent stretches" else (number - 0.21 + 0.14 * level, 0.12)
        if bars:
            axes.broken_barh(bars, place, color=colour, label=named(kind))
    for severity, own in lane.marks.items():
        places = [(offset - lane.first) / span for offset in own]
        colour = BAD if severity == ERROR else INK
        axes.plot(places, [number - 0.4] * len(places), linestyle="", marker="v", markersize=6, color=colour, label=named(severity))
