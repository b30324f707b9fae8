"""Counts, first and last offsets, and last timestamps from the headers of batches, and from records where headers do not tell.

Headers are believed: no checksum of a payload is compared, as with the statistics of a Parquet file. With ``checkCrcs=true`` given
explicitly nothing is taken from headers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from kolumn.decode.result import Tally
from kolumn.decode.segment_end import at_stop
from kolumn.entries.last_offsets import with_last_offsets
from kolumn.formats.entries import Entries
from kolumn.options import Options
from kolumn.plan.chunks import HEADER_WINDOW, Stop, chunks
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.task import read_task, warn

COUNT, FIRST, LAST, NEWEST = "count", "min offset", "max offset", "max timestamp"
NAMES = frozenset({"topic", "partition", COUNT, FIRST, LAST, NEWEST})
"""What can be asked for; topic and partition are what is grouped by."""


def tells(options: LoadOptions) -> bool:
    """Whether each entry that is read returns all of its records, so that its header tells how many rows that are."""
    decode = options.decode
    ranges = (decode.start_offset, decode.end_offset, decode.start_timestamp, decode.end_timestamp, options.start, options.end)
    strict = any(one.errors == "raise" for one in decode.typed)
    plain = decode.format == "kafka" and decode.isolation_level == "read_uncommitted" and decode.errors == "raise" and not strict
    return plain and decode.replicas != "merge" and not options.checks_crcs and all(one is None for one in ranges)


class HeaderTotals:
    """What was found so far."""

    def __init__(self) -> None:
        self.count = 0
        self.first: int | None = None
        self.last: int | None = None
        self.newest_ms: int | None = None

    def add(self, count: int, first: int, last: int, newest_ms: int) -> None:
        """Add some records; -1 ms is no timestamp."""
        self.count += count
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)
        if newest_ms >= 0:
            self.newest_ms = newest_ms if self.newest_ms is None else max(self.newest_ms, newest_ms)

    def named(self, name: str) -> int | None:
        """One of them, timestamps in microseconds."""
        if name == NEWEST:
            return None if self.newest_ms is None else self.newest_ms * 1000
        return {COUNT: self.count, FIRST: self.first, LAST: self.last}[name]


def rows_of_totals(ranges: Iterable[Range], options: Options, names: tuple[str, ...], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """One row for each range, which Spark adds up.

    Without a column to group by, there is a row for no range too: the count of nothing is 0.
    """
    rows: list[tuple[int | str | None, ...]] = []
    grouped = any(name in ("topic", "partition") for name in names)
    for one in ranges:
        found = totals_of(one, options, frozenset(names))
        if found.count:
            place = {"topic": one.segment.topic, "partition": one.segment.partition}
            rows.append(tuple(place[name] if name in place else found.named(name) for name in names))
    if not rows and not grouped:
        rows.append(tuple(map(HeaderTotals().named, names)))
    if rows:
        columns = [pa.array(values).cast(field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def totals_of(one: Range, options: Options, names: frozenset[str]) -> HeaderTotals:
    """The totals of a range, with an error for a chain of entries that breaks."""
    found = HeaderTotals()
    if one.fault is not None or one.is_bounded:
        _decode([one], options, found)
        return found
    with SegmentFile(one.segment) as file:
        walk, floor = chunks(file, one.start, one.end, HEADER_WINDOW, payloads=False), one.floor
        while True:
            try:
                entries = with_last_offsets(file, next(walk).entries)
            except StopIteration as end:
                stop: Stop = end.value
                break
            floor = entries.last_known_offset(floor)
            _add(entries, one, options, names, found)
        trouble = at_stop(file, stop, floor, Tally())
        if trouble is not None:
            raise trouble.error from None
    return found


def _add(entries: Entries, one: Range, options: Options, names: frozenset[str], found: HeaderTotals) -> None:
    if not options.include_control:
        entries = entries[entries.control == 0]
    told = entries.magic == 2
    if names & {FIRST, LAST}:
        # Compaction keeps the offsets of a batch's header where it removes records.
        told &= entries.count == entries.last_offset - entries.base_offset + 1
    if NEWEST in names:
        # Unset, it says nothing.
        told &= entries.max_timestamp >= 0
    kept = entries[told & (entries.count > 0)]
    if len(kept):
        low, high, newest = int(kept.base_offset.min()), int(kept.last_offset.max()), int(kept.max_timestamp.max())
        found.add(int(kept.count.sum()), low, high, newest)
    rest = entries[~told]
    _decode([replace(one, start=each.position, end=each.end) for each in rest], options, found)


def _decode(ranges: list[Range], options: Options, found: HeaderTotals) -> None:
    narrow = replace(options, columns=("offset", "timestampMs"), typed=())
    for batch in read_task([(ranges, narrow)], warn) if ranges else ():
        offsets, times = (column.to_numpy() for column in batch.columns)
        if len(offsets):
            found.add(len(offsets), int(offsets.min()), int(offsets.max()), int(times.max()))
