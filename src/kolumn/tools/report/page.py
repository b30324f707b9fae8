"""The page of a report: pictures first, tables below them. Its head, health and partitions; other sections have their own modules.

A report becomes a file.
"""

from html import escape
from pathlib import Path
from typing import Any, Unpack

from kolumn.core import keywords
from kolumn.core.errors import shown
from kolumn.core.schema import LEFT_OUT_SCHEMA
from kolumn.tools.report import charts, html, sections
from kolumn.tools.report.gather import Findings, gather, total
from kolumn.tools.report.html import MOST_ROWS, Chart
from kolumn.writers.commit.run import Commit
from kolumn.writers.commit.staged_file import StagedFile

_MOST_PARTITIONS = 1000
"""In the table; the numbers of all are in the page as JSON."""


def _segment(path: str) -> str:
    """A segment's name and its folder's."""
    return "/".join(shown(path).split("/")[-2:])


def render(found: Findings, source: str) -> str:
    """The page as HTML."""
    rows = found.rows()
    parts = {
        "health": ("Health and damage", _health),
        "time": ("Records over time", sections.time),
        "batches": ("Batches and what they cost", sections.batches),
        "codecs": ("Codecs, and what others would save", sections.codecs),
        "space": ("Space by format", sections.space),
        "keys": ("Keys", sections.keys),
        "timestamps": ("Timestamps: lateness and skew", sections.timestamps),
        "offsets": ("Offsets that are not there", sections.offsets),
        "transactions": ("Transactions", sections.transactions),
        "producers": ("Producers", sections.producers),
        "groups": ("Consumer groups", sections.groups),
        "partitions": ("Partitions", _partitions),
    }
    made = {name: html.section(name, title, body) for name, (title, part) in parts.items() if (body := part(found))}
    links = "".join(f'<a href="#{name}">{parts[name][0]}</a>' for name in made)
    head = f'<header><h1>{escape(source)}</h1>{_verdict(found)}{_tiles(found, rows)}<nav aria-label="Sections">{links}</nav></header>'
    foot = "<footer>Made by kolumn. Times are UTC. Control records are not counted as records.</footer>"
    return html.page(f"Kolumn report: {source}", "\n".join([head, *made.values(), foot]), rows)


def _verdict(found: Findings) -> str:
    if found.skipped.stretches:
        said, kind = f"Damaged: {found.skipped}.", "verdict bad"
        more = "Everything else in this report is about what is intact."
    else:
        count = total(found, lambda one: one.batches)
        said, kind = "No damage.", "verdict"
        more = f"Every checksum and every record of {html.counted(count, 'batch')} is right." if count else "There is no batch in it."
        if found.skipped.limits:
            said = f"No damage. {found.skipped}."
            more += " What is over a limit was not looked at: raise max_ratio or max_batch_bytes."
    remarks = f" See {html.counted(len(found.remarks), 'remark')} below." if found.remarks else ""
    return f'<div class="{kind}" role="status"><strong>{escape(said)}</strong> {escape(more + remarks)}</div>'


def _tiles(found: Findings, rows: list[dict[str, Any]]) -> str:
    records, size = total(found, lambda one: one.records), total(found, lambda one: one.bytes)
    times = [time for one in found.totals.values() for time in one.times]
    topics = len({row["topic"] for row in rows})
    values = [
        ("Records", html.number(records), f"{size / records:.0f} stored bytes each" if records else ""),
        ("Stored", html.size(size), html.counted(found.segments, "segment")),
        ("Topics", html.number(topics), html.counted(len(rows), "partition")),
        ("Damage", html.number(found.skipped.stretches), html.size(found.skipped.bytes) if found.skipped.stretches else "none found"),
    ]
    if times:
        values.insert(2, ("First and last record", html.moment(min(times)), f"to {html.moment(max(times))}"))
    return html.tiles(values)


def _health(found: Findings) -> str:
    damage = [
        [_segment(one.segment), one.position, one.size, one.base_offset, one.last_offset, one.records_lost, one.reason]
        for one in found.skipped.damage
    ]
    large = [[_segment(one.segment), one.position, one.size, one.base_offset, one.last_offset, one.reason] for one in found.skipped.limits]
    remarks = [[_segment(one.segment), one.kind, one.remark, one.evidence] for one in found.remarks]
    left_out = [list(one.values()) for one in found.left_out]
    tails = ", ".join(f"{count} {'truncated' if kind == 'truncated' else 'with zeros'}" for kind, count in sorted(found.tails.items()))
    names = ["segment", "position", "bytes", "first offset", "last offset", "records lost", "reason"]
    drawn = [charts.damage("damage", found.skipped.damage, found.damaged_sizes, _segment)] if damage else []
    return (
        html.charts(drawn)
        + html.text(
            "All checksums were compared and all records decoded." if not damage else "Damaged stretches were left out.",
            f"Ends of active segments: {tails}; that is normal after a crash." if tails else "",
        )
        + html.table("Damage", names, damage, MOST_ROWS)
        + html.table("Over a limit: no damage, left out", [*names[:5], names[6]], large, MOST_ROWS)
        + html.table("Remarks: no damage, but worth knowing", ["segment", "kind", "remark", "evidence"], remarks, MOST_ROWS)
        + html.table("Left out, since no part of the log", LEFT_OUT_SCHEMA.names, left_out, MOST_ROWS)
    )


def _partitions(found: Findings) -> str:
    rows = found.rows()
    if not rows:
        return ""
    names = [
        "topic", "partition", "segments", "bytes", "batches", "records", "firstOffset", "lastOffset", "firstTimestamp", "lastTimestamp",
        "magic", "codec", "nullKeys", "nullValues", "meanKeyBytes", "meanValueBytes", "producers", "damagedStretches", "recordsLost",
    ]  # fmt: skip

    def cell(value: object) -> object:
        if isinstance(value, dict):
            return ", ".join(f"{key}: {html.number(count)}" for key, count in value.items())
        return value

    lines = [[cell(row[name]) for name in names] for row in rows]
    largest = sorted(rows, key=lambda row: -row["bytes"])[:12]
    labels = [(f"{row['topic'] or '?'}-{row['partition']}", row["bytes"]) for row in largest]
    drawn = [charts.bars("partitions", "Stored bytes of the largest partitions", labels, html.size)] if len(rows) > 1 else []
    return html.charts(drawn) + html.table("The numbers of `kolumn stats`", names, lines, _MOST_PARTITIONS)


def write_report(source: keywords.Source, target: str, title: str, **options: Unpack[keywords.ReadOptions]) -> Findings:
    """Write a page about a source: one file that loads nothing. Options as `kolumn.scan`; damage is reported in the page.

    Raises `MissingError` without matplotlib, before anything is read, and `KolumnError` if the file cannot be written.
    """
    with Chart("check", "", ""):
        pass
    found = gather(source, **options)
    data = render(found, title).encode("utf-8", "backslashreplace")
    path = Path(target)
    with Commit(path.parent, replace=True) as commit, StagedFile(commit.place(path)) as file:
        file.write(data)
    return found
