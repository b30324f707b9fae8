"""Totals of each partition of a source."""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from kolumn import keywords
from kolumn.arrow.text import in_column
from kolumn.backend import require
from kolumn.damage.findings import Skipped
from kolumn.decode.pipeline import OnDamage, scan_ranges
from kolumn.options import Options
from kolumn.read_plan import live_segments
from kolumn.source.segments import Range

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
