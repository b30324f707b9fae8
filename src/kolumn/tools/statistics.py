"""Totals of each partition of a source.

The sizes as a picture: a bar for each format, divided by the purpose of the bytes.

The table of the KIP-98 draft: the overhead of messages of 1 KiB with a key of 100 bytes, in format 1 and in a set.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.backend import require
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, MissingPackageError
from kolumn.core.text import in_column
from kolumn.damage.findings import Skipped
from kolumn.decode.pipeline import OnDamage, scan_ranges
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segments import Range
from kolumn.tools.anatomy import PARTS
from kolumn.tools.sizes import Space
from kolumn.writers.commit.run import Commit
from kolumn.writers.commit.staged_file import StagedFile
from kolumn.writers.encoders import encode
from kolumn.writers.table import take_apart
from kolumn.writers.write import settings

STATISTICS = ("offset", "timestampMs", "key", "value", "magic", "codec", "producerId")
"""The record columns that `Totals` needs."""


@dataclass
class Totals:
    """Running totals of one partition."""

    segments: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    offsets: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    null_keys: int = 0
    null_values: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    magics: Counter[int] = field(default_factory=Counter)
    codecs: Counter[str] = field(default_factory=Counter)
    producers: set[int] = field(default_factory=set)
    skipped: Skipped = field(default_factory=Skipped)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch of records to the totals."""
        self.records += batch.num_rows
        self.offsets = _widened(self.offsets, batch["offset"])
        self.times = _widened(self.times, batch["timestampMs"].filter(pc.not_equal(batch["timestampMs"], -1)))
        self.null_keys += batch["key"].null_count
        self.null_values += batch["value"].null_count
        self.key_bytes += pc.sum(pc.binary_length(batch["key"])).as_py() or 0
        self.value_bytes += pc.sum(pc.binary_length(batch["value"])).as_py() or 0
        for counter, name in ((self.magics, "magic"), (self.codecs, "codec")):
            counter.update({row["values"]: row["counts"] for row in pc.value_counts(batch[name]).to_pylist()})
        self.producers.update(p for p in pc.unique(batch["producerId"]).to_pylist() if p != -1)

    def row(self, topic: str | None, partition: int | None) -> dict[str, Any]:
        """The totals as one row."""
        keys, values = self.records - self.null_keys, self.records - self.null_values
        return {
            "topic": None if topic is None else in_column(topic),
            "partition": partition,
            "segments": self.segments,
            "bytes": self.bytes,
            "batches": self.batches,
            "records": self.records,
            "firstOffset": self.offsets[0] if self.offsets else None,
            "lastOffset": self.offsets[1] if self.offsets else None,
            "firstTimestamp": _moment(self.times[0]) if self.times else None,
            "lastTimestamp": _moment(self.times[1]) if self.times else None,
            "magic": {str(k): v for k, v in sorted(self.magics.items())},
            "codec": dict(sorted(self.codecs.items())),
            "nullKeys": self.null_keys,
            "nullValues": self.null_values,
            "meanKeyBytes": round(self.key_bytes / keys, 1) if keys else None,
            "meanValueBytes": round(self.value_bytes / values, 1) if values else None,
            "producers": len(self.producers),
            "damaged": self.skipped.stretches,
            "damagedStretches": self.skipped.stretches,
            "damagedBytes": self.skipped.bytes,
            "recordsLost": self.skipped.records,
        }


def collect(source: keywords.Source, on_damage: OnDamage | None = None, **options: Unpack[keywords.ReadOptions]) -> list[dict[str, Any]]:
    """Totals of each partition of ``source``, in its order; options and ``on_damage`` as in `kolumn.scan`."""
    chosen = replace(Options.of(**options), columns=STATISTICS)
    require(chosen.backend)
    totals: dict[tuple[str | None, int | None], Totals] = {}
    seen: set[str] = set()
    for one in live_segments(source, chosen).whole_ranges():
        total = totals.setdefault((one.segment.topic, one.segment.partition), Totals())
        # A merge reads a segment in several ranges.
        total.segments += one.segment.path not in seen
        seen.add(one.segment.path)
        total.bytes += one.end - one.start

        def done(one: Range, found: Any, total: Totals = total) -> None:
            total.batches += found.batches
            for piece in found.damage:
                total.skipped(piece)

        for batch in scan_ranges([one], chosen, on_damage, tally=done):
            total.add(batch)
    return [total.row(*name) for name, total in totals.items()]


def _widened(bounds: list[int], values: pa.Array) -> list[int]:
    if not len(values):
        return bounds
    found = pc.min_max(values).as_py()
    return [min([*bounds[:1], found["min"]]), max([*bounds[1:], found["max"]])]


def _moment(ms: int) -> str | int:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return ms


KINDS = (".svg", ".png", ".pdf")


def draw(found: list[Space], path: str, source: str = "") -> None:
    """Draw the sizes into a file; ``source`` is for the title.

    The saving of a codec is not drawn as a part: a bar is as long as the decompressed entries, and a mark shows the compressed size. A
    label names the parts that a format cannot store. Raises `ArgumentError` if the file's name does not end with the suffix of a picture
    format, `MissingError` without matplotlib, and `KolumnError` if the file cannot be written.
    """
    if Path(path).suffix not in KINDS:
        raise ArgumentError(f"{path}: expected a name that ends in {', '.join(KINDS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("pictures need matplotlib: pip install 'kolumn[report]'") from error
    figure = Figure(figsize=(10, 0.6 * len(found) + 1.6), layout="constrained")
    axes = figure.add_subplot()
    names = [one.format if one.magic is None else f"{one.format}, magic {one.magic}" for one in found]
    left = [0.0] * len(found)
    for part in PARTS[:-1]:
        widths = [one.parts[part] / 1e6 for one in found]
        axes.barh(names, widths, left=left, label=part)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    sizes = [one.bytes / 1e6 for one in found]
    axes.plot(sizes, names, "k|", markersize=18, markeredgewidth=2, label="with the codec")
    for number, (one, end) in enumerate(zip(found, left, strict=True)):
        # A bar is also shorter because of parts that its format cannot store.
        lost = [part for part in PARTS if part in one.lost]
        if lost:
            place = max(end, sizes[number]), number
            axes.annotate(f"{' and '.join(lost)} lost", place, (6, 0), textcoords="offset points", va="center")
    axes.margins(x=0.3)
    axes.set_xlim(left=0)
    axes.invert_yaxis()
    axes.set_title(f"Where the bytes of {source or 'the segments'} go, in each format", wrap=True)
    axes.set_xlabel("MB")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=5, frameon=False)
    drawn = BytesIO()
    figure.savefig(drawn, format=Path(path).suffix.removeprefix("."))
    with Commit(Path(path).parent, replace=True) as commit, StagedFile(commit.place(Path(path))) as file:
        file.write(drawn.getbuffer())


BATCHES = (1, 3, 10, 50, 100)
_MESSAGE, _KEY, _TIME = 1024, 100, 1_700_000_000_000


def draft_table() -> list[dict[str, int]]:
    """Rows of batch size, overhead of format 1 without a codec, overhead of the draft's set, all from encoded bytes."""
    return [
        {"messages": count, "format 1": _overhead("kafka", 1, count), "kip98-draft": _overhead("kip98-draft", 2, count)}
        for count in BATCHES
    ]


def _overhead(format: str, magic: int, count: int) -> int:
    columns: dict[str, Any] = {
        "offset": np.arange(count),
        "timestampMs": np.full(count, _TIME),
        "key": pa.array([bytes(_KEY)] * count, pa.binary()),
        "value": pa.array([bytes(_MESSAGE - _KEY)] * count, pa.binary()),
    }
    encoded, _ = encode(take_apart(pa.table(columns), 0), settings(format, magic, "none", None, 1 << 30, None), last=True)
    return len(encoded.data) - count * _MESSAGE
