"""Sections of a report about the log: offsets that are not there, transactions, producers, consumer groups."""

from typing import Any

from kolumn.errors import shown
from kolumn.report import charts, html, words
from kolumn.report.gather import Findings
from kolumn.report.html import MOST_ROWS
from kolumn.report.svg import BAD, FIRST, MUTED, SECOND, Chart


def offsets(found: Findings) -> str:
    """What became of the offsets between the first and the last one of each partition."""
    aborted = found.states["aborted"]
    kinds = dict.fromkeys(("records", "aborted", "markers", "compacted", "damaged", "between batches"), 0)
    rows: list[list[Any]] = []
    for (topic, partition), own_total in found.totals.items():
        own = found.offsets[topic, partition]
        if own.first is None or own.last is None:
            continue
        claimed = own.last - own.first + 1
        control = found.controls[topic, partition]
        absent = max(claimed - own_total.records - control, 0)
        inside = min(own.inside, absent)
        damaged = min(own_total.skipped.records, absent - inside)
        rest = absent - inside - damaged
        for name, count in zip(kinds, (own_total.records, 0, control, inside, damaged, rest), strict=True):
            kinds[name] += count
        if absent or own.first or control:
            name = "?" if topic is None else f"{shown(topic)}-{partition}"
            rows.append([name, own.first, own.last, control, inside, damaged, rest, _why(own.first, control, inside, damaged, rest)])
    kinds["records"], kinds["aborted"] = kinds["records"] - aborted, aborted
    if not kinds["records"] + aborted:
        return ""
    if not rows:
        return html.text("From the first offset of each partition to the last one none is absent.")
    colours = [FIRST, SECOND, MUTED, FIRST, BAD, FIRST]
    chosen = [(name, count, colour) for (name, count), colour in zip(kinds.items(), colours, strict=True) if count]
    drawn = charts.bars("gaps", "What became of the offsets", [one[:2] for one in chosen], words.short, [one[2] for one in chosen])
    names = ["partition", "first", "last", "markers", "compacted", "damaged", "between", "explanation"]
    said = "A consumer of committed records gets neither aborted records nor markers, though they are there." if aborted else ""
    return html.charts([drawn]) + html.text(said) + html.table("Partitions that a consumer sees with gaps", names, rows, MOST_ROWS)


def _why(first: int, control: int, inside: int, damaged: int, rest: int) -> str:
    said = ["Earlier records are gone: retention, or a request to delete them."] if first else []
    if control:
        said.append("Markers end transactions, and consumers do not get them.")
    if inside:
        said.append("Compaction removed records of batches whose headers still claim them.")
    if damaged:
        said.append("Damaged batches had them.")
    if rest:
        said.append("Whole batches are absent: compaction, a removed segment, or damage that hides how many records it had.")
    return " ".join(said)


def transactions(found: Findings) -> str:
    """Transactions over time, and by outcome."""
    if not found.transactions.counts:
        return ""
    drawn: list[Chart] = []
    if found.transactions.found:
        drawn.append(charts.transactions("transactions", found))
    rows = [[outcome, count] for outcome, count in sorted(found.transactions.counts.items())]
    states = [[state, count] for state, count in sorted(found.states.items()) if state is not None]
    longest = sorted(found.transactions.found, key=lambda one: one.start_ms - one.end_ms)[:20]
    lines = [
        [one.producer, one.partition, one.outcome, words.moment(one.start_ms), words.duration(one.end_ms - one.start_ms), one.first_offset]
        for one in longest
    ]
    names = ["producer", "partition", "outcome", "begun", "took", "first offset"]
    return (
        html.charts(drawn)
        + html.table("Transactions by outcome, in each partition", ["outcome", "transactions"], rows)
        + html.table("Records by the state of their transaction", ["state", "records"], states)
        + html.table("The longest", names, lines)
    )


def producers(found: Findings) -> str:
    """Who wrote how much."""
    heads = found.headers
    if not heads.producers:
        return ""
    largest = sorted(heads.producers.items(), key=lambda one: -one[1].records)
    rows = [
        [number, one.batches, one.records, one.bytes, words.moment(one.first_ms if one.last_ms >= 0 else None),
         words.moment(one.last_ms if one.last_ms >= 0 else None)]
        for number, one in largest
    ]  # fmt: skip
    drawn = charts.bars("producers", "Records by producer", [(str(number), one.records) for number, one in largest[:12]], words.short)
    said = f"{words.counted(len(heads.producers), 'producer')} with an id{', and more that are not listed' if heads.others else ''}."
    # An id is no number to be read with separators.
    rows = [[str(row[0]), *row[1:]] for row in rows]
    names = ["producer id", "batches", "records", "stored bytes", "first batch", "last batch"]
    return html.text(said) + html.charts([drawn]) + html.table("Producers", names, rows, MOST_ROWS)


def groups(found: Findings) -> str:
    """Consumer groups by what they have not read."""
    if found.lag is None:
        return ""
    if not found.lag.rows:
        return html.text(f"Groups could not be read: {found.lag.failed}" if found.lag.failed else "No group has committed an offset.")
    by_group, unknown = found.lag.by_group(), sum(row["lag"] is None for row in found.lag.rows)
    behind = [(shown(name), float(lag)) for name, lag in by_group.items() if lag][:12]
    said = [f"{words.counted(len(by_group), 'group')} with committed offsets, {words.counted(sum(by_group.values()), 'record')} not read."]
    if unknown:
        said.append(f"Of {words.counted(unknown, 'partition')} the log is not here, so their lag is not known.")
    rows = [
        [shown(row["group"]), shown(row["topic"]), row["partition"], row["committedOffset"], row["logEndOffset"], row["lag"],
         "–" if row["commitTimestamp"] is None else f"{row['commitTimestamp']:%Y-%m-%d %H:%M:%S}"]
        for row in found.lag.rows
    ]  # fmt: skip
    names = ["group", "topic", "partition", "committed", "log end", "lag", "committed at"]
    drawn = [charts.bars("lag", "Records that groups have not read", behind, words.short)] if behind else []
    return html.charts(drawn) + html.text(*said) + html.table("Committed offsets", names, rows, MOST_ROWS)
