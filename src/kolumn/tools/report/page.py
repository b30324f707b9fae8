"""The page of a report: pictures first, tables below them, in a section for each question; and the file that it becomes."""

import tempfile
from html import escape
from pathlib import Path
from typing import Any, Unpack

from kolumn.core import amounts, keywords
from kolumn.core.errors import ArgumentError, shown
from kolumn.core.lost import WHOLE
from kolumn.core.packages import install
from kolumn.core.schema import LEFT_OUT_SCHEMA
from kolumn.source import storage
from kolumn.tools.report import html
from kolumn.tools.report.gather import Findings, Sample, gather, partition_name, total
from kolumn.tools.report.html import BAD, FIRST, MOST_ROWS, MUTED, SECOND, Chart
from kolumn.tools.report.tallies import Timeline
from kolumn.tools.report.timeline import needs_person
from kolumn.tools.sizes import PARTS, Space
from kolumn.tools.sizes import space as space_of
from kolumn.writers.commit.run import Commit
from kolumn.writers.commit.staged_file import StagedFile
from kolumn.writers.outgoing import refuse_data_folder
from kolumn.writers.write import write

_TITLE = "Kolumn report: "
_HEAD = 1 << 10  # bytes of a page that have its title's beginning
_MOST_PARTITIONS = 1000  # in the table; the numbers of all are in the page as JSON
_MOST_TOPICS = 4
_LEAST_BARS = 3
_LEAST_FILLED = 0.1  # share of the bars of all topics together that have records
_MOST_BYTES = 1 << 20  # of the sample: each format encodes it, and reads it back


def write_report(source: keywords.Source, target: str, title: str, **options: Unpack[keywords.ReadOptions]) -> Findings:
    """Write a page about a source: one file that loads nothing. Options as `kolumn.scan`; damage is reported in the page. Raises
    `MissingError` without matplotlib, before anything is read, and `KolumnError` if the file cannot be written."""
    with Chart("check", "", ""):
        pass
    _check_target(target)
    findings = gather(source, **options)
    data = render(findings, title).encode("utf-8", "backslashreplace")
    path = Path(target)
    with Commit(path.parent, replace=True) as commit, StagedFile(commit.place(path)) as file:
        file.write(data)
    return findings


def _check_target(target: str) -> None:
    """Raise `ArgumentError` unless a page may be written there: no other file than a page is replaced."""
    if storage.is_url(target):
        raise ArgumentError(f"{target}: a report is written to a file of this machine: name one with --output, and copy it to the URL")
    path = Path(target)
    refuse_data_folder(str(path.parent), directly=True, advice="Name a file in another folder with --output")
    if not path.exists():
        return
    if not path.is_file():
        raise ArgumentError(f"{target} is not a file: name a file with --output")
    with path.open("rb") as file:
        if f"<title>{_TITLE}".encode() not in file.read(_HEAD):
            raise ArgumentError(f"{target} exists and is not a page of `kolumn report`: name another file with --output")


def _segment(path: str) -> str:
    return "/".join(shown(path).split("/")[-2:])


def render(findings: Findings, source: str) -> str:
    rows = findings.rows()
    parts = {
        "health": ("Health and damage", _health),
        "audit": ("What needs attention", needs_person),
        "time": ("Records over time", time),
        "batches": ("Batches and what they cost", batches),
        "codecs": ("Codecs, and what others would save", codecs),
        "space": ("Space by format", space),
        "keys": ("Keys", keys),
        "values": ("Typed keys and values", values),
        "timestamps": ("Timestamps: lateness and skew", timestamps),
        "offsets": ("Absent offsets", offsets),
        "transactions": ("Transactions", transactions),
        "producers": ("Producers", producers),
        "groups": ("Consumer groups", groups),
        "partitions": ("Partitions", _partitions),
    }
    made = {name: html.section(name, title, body) for name, (title, part) in parts.items() if (body := part(findings))}
    links = "".join(f'<a href="#{name}">{parts[name][0]}</a>' for name in made)
    head = f'<header><h1>{escape(source)}</h1>{_verdict(findings)}{_tiles(findings, rows)}<nav aria-label="Sections">{links}</nav></header>'
    foot = "<footer>Made by kolumn. Times are UTC. Control records are not counted as records.</footer>"
    return html.page(f"{_TITLE}{source}", "\n".join([head, *made.values(), foot]), rows)


def _verdict(findings: Findings) -> str:
    if findings.skipped.stretches:
        said, kind = f"Damaged: {findings.skipped}.", "verdict bad"
        more = "Everything else in this report is about what is intact."
    else:
        count = total(findings, lambda own: own.batches)
        said, kind = "No damage.", "verdict"
        more = f"Every checksum and every record of {html.counted(count, 'batch')} is right." if count else "There is no batch in it."
        if findings.skipped.limits:
            said = f"No damage. {findings.skipped}."
            more += " What is over a limit was not looked at: raise max_ratio or max_batch_bytes."
    remarks = f" See {html.counted(len(findings.remarks), 'remark')} below." if findings.remarks else ""
    return f'<div class="{kind}" role="status"><strong>{escape(said)}</strong> {escape(more + remarks)}</div>'


def _tiles(findings: Findings, rows: list[dict[str, Any]]) -> str:
    records, size, skipped = total(findings, lambda own: own.records), total(findings, lambda own: own.bytes), findings.skipped
    times = [time for own in findings.totals.values() for time in own.times]
    topics = len({row["topic"] for row in rows})
    values = [
        ("Records", html.number(records), f"{size / records:.0f} bytes on average" if records else ""),
        ("Stored", amounts.size(size), html.counted(findings.segments, "segment")),
        ("Topics", html.number(topics), html.counted(len(rows), "partition")),
        ("Damage", html.number(skipped.stretches), amounts.size(skipped.bytes) if skipped.stretches else "none found"),
    ]
    if times:
        first, last = (html.moment(time).partition("T")[0] for time in (min(times), max(times)))
        values.insert(2, ("Span of time", amounts.age(max(times) - min(times)), f"{first} to {last}"))
    return html.tiles(values)


def _health(findings: Findings) -> str:
    damage, large = (
        [[_segment(own.segment), own.position, own.size, own.base_offset, own.last_offset, own.records_lost, own.reason] for own in pieces]
        for pieces in (findings.skipped.damage, findings.skipped.limits)
    )
    remarks = [[_segment(remark.segment), remark.kind, remark.remark, remark.evidence] for remark in findings.remarks]
    left_out = [list(row.values()) for row in findings.left_out]
    tails = ", ".join(f"{count} {'truncated' if kind == 'truncated' else 'with zeros'}" for kind, count in sorted(findings.tails.items()))
    names = ["segment", "position", "bytes", "first offset", "last offset", "records lost", "reason"]
    drawn = [html.damage("damage", findings.skipped.damage, findings.damaged_sizes, _segment)] if damage else []
    return (
        html.charts(drawn)
        + html.text(
            "All checksums were compared and all records decoded." if not damage else "Damaged stretches were left out.",
            f"Ends of active segments: {tails}; that is normal after a crash." if tails else "",
        )
        + html.table("Damage", names, damage, MOST_ROWS)
        + html.table("Over a limit: no damage, left out", [*names[:5], names[6]], [[*row[:5], row[6]] for row in large], MOST_ROWS)
        + html.table("Remarks: no damage, but worth knowing", ["segment", "kind", "remark", "evidence"], remarks, MOST_ROWS)
        + html.table("Left out because not part of the log", LEFT_OUT_SCHEMA.names, left_out, MOST_ROWS)
    )


def _partitions(findings: Findings) -> str:
    rows = findings.rows()
    if not rows:
        return ""
    names = [
        "topic", "partition", "segments", "bytes", "batches", "records", "firstOffset", "lastOffset", "firstTimestamp", "lastTimestamp",
        "magic", "codec", "nullKeys", "nullValues", "meanKeyBytes", "meanValueBytes", "producers", "damagedStretches", "recordsLost",
    ]  # fmt: skip
    for row in rows:
        row |= {name: ", ".join(f"{key}: {html.number(count)}" for key, count in row[name].items()) for name in ("magic", "codec")}
    lines = [[row[name] for name in names] for row in rows]
    largest = sorted(rows, key=lambda row: -row["bytes"])[:12]
    labels = [(f"{row['topic'] or '?'}-{row['partition']}", row["bytes"]) for row in largest]
    drawn = [html.bars("partitions", "Stored bytes of the largest partitions", labels, amounts.size)] if len(rows) > 1 else []
    return html.charts(drawn) + html.table("The numbers of `kolumn stats`", names, lines, _MOST_PARTITIONS)


def offsets(findings: Findings) -> str:
    """What became of the offsets between the first and the last one of each partition."""
    aborted = findings.states["aborted"]
    fates = dict.fromkeys(("records", "aborted", "markers", "compacted", "damaged", "between batches"), 0)
    rows: list[list[Any]] = []
    for (topic, partition), counts in findings.totals.items():
        own = findings.offsets[topic, partition]
        if own.first is None or own.last is None:
            continue
        claimed = own.last - own.first + 1
        control = findings.controls[topic, partition]
        absent = max(claimed - counts.records - control, 0)
        inside = min(own.inside, absent)
        damaged = min(counts.skipped.records, absent - inside)
        rest = absent - inside - damaged
        for name, count in zip(fates, (counts.records, 0, control, inside, damaged, rest), strict=True):
            fates[name] += count
        if absent or own.first or control:
            reasons = control, inside, damaged, rest
            rows.append([partition_name(topic, partition), own.first, own.last, *reasons, _why(own.first, *reasons)])
    fates["records"], fates["aborted"] = fates["records"] - aborted, aborted
    if not fates["records"] + aborted:
        return ""
    if not rows:
        return html.text("From the first offset of each partition to the last one none is absent.")
    colours = [FIRST, SECOND, MUTED, FIRST, BAD, FIRST]
    chosen = [(name, count, colour) for (name, count), colour in zip(fates.items(), colours, strict=True) if count]
    drawn = html.bars("gaps", "What became of the offsets", [bar[:2] for bar in chosen], html.short, [bar[2] for bar in chosen])
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


def transactions(findings: Findings) -> str:
    if not findings.transactions.counts:
        return ""
    drawn = [html.transactions("transactions", findings.transactions.kept)] if findings.transactions.kept else []
    rows = [[outcome, count] for outcome, count in sorted(findings.transactions.counts.items())]
    states = [[state, count] for state, count in sorted(findings.states.items()) if state is not None]
    longest = sorted(findings.transactions.kept, key=lambda transaction: transaction.start_ms - transaction.end_ms)[:20]
    lines = [
        [own.producer, own.partition, own.outcome, html.moment(own.start_ms), amounts.age(own.end_ms - own.start_ms), own.first_offset]
        for own in longest
    ]
    names = ["producer", "partition", "outcome", "begun", "took", "first offset"]
    stopped = [[own.log, own.offset, own.producer_id, html.moment(own.since_ms), own.left] for own in findings.stopped]
    ends = ["partition", "offset", "producer", "open since", "committed records after it"]
    return (
        html.charts(drawn)
        + html.table("Transactions by outcome, in each partition", ["outcome", "transactions"], rows)
        + html.table("Records by the state of their transaction", ["state", "records"], states)
        + html.table("The longest", names, lines)
        + html.table("Open transactions, where committed reads stop; --open-transactions skip reads past them", ends, stopped)
    )


def producers(findings: Findings) -> str:
    heads = findings.headers
    if not heads.producers:
        return ""
    largest = sorted(heads.producers.items(), key=lambda item: -item[1].records)
    rows = []
    for number, own in largest:
        times = [html.moment(ms if own.last_ms >= 0 else None) for ms in (own.first_ms, own.last_ms)]
        # An id is no number to be read with separators.
        rows.append([str(number), own.batches, own.records, own.bytes, *times])
    drawn = html.bars("producers", "Records by producer", [(str(number), own.records) for number, own in largest[:12]], html.short)
    said = f"{html.counted(len(heads.producers), 'producer')} with an id{', and more that are not listed' if heads.others else ''}."
    names = ["producer id", "batches", "records", "stored bytes", "first batch", "last batch"]
    return html.text(said) + html.charts([drawn]) + html.table("Producers", names, rows, MOST_ROWS)


def groups(findings: Findings) -> str:
    if findings.lag is None:
        return ""
    if not findings.lag.rows:
        return html.text(f"Groups could not be read: {findings.lag.failed}" if findings.lag.failed else "No group has committed an offset.")
    by_group, unknown = findings.lag.by_group(), sum(row["lag"] is None for row in findings.lag.rows)
    behind = [(shown(name), float(lag)) for name, lag in by_group.items() if lag][:12]
    said = [f"{html.counted(len(by_group), 'group')} with committed offsets, {html.counted(sum(by_group.values()), 'record')} not read."]
    if unknown:
        said.append(f"Of {html.counted(unknown, 'partition')} the log is not here, so their lag is not known.")
    rows = [
        [shown(row["group"]), shown(row["topic"]), row["partition"], row["committedOffset"], row["logEndOffset"], row["lag"],
         row["commitTimestamp"] or "–"]
        for row in findings.lag.rows
    ]  # fmt: skip
    names = ["group", "topic", "partition", "committed", "log end", "lag", "committed at"]
    drawn = [html.bars("lag", "Records that groups have not read", behind, html.short)] if behind else []
    return html.charts(drawn) + html.text(*said) + html.table("Committed offsets", names, rows, MOST_ROWS)


def time(findings: Findings) -> str:
    """Records and bytes over time: of all topics together, and of the largest ones."""
    whole = Timeline.together(findings.timelines.values())
    if not len(whole.numbers):
        return ""
    drawn = whole.drawn(html.MOST_BINS)
    largest = sorted(findings.timelines.items(), key=lambda item: -int(item[1].sums[0].sum()))[:_MOST_TOPICS]
    named = [("other topics" if name is None else shown(name), timeline.drawn(html.MOST_BINS)) for name, timeline in largest]
    topics = [(name, own) for name, own in named if len(own.records) >= _LEAST_BARS] if len(findings.timelines) > 1 else []
    figures, said = [], []
    # Topics of different times would be a bar each, and nothing between them.
    if len(topics) < 2 or (drawn.records > 0).mean() > _LEAST_FILLED:
        figures = [
            html.over_time("records", "Records", drawn, drawn.records, html.short),
            html.over_time("bytes", "Bytes of keys and values", drawn, drawn.bytes, amounts.size, SECOND),
        ]
        said.append(f"Each bar is {amounts.age(drawn.width_ms)}.")
        if drawn.outside:
            said.append(f"The times of {html.counted(drawn.outside, 'record')} are outside the picture.")
    for number, (name, own) in enumerate(topics):
        title = f"Records of {html.shortened(name)}"
        figures += [
            html.over_time(f"records{number}", title, own, own.records, html.short),
            html.over_time(f"bytes{number}", title.replace("Records", "Bytes", 1), own, own.bytes, amounts.size, SECOND),
        ]
    if topics:
        more = len(findings.timelines) - len(topics)
        said.append("Each of the largest topics has pictures over its own times" + (f"; {more} smaller ones have none." if more else "."))
    if findings.untimed:
        said.append(f"There is no timestamp in {html.counted(findings.untimed, 'record')}.")
    return html.charts(figures) + html.text(*said)


def batches(findings: Findings) -> str:
    heads = findings.headers
    batches = int(heads.sizes.counts.sum())
    if not batches:
        return ""
    stored = int(heads.sizes.weights.sum())
    drawn = [html.powers("sizes", "Stored bytes by size of batch", heads.sizes, "batches smaller than", amounts.size, html.power)]
    if heads.counts.counts.any():
        powers = html.powers("counts", "Records by length of batch", heads.counts, "fewer records than", html.short, lambda i: str(2**i))
        drawn.append(powers)
    said = [f"{html.counted(batches, 'batch')}, {amounts.size(stored / batches)} each on average."]
    if heads.overhead:
        said.append(f"Headers of batches take {amounts.size(heads.overhead)}, {html.share(heads.overhead, stored)} of the stored bytes.")
    if heads.uncounted:
        said.append(f"{html.number(heads.uncounted)} compressed sets of formats 0 and 1 do not say how many records they have.")
    return html.charts(drawn) + html.text(*said)


def codecs(findings: Findings) -> str:
    heads, sample = findings.headers, findings.sample
    by_size = sorted(heads.codecs.items(), key=lambda item: -item[1][1])
    if not by_size:
        return ""
    drawn = [html.bars("codecs", "Stored bytes by codec", [(name, size) for name, (_, size) in by_size], amounts.size)]
    written = list(sample.written()) if sample.parts else []
    if written:
        drawn.append(html.savings("savings", written))
    payload = total(findings, lambda own: own.key_bytes + own.value_bytes)
    stored = sum(size for _, (_, size) in by_size)
    said, rows = list[str](), list[list[Any]]()
    if stored:
        said.append(f"Keys and values are {amounts.size(payload)}, stored as {amounts.size(stored)}: a ratio of {payload / stored:.2f}.")
    if written:
        said.append(f"The sample has the first {html.counted(sample.records, 'record')} of {html.counted(sample.partitions, 'partition')}.")
        smallest = min(written, key=lambda item: item[2])
        said.append(f"It is smallest with {smallest[0]} in batches of {html.binary(smallest[1])}.")
        plain = next((size for codec, batch, size in written if codec == "none"), 0)
        rows = [[codec, html.binary(batch), size, html.share(size, plain)] for codec, batch, size in written]
    ratios = [
        [name, count, size, findings.payloads[name], f"{findings.payloads[name] / size:.2f}"]
        for name, (count, size) in by_size
        if size and (findings.payloads[name] or name != "none")
    ]
    return (
        html.charts(drawn)
        + html.text(*said)
        + html.table("Codecs and their ratios", ["codec", "batches", "stored bytes", "keys and values", "ratio"], ratios)
        + html.table("The sample, written at each codec's default level", ["codec", "batches of", "bytes", "of uncompressed"], rows)
    )


def keys(findings: Findings) -> str:
    records, without = total(findings, lambda own: own.records), total(findings, lambda own: own.null_keys)
    if not records:
        return ""
    said = [f"Of {html.counted(records, 'record')}, {html.number(records - without)} have a key and {html.number(without)} have none."]
    if not findings.keys.available:
        return html.text(*said, f"Keys were not counted: {install('datasketches')}")
    if records == without:
        return html.text(*said)
    estimate, low, high = findings.keys.distinct()
    bounds = f"between {html.number(low)} and {html.number(high)} with 95 %"
    said.append(f"There are about {html.number(estimate)} different keys ({bounds})." if high > 1 else "All have the same key.")
    frequent = findings.keys.frequent()
    if not frequent:
        return html.text(*said, "No key is frequent.")
    said.append(f"The most frequent key has {html.share(frequent[0].most, records - without)} of them.")
    if len(frequent) > 1:
        said.append(f"The {len(frequent)} most frequent have {html.share(sum(key.most for key in frequent), records - without)}.")
    drawn = html.bars("keys", "Records of the most frequent keys", [(_key(item.key), item.most) for item in frequent[:12]], html.short)
    rows = [[_key(item.key), item.least, item.most, html.share(item.most, records - without)] for item in frequent]
    return html.text(*said) + html.charts([drawn]) + html.table("Most frequent keys", ["key", "at least", "at most", "share"], rows)


def values(findings: Findings) -> str:
    """What could not be decoded of typed keys and values."""
    said = [f"{html.counted(count, column)} decoded." for column, count in findings.values.values.items()]
    if not said:
        return ""
    lost = findings.values.table().to_pylist()
    if not lost:
        return html.text(*said, "None lost a field.")
    totals = findings.skipped.values.values
    said += [
        f"{html.counted(totals[column], column)} lost something ({html.share(totals[column], count)})."
        for column, count in findings.values.values.items()
    ]
    rows = [
        [row["column"], "the whole" if row["field"] == WHOLE else row["field"], row["lost"], html.share(row["lost"], row["values"]),
         row["offset"], _segment(row["segment"])]
        for row in lost
    ]  # fmt: skip
    names = ["column", "field", "lost", "of those that are there", "first offset", "segment"]
    return html.text(*said) + html.table("Fields that could not be decoded", names, rows, MOST_ROWS)


def _key(key: bytes) -> str:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return repr(key)[2:-1]
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text) or "(empty)"


def timestamps(findings: Findings) -> str:
    """Lateness within partitions, skew between them, and times that have not come yet."""
    counts = findings.lateness.counts
    timed = int(counts.sum())
    if not timed:
        return ""
    late = timed - int(counts[0])
    which = f"{html.number(late)} of {html.number(timed)} records ({html.share(late, timed)})"
    said = [f"{which} are older than a record before them in their partition." if late else "Timestamps never go back in a partition."]
    if findings.ahead:
        said.append(f"The times of {html.counted(findings.ahead, 'record')} had not come yet when this report was made.")
    ranges = [("below 1 s", 1, 11), ("below 1 min", 11, 17), ("below 1 h", 17, 23), ("below 1 d", 23, 28), ("more", 28, 64)]
    rows = [(label, int(counts[low:high].sum())) for label, low, high in ranges]
    drawn = []
    if late:
        drawn.append(html.bars("late", "Records that are late, by how much (about)", [row for row in rows if row[1]], html.short))
    skews = _skews(findings)
    widest = [(name, float(skew)) for name, _, _, skew in skews[:12] if skew]
    if widest:
        drawn.append(html.bars("skew", "Skew between the partitions of a topic", widest, amounts.age))
    by_partition = sorted(((*late, *name) for name, late in findings.late.items() if late[0]), key=lambda row: -row[1])
    latest = [[partition_name(topic, partition), count, amounts.age(most)] for count, most, topic, partition in by_partition]
    lines = [[name, parts, html.moment(low), html.moment(low + skew), amounts.age(skew)] for name, parts, low, skew in skews]
    names, title = ["topic", "partitions", "earliest", "latest", "skew"], "Skew: the newest record of each partition, by topic"
    late_table = html.table("Late records by partition", ["partition", "late records", "at most by"], latest, MOST_ROWS)
    return html.charts(drawn) + html.text(*said) + late_table + html.table(title, names, lines, MOST_ROWS)


def _skews(findings: Findings) -> list[tuple[str, int, int, int]]:
    """Topics with several partitions: how many, the earliest one of their newest records, and by how many ms the latest one is later."""
    newest: dict[str, list[int]] = {}
    for (topic, _), own in findings.totals.items():
        if topic is not None and own.times:
            newest.setdefault(shown(topic), []).append(own.times[1])
    rows = [(name, len(own), min(own), max(own) - min(own)) for name, own in newest.items() if len(own) > 1]
    return sorted(rows, key=lambda row: -row[3])


def in_formats(sample: Sample) -> list[Space]:
    """The sample in Kafka's formats, uncompressed, in batches of 16 KiB."""
    whole = sample.table()
    rows = max(1, min(whole.num_rows, whole.num_rows * _MOST_BYTES // max(whole.nbytes, 1)))
    with tempfile.TemporaryDirectory(prefix="kolumn-sample-") as folder:
        path = Path(folder, "sample.log")
        # Not only the first partition's.
        write(whole.take(list(range(0, whole.num_rows, -(-whole.num_rows // rows)))), path)
        return [space for space in space_of(path) if space.format == "kafka"]


def space(findings: Findings) -> str:
    """What is stored in which format, and how much each would add to a record."""
    stored = sorted(findings.headers.formats.items())
    if not stored:
        return ""
    size = sum(own for _, (_, own) in stored)
    rows: list[tuple[str, int, int, str]] = [(f"v{magic}", batches, own, html.share(own, size)) for magic, (batches, own) in stored]
    drawn = [html.bars("formats", "Stored bytes by format", [(name, own) for name, _, own, _ in rows], amounts.size)]
    made = html.table("Stored bytes by format, as they are", ["format", "batches", "stored bytes", "share"], rows)
    said = ""
    if findings.sample.parts:
        formats = in_formats(findings.sample)
        drawn.append(html.overhead("overhead", formats))
        most = html.counted(max(space.records for space in formats), "record")
        said = f"The second picture is {most} of the sample, uncompressed, in batches of 16 KiB."
        lines = [[f"v{own.magic}", own.bytes, *(own.parts[part] for part in PARTS[:-1]), ", ".join(own.lost)] for own in formats]
        made += html.table("The sample in each format, by what the bytes are for", ["format", "bytes", *PARTS[:-1], "lost"], lines)
    return html.charts(drawn) + html.text(said) + made
