"""What a read of committed records leaves out because it stops at an open transaction, by the headers of what comes after it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Int64s
from kolumn.damage.findings import Tally
from kolumn.damage.segment_end import at_stop
from kolumn.damage.stopped import StoppedAt, joined
from kolumn.decode.host.aborted import COMMITTED, NONE, Transactions, states_of
from kolumn.decode.host.chunks import HEADER_WINDOW, Stop, chunks
from kolumn.decode.host.headers import with_last_offsets
from kolumn.decode.raw_offsets import Deltas
from kolumn.formats import layouts, table
from kolumn.formats.entries import Entries
from kolumn.options import Options
from kolumn.source.names import log_name
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import HIGHEST, Range
from kolumn.source.storage import parent


def stops(ranges: Iterable[Range], options: Options) -> list[StoppedAt]:
    """The open transactions at which a read of ranges stops, those of which it leaves records out that it was asked for.

    Headers of the ranges that have offsets after the transaction are walked once more, no payload is read; none of a log without open
    transactions. Whoever found those has walked the same headers, unless side files told.
    """
    return joined(stop for part in ranges if (stop := _stop(part, options)) is not None)


def stop_of(part: Range) -> StoppedAt:
    """The open transaction at which a read of a range's log stops, without a count."""
    segment, transactions = part.segment, part.transactions
    offset = None if segment.format in layouts.RAW else transactions.last_stable_offset
    log = log_name(segment.topic, segment.partition, segment.path if segment.base_offset is None else parent(segment.path))
    producer = next(producer for producer, first in transactions.open if first == transactions.last_stable_offset)
    return StoppedAt(log, offset, producer, transactions.epoch, transactions.since, None, folder=parent(segment.path))


def reaches(part: Range, options: Options) -> bool:
    """Whether a read of a range may want offsets from an open transaction on."""
    transactions: Transactions | None = part.transactions
    if transactions is None or transactions.last_stable_offset is None or part.fault is not None or part.is_lost:
        return False
    ends = [end for end in (_bounds(part, options)[1], part.segment.following) if end is not None]
    return min(ends, default=HIGHEST) > transactions.last_stable_offset


def _bounds(part: Range, options: Options) -> tuple[int | None, int | None]:
    """Of the offsets by which the log is stored."""
    own = options if part.offsets is None else replace(options, start_offset=None, end_offset=None)
    within = own.within(part.start_offset, part.end_offset)
    return within.start_offset, within.end_offset


def _stop(part: Range, options: Options) -> StoppedAt | None:
    if not reaches(part, options):
        return None
    transactions: Transactions = part.transactions
    stable = transactions.last_stable_offset
    assert stable is not None
    start, end = _bounds(part, options)
    counter = _Counter(part, options, max(stable, start or 0), HIGHEST if end is None else end)
    for entries in counter.walk():
        counter.add(entries)
    if not counter.withheld:
        return None
    found, in_sets = stop_of(part), layouts.format_of(part.segment.format).transactions_in_sets
    offset = found.offset if part.offsets is None else counter.consumers(stable)
    records = None if in_sets else counter.records
    return replace(found, offset=offset, records=records, is_estimate=counter.is_estimate, counted=(counter.counted,))


class _Counter:
    """Counts the records of a range with low <= offset < high."""

    def __init__(self, part: Range, options: Options, low: int, high: int) -> None:
        self.part, self.options, self.low, self.high = part, options, low, high
        self.withheld = self.records = 0
        self.counted = high, low
        self.is_estimate = False
        self._before = part.floor
        self._first: int | None = None
        self._deltas: Deltas | None = None
        if part.offsets is not None:
            self._deltas = Deltas(part.offsets if isinstance(part.offsets, int) else part.offsets.before(part), watched=False)

    def walk(self) -> Iterator[Entries]:
        """Headers up to where the chain of entries ends."""
        with SegmentFile(self.part.segment) as file:
            walk = chunks(file, self.part.start, self.part.end, HEADER_WINDOW, payloads=False)
            while True:
                try:
                    yield with_last_offsets(file, next(walk).entries)
                except StopIteration as end:
                    stop: Stop = end.value
                    break
            self.is_estimate |= at_stop(file, stop, self._before, Tally()) is not None

    def add(self, entries: Entries) -> None:
        last, options = entries.last_offset, self.options
        before = np.concatenate([[self._before], last[:-1]])
        base = np.where(entries.base_offset == table.UNKNOWN, before + 1, entries.base_offset)
        self._before = int(last[-1])
        self._first = int(base[0]) if self._first is None else self._first
        if self._deltas is not None:
            self._deltas.add(entries)
        asked = (entries.control == 0) & ~entries.is_own & (last >= self.low) & (base < self.high)
        if options.start_timestamp is not None:
            asked &= entries.max_timestamp >= options.start_timestamp
        if options.end_timestamp is not None:
            # The first record of a batch need not be its earliest one, of which headers do not tell.
            told = (entries.timestamp_type == table.LOG_APPEND_TIME) | (entries.count == 1)
            asked &= ~told | (entries.max_timestamp < options.end_timestamp)
        if asked.any():
            self._count(entries[asked], base[asked])

    def _count(self, entries: Entries, base: Int64s) -> None:
        last, timed = entries.last_offset, (self.options.start_timestamp, self.options.end_timestamp) != (None, None)
        # Compressed messages of formats 0 and 1 do not say how many they are.
        count = np.where(entries.count == table.UNKNOWN, last - base + 1, entries.count)
        low, high = np.maximum(base, self.low), np.minimum(last, self.high - 1)
        absent = self.part.without
        gone = 0 if absent is None else np.searchsorted(absent, high, side="right") - np.searchsorted(absent, low)
        inside = (low == base) & (high == last) & (gone == 0)
        # Without holes an offset is a record. Times that producers set are in no order.
        sure = (entries.timestamp_type == table.LOG_APPEND_TIME) | (not timed)
        sure &= (entries.count != table.UNKNOWN) & (inside | (count == last - base + 1))
        records = np.where(inside, count, np.minimum(high - low + 1 - gone, count))
        states = states_of(self.part.transactions, entries)
        read = (states == NONE) | (states == COMMITTED)
        self.withheld += int(records.sum())
        self.counted = min(self.counted[0], int(low.min())), max(self.counted[1], int(high.max()) + 1)
        self.is_estimate |= not sure[read].all()
        if self.options.end_timestamp is not None:
            read &= np.minimum(entries.base_timestamp, entries.max_timestamp) < self.options.end_timestamp
        self.records += int(records[read].sum())

    def consumers(self, raw: int) -> int | None:
        """The consumer offset of a raw one; None if it is not among those of the range."""
        if self._deltas is None or self._first is None or not self._first <= raw <= self._before:
            return None
        offsets = self._deltas.translated(pa.RecordBatch.from_pydict({"offset": pa.array([raw])}))
        return int(offsets[0][0].as_py())
