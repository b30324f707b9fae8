"""What a report counts, in bounded memory: records over time, sizes, what headers of batches say, keys, transactions, groups."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core import keywords
from kolumn.core.arrays import Int64s
from kolumn.core.errors import KolumnError
from kolumn.core.times import rows_of
from kolumn.damage.findings import Damage, Tally
from kolumn.formats import table, v2
from kolumn.formats.entries import Entries
from kolumn.log.pieces import entry_chunks
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range
from kolumn.tools.coordinators import groups
from kolumn.tools.statistics import by_codec

MOST_BINS = 1 << 15


class Timeline:
    """Records and bytes by time. Only times that occur have a bin; where there are too many bins, each becomes twice as wide. Bin ``i``
    begins at ``i * width_ms``. ``numbers`` are the bins that have records, ascending, ``sums`` (2, n) their records and bytes."""

    def __init__(self) -> None:
        self.width_ms = 1000
        self.numbers: Int64s = np.zeros(0, np.int64)
        self.sums: Int64s = np.zeros((2, 0), np.int64)

    def add(self, times_ms: Int64s, sizes: Int64s) -> None:
        self._take(times_ms // self.width_ms, np.stack([np.ones(len(sizes), np.int64), sizes]))

    def _take(self, numbers: Int64s, sums: Int64s) -> None:
        self._group(np.concatenate([self.numbers, numbers]), np.concatenate([self.sums, sums], axis=1))
        while len(self.numbers) > MOST_BINS:
            self._widen()

    @classmethod
    def together(cls, parts: "Iterable[Timeline]") -> "Timeline":
        whole = cls()
        for part in parts:
            other = copy(part)
            while other.width_ms < whole.width_ms:
                other._widen()
            while whole.width_ms < other.width_ms:
                whole._widen()
            whole._take(other.numbers, other.sums)
        return whole

    def _widen(self) -> None:
        self.width_ms *= 2
        self._group(self.numbers // 2, self.sums)

    def _group(self, numbers: Int64s, sums: Int64s) -> None:
        self.numbers, bins = np.unique(numbers, return_inverse=True)
        # Sums in float64 are exact up to 2**53.
        self.sums = np.stack([np.bincount(bins, weights=row, minlength=len(self.numbers)).astype(np.int64) for row in sums])

    def drawn(self, most: int) -> "Drawn":
        """At most ``most`` bins of equal width over the times of nearly all records: a few strange times would hide all others."""
        sums = self.sums[0].cumsum()
        edge = sums[-1] // 100
        low = int(self.numbers[np.searchsorted(sums, edge, "right")])
        high = int(self.numbers[np.searchsorted(sums, sums[-1] - edge, "left")])
        # Times near the others are drawn too.
        reach = max(high - low, 1) // 20
        low, high = max(int(self.numbers[0]), low - reach), min(int(self.numbers[-1]), high + reach)
        step = -(-(high - low + 1) // most)
        within = (self.numbers >= low) & (self.numbers <= high)
        bins = (self.numbers[within] - low) // step
        count = -(-(high - low + 1) // step)
        records, sizes = (np.bincount(bins, weights=row[within], minlength=count).astype(np.int64) for row in self.sums)
        return Drawn(low * self.width_ms, step * self.width_ms, records, sizes, int(self.sums[0][~within].sum()))


class Drawn(NamedTuple):
    """Bins of equal width; ``outside`` counts the records whose times are before or after them."""

    start_ms: int
    width_ms: int
    records: Int64s
    bytes: Int64s
    outside: int


class Powers:
    """How many numbers lie in each power of two, and the sum of a weight of them: index ``i`` of 64 is for 2^(i-1) up to 2^i, 0 for 0."""

    def __init__(self) -> None:
        self.counts: Int64s = np.zeros(64, np.int64)
        self.weights: Int64s = np.zeros(64, np.int64)

    def add(self, numbers: Int64s, weights: Int64s) -> None:
        # frexp is exact below 2**53; the numbers are sizes and counts.
        powers = np.frexp(numbers.astype(np.float64))[1]
        self.counts += np.bincount(powers, minlength=64)
        self.weights += np.bincount(powers, weights=weights, minlength=64).astype(np.int64)

    @property
    def span(self) -> range:
        """The powers from that of the smallest number to that of the largest."""
        powers = np.flatnonzero(self.counts)
        return range(int(powers[0]), int(powers[-1]) + 1) if len(powers) else range(0)


MOST_PRODUCERS = 10_000


@dataclass
class Producer:
    """What one producer wrote; times in ms since 1970."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    first_ms: int = 2**62
    last_ms: int = -1


@dataclass
class HeaderStatistics:
    """Sums over the headers of all intact batches: their stored sizes (weighed by bytes), and records (weighed by records).

    ``uncounted`` are compressed sets of formats 0 and 1, whose headers do not count their records; ``overhead`` the bytes of batch headers
    of format 2. ``codecs`` and ``formats`` have batches and bytes; a format is 0, 1, 2, or the number of a draft. ``producers`` are by id;
    if there are more than 10,000, the rest is counted in ``others``.
    """

    sizes: Powers = field(default_factory=Powers)
    counts: Powers = field(default_factory=Powers)
    uncounted: int = 0
    overhead: int = 0
    codecs: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    formats: dict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    producers: dict[int, Producer] = field(default_factory=dict)
    others: int = 0

    def add(self, entries: Entries) -> None:
        size, count = entries.size, entries.count
        self.sizes.add(size, size)
        known = count[count >= 0]
        self.uncounted += len(count) - len(known)
        self.counts.add(known, known)
        self.overhead += int((entries.magic == 2).sum()) * v2.HEADER
        for codec, own in by_codec(entries):
            self.codecs[codec][0] += len(own)
            self.codecs[codec][1] += int(own.sum())
        for magic in np.unique(entries.magic).tolist():
            own = size[entries.magic == magic]
            self.formats[magic][0] += len(own)
            self.formats[magic][1] += int(own.sum())
        self._add_producers(entries)

    def _add_producers(self, entries: Entries) -> None:
        ids = np.where(entries.magic == 2, entries.producer_id, -1)
        data = (ids != -1) & (entries.control == 0)
        for number in np.unique(ids[data]).tolist():
            if number not in self.producers and len(self.producers) >= MOST_PRODUCERS:
                self.others += 1
                continue
            own, producer = entries[data & (ids == number)], self.producers.setdefault(number, Producer())
            producer.batches += len(own)
            producer.records += int(own.count.sum())
            producer.bytes += int(own.size.sum())
            times = own.max_timestamp[own.max_timestamp >= 0]
            producer.first_ms = min(producer.first_ms, int(times.min(initial=2**62)))
            producer.last_ms = max(producer.last_ms, int(times.max(initial=-1)))


@dataclass
class Offsets:
    """Which offsets of a partition are there: the ``first`` and ``last`` one that headers claim. ``inside`` counts absent offsets within
    the ranges that batches of format 2 claim: compaction removed these records."""

    first: int | None = None
    last: int | None = None
    inside: int = 0

    def add(self, entries: Entries) -> None:
        last = entries.last_offset
        before = np.concatenate([[last[0] if self.last is None else self.last], last[:-1]])
        base = np.where(entries.base_offset == table.UNKNOWN, before + 1, entries.base_offset)
        if self.first is None:
            self.first = int(base[0])
        counted = entries.count >= 0
        self.inside += int((last - base + 1 - entries.count)[counted & (entries.magic == 2)].clip(0).sum())
        self.last = max(int(last.max()), self.last or 0)


def has_transactions(part: Range, options: Options) -> bool:
    return any(bool(entries.transactional.any()) for entries in _entries(part, options))


def add_headers(part: Range, options: Options, damage: list[Damage], headers: HeaderStatistics, offsets: Offsets) -> None:
    """Add the headers of a range; of damaged batches only which offsets they claim."""
    stretches = sorted((piece.position, piece.position + piece.size) for piece in damage)
    starts, ends = np.array([(-1, -1), *stretches], np.int64).T
    for entries in _entries(part, options):
        offsets.add(entries)
        intact = entries[entries.position >= ends[np.searchsorted(starts, entries.position, "right") - 1]]
        if len(intact):
            headers.add(intact)


def _entries(part: Range, options: Options) -> Iterator[Entries]:
    """Headers in a range, unless it is there only to report what is lost. Checksums are not compared."""
    if part.fault is not None or part.is_lost:
        return
    with SegmentFile(part.segment) as file:
        for chunk in entry_chunks(file, options, Tally(), payloads=False, part=part):
            entries = chunk.entries.intact()
            if part.is_bounded:
                entries = entries[part.counts(entries.base_offset, entries.last_offset)]
            if len(entries):
                yield entries


_LOG_SIZE, _LOG_ITEMS = 14, 13  # 2**14 registers of HyperLogLog (an error of 0.8 %), 2**13 places for frequent keys: some MiB at most
_LONG = 200  # a longer key is known by its beginning and its hash
_SHOWN = 20


class Frequent(NamedTuple):
    key: bytes
    least: int
    most: int


class Keys:
    """Sketches of the keys of all records; `available` says whether there are any."""

    def __init__(self) -> None:
        try:
            import datasketches
        except ImportError:
            self._distinct = self._frequent = None
        else:
            self._distinct = datasketches.hll_sketch(_LOG_SIZE)
            self._frequent = datasketches.frequent_strings_sketch(_LOG_ITEMS)
            self._certain = datasketches.frequent_items_error_type.NO_FALSE_POSITIVES

    @property
    def available(self) -> bool:
        return self._distinct is not None

    def add(self, keys: pa.Array) -> None:
        if self._distinct is None or self._frequent is None:
            return
        counted = pc.value_counts(keys)
        for key, count in zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True):
            if key is None:
                continue
            # Sketches take text: the bytes as characters.
            short = key if len(key) <= _LONG else key[:_LONG] + hashlib.blake2b(key, digest_size=16).digest()
            self._distinct.update(short.decode("latin-1"))
            self._frequent.update(short.decode("latin-1"), count)

    def distinct(self) -> tuple[int, int, int]:
        sketch: Any = self._distinct
        return round(sketch.get_estimate()), round(sketch.get_lower_bound(2)), round(sketch.get_upper_bound(2))

    def frequent(self) -> list[Frequent]:
        sketch: Any = self._frequent
        items = sketch.get_frequent_items(self._certain)
        return [Frequent(text[:_LONG].encode("latin-1"), least, most) for text, _, least, most in items[:_SHOWN]]


MOST = 400  # transactions that are kept of each outcome
_OUTCOMES = {"COMMIT": "committed", "ABORT": "aborted"}


class Transaction(NamedTuple):
    """One transaction of one partition; times in ms since 1970."""

    producer: int
    partition: str
    outcome: str
    start_ms: int
    end_ms: int
    first_offset: int
    last_offset: int | None  # of its marker; None while it is open


@dataclass
class TransactionStatistics:
    """The transactions of all partitions: counts by outcome, and the first ones of each outcome. Outcomes are "committed", "aborted" and
    "open"; a marker without records is "empty"."""

    counts: dict[str, int] = field(default_factory=dict)
    kept: list[Transaction] = field(default_factory=list)
    _begun: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, partition: str) -> None:
        names = ("isTransactional", "isControl", "producerId", "timestampMs", "offset")
        within, control, producers, times, offsets = (batch[name].to_numpy(zero_copy_only=False) for name in names)
        rows = np.flatnonzero(within | control)
        if not len(rows):
            return
        # Of records of one producer in a row only the first one matters.
        keep = np.ones(len(rows), bool)
        keep[1:] = control[rows[1:]] | control[rows[:-1]] | (producers[rows[1:]] != producers[rows[:-1]])
        types = batch["controlType"]
        for row in rows[keep].tolist():
            producer, time = int(producers[row]), int(times[row])
            if not control[row]:
                self._begun.setdefault(producer, (time, int(offsets[row])))
            elif (outcome := _OUTCOMES.get(types[row].as_py())) is not None:
                self._end(producer, time, outcome, partition, int(offsets[row]))

    def close(self, partition: str) -> None:
        for producer, (start, _) in list(self._begun.items()):
            self._end(producer, start, "open", partition, None)

    def _end(self, producer: int, time: int, outcome: str, partition: str, last: int | None) -> None:
        begun = self._begun.pop(producer, None)
        outcome = outcome if begun is not None else "empty"
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        if begun is not None and self.counts[outcome] <= MOST:
            self.kept.append(Transaction(producer, partition, outcome, begun[0], max(time, begun[0]), begun[1], last))


@dataclass
class Lag:
    """Rows of `kolumn.groups` with a committed offset, most behind first; ``failed`` says why there are none."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    failed: str = ""

    def by_group(self) -> dict[str, int]:
        """Records that each group has not read, in the logs that are there; the largest number first."""
        lags: Counter[str] = Counter()
        for row in self.rows:
            lags[row["group"]] += row["lag"] or 0
        return dict(lags.most_common())


def lag_of(source: keywords.Source) -> Lag:
    """How far each consumer group lags. Damage in the offsets topic is reported with that topic's records."""
    try:
        rows = rows_of(groups(source, errors="skip"))
    except KolumnError as error:
        return Lag(failed=str(error))
    rows = [row for row in rows if row["committedOffset"] is not None]
    return Lag(sorted(rows, key=lambda row: -(row["lag"] or 0)))
