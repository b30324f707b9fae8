"""Sections of a report about the log: offsets that are not there, transactions, producers, consumer groups.

Sections of a report about the records: times, batches, codecs, keys.

The section on timestamps: which records are late, and how far the partitions of a topic are apart.

The section on space by format: how much is stored in which, and how large a sample of the records is in each.
"""

import tempfile
from pathlib import Path
from typing import Any

from kolumn.core.errors import shown
from kolumn.tools.anatomy import PARTS
from kolumn.tools.report import charts, html
from kolumn.tools.report.gather import Findings, Sample, total
from kolumn.tools.report.html import BAD, FIRST, MOST_ROWS, MUTED, SECOND, Chart
from kolumn.tools.report.tallies import Drawn, Timeline
from kolumn.tools.sizes import Space
from kolumn.tools.sizes import space as space_of
from kolumn.writers.write import write


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
    drawn = charts.bars("gaps", "What became of the offsets", [one[:2] for one in chosen], html.short, [one[2] for one in chosen])
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
        [one.producer, one.partition, one.outcome, html.moment(one.start_ms), html.duration(one.end_ms - one.start_ms), one.first_offset]
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
        [number, one.batches, one.records, one.bytes, html.moment(one.first_ms if one.last_ms >= 0 else None),
         html.moment(one.last_ms if one.last_ms >= 0 else None)]
        for number, one in largest
    ]  # fmt: skip
    drawn = charts.bars("producers", "Records by producer", [(str(number), one.records) for number, one in largest[:12]], html.short)
    said = f"{html.counted(len(heads.producers), 'producer')} with an id{', and more that are not listed' if heads.others else ''}."
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
    said = [f"{html.counted(len(by_group), 'group')} with committed offsets, {html.counted(sum(by_group.values()), 'record')} not read."]
    if unknown:
        said.append(f"Of {html.counted(unknown, 'partition')} the log is not here, so their lag is not known.")
    rows = [
        [shown(row["group"]), shown(row["topic"]), row["partition"], row["committedOffset"], row["logEndOffset"], row["lag"],
         "–" if row["commitTimestamp"] is None else f"{row['commitTimestamp']:%Y-%m-%d %H:%M:%S}"]
        for row in found.lag.rows
    ]  # fmt: skip
    names = ["group", "topic", "partition", "committed", "log end", "lag", "committed at"]
    drawn = [charts.bars("lag", "Records that groups have not read", behind, html.short)] if behind else []
    return html.charts(drawn) + html.text(*said) + html.table("Committed offsets", names, rows, MOST_ROWS)


_MOST_TOPICS = 4
_LEAST_BARS = 3
_LEAST_FILLED = 0.1
"""Share of the bars of all topics together that have records."""


def time(found: Findings) -> str:
    """Records and bytes over time: of all topics together, and of the largest ones."""
    whole = Timeline.together(found.timelines.values())
    if not len(whole.numbers):
        return ""
    drawn = whole.drawn(charts.MOST_BINS)
    topics = _topics(found) if len(found.timelines) > 1 else []
    figures, said = [], []
    # Topics of different times would be a bar each, and nothing between them.
    if len(topics) < 2 or (drawn.records > 0).mean() > _LEAST_FILLED:
        figures = [
            charts.over_time("records", "Records", drawn, drawn.records, html.short),
            charts.over_time("bytes", "Bytes of keys and values", drawn, drawn.bytes, html.size, SECOND),
        ]
        said.append(f"Each bar is {html.duration(drawn.width_ms)}.")
        if drawn.outside:
            said.append(f"The times of {html.counted(drawn.outside, 'record')} are outside of the picture.")
    for number, (name, own) in enumerate(topics):
        title = f"Records of {charts.shortened(name)}"
        figures += [
            charts.over_time(f"records{number}", title, own, own.records, html.short),
            charts.over_time(f"bytes{number}", title.replace("Records", "Bytes", 1), own, own.bytes, html.size, SECOND),
        ]
    if topics:
        more = len(found.timelines) - len(topics)
        said.append("The largest topics have their own pictures, each over its own times" + (f"; {more} have none." if more else "."))
    if found.untimed:
        said.append(f"There is no timestamp in {html.counted(found.untimed, 'record')}.")
    return html.charts(figures) + html.text(*said)


def _topics(found: Findings) -> list[tuple[str, Drawn]]:
    """The topics with most records that have times."""
    largest = sorted(found.timelines.items(), key=lambda one: -int(one[1].sums[0].sum()))[:_MOST_TOPICS]
    named = [("other topics" if name is None else shown(name), one.drawn(charts.MOST_BINS)) for name, one in largest]
    return [(name, drawn) for name, drawn in named if len(drawn.records) >= _LEAST_BARS]


def batches(found: Findings) -> str:
    """Batches by size and by length."""
    heads = found.headers
    batches = int(heads.sizes.counts.sum())
    if not batches:
        return ""
    stored = int(heads.sizes.weights.sum())
    drawn = [charts.powers("sizes", "Stored bytes by size of batch", heads.sizes, "batches smaller than", html.size, html.power)]
    if heads.counts.counts.any():
        drawn.append(
            charts.powers("counts", "Records by length of batch", heads.counts, "fewer records than", html.short, lambda i: str(2**i))
        )
    said = [f"{html.counted(batches, 'batch')}, {html.size(stored / batches)} each on average."]
    if heads.overhead:
        said.append(f"Headers of batches take {html.size(heads.overhead)}, {html.share(heads.overhead, stored)} of the stored bytes.")
    if heads.uncounted:
        said.append(f"{html.number(heads.uncounted)} compressed sets of formats 0 and 1 do not say how many records they have.")
    return html.charts(drawn) + html.text(*said)


def codecs(found: Findings) -> str:
    """Codecs with their ratios, and what others would save."""
    heads, sample = found.headers, found.sample
    by_size = sorted(heads.codecs.items(), key=lambda one: -one[1][1])
    if not by_size:
        return ""
    drawn = [charts.bars("codecs", "Stored bytes by codec", [(name, size) for name, (_, size) in by_size], html.size)]
    written = list(sample.written()) if sample.parts else []
    if written:
        drawn.append(charts.savings("savings", written))
    payload = total(found, lambda one: one.key_bytes + one.value_bytes)
    stored = sum(size for _, (_, size) in by_size)
    said = (
        [f"Keys and values are {html.size(payload)}, stored as {html.size(stored)}: a ratio of {payload / stored:.2f}."] if stored else []
    )
    rows: list[list[Any]] = []
    if written:
        said.append(f"The sample has the first {html.counted(sample.records, 'record')} of {html.counted(sample.partitions, 'partition')}.")
        smallest = min(written, key=lambda one: one[2])
        said.append(f"It is smallest with {smallest[0]} in batches of {html.binary(smallest[1])}.")
        plain = next((size for codec, batch, size in written if codec == "none"), 0)
        rows = [[codec, html.binary(batch), size, html.share(size, plain)] for codec, batch, size in written]
    ratios = [
        [name, count, size, found.payloads[name], f"{found.payloads[name] / size:.2f}"]
        for name, (count, size) in by_size
        if size and (found.payloads[name] or name != "none")
    ]
    return (
        html.charts(drawn)
        + html.text(*said)
        + html.table("Codecs and their ratios", ["codec", "batches", "stored bytes", "keys and values", "ratio"], ratios)
        + html.table("The sample, written at each codec's default level", ["codec", "batches of", "bytes", "of uncompressed"], rows)
    )


def keys(found: Findings) -> str:
    """How many keys there are, and which are frequent."""
    records, without = total(found, lambda one: one.records), total(found, lambda one: one.null_keys)
    if not records:
        return ""
    said = [f"Of {html.counted(records, 'record')}, {html.number(records - without)} have a key and {html.number(without)} have none."]
    if not found.keys.available:
        return html.text(*said, "Keys were not counted: pip install 'kolumn[report]' brings the package datasketches.")
    if records == without:
        return html.text(*said)
    estimate, low, high = found.keys.distinct()
    said.append(
        f"There are about {html.number(estimate)} different keys (between {html.number(low)} and {html.number(high)} with 95 %)."
        if high > 1
        else "All have the same key."
    )
    frequent = found.keys.frequent()
    if not frequent:
        return html.text(*said, "No key is frequent.")
    said.append(f"The most frequent key has {html.share(frequent[0].most, records - without)} of them.")
    if len(frequent) > 1:
        said.append(f"The {len(frequent)} most frequent have {html.share(sum(one.most for one in frequent), records - without)}.")
    drawn = charts.bars("keys", "Records of the most frequent keys", [(_key(one.key), one.most) for one in frequent[:12]], html.short)
    rows = [[_key(one.key), one.least, one.most, html.share(one.most, records - without)] for one in frequent]
    return html.text(*said) + html.charts([drawn]) + html.table("Most frequent keys", ["key", "at least", "at most", "share"], rows)


def _key(key: bytes) -> str:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return repr(key)[2:-1]
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text) or "(empty)"


def timestamps(found: Findings) -> str:
    """Lateness within partitions, skew between them, and times that have not come yet."""
    counts = found.lateness.counts
    all_of_them = int(counts.sum())
    if not all_of_them:
        return ""
    late = all_of_them - int(counts[0])
    which = f"{html.number(late)} of {html.number(all_of_them)} records ({html.share(late, all_of_them)})"
    said = [f"{which} are older than a record before them in their partition." if late else "Timestamps never go back in a partition."]
    if found.ahead:
        said.append(f"The times of {html.counted(found.ahead, 'record')} had not come yet when this report was made.")
    ranges = [("below 1 s", 1, 11), ("below 1 min", 11, 17), ("below 1 h", 17, 23), ("below 1 d", 23, 28), ("more", 28, 64)]
    rows = [(label, int(counts[low:high].sum())) for label, low, high in ranges]
    drawn = []
    if late:
        drawn.append(charts.bars("late", "Records that are late, by how much (about)", [row for row in rows if row[1]], html.short))
    skews = _skews(found)
    widest = [(name, float(skew)) for name, _, _, skew in skews[:12] if skew]
    if widest:
        drawn.append(charts.bars("skew", "Skew between the partitions of a topic", widest, html.duration))
    by_partition = sorted(((*one, *name) for name, one in found.late.items() if one[0]), key=lambda row: -row[1])
    latest = [[_name(topic, partition), count, html.duration(most)] for count, most, topic, partition in by_partition]
    return (
        html.charts(drawn)
        + html.text(*said)
        + html.table("Late records by partition", ["partition", "late records", "at most by"], latest, MOST_ROWS)
        + html.table(
            "Skew: the newest record of each partition, by topic",
            ["topic", "partitions", "earliest", "latest", "skew"],
            [[name, parts, html.moment(low), html.moment(low + skew), html.duration(skew)] for name, parts, low, skew in skews],
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


MOST_BYTES = 1 << 20
"""Of the sample: each format encodes it, and reads it back."""


def in_formats(sample: Sample) -> list[Space]:
    """The sample in Kafka's formats, uncompressed, in batches of 16 KiB."""
    whole = sample.table()
    rows = max(1, min(whole.num_rows, whole.num_rows * MOST_BYTES // max(whole.nbytes, 1)))
    with tempfile.TemporaryDirectory(prefix="kolumn-sample-") as folder:
        path = Path(folder, "sample.log")
        # Not only the first partition's.
        write(whole.take(list(range(0, whole.num_rows, -(-whole.num_rows // rows)))), path)
        return [one for one in space_of(path) if one.format == "kafka"]


def space(found: Findings) -> str:
    """What is stored in which format, and how much each would add to a record."""
    stored = sorted(found.headers.formats.items())
    if not stored:
        return ""
    size = sum(own for _, (_, own) in stored)
    rows: list[tuple[str, int, int, str]] = [(f"v{magic}", batches, own, html.share(own, size)) for magic, (batches, own) in stored]
    drawn = [charts.bars("formats", "Stored bytes by format", [(name, own) for name, _, own, _ in rows], html.size)]
    made = html.table("Stored bytes by format, as they are", ["format", "batches", "stored bytes", "share"], rows)
    said = ""
    if found.sample.parts:
        formats = in_formats(found.sample)
        drawn.append(charts.overhead("overhead", formats, _formats_name))
        most = html.counted(max(one.records for one in formats), "record")
        said = f"The second picture is {most} of the sample, uncompressed, in batches of 16 KiB."
        lines = [[_formats_name(one), one.bytes, *(one.parts[part] for part in PARTS[:-1]), ", ".join(one.lost)] for one in formats]
        made += html.table("The sample in each format, by what the bytes are for", ["format", "bytes", *PARTS[:-1], "lost"], lines)
    return html.charts(drawn) + html.text(said) + made


def _formats_name(one: Space) -> str:
    return f"v{one.magic}"
