"""What producers did, by the headers of their batches: Kafka's rules for sequences, epochs and transactions, applied to a log afterwards.

A leader compares each batch with the last ones of its producer (``ProducerAppendInfo``, ``ProducerStateEntry``) before it appends it:

epoch       never below the last one of the producer, of data and of markers: a lower one is a zombie's, which is fenced
sequence    of a new epoch 0, else the one after the last batch's; 0 follows 2^31 - 1. A batch with the sequences of one of the last five
            batches is a duplicate, and is not appended
marker      ends the producer's transaction. Its coordinator's epoch never goes back. A marker of a higher epoch begins that epoch

So a log in which a batch contradicts these rules lost records, got some twice, or was written by a leader that had lost its memory. What
was before the log is not known: the first batch of a producer, and the first one after a marker alone, may have any sequence.

Of each producer id the last batch is known, and no more. Batches of a producer that follow each other are taken together: each of them
costs some additions of arrays, and only where something changes the rules are applied to one batch.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kolumn.core.arrays import Flags, Int64s
from kolumn.formats import v2
from kolumn.formats.entries import Entries

LARGEST = 2**31 - 1
MOST_PRODUCERS, MOST_EPOCHS = 100_000, 10_000
Intact = Callable[[int], bool]
_RECENT = 5  # batches of a producer that a broker remembers (``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``)


class FindingKind(StrEnum):
    """Kinds of what is found about producers."""

    GAP = "sequence-gap"
    DUPLICATE = "duplicate"
    RESET = "sequence-reset"
    FENCED = "fenced-epoch"
    MARKER_MISSING = "marker-missing"
    MARKER_SUSPECTED = "marker-suspected"
    MARKER_ALONE = "marker-without-data"
    COORDINATOR = "coordinator-epoch"
    RECORDS_MISSING = "records-missing"
    LEADERS = "transaction-spans-leaders"
    DAMAGE = "damage"


class Event(NamedTuple):
    """Where a producer's batches contradict a rule. ``missing`` offsets have to be absent after the offset ``after`` for a loss to explain
    it, and ``absent`` ones are. A marker that is missing was somewhere from the offset ``first`` to ``last``."""

    kind: FindingKind
    producer: int
    epoch: int
    first: int
    last: int
    records: int
    time_ms: int
    position: int
    detail: str
    missing: int = 0
    absent: int = 0
    after: int = -1


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that is open; ``before`` are the records and bytes of the log before its first batch. Up to the offset ``held`` no
    marker ended it, as a snapshot says. ``leader`` is the leader epoch of its last batch."""

    first: int
    time_ms: int | None
    epoch: int
    before: tuple[int, int]
    last: int = -1
    records: int = 0
    held: int = -1
    leader: int = -1

    def unended(self, offset: int) -> int:
        """First offset at which a marker can have ended it, if the producer's last batch ended at ``offset``."""
        return max(offset, self.held) + 1


@dataclass(slots=True)
class Counts:
    """What an epoch of a producer wrote, and what was found in it."""

    first_offset: int
    last_offset: int = -1
    first_sequence: int | None = None
    last_sequence: int | None = None
    batches: int = 0
    records: int = 0
    gaps: int = 0
    duplicates: int = 0
    resets: int = 0
    fenced: int = 0
    committed: int = 0
    aborted: int = 0


@dataclass(slots=True)
class ProducerState:
    """The last batch of a producer's data: its sequence is None where it is not known, and -1 at the beginning of an epoch. ``absent``: how
    many offsets of the log were absent before it. ``epoch`` and ``coordinator`` are the highest ones, of markers too."""

    epoch: int = -1
    sequence: int | None = None
    offset: int = -1
    absent: int = 0
    coordinator: int = -1
    open: OpenTransaction | None = None
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_RECENT))

    @property
    def expected(self) -> int | None:
        return None if self.sequence is None else (self.sequence + 1) & LARGEST

    def awaits(self, run: "_Run") -> bool:
        """Whether a batch simply goes on in its epoch."""
        first = run.sequences[0]
        return run.epoch == self.epoch and (first < 0 or self.sequence is None or first == self.expected)


class _Run(NamedTuple):
    """Batches of a producer in the order of the log that nothing lies between: numbers of the first one, and lists of all."""

    producer: int
    epoch: int
    is_transactional: bool
    first: Int64s  # base offset, last offset, first and last sequence, count, position, leader epoch of each batch, in this order of rows
    time_ms: int
    begun_ms: int
    before: tuple[int, int]
    absent: tuple[int, int]  # before the first and before the last batch

    @property
    def base(self) -> int:
        return int(self.first[0, 0])

    @property
    def sequences(self) -> tuple[int, int]:
        """First and last sequence of the first batch."""
        return int(self.first[2, 0]), int(self.first[3, 0])

    @property
    def records(self) -> int:
        return int(self.first[4].sum())

    def cut(self, count: int) -> "_Run":
        return self._replace(first=self.first[:, :count])

    def event(self, kind: FindingKind, detail: str, **more: int) -> Event:
        last, position = int(self.first[1, -1]), int(self.first[5, 0])
        return Event(kind, self.producer, self.epoch, self.base, last, self.records, self.time_ms, position, detail, **more)


class ProducerStates:
    """The producers of a topic-partition. ``known`` are by id; ``counts`` by id and epoch, of the first epochs. Batches of what is beyond
    `MOST_PRODUCERS` are not judged, and are counted in ``unjudged``; those of epochs beyond `MOST_EPOCHS` in ``uncounted``."""

    def __init__(self, begun: dict[int, int]) -> None:
        self.known = {producer: ProducerState(open=OpenTransaction(first, None, -1, (0, 0))) for producer, first in begun.items()}
        self.counts: dict[tuple[int, int], Counts] = {}
        self.unjudged = self.uncounted = 0
        self._is_quiet = False
        self.ended: list[tuple[OpenTransaction, bool]] = []  # transactions that markers have ended, and whether they were committed

    def add(
        self,
        entries: Entries,
        absent: Int64s,
        before: Int64s,
        markers: dict[int, tuple[int | None, int | None]],
        is_intact: Intact,
        is_quiet: bool = False,
    ) -> Iterator[Event]:
        """Batches of producers, in the order of the log. ``absent``: how many offsets are absent before each; ``before`` (2, n): the
        records and bytes before each; ``markers``: type and coordinator's epoch of control batches by their row; ``is_intact``: whether
        the checksum of the batch at a position is right, which is asked before a batch contradicts a rule. With ``is_quiet`` nothing is
        said of what absent offsets explain."""
        self._is_quiet = is_quiet
        order = np.argsort(entries.producer_id, kind="stable")
        rows, absent, before = entries[order], absent[order], before[:, order]
        sequenced = rows.base_sequence >= 0
        last = np.where(sequenced, (rows.base_sequence + rows.last_offset - rows.base_offset) & LARGEST, -1)
        columns = np.stack([rows.base_offset, rows.last_offset, rows.base_sequence, last, rows.count, rows.position, rows.leader_epoch])
        starts = np.flatnonzero(_begins(rows, np.where(sequenced, (last + 1) & LARGEST, -1), absent, is_quiet))
        for start, end in pairwise([*starts.tolist(), len(rows)]):
            first = rows[start]
            number, at = first.producer_id, (int(before[0, start]), int(before[1, start]))
            producer = self._producer(number)
            if producer is None:
                self.unjudged += end - start
                continue
            begun = first.max_timestamp if first.delete_horizon or first.timestamp_type == 1 else first.base_timestamp
            span = int(absent[start]), int(absent[end - 1])
            is_transactional = first.transactional == 1
            own = columns[:, start:end]
            run = _Run(number, first.producer_epoch, is_transactional, own, first.max_timestamp, begun, at, span)
            if first.control:
                yield from self._end(producer, run, *markers[int(order[start])])
            else:
                yield from self._append(producer, run, is_intact)

    def close(self, end: int, absent: int) -> Iterator[Event]:
        """What is suspected at the end of the log."""
        for number, producer in self.known.items():
            if producer.open is not None and absent > producer.absent and producer.offset >= 0:
                text = _suspicion(producer.open, producer.offset)
                first = producer.open.unended(producer.offset)
                yield Event(FindingKind.MARKER_SUSPECTED, number, producer.open.epoch, first, end, 0, -1, -1, text, missing=1)

    def _producer(self, number: int) -> ProducerState | None:
        if number not in self.known and len(self.known) >= MOST_PRODUCERS:
            return None
        return self.known.setdefault(number, ProducerState())

    def _counts(self, number: int, epoch: int, offset: int) -> Counts:
        """Counts of an epoch; those that are not kept if there are too many."""
        own = self.counts.get((number, epoch))
        if own is None:
            own = Counts(offset)
            if len(self.counts) < MOST_EPOCHS:
                self.counts[number, epoch] = own
            else:
                self.uncounted += 1
        return own

    def _append(self, producer: ProducerState, run: _Run, is_intact: Intact) -> Iterator[Event]:
        """Apply the rules to batches of data."""
        while producer.epoch >= 0 and not producer.awaits(run):
            if not is_intact(int(run.first[5, 0])):
                yield run.cut(1).event(FindingKind.DAMAGE, "the checksum of the batch is wrong, so its header is not believed")
            elif run.epoch == producer.epoch and run.sequences in producer.recent:
                counts = self._counts(run.producer, run.epoch, run.base)
                counts.duplicates += 1
                self._count(counts, run.cut(1))
                text = "sequences {} to {} are in the log a second time: the next one".format(*run.sequences)
                yield run.cut(1).event(FindingKind.DUPLICATE, f"{text} is expected to be {producer.expected}")
            else:
                break
            if run.first.shape[1] == 1:
                return
            run = run._replace(first=run.first[:, 1:])
        counts = self._counts(run.producer, run.epoch, run.base)
        self._count(counts, run)
        if run.epoch < producer.epoch:
            counts.fenced += run.first.shape[1]
            text = f"epoch {run.epoch} after epoch {producer.epoch} of the same producer: a leader refuses the batches of a fenced producer"
            yield run.event(FindingKind.FENCED, text)
        else:
            yield from self._sequence(producer, run, counts)
        yield from self._transaction(producer, run)
        producer.offset, producer.absent = int(run.first[1, -1]), run.absent[1]

    def _sequence(self, producer: ProducerState, run: _Run, counts: Counts) -> Iterator[Event]:
        first = run.sequences[0]
        is_new = run.epoch > producer.epoch
        expected = (None if producer.epoch < 0 else 0) if is_new else producer.expected
        if is_new:
            producer.sequence = None
            producer.recent.clear()
        if first >= 0 and expected is not None and first != expected:
            missing = (first - expected) & LARGEST
            absent = run.absent[0] - producer.absent
            if missing <= absent and self._is_quiet:
                pass
            elif is_new or missing <= LARGEST // 2:
                text = f"expected sequence {expected}{f', the first one of epoch {run.epoch}' if is_new else ''}, found {first}"
                text = f"{text}: {missing} record{'s' if missing > 1 else ''} of this producer are missing before it"
                yield run.cut(1).event(FindingKind.GAP, text, missing=missing, absent=absent, after=producer.offset)
            else:
                counts.resets += 1
                how = "begins with 0 again" if first == 0 else "goes back"
                text = f"expected sequence {expected}, found {first}: the producer {how} in the same epoch"
                yield run.cut(1).event(FindingKind.RESET, text)
        producer.epoch = run.epoch
        if first >= 0:
            producer.sequence = int(run.first[3, -1])
            producer.recent.extend(zip(*run.first[2:4, -_RECENT:].tolist(), strict=True))

    def _transaction(self, producer: ProducerState, run: _Run) -> Iterator[Event]:
        own = producer.open
        if own is None:
            if run.is_transactional:
                producer.open = own = OpenTransaction(run.base, run.begun_ms, run.epoch, run.before)
        elif not run.is_transactional or run.epoch > own.epoch >= 0:
            what = f"epoch {run.epoch} begins" if run.is_transactional else "a batch without a transaction follows"
            text = f"{what}, and no marker ends the transaction of epoch {own.epoch} that began at offset {own.first}"
            event = run.cut(1).event(FindingKind.MARKER_MISSING, text)
            yield event._replace(first=own.unended(producer.offset), last=run.base - 1, records=0)
            own.epoch = run.epoch
        elif run.absent[0] > producer.absent and producer.offset >= 0 and not self._is_quiet:
            event = run.cut(1).event(FindingKind.MARKER_SUSPECTED, _suspicion(own, producer.offset), missing=1)
            yield event._replace(first=own.unended(producer.offset), last=run.base - 1, records=0)
        if run.is_transactional and own is not None:
            leaders, own.leader = (own.leader, int(run.first[6, 0])), int(run.first[6, -1])
            if leaders[1] > leaders[0] >= 0:
                text = f"the transaction that began at offset {own.first} spans leader epochs {leaders[0]} and {leaders[1]}"
                yield run.cut(1).event(FindingKind.LEADERS, f"{text}: a marker may have been lost with a leader, so that two became one")
            own.last, own.records = int(run.first[1, -1]), own.records + run.records

    def _end(self, producer: ProducerState, run: _Run, type: int | None, coordinator: int | None) -> Iterator[Event]:
        """Apply the rules to a marker. Without a record, the whole transaction was cleaned."""
        if type not in (v2.COMMIT, v2.ABORT):
            return
        if run.epoch < producer.epoch:
            yield run.event(FindingKind.FENCED, f"a marker of epoch {run.epoch} after epoch {producer.epoch} of the same producer")
        if coordinator is not None and coordinator < producer.coordinator:
            text = f"a coordinator of epoch {coordinator} wrote the marker, after one of epoch {producer.coordinator}"
            yield run.event(FindingKind.COORDINATOR, text)
        own = producer.open
        if own is not None:
            counts = self._counts(run.producer, own.epoch if own.epoch >= 0 else run.epoch, run.base)
            counts.committed += type == v2.COMMIT
            counts.aborted += type == v2.ABORT
            self.ended.append((own, type == v2.COMMIT))
        elif producer.epoch >= 0:
            text = "a marker without data of its transaction: it had none in this partition, or the marker was written twice"
            yield run.event(FindingKind.MARKER_ALONE, text)
        if run.epoch > producer.epoch >= 0:
            producer.sequence = -1
            producer.recent.clear()
        producer.open, producer.epoch = None, max(run.epoch, producer.epoch)
        producer.coordinator = max(producer.coordinator, -1 if coordinator is None else coordinator)

    @staticmethod
    def _count(counts: Counts, run: _Run) -> None:
        first, last = run.sequences[0], int(run.first[3, -1])
        if first >= 0:
            counts.first_sequence = first if counts.first_sequence is None else counts.first_sequence
            counts.last_sequence = last
        counts.last_offset = max(counts.last_offset, int(run.first[1, -1]))
        counts.batches += run.first.shape[1]
        counts.records += run.records


def _begins(rows: Entries, expected: Int64s, absent: Int64s, is_quiet: bool) -> Flags:
    """Rows that do not simply go on from the row before: another producer, epoch of it or epoch of a leader, a sequence that is not the
    ``expected`` one after the row before, a marker, or absent offsets in a transaction. If ``is_quiet``, as many absent offsets explain a
    sequence. ``expected`` is -1 after a batch without sequences."""
    begins = np.ones(len(rows), bool)
    columns = rows.producer_id, rows.producer_epoch, rows.transactional, rows.leader_epoch
    changed = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    marked, gone = rows.control == 1, np.diff(absent)
    jumps = rows.base_sequence[1:] != expected[:-1]
    if is_quiet:
        jumps &= (((rows.base_sequence[1:] - expected[:-1]) & LARGEST) > gone) | (expected[:-1] < 0)
    else:
        jumps |= (rows.transactional[1:] == 1) & (gone > 0)
    begins[1:] = changed | marked[1:] | marked[:-1] | jumps
    return begins


def _suspicion(own: OpenTransaction, last: int) -> str:
    return (
        f"offsets are absent after offset {last}, in the transaction that began at offset {own.first}: a marker may have been there, which "
        "ended it"
    )
