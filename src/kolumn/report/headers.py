"""What headers of batches say: sizes, codecs, producers, and which offsets they claim."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kolumn.codecs.known import NAMES
from kolumn.damage.findings import Damage
from kolumn.decode.result import Tally
from kolumn.formats import table
from kolumn.formats.entries import Entries
from kolumn.log.batch_table import entry_chunks
from kolumn.options import Options
from kolumn.report.histograms import Powers
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range

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
        """Add intact entries."""
        size, count = entries.size, entries.count
        self.sizes.add(size, size)
        known = count[count >= 0]
        self.uncounted += len(count) - len(known)
        self.counts.add(known, known)
        self.overhead += int((entries.magic == 2).sum()) * _HEADER_BYTES
        for codec in np.unique(entries.codec).tolist():
            own = size[entries.codec == codec]
            found = self.codecs[NAMES[codec] if codec < len(NAMES) else str(codec)]
            found[0] += len(own)
            found[1] += int(own.sum())
        for magic in np.unique(entries.magic).tolist():
            own = size[entries.magic == magic]
            self.formats[magic][0] += len(own)
            self.formats[magic][1] += int(own.sum())
        self._add_producers(entries)

    def _add_producers(self, entries: Entries) -> None:
        ids = np.where(entries.magic == 2, entries.producer_id, -1)
        for number in np.unique(ids).tolist():
            if number == -1:
                continue
            own = entries[(ids == number) & (entries.control == 0)]
            if not len(own):
                continue
            if number not in self.producers and len(self.producers) >= MOST_PRODUCERS:
                self.others += 1
                continue
            found = self.producers.setdefault(number, Producer())
            found.batches += len(own)
            found.records += int(own.count.sum())
            found.bytes += int(own.size.sum())
            times = own.max_timestamp[own.max_timestamp >= 0]
            if len(times):
                found.first_ms, found.last_ms = min(found.first_ms, int(times.min())), max(found.last_ms, int(times.max()))


_HEADER_BYTES = 61


@dataclass
class Offsets:
    """Which offsets of a partition are there: the ``first`` and ``last`` one that headers claim.

    ``inside`` counts absent offsets within the ranges that batches of format 2 claim: compaction removed these records.
    """

    first: int | None = None
    last: int | None = None
    inside: int = 0

    def add(self, entries: Entries) -> None:
        """Add intact entries in the order of the log."""
        last = entries.last_offset
        before = np.concatenate([[last[0] if self.last is None else self.last], last[:-1]])
        base = np.where(entries.base_offset == table.UNKNOWN, before + 1, entries.base_offset)
        if self.first is None:
            self.first = int(base[0])
        counted = entries.count >= 0
        self.inside += int((last - base + 1 - entries.count)[counted & (entries.magic == 2)].clip(0).sum())
        self.last = max(int(last.max()), self.last or 0)


def has_transactions(one: Range, options: Options) -> bool:
    """Whether a range has a transactional batch."""
    return any(bool(entries.transactional.any()) for entries in _entries(one, options))


def add_headers(one: Range, options: Options, damage: list[Damage], headers: HeaderStatistics, offsets: Offsets) -> None:
    """Add the headers of a range; of damaged batches only which offsets they claim."""
    stretches = sorted((piece.position, piece.position + piece.size) for piece in damage)
    starts, ends = np.array([(-1, -1), *stretches], np.int64).T
    for entries in _entries(one, options):
        offsets.add(entries)
        intact = entries[entries.position >= ends[np.searchsorted(starts, entries.position, "right") - 1]]
        if len(intact):
            headers.add(intact)


def _entries(one: Range, options: Options) -> Iterator[Entries]:
    """Headers in a range, unless it is there only to report what is lost. Checksums are not compared."""
    if one.fault is not None or one.is_lost:
        return
    with SegmentFile(one.segment) as file:
        for chunk in entry_chunks(file, options, Tally(), payloads=False, part=one):
            entries = chunk.entries.intact()
            if one.is_bounded:
                entries = entries[one.counts(entries.base_offset, entries.last_offset)]
            if len(entries):
                yield entries
