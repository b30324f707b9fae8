"""Totals of each partition of a source: from its records (`collect`), or by the headers of batches alone (`overview`)."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.backend import require
from kolumn.copies.copies import Overlap, overlaps
from kolumn.core import keywords
from kolumn.core.arrays import Int64s
from kolumn.core.text import in_column
from kolumn.core.times import moment
from kolumn.damage.findings import Damage, OnDamage, Remark, Skipped, Tally
from kolumn.decode.pipeline import scan_ranges
from kolumn.formats import layouts, table
from kolumn.formats.codecs.known import NAMES
from kolumn.formats.entries import Entries
from kolumn.log.pieces import entry_chunks
from kolumn.options import Options
from kolumn.readers.plan import live_segments, plan_of
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range
from kolumn.source.storage import parent

Partition = tuple[str | None, int | None]  # topic and number, None if they are not known
STATISTICS = ("offset", "timestampMs", "key", "value", "magic", "codec", "producerId")  # the record columns that `Totals` needs


@dataclass
class Totals:
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
        keys, values = self.records - self.null_keys, self.records - self.null_values
        first_offset, last_offset = self.offsets or (None, None)
        first_time, last_time = map(moment, self.times) if self.times else (None, None)
        return {
            "topic": None if topic is None else in_column(topic), "partition": partition, "segments": self.segments, "bytes": self.bytes,
            "batches": self.batches, "records": self.records, "firstOffset": first_offset, "lastOffset": last_offset,
            "firstTimestamp": first_time, "lastTimestamp": last_time, "magic": {str(k): v for k, v in sorted(self.magics.items())},
            "codec": dict(sorted(self.codecs.items())), "nullKeys": self.null_keys, "nullValues": self.null_values,
            "meanKeyBytes": round(self.key_bytes / keys, 1) if keys else None,
            "meanValueBytes": round(self.value_bytes / values, 1) if values else None, "producers": len(self.producers),
            "damaged": self.skipped.stretches, "damagedStretches": self.skipped.stretches, "damagedBytes": self.skipped.bytes,
            "recordsLost": self.skipped.records,
        }  # fmt: skip


def collect(source: keywords.Source, on_damage: OnDamage | None = None, **options: Unpack[keywords.ReadOptions]) -> list[dict[str, Any]]:
    """Totals of each partition of ``source``, in its order; options and ``on_damage`` as in `kolumn.scan`."""
    chosen = replace(Options.of(**options), columns=STATISTICS)
    require(chosen.backend)
    totals: dict[Partition, Totals] = {}
    seen: set[str] = set()
    live = live_segments(source, chosen)
    # Of Redpanda's logs a plan has what translates offsets.
    is_raw = any(segment.format in layouts.RAW for segment in live.segments)
    for part in plan_of(live, chosen).ranges if is_raw else live.whole_ranges():
        total = totals.setdefault((part.segment.topic, part.segment.partition), Totals())
        # A merge reads a segment in several ranges.
        total.segments += part.segment.path not in seen
        seen.add(part.segment.path)
        total.bytes += part.end - part.start

        def done(_: Range, tally: Tally, total: Totals = total) -> None:
            total.batches += tally.batches
            for piece in tally.damage:
                total.skipped(piece)

        for batch in scan_ranges([part], chosen, on_damage, tally=done):
            total.add(batch)
    return [total.row(*name) for name, total in totals.items()]


def _widened(bounds: list[int], values: pa.Array) -> list[int]:
    if not len(values):
        return bounds
    extremes = pc.min_max(values).as_py()
    return [min([*bounds[:1], extremes["min"]]), max([*bounds[1:], extremes["max"]])]


def by_codec(entries: Entries) -> Iterator[tuple[str, Int64s]]:
    for codec in np.unique(entries.codec).tolist():
        yield NAMES[codec] if codec < len(NAMES) else str(codec), entries.size[entries.codec == codec]


@dataclass
class Seen:
    """What headers say of one topic-partition; times are in ms since 1970, and None if no header has one.

    Several ``folders`` are copies of the partition, or parts of it; of copies the largest number of records counts. Control records are not
    among the ``records``. If it ``is_estimate``, copies differ, or compressed messages of formats 0 and 1 do not say how many they are, and
    the absent offsets before each are counted as records. ``control`` counts control batches, and ``empty`` segments without a byte.
    ``open`` has the first offsets of transactions without a marker, by their producers.
    """

    topic: str | None
    partition: int | None
    folders: Counter[str] = field(default_factory=Counter)  # and their records
    is_redpanda: bool = False
    segments: int = 0
    empty: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    is_estimate: bool = False
    first_offset: int | None = None
    last_offset: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    codecs: Counter[str] = field(default_factory=Counter)
    magics: Counter[int] = field(default_factory=Counter)
    control: int = 0
    open: dict[int, int] = field(default_factory=dict)

    def add(self, entries: Entries, before: int, folder: str) -> None:
        self.batches += len(entries)
        last, count = entries.last_offset, entries.count
        unknown = count == table.UNKNOWN
        if unknown.any():
            self.is_estimate = True
            count = np.where(unknown, np.maximum(np.diff(last, prepend=before), 1), count)
        data = entries.control == 0
        self.control += int((~data).sum())
        self.folders[folder] += int(count[data].sum())
        self.records = self.folders.total()
        base = np.where(entries.base_offset == table.UNKNOWN, before + 1, entries.base_offset)
        records = entries[~entries.is_own]
        first_ms, last_ms = records.base_timestamp, records.max_timestamp
        lows, highs = (
            {"first_offset": base[:1], "first_ms": first_ms[first_ms >= 0]},
            {"last_offset": last, "last_ms": last_ms[last_ms >= 0]},
        )
        for name, values in (lows | highs).items():
            if len(values):
                known = [] if getattr(self, name) is None else [getattr(self, name)]
                setattr(self, name, min([int(values.min()), *known]) if name in lows else max([int(values.max()), *known]))
        self.codecs.update({name: len(sizes) for name, sizes in by_codec(entries)})
        self._add_transactions(entries[entries.transactional == 1])
        for magic, batches in zip(*np.unique(entries.magic, return_counts=True), strict=True):
            self.magics[int(magic)] += int(batches)

    def _add_transactions(self, entries: Entries) -> None:
        for producer in np.unique(entries.producer_id).tolist():
            own = entries[entries.producer_id == producer]
            ends = np.flatnonzero(own.control)
            if len(ends):
                self.open.pop(producer, None)
                own = own[ends[-1] + 1 :]
            if len(own):
                self.open.setdefault(producer, int(own.base_offset[0]))


@dataclass
class Overview:
    """What headers say of a source.

    ``damage`` is what they show: impossible lengths, cut rolled segments, files that are no segments; not damage inside of batches.
    ``copies`` are directories that have the same offsets of a partition.
    ``left_out`` are rows of `kolumn.schema.LEFT_OUT_SCHEMA`.
    """

    partitions: list[Seen] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    copies: list[Overlap] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)


def overview(source: keywords.Source, **options: Unpack[keywords.ReadOptions]) -> Overview:
    """Walk along the headers of all batches of a source; options as `kolumn.scan`. Damaged bytes never raise an error."""
    chosen = replace(Options.of(**options), errors="skip", check_crcs=False)
    live = live_segments(source, chosen)
    seen: dict[Partition, Seen] = {}
    result = Overview(copies=list(overlaps(live.segments)), left_out=live.left_out().to_pylist())
    for segment in live.segments:
        own = seen.setdefault((segment.topic, segment.partition), Seen(segment.topic, segment.partition))
        own.segments += 1
        own.bytes += segment.size
        own.empty += not segment.size
        own.is_redpanda |= segment.format in layouts.RAW
        folder = parent(segment.path)
        own.folders[folder] += 0
        tally, before = Tally(), (segment.base_offset or 0) - 1
        with SegmentFile(segment) as file:
            for chunk in entry_chunks(file, chosen, tally, payloads=False):
                entries = chunk.entries.intact()
                if len(entries):
                    own.add(entries, before, folder)
                    before = entries.last_known_offset(before)
        result.damage += tally.damage
        result.remarks += tally.remarks
    for own in {(overlap.topic, overlap.partition): seen[overlap.topic, overlap.partition] for overlap in result.copies}.values():
        own.records = max(own.folders.values())
        own.is_estimate |= len(set(own.folders.values())) > 1
    result.partitions = list(seen.values())
    return result
