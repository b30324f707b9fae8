"""How many rows and bytes a scan has, for Spark's planner: from a few headers, and from the records of a few batches.

Counts, first and last offsets, and last timestamps come from the headers of batches, and from records where headers do not tell. Headers
are believed, as the statistics of a Parquet file: no checksum of a payload is compared. With checkCrcs=true nothing is taken from headers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from kolumn.core.errors import KolumnError
from kolumn.damage.findings import Tally
from kolumn.damage.segment_end import at_stop
from kolumn.decode.host.aborted import COLUMN
from kolumn.decode.host.chunks import HEADER_WINDOW, Stop, chunks
from kolumn.decode.host.headers import headers, with_last_offsets
from kolumn.decode.pipeline import scan_ranges
from kolumn.formats.entries import Entries
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range
from kolumn.spark_plugin.read.options import LoadOptions
from kolumn.spark_plugin.read.task import read_task

_SAMPLES = 4
"""Number of places of the log that are sampled."""
_SAMPLE_BYTES = 1 << 18
"""Bytes of the log that are decoded at each place, but at least one entry: they tell the width of rows with payloads."""
_HEADER_CHUNKS = 3
"""Chunks of headers that are read at each place: some hundred headers of a file, some hundred KiB of an object."""
_WIDTHS = {"topic": 16, COLUMN: 16}
"""Bytes of names in a row, which most rows share."""


class Estimate(NamedTuple):
    """Rows of a scan, and their bytes in Spark's memory."""

    rows: int
    bytes: int


def estimate(ranges: Sequence[Range], options: Options) -> Estimate:
    """Estimate what ranges have: the log's bytes divided by those of a record, times the width of a row.

    Each place represents the range that it is in. Compressed entries count with their decompressed size: too small an estimate would
    make Spark send a large table to every executor.
    """
    parts = [part for part in ranges if part.fault is None and part.end > part.start]
    size = sum(part.end - part.start for part in parts)
    width = _fixed_width(options)
    looked = rows = taken = 0.0
    for part in parts[:: max(1, len(parts) // _SAMPLES)][:_SAMPLES]:
        records, seen, first = 0, 0, part
        for entries in islice(headers(part.segment, part.start, part.end), _HEADER_CHUNKS):
            if not seen:
                few = max(1, int((entries.end - part.start <= _SAMPLE_BYTES).sum()))
                first = replace(part, end=min(part.end, entries[few - 1].end))
            records, seen = records + int(entries.count.clip(min=1).sum()), int(entries[-1].end) - part.start
        if seen:
            own = records * (part.end - part.start) / seen
            looked, rows = looked + part.end - part.start, rows + own
            taken += own * (width if width is not None else _decoded_width(first, options))
    if not looked:
        return Estimate(0, size)
    # If nothing can be decoded, rows are as wide as in the log.
    return Estimate(max(1, round(rows * size / looked)), round(taken * size / looked) or size)


def _fixed_width(options: Options) -> int | None:
    """Bytes of a row whose columns all have a width."""
    total = 0
    for field in options.schema:
        if field.name in _WIDTHS:
            total += _WIDTHS[field.name]
        elif pa.types.is_primitive(field.type):
            total += -(-field.type.bit_width // 8)
        else:
            return None
    return total


def _decoded_width(part: Range, options: Options) -> float:
    """Bytes of a row; 0 if no record can be decoded, which its task finds out."""
    # Planned on the CPU: the driver must not open a GPU, even if the tasks use one.
    decode = replace(options, backend="cpu", isolation_level="read_uncommitted", start_offset=None, end_offset=None)
    decode = replace(decode, start_timestamp=None, end_timestamp=None, errors="skip")
    # Without the outcomes of transactions no column of them can be made.
    decode = replace(decode, columns=tuple(name for name in decode.columns if name != COLUMN))
    rows = size = 0
    try:
        for batch in scan_ranges([replace(part, start_offset=None, end_offset=None, transactions=None)], decode):
            rows, size = rows + batch.num_rows, size + batch.nbytes
    except KolumnError:
        return 0
    return size / rows if rows else 0


COUNT, FIRST, LAST, NEWEST = "count", "min offset", "max offset", "max timestamp"
NAMES = frozenset({"topic", "partition", COUNT, FIRST, LAST, NEWEST})
"""What can be asked for; topic and partition are what is grouped by."""


KEEP_ROWS = frozenset(
    {"columns", "include_headers", "include_control", "check_crcs", "replicas", "backend", "binary", "chunk_bytes", "threads",
     "memory_bytes", "topic", "partition", "max_batch_bytes", "max_ratio", "trusted", "on_progress", "private_keys", "typed",
     "include_snapshots", "include_deleted_records", "remarks"}
)  # fmt: skip
"""Options that leave no row of a listed segment out, apart from what `tells` asks of them."""
_PLAIN = Options()


def tells(options: LoadOptions) -> bool:
    """Whether each entry that is read returns all of its records, so that its header tells how many rows that are."""
    decode = options.decode
    plain = replace(decode, **{name: getattr(_PLAIN, name) for name in KEEP_ROWS}) == _PLAIN
    strict = any(typed.errors == "raise" for typed in decode.typed)
    whole = options.start is None and options.end is None
    return plain and whole and not strict and decode.replicas != "merge" and not options.checks_crcs


@dataclass
class HeaderTotals:
    """Count, first and last offset, and newest timestamp of the records so far."""

    count: int = 0
    first: int | None = None
    last: int | None = None
    newest_ms: int | None = None

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
    for part in ranges:
        totals = totals_of(part, options, frozenset(names))
        if totals.count:
            key = {"topic": part.segment.topic, "partition": part.segment.partition}
            rows.append(tuple(key[name] if name in key else totals.named(name) for name in names))
    if not rows and not grouped:
        rows.append(tuple(map(HeaderTotals().named, names)))
    if rows:
        columns = [pa.array(values).cast(field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def totals_of(part: Range, options: Options, names: frozenset[str]) -> HeaderTotals:
    """The totals of a range, with an error for a chain of entries that breaks."""
    totals = HeaderTotals()
    if part.fault is not None or part.is_bounded or part.offsets is not None:
        _decode([part], options, totals)
        return totals
    with SegmentFile(part.segment) as file:
        walk, floor = chunks(file, part.start, part.end, HEADER_WINDOW, payloads=False), part.floor
        while True:
            try:
                entries = with_last_offsets(file, next(walk).entries)
            except StopIteration as end:
                stop: Stop = end.value
                break
            floor = entries.last_known_offset(floor)
            _add(entries, part, options, names, totals)
        trouble = at_stop(file, stop, floor, Tally())
        if trouble is not None:
            raise trouble.error from None
    return totals


def _add(entries: Entries, part: Range, options: Options, names: frozenset[str], totals: HeaderTotals) -> None:
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
        totals.add(int(kept.count.sum()), low, high, newest)
    rest = entries[~told]
    _decode([replace(part, start=entry.position, end=entry.end) for entry in rest], options, totals)


def _decode(ranges: list[Range], options: Options, totals: HeaderTotals) -> None:
    narrow = replace(options, columns=("offset", "timestampMs"), typed=())
    for batch in read_task([(ranges, narrow)]) if ranges else ():
        offsets, times = (column.to_numpy() for column in batch.columns)
        if len(offsets):
            totals.add(len(offsets), int(offsets.min()), int(offsets.max()), int(times.max()))
