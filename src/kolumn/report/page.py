"""The page of a report: pictures first, tables below them."""

from collections.abc import Callable
from html import escape
from typing import Any

from kolumn.report import charts, html, words
from kolumn.report.gather import Findings
from kolumn.report.svg import BAD, FIRST, MUTED, SECOND, Chart
from kolumn.source.storage import shown

MOST_ROWS = 200


def _segment(path: str) -> str:
    """A segment's name and its folder's."""
    return "/".join(shown(path).split("/")[-2:])


def render(found: Findings, source: str) -> str:
    """The page as HTML."""
    rows = found.rows()
    parts = {
        "health": ("Health and damage", _health),
        "time": ("Records over time", _time),
        "batches": ("Batches and what they cost", _batches),
        "codecs": ("Codecs, and what others would save", _codecs),
        "keys": ("Keys", _keys),
        "order": ("Order of timestamps", _order),
        "offsets": ("Offsets that are not there", _offsets),
        "transactions": ("Transactions", _transactions),
        "producers": ("Producers", _producers),
        "partitions": ("Partitions", _partitions),
    }
    made = {name: html.section(name, title, body) for name, (title, part) in parts.items() if (body := part(found))}
    links = "".join(f'<a href="#{name}">{parts[name][0]}</a>' for name in made)
    head = f'<header><h1>{escape(source)}</h1>{_verdict(found)}{_tiles(found, rows)}<nav aria-label="Sections">{links}</nav></header>'
    foot = "<footer>Made by kolumn. Times are UTC. Control records are not counted as records.</footer>"
    return html.page(f"Kolumn report: {source}", "\n".join([head, *made.values(), foot]), rows)


def _sum(found: Findings, of: Callable[[Any], int]) -> int:
    return sum(map(of, found.totals.values()))


def _verdict(found: Findings) -> str:
    if found.skipped.stretches:
        said, kind = f"Damaged: {found.skipped}.", "verdict bad"
        more = "Everything else in this report is about what is intact."
    else:
        batches = words.counted(_sum(found, lambda one: one.batches), "batch")
        said, kind, more = "No damage.", "verdict", f"Every checksum and every record of {batches} is right."
    remarks = f" See {words.counted(len(found.remarks), 'remark')} below." if found.remarks else ""
    return f'<div class="{kind}" role="status"><strong>{escape(said)}</strong> {escape(more + remarks)}</div>'


def _tiles(found: Findings, rows: list[dict[str, Any]]) -> str:
    records, size = _sum(found, lambda one: one.records), _sum(found, lambda one: one.bytes)
    times = [time for one in found.totals.values() for time in one.times]
    topics = len({row["topic"] for row in rows})
    values = [
        ("Records", words.number(records), f"{size / records:.0f} stored bytes each" if records else ""),
        ("Stored", words.size(size), words.counted(found.segments, "segment")),
        ("Topics", words.number(topics), words.counted(len(rows), "partition")),
        ("Damage", words.number(found.skipped.stretches), words.size(found.skipped.bytes) if found.skipped.stretches else "none found"),
    ]
    if times:
        values.insert(2, ("First and last record", words.moment(min(times)), f"to {words.moment(max(times))}"))
    return html.tiles(values)


def _health(found: Findings) -> str:
    damage = [
        [_segment(one.segment), one.position, one.size, one.base_offset, one.last_offset, one.records_lost, one.reason]
        for one in found.skipped.damage[:MOST_ROWS]
    ]
    remarks = [[_segment(one.segment), one.kind, one.remark, one.evidence] for one in found.remarks[:MOST_ROWS]]
    tails = ", ".join(f"{count} {'truncated' if kind == 'truncated' else 'with zeros'}" for kind, count in sorted(found.tails.items()))
    names = ["segment", "position", "bytes", "first offset", "last offset", "records lost", "reason"]
    more = len(found.skipped.damage) - len(damage)
    drawn = [charts.damage("damage", found.skipped.damage, found.damaged_sizes, _segment)] if damage else []
    return (
        html.charts(drawn)
        + html.text(
            "All checksums were compared and all records decoded." if not damage else "Damaged stretches were left out.",
            f"Ends of active segments: {tails}; that is normal after a crash." if tails else "",
        )
        + html.table(f"Damage{f', and {more} more stretches' if more else ''}", names, damage)
        + html.table("Remarks: no damage, but worth knowing", ["segment", "kind", "remark", "evidence"], remarks)
    )


def _time(found: Findings) -> str:
    if not len(found.timeline.numbers):
        return ""
    drawn = found.timeline.drawn(charts.MOST_BINS)
    width = words.duration(drawn.width_ms)
    said = [f"Each bar is {width}."]
    if drawn.outside:
        said.append(f"{words.number(drawn.outside)} records have times outside of the picture.")
    if found.untimed:
        said.append(f"{words.number(found.untimed)} records have no timestamp.")
    return html.charts(
        [
            charts.over_time("records", "Records", drawn, drawn.records, words.short),
            charts.over_time("bytes", "Bytes of keys and values", drawn, drawn.bytes, words.size, SECOND),
        ]
    ) + html.text(*said)


def _batches(found: Findings) -> str:
    heads = found.headers
    batches = int(heads.sizes.counts.sum())
    if not batches:
        return ""
    stored = int(heads.sizes.weights.sum())
    drawn = [charts.powers("sizes", "Stored bytes by size of batch", heads.sizes, "batches smaller than", words.size, words.power)]
    if heads.counts.counts.any():
        drawn.append(
            charts.powers("counts", "Records by length of batch", heads.counts, "fewer records than", words.short, lambda i: str(2**i))
        )
    said = [f"{words.counted(batches, 'batch')}, {words.size(stored / batches)} each on average."]
    if heads.overhead:
        said.append(f"Headers of batches take {words.size(heads.overhead)}, {words.share(heads.overhead, stored)} of the stored bytes.")
    if heads.uncounted:
        said.append(f"{words.number(heads.uncounted)} compressed sets of formats 0 and 1 do not say how many records they have.")
    return html.charts(drawn) + html.text(*said)


def _codecs(found: Findings) -> str:
    heads, sample = found.headers, found.sample
    by_size = sorted(heads.codecs.items(), key=lambda one: -one[1][1])
    if not by_size:
        return ""
    drawn = [charts.bars("codecs", "Stored bytes by codec", [(name, size) for name, (_, size) in by_size], words.size)]
    written = list(sample.written()) if sample.parts else []
    if written:
        drawn.append(charts.savings("savings", written))
    payload = _sum(found, lambda one: one.key_bytes + one.value_bytes)
    stored = sum(size for _, (_, size) in by_size)
    said = (
        [f"Keys and values are {words.size(payload)}, stored as {words.size(stored)}: a ratio of {payload / stored:.2f}."] if stored else []
    )
    rows: list[list[Any]] = []
    if written:
        said.append(f"The sample has the first {words.number(sample.records)} records of {words.counted(sample.partitions, 'partition')}.")
        plain = next((size for codec, batch, size in written if codec == "none"), 0)
        rows = [[codec, f"{batch >> 10} KiB", size, words.share(size, plain)] for codec, batch, size in written]
    return html.charts(drawn) + html.text(*said) + html.table(
        "The sample, written by kolumn at each codec's default level", ["codec", "batches of", "bytes", "of uncompressed"], rows
    )  # fmt: skip


def _keys(found: Findings) -> str:
    records, without = _sum(found, lambda one: one.records), _sum(found, lambda one: one.null_keys)
    if not records:
        return ""
    said = [f"{words.number(records - without)} records have a key, {words.number(without)} have none."]
    if not found.keys.available:
        return html.text(*said, "Keys were not counted: pip install 'kolumn[report]' brings the package datasketches.")
    if records == without:
        return html.text(*said)
    estimate, low, high = found.keys.distinct()
    said.append(
        f"There are about {words.number(estimate)} different keys (between {words.number(low)} and {words.number(high)} with 95 %)."
    )
    frequent = found.keys.frequent()
    if not frequent:
        return html.text(*said, "No key is frequent.")
    said.append(f"The most frequent key has {words.share(frequent[0].most, records - without)} of them.")
    drawn = charts.bars("keys", "Records of the most frequent keys", [(_key(one.key), one.most) for one in frequent[:12]], words.short)
    rows = [[_key(one.key), one.least, one.most, words.share(one.most, records - without)] for one in frequent]
    return html.text(*said) + html.charts([drawn]) + html.table("Most frequent keys", ["key", "at least", "at most", "share"], rows)


def _key(key: bytes) -> str:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return repr(key)[2:-1]
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text) or "(empty)"


def _order(found: Findings) -> str:
    counts = found.lateness.counts
    total = int(counts.sum())
    if not total:
        return ""
    late = total - int(counts[0])
    which = f"{words.number(late)} of {words.number(total)} records ({words.share(late, total)})"
    said = f"{which} are older than a record before them in their partition."
    if not late:
        return html.text("Timestamps never go back in a partition.")
    ranges = [("below 1 s", 1, 11), ("below 1 min", 11, 17), ("below 1 h", 17, 23), ("below 1 d", 23, 28), ("more", 28, 64)]
    rows = [(label, int(counts[low:high].sum())) for label, low, high in ranges]
    drawn = charts.bars("late", "Records that are late, by how much (about)", [row for row in rows if row[1]], words.short)
    return html.text(said) + html.charts([drawn])


def _offsets(found: Findings) -> str:
    kinds = dict.fromkeys(("records", "control records", "removed by compaction", "damaged", "absent between batches"), 0)
    rows: list[list[Any]] = []
    for (topic, partition), total in found.totals.items():
        own = found.offsets[topic, partition]
        if own.first is None or own.last is None:
            continue
        claimed = own.last - own.first + 1
        control = found.controls[topic, partition]
        absent = max(claimed - total.records - control, 0)
        inside = min(own.inside, absent)
        damaged = min(total.skipped.records, absent - inside)
        rest = absent - inside - damaged
        for name, count in zip(kinds, (total.records, control, inside, damaged, rest), strict=True):
            kinds[name] += count
        if absent or own.first:
            name = "?" if topic is None else f"{shown(topic)}-{partition}"
            rows.append([name, own.first, own.last, inside, damaged, rest, _why(own.first, inside, damaged, rest)])
    if not kinds["records"]:
        return ""
    if not rows:
        return html.text("From the first offset of each partition to the last one none is absent.")
    colours = [FIRST, MUTED, FIRST, BAD, FIRST]
    chosen = [(name, count, colour) for (name, count), colour in zip(kinds.items(), colours, strict=True) if count]
    drawn = charts.bars("gaps", "What became of the offsets", [one[:2] for one in chosen], words.short, [one[2] for one in chosen])
    names = ["partition", "first", "last", "removed", "damaged", "between", "explanation"]
    return html.charts([drawn]) + html.table("Partitions with absent offsets", names, rows[:MOST_ROWS])


def _why(first: int, inside: int, damaged: int, rest: int) -> str:
    said = ["Earlier records are gone: retention, or a request to delete them."] if first else []
    if inside:
        said.append("Compaction removed records of batches whose headers still claim them.")
    if damaged:
        said.append("Damaged batches had them.")
    if rest:
        said.append("Whole batches are absent: compaction, a removed segment, or damage that hides how many records it had.")
    return " ".join(said)


def _transactions(found: Findings) -> str:
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


def _producers(found: Findings) -> str:
    heads = found.headers
    if not heads.producers:
        return ""
    largest = sorted(heads.producers.items(), key=lambda one: -one[1].records)
    rows = [
        [number, one.batches, one.records, one.bytes, words.moment(one.first_ms if one.last_ms >= 0 else None),
         words.moment(one.last_ms if one.last_ms >= 0 else None)]
        for number, one in largest[:MOST_ROWS]
    ]  # fmt: skip
    drawn = charts.bars("producers", "Records by producer", [(str(number), one.records) for number, one in largest[:12]], words.short)
    said = f"{words.counted(len(heads.producers), 'producer')} with an id{', and more that are not listed' if heads.others else ''}."
    # An id is no number to be read with separators.
    rows = [[str(row[0]), *row[1:]] for row in rows]
    names = ["producer id", "batches", "records", "stored bytes", "first batch", "last batch"]
    return html.text(said) + html.charts([drawn]) + html.table("Producers", names, rows)


def _partitions(found: Findings) -> str:
    rows = found.rows()
    if not rows:
        return ""
    names = [
        "topic",
        "partition",
        "segments",
        "bytes",
        "batches",
        "records",
        "firstOffset",
        "lastOffset",
        "firstTimestamp",
        "lastTimestamp",
    ]
    names += ["magic", "codec", "nullKeys", "nullValues", "meanKeyBytes", "meanValueBytes", "producers", "damagedStretches", "recordsLost"]

    def cell(value: object) -> object:
        if isinstance(value, dict):
            return ", ".join(f"{key}: {words.number(count)}" for key, count in value.items())
        return value

    lines = [[cell(row[name]) for name in names] for row in rows]
    largest = sorted(rows, key=lambda row: -row["bytes"])[:12]
    labels = [(f"{row['topic'] or '?'}-{row['partition']}", row["bytes"]) for row in largest]
    drawn = [charts.bars("partitions", "Stored bytes of the largest partitions", labels, words.size)] if len(rows) > 1 else []
    return html.charts(drawn) + html.table("The numbers of `kolumn stats`", names, lines)
