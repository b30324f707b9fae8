"""What is in some segments, by the headers of their batches alone: no checksum is compared, and no record is decoded."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np

from kolumn.copies.copies import Overlap, overlaps
from kolumn.core import keywords
from kolumn.core.arrays import Int64s
from kolumn.damage.findings import Damage
from kolumn.damage.remarks import Remark
from kolumn.decode.result import Tally
from kolumn.formats import table
from kolumn.formats.codecs.known import NAMES
from kolumn.formats.entries import Entries
from kolumn.log.batch_table import entry_chunks
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment
from kolumn.source.storage import parent


@dataclass
class Seen:
    """What headers say of one topic-partition; times are in ms since 1970, and None if no header has one.

    Several ``folders`` are copies of the partition, or parts of it. Control records are not among the ``records``. If it ``is_estimate``,
    compressed messages of formats 0 and 1 do not say how many they are, and the absent offsets before each are counted as records.
    ``control`` counts control batches.
    """

    topic: str | None
    partition: int | None
    folders: set[str] = field(default_factory=set)
    segments: int = 0
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

    def add(self, entries: Entries, before: int) -> None:
        """Add intact entries; ``before`` is the last offset before them."""
        self.batches += len(entries)
        last, count = entries.last_offset, entries.count
        unknown = count == table.UNKNOWN
        if unknown.any():
            self.is_estimate = True
            steps = np.diff(last, prepend=before)
            count = np.where(unknown, np.maximum(steps, 1), count)
        data = entries.control == 0
        self.control += int((~data).sum())
        self.records += int(count[data].sum())
        base = np.where(entries.base_offset == table.UNKNOWN, before + 1, entries.base_offset)
        self.first_offset, self.last_offset = _widened(self.first_offset, self.last_offset, base[:1], last)
        first, latest = entries.base_timestamp, entries.max_timestamp
        self.first_ms, self.last_ms = _widened(self.first_ms, self.last_ms, first[first >= 0], latest[latest >= 0])
        for number, batches in zip(*np.unique(entries.codec, return_counts=True), strict=True):
            self.codecs[NAMES[number] if number < len(NAMES) else str(number)] += int(batches)
        for number, batches in zip(*np.unique(entries.magic, return_counts=True), strict=True):
            self.magics[int(number)] += int(batches)


@dataclass
class Overview:
    """What headers say of a source.

    ``damage`` is what they show: impossible lengths, cut rolled segments, files that are no segments; not damage inside of batches.
    ``copies`` are directories that have the same offsets of a partition. ``tails`` counts active segments with a cut last batch or zeros at
    their end, which is normal. ``left_out`` are rows of `schema.LEFT_OUT_SCHEMA`.
    """

    partitions: list[Seen] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    copies: list[Overlap] = field(default_factory=list)
    tails: int = 0
    left_out: list[dict[str, Any]] = field(default_factory=list)


def overview(source: keywords.Source, **options: Unpack[keywords.ReadOptions]) -> Overview:
    """Walk along the headers of all batches of a source; options as `kolumn.scan`. Damaged bytes never raise an error."""
    chosen = replace(Options.of(**options), errors="skip", check_crcs=False)
    live = live_segments(source, chosen)
    seen: dict[tuple[str | None, int | None], Seen] = {}
    made = Overview(copies=list(overlaps(live.segments)), left_out=live.left_out().to_pylist())
    for segment in live.segments:
        own = seen.setdefault((segment.topic, segment.partition), Seen(segment.topic, segment.partition))
        own.segments += 1
        own.bytes += segment.size
        own.folders.add(parent(segment.path))
        found = _walked(segment, chosen, own)
        made.damage += found.damage
        made.remarks += found.remarks
        made.tails += found.tail is not None
    made.partitions = list(seen.values())
    return made


def _walked(segment: Segment, options: Options, own: Seen) -> Tally:
    found = Tally()
    before = (segment.base_offset or 0) - 1
    with SegmentFile(segment) as file:
        for chunk in entry_chunks(file, options, found, payloads=False):
            entries = chunk.entries.intact()
            if len(entries):
                own.add(entries, before)
                before = entries.last_known_offset(before)
    return found


def _widened(low: int | None, high: int | None, lows: Int64s, highs: Int64s) -> tuple[int | None, int | None]:
    found = [int(lows.min())] if len(lows) else []
    return min(found if low is None else [low, *found], default=None), max(
        ([int(highs.max())] if len(highs) else []) + ([] if high is None else [high]), default=None
    )
