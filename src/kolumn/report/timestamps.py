"""The section on timestamps: which records are late, and how far the partitions of a topic are apart."""

from kolumn.errors import shown
from kolumn.report import charts, html, words
from kolumn.report.gather import Findings
from kolumn.report.html import MOST_ROWS


def timestamps(found: Findings) -> str:
    """Lateness within partitions, skew between them, and times that have not come yet."""
    counts = found.lateness.counts
    all_of_them = int(counts.sum())
    if not all_of_them:
        return ""
    late = all_of_them - int(counts[0])
    which = f"{words.number(late)} of {words.number(all_of_them)} records ({words.share(late, all_of_them)})"
    said = [f"{which} are older than a record before them in their partition." if late else "Timestamps never go back in a partition."]
    if found.ahead:
        said.append(f"The times of {words.counted(found.ahead, 'record')} had not come yet when this report was made.")
    ranges = [("below 1 s", 1, 11), ("below 1 min", 11, 17), ("below 1 h", 17, 23), ("below 1 d", 23, 28), ("more", 28, 64)]
    rows = [(label, int(counts[low:high].sum())) for label, low, high in ranges]
    drawn = []
    if late:
        drawn.append(charts.bars("late", "Records that are late, by how much (about)", [row for row in rows if row[1]], words.short))
    skews = _skews(found)
    widest = [(name, float(skew)) for name, _, _, skew in skews[:12] if skew]
    if widest:
        drawn.append(charts.bars("skew", "Skew between the partitions of a topic", widest, words.duration))
    by_partition = sorted(((*one, *name) for name, one in found.late.items() if one[0]), key=lambda row: -row[1])
    latest = [[_name(topic, partition), count, words.duration(most)] for count, most, topic, partition in by_partition]
    return (
        html.charts(drawn)
        + html.text(*said)
        + html.table("Late records by partition", ["partition", "late records", "at most by"], latest, MOST_ROWS)
        + html.table(
            "Skew: the newest record of each partition, by topic",
            ["topic", "partitions", "earliest", "latest", "skew"],
            [[name, parts, words.moment(low), words.moment(low + skew), words.duration(skew)] for name, parts, low, skew in skews],
            MOST_ROWS,
        )
    )


def _skews(found: Findings) -> list[tuple[str, int, int, int]]:
    """Topics with several partitions: how many, the earliest one of their newest records, and by how many ms the latest one is later."""
    newest: dict[str, list[int]] = {}
    for (topic, _), own in found.totals.items():
        if topic is not None and own.times:
            newest.setdefault(shown(topic), []).append(own.times[1])
    rows = [(name, len(own), min(own), max(own) - min(own)) for name, own in newest.items() if len(own) > 1]
    return sorted(rows, key=lambda row: -row[3])


def _name(topic: str | None, partition: int | None) -> str:
    return "?" if topic is None else f"{shown(topic)}-{partition}"
