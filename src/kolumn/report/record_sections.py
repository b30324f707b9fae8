"""Sections of a report about the records: times, batches, codecs, keys."""

from typing import Any

from kolumn.errors import shown
from kolumn.report import charts, html, words
from kolumn.report.gather import Findings, total
from kolumn.report.histograms import Drawn, Timeline
from kolumn.report.svg import SECOND

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
            charts.over_time("records", "Records", drawn, drawn.records, words.short),
            charts.over_time("bytes", "Bytes of keys and values", drawn, drawn.bytes, words.size, SECOND),
        ]
        said.append(f"Each bar is {words.duration(drawn.width_ms)}.")
        if drawn.outside:
            said.append(f"The times of {words.counted(drawn.outside, 'record')} are outside of the picture.")
    for number, (name, own) in enumerate(topics):
        title = f"Records of {charts.shortened(name)}"
        figures += [
            charts.over_time(f"records{number}", title, own, own.records, words.short),
            charts.over_time(f"bytes{number}", title.replace("Records", "Bytes", 1), own, own.bytes, words.size, SECOND),
        ]
    if topics:
        more = len(found.timelines) - len(topics)
        said.append("The largest topics have their own pictures, each over its own times" + (f"; {more} have none." if more else "."))
    if found.untimed:
        said.append(f"There is no timestamp in {words.counted(found.untimed, 'record')}.")
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


def codecs(found: Findings) -> str:
    """Codecs with their ratios, and what others would save."""
    heads, sample = found.headers, found.sample
    by_size = sorted(heads.codecs.items(), key=lambda one: -one[1][1])
    if not by_size:
        return ""
    drawn = [charts.bars("codecs", "Stored bytes by codec", [(name, size) for name, (_, size) in by_size], words.size)]
    written = list(sample.written()) if sample.parts else []
    if written:
        drawn.append(charts.savings("savings", written))
    payload = total(found, lambda one: one.key_bytes + one.value_bytes)
    stored = sum(size for _, (_, size) in by_size)
    said = (
        [f"Keys and values are {words.size(payload)}, stored as {words.size(stored)}: a ratio of {payload / stored:.2f}."] if stored else []
    )
    rows: list[list[Any]] = []
    if written:
        said.append(
            f"The sample has the first {words.counted(sample.records, 'record')} of {words.counted(sample.partitions, 'partition')}."
        )
        smallest = min(written, key=lambda one: one[2])
        said.append(f"It is smallest with {smallest[0]} in batches of {words.binary(smallest[1])}.")
        plain = next((size for codec, batch, size in written if codec == "none"), 0)
        rows = [[codec, words.binary(batch), size, words.share(size, plain)] for codec, batch, size in written]
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
    said = [f"Of {words.counted(records, 'record')}, {words.number(records - without)} have a key and {words.number(without)} have none."]
    if not found.keys.available:
        return html.text(*said, "Keys were not counted: pip install 'kolumn[report]' brings the package datasketches.")
    if records == without:
        return html.text(*said)
    estimate, low, high = found.keys.distinct()
    said.append(
        f"There are about {words.number(estimate)} different keys (between {words.number(low)} and {words.number(high)} with 95 %)."
        if high > 1
        else "All have the same key."
    )
    frequent = found.keys.frequent()
    if not frequent:
        return html.text(*said, "No key is frequent.")
    said.append(f"The most frequent key has {words.share(frequent[0].most, records - without)} of them.")
    if len(frequent) > 1:
        said.append(f"The {len(frequent)} most frequent have {words.share(sum(one.most for one in frequent), records - without)}.")
    drawn = charts.bars("keys", "Records of the most frequent keys", [(_key(one.key), one.most) for one in frequent[:12]], words.short)
    rows = [[_key(one.key), one.least, one.most, words.share(one.most, records - without)] for one in frequent]
    return html.text(*said) + html.charts([drawn]) + html.table("Most frequent keys", ["key", "at least", "at most", "share"], rows)


def _key(key: bytes) -> str:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return repr(key)[2:-1]
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text) or "(empty)"
