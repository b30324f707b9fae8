"""Compares two sorted logs window by window: a merge join by headers, and of records where entries differ.

A   ──equal──┤ a1 a2      a3 ├──equal──      a window ends where one side is loaded to: what goes beyond is compared
B   ──equal──┤    b1 b2      ├──equal──      in the next one. Equal entries are dropped, others with offsets of the
                                             other side are opened, and the rest is told by its headers
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.text import in_column
from kolumn.damage.findings import LIMIT, Damage
from kolumn.formats.codecs.known import NAMES
from kolumn.source.segments import HIGHEST
from kolumn.tools.comparing import sides as row
from kolumn.tools.comparing.records import ROW, LiveKeys, Pair, Records, pairs
from kolumn.tools.comparing.sides import BACK, CUT, DAMAGED, INTACT, Side

ONLY, CONTENT, STORAGE, BROKEN = ("only in A", "only in B"), "content differs", "storage differs", ("damaged in A", "damaged in B")
KINDS = (*ONLY, CONTENT, STORAGE, *BROKEN)
"""Kinds of a difference, in the order of their numbers."""
_ONLY_A, _ONLY_B, _CONTENT, _STORAGE, _BROKEN_A, _BROKEN_B = range(6)
_SAME = -1
MOST_PRODUCERS = 1000
"""Producer ids that a row of differences lists at most."""
Epoch = int | None
Place = tuple[str, int] | None


@dataclass
class Unlike:
    """Neighbouring offsets with one kind of difference: a row of the table. ``epochs`` and ``places`` are those of A and of B."""

    kind: int
    first: int
    last: int
    records: int | None = 0
    bytes: int = 0
    producers: set[int] = field(default_factory=set)
    times: tuple[int, int] | None = None
    epochs: tuple[Epoch, Epoch] = (None, None)
    places: tuple[Place, Place] = (None, None)
    reason: str | None = None

    def joins(self, after: "Unlike") -> bool:
        """Whether the next stretch goes on with this one; then it is added."""
        same = (self.kind, self.epochs, self.reason) == (after.kind, after.epochs, after.reason)
        if not same or not self.last < after.first <= self.last + 1:
            return False
        self.last, self.bytes = after.last, self.bytes + after.bytes
        self.records = None if self.records is None or after.records is None else self.records + after.records
        self.add(after.producers, after.times)
        return True

    def add(self, producers: set[int], times: tuple[int, int] | None) -> None:
        if len(self.producers) < MOST_PRODUCERS:
            self.producers |= producers
        if times is not None:
            low, high = self.times or times
            self.times = min(low, times[0]), max(high, times[1])


@dataclass
class Comparison:
    """Compares two sides; ``keys`` are given for a compacted topic. ``tell`` gets each stretch, in the order of offsets, and
    ``list_records`` the numbers of records in a pair that differ, and their kinds."""

    sides: tuple[Side, Side]
    tell: Callable[[Unlike], None]
    keys: LiveKeys | None = None
    list_records: Callable[[Pair, Int64s, Int64s], None] | None = None

    def run(self) -> None:
        a, b = self.sides
        border, held = -1, None
        while True:
            a.load(border)
            b.load(border)
            if a.is_done and b.is_done:
                break
            equal, highest = _drop_equal(a, b)
            border = max(border, highest)
            if equal:
                continue
            border = min(HIGHEST if side.ended else side.last for side in self.sides)
            for stretch in sorted(self._window(border), key=lambda one: (one.first, one.last)):
                if held is None or not held.joins(stretch):
                    if held is not None:
                        self.tell(held)
                    held = stretch
        if held is not None:
            self.tell(held)
        for number, side in enumerate(self.sides):
            for damage in filter(side.found, side.unread):
                low = damage.base_offset or 0
                high = low - 1 if damage.last_offset is None else damage.last_offset
                self.tell(_of_damage(number, damage, low, high, damage.records_lost))

    def _window(self, border: int) -> Iterator[Unlike]:
        """What differs up to an offset."""
        taken = tuple(side.take(border) for side in self.sides)
        rest = _without_equal(taken)
        intact = tuple(rows[rows[:, row.STATE] < BACK] for rows in rest)
        hurt = tuple(rows[rows[:, row.STATE] == DAMAGED] for rows in rest)
        opened: list[Int64s] = []
        for number in (0, 1):
            own, other, lost = intact[number], intact[1 - number], hurt[1 - number]
            opens = (own[:, row.STATE] == CUT) | _overlap(own, other) | (_overlap(own, lost) & ~_inside(own, lost))
            # The headers of formats 0 and 1 have no counts.
            opens |= (own[:, row.COUNT] < 0) | (self.keys is not None or self.list_records is not None)
            has_none = (own[:, row.COUNT] == 0) & (own[:, row.STATE] == INTACT)
            opened.append(own[opens & ~has_none])
            alone = own[~opens & ~has_none]
            yield from self._by_headers(number, own[has_none], alone[~self._absorbed(1 - number, alone, lost)])
            yield from self._back(number, rest[number])
        yield from self._by_records(opened, hurt, border)
        for number, side in enumerate(self.sides):
            for damaged in hurt[number][hurt[number][:, row.HIGH] <= border]:
                damage = side.damages[int(damaged[row.WHY])]
                known = None if damaged[row.COUNT] < 0 else int(damaged[row.COUNT])
                found = side.absorbed.pop(int(damaged[row.WHY]), 0)
                yield _of_damage(number, damage, int(damaged[row.LOW]), int(damaged[row.HIGH]), known or found or None)

    def _absorbed(self, damaged: int, rows: Int64s, hurt: Int64s) -> Flags:
        """Flags of rows that lie where the other side is damaged."""
        flags = _inside(rows, hurt)
        if flags.any():
            place = np.minimum(np.searchsorted(hurt[:, row.HIGH], rows[flags, row.HIGH]), len(hurt) - 1)
            for reason, count in zip(hurt[place, row.WHY].tolist(), rows[flags, row.COUNT].tolist(), strict=True):
                self._absorb(damaged, reason, max(count, 0))
        return flags

    def _absorb(self, damaged: int, reason: int, count: int) -> None:
        absorbed = self.sides[damaged].absorbed
        absorbed[reason] = absorbed.get(reason, 0) + count

    def _by_headers(self, number: int, empty: Int64s, alone: Int64s) -> Iterator[Unlike]:
        """Stretches of entries that are told by their headers: batches without records, and those whose offsets the other side lacks."""
        reasons_alone = self._reasons(1 - number, alone[:, row.LOW], alone[:, row.HIGH])
        for rows, kind, reasons in ((empty, _STORAGE, np.full(len(empty), _EMPTY)), (alone, number, reasons_alone)):
            cuts = (rows[1:, row.POSITION] != rows[:-1, row.POSITION] + rows[:-1, row.SIZE]) | (np.diff(reasons) != 0)
            cuts |= (np.diff(rows[:, [row.EPOCH, row.PART]], axis=0) != 0).any(axis=1)
            for part in np.split(np.arange(len(rows)), np.flatnonzero(cuts) + 1):
                if len(part):
                    yield self._stretch(number, kind, rows[part], self._reason_text(1 - number, int(reasons[part[0]])))

    def _stretch(self, number: int, kind: int, rows: Int64s, reason: str | None) -> Unlike:
        counts, first, last = rows[:, row.COUNT], rows[:, row.FIRST_TIME], rows[:, row.LAST_TIME]
        timed = (first >= 0) & (last >= 0)
        times = (int(first[timed].min()), int(last[timed].max())) if timed.any() else None
        epoch, place = _epoch(rows[0]), (in_column(self.sides[number].path(rows[0])), int(rows[0, row.POSITION]))
        return Unlike(
            kind, int(rows[0, row.LOW]), int(rows[-1, row.HIGH]), None if (counts < 0).any() else int(counts.sum()),
            int(rows[:, row.SIZE].sum()), _producers(rows[:, row.PRODUCER]), times,
            (epoch, None) if number == 0 else (None, epoch), (place, None) if number == 0 else (None, place), reason,
        )  # fmt: skip

    def _reasons(self, other: int, low: Int64s, high: Int64s) -> Int64s:
        """Why the other side may lack offsets, as numbers of `_reason_text`."""
        side = self.sides[other]
        reasons = np.where(high < side.start, _BELOW, np.where((low >= side.end) & side.ended, _ABOVE, _NOTHING))
        return reasons if side.ranges else np.full(len(low), _ABSENT)

    def _reason_text(self, other: int, reason: int) -> str | None:
        name, ends = self.sides[other].name, ", which is damaged" if self.sides[other].ends_damaged else ""
        return (
            None, f"below {name}'s log start", f"above {name}'s log end{ends}", f"{name} has no such partition", "batches without records"
        )[reason]  # fmt: skip

    def _back(self, number: int, rows: Int64s) -> Iterator[Unlike]:
        for one in rows[rows[:, row.STATE] == BACK]:
            yield self._stretch(number, _BROKEN_A + number, one[None], f"{row.BACK_TEXT}: expected some above those before them")

    def _by_records(self, opened: list[Int64s], hurt: tuple[Int64s, ...], border: int) -> Iterator[Unlike]:
        records = tuple(Records(side, rows, border) for side, rows in zip(self.sides, opened, strict=True))
        for pair in pairs(*records):
            yield from self._of_pair(pair, records, hurt)
        for number, own in enumerate(records):
            for lost in filter(lambda one: one.is_new, own.lost):
                found = self.sides[number].absorbed.pop(-1 - id(lost.damage), 0)
                yield _of_damage(number, lost.damage, lost.low, lost.high, lost.damage.records_lost or found or None, lost.row)

    def _of_pair(self, pair: Pair, records: tuple[Records, ...], hurt: tuple[Int64s, ...]) -> Iterator[Unlike]:
        kind = self._kinds(pair, records, hurt)
        rows = pair.of(0, ROW, -1), pair.of(1, ROW, -1)
        if self.list_records is not None:
            differing = np.flatnonzero((kind != _SAME) & (kind != _STORAGE))
            self.list_records(pair, differing, kind[differing])
        kind[(kind == _BROKEN_A) | (kind == _BROKEN_B)] = _SAME
        storage = _storage(records, rows) if self.keys is None else np.full(len(kind), _CLEANED)
        reasons = np.zeros(len(kind), np.int64)
        for number in (0, 1):
            mine = kind == number
            reasons[mine] = self._reasons(1 - number, pair.offset[mine], pair.offset[mine])
        reasons = np.where(kind == _STORAGE, storage, reasons)
        held = _Columns.of(pair)
        stretches = (one.stretches(own) for one, own in zip(records, rows, strict=True))
        changes = sum((np.diff(values) != 0).astype(int) for values in (kind, reasons, *held.epochs, *stretches)) > 0
        for part in np.split(np.arange(len(kind)), np.flatnonzero(changes) + 1):
            if len(part) and kind[part[0]] != _SAME:
                first, own = int(part[0]), int(kind[part[0]])
                if own == _CONTENT:
                    text: str | None = ", ".join(name for name, flags in pair.fields.items() if flags[part].any())
                elif own == _STORAGE:
                    text = _storage_text(int(reasons[first]), records, rows, first) if self.keys is None else "other batches, or compaction"
                else:
                    text = self._reason_text(1 - own, int(reasons[first]))
                places = _place(records[0], int(rows[0][first])), _place(records[1], int(rows[1][first]))
                yield held.stretch(own, pair.offset, part, places, text)

    def _kinds(self, pair: Pair, records: tuple[Records, ...], hurt: tuple[Int64s, ...]) -> Int64s:
        different, both = pair.is_different, (pair.at[0] >= 0) & (pair.at[1] >= 0)
        kind = np.where(both, np.where(different, _CONTENT, _STORAGE), np.where(pair.at[0] >= 0, _ONLY_A, _ONLY_B))
        for damaged in (0, 1):
            alone = kind == 1 - damaged
            low, high, reason = _lost_in(records[damaged], hurt[damaged])
            place = np.searchsorted(high, pair.offset)
            inside = alone & (place < len(high)) & (np.append(low, HIGHEST)[place] <= pair.offset)
            kind[inside] = _BROKEN_A + damaged
            for number in reason[place[inside]].tolist() if inside.any() else ():
                self._absorb(damaged, number, 1)
        if self.keys is not None:
            asked = (kind == _ONLY_A) | (kind == _ONLY_B) | (kind == _CONTENT)
            kind[asked & ~self.keys.counts(pair, asked)] = _STORAGE
        return kind


class _Columns(NamedTuple):
    """What rows of differences tell of the records of a pair, by offset, for A and B."""

    epochs: tuple[Int64s, Int64s]
    times: tuple[Int64s, Int64s]
    producers: tuple[Int64s, Int64s]
    sizes: tuple[Int64s, Int64s]

    @classmethod
    def of(cls, pair: Pair) -> "_Columns":
        epochs, times, producers = ((pair.of(0, name, -1), pair.of(1, name, -1)) for name in ("leaderEpoch", "timestampMs", "producerId"))
        return cls(epochs, times, producers, (pair.sizes(0), pair.sizes(1)))

    def stretch(self, kind: int, offset: Int64s, part: Int64s, places: tuple[Place, Place], text: str | None) -> Unlike:
        times = np.concatenate([own[part] for own in self.times])
        known = times[times >= 0]
        producers = _producers(np.concatenate([own[part] for own in self.producers]))
        epochs = _positive(int(self.epochs[0][part[0]])), _positive(int(self.epochs[1][part[0]]))
        return Unlike(
            kind, int(offset[part[0]]), int(offset[part[-1]]), len(part), int(self.sizes[kind == _ONLY_B][part].sum()), producers,
            (int(known.min()), int(known.max())) if len(known) else None, epochs, places, text,
        )  # fmt: skip


_NOTHING, _BELOW, _ABOVE, _ABSENT, _EMPTY, _CLEANED = range(6)


def _drop_equal(a: Side, b: Side) -> tuple[int, int]:
    """Drop the entries at the beginning of both sides that are equal; how many there are, and their highest offset."""
    count = min(len(a.rows), len(b.rows))
    left, right = a.rows[:count], b.rows[:count]
    same = row.same(left, right)
    equal = count if same.all() else int(same.argmin())
    a.rows, b.rows = a.rows[equal:], b.rows[equal:]
    return equal, int(left[:equal, row.HIGH].max(initial=-1))


def _without_equal(taken: tuple[Int64s, ...]) -> tuple[Int64s, Int64s]:
    """The rows that the other side does not have too."""
    a, b = taken
    keeps = np.ones(len(a), bool), np.ones(len(b), bool)
    left, right = (np.flatnonzero(rows[:, row.STATE] < BACK) for rows in taken)
    _, at, there = np.intersect1d(a[left, row.HIGH], b[right, row.HIGH], assume_unique=True, return_indices=True)
    same = row.same(a[left[at]], b[right[there]])
    keeps[0][left[at[same]]] = keeps[1][right[there[same]]] = False
    back = [{tuple(rows[i, row.BASE : row.COUNT].tolist()): i for i in np.flatnonzero(rows[:, row.STATE] == BACK)} for rows in taken]
    for known in back[0].keys() & back[1].keys():
        keeps[0][back[0][known]] = keeps[1][back[1][known]] = False
    return a[keeps[0]], b[keeps[1]]


def _overlap(rows: Int64s, others: Int64s) -> Flags:
    """Flags of rows that have offsets of others, which are in order."""
    place = np.searchsorted(others[:, row.HIGH], rows[:, row.LOW])
    return (place < len(others)) & (np.append(others[:, row.LOW], HIGHEST)[place] <= rows[:, row.HIGH])


def _inside(rows: Int64s, others: Int64s) -> Flags:
    """Flags of rows of which each offset is one of a row of others, which are in order."""
    place = np.searchsorted(others[:, row.HIGH], rows[:, row.HIGH])
    return (place < len(others)) & (np.append(others[:, row.LOW], HIGHEST)[place] <= rows[:, row.LOW])


def _positive(epoch: int) -> Epoch:
    return epoch if epoch >= 0 else None


def _epoch(one: Int64s) -> Epoch:
    return _positive(int(one[row.EPOCH]))


def _producers(ids: Int64s) -> set[int]:
    return set(np.unique(ids[ids >= 0])[:MOST_PRODUCERS].tolist())


def _place(records: Records, number: int) -> Place:
    return None if number < 0 else (in_column(records.side.path(records.rows[number])), int(records.rows[number, row.POSITION]))


def _of_damage(number: int, damage: Damage, low: int, high: int, records: int | None, at: Int64s | None = None) -> Unlike:
    place, epoch = (in_column(damage.segment), damage.position), None if at is None else _epoch(at)
    text = f"over a limit, not read: {damage.reason}" if damage.kind == LIMIT else damage.reason
    return Unlike(
        _BROKEN_A + number, low, high, records, damage.size, epochs=(epoch, None) if number == 0 else (None, epoch),
        places=(place, None) if number == 0 else (None, place), reason=text,
    )  # fmt: skip


def _lost_in(records: Records, hurt: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """First and last offsets of damaged stretches in order, with numbers under which absorbed records are counted."""
    lost = [(low, high, -1 - id(damage)) for low, high, damage, *_ in records.lost]
    lost += [(low, high, reason) for low, high, reason in hurt[:, [row.LOW, row.HIGH, row.WHY]].tolist() if low <= high]
    table = np.array(sorted(lost), np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def _storage(records: tuple[Records, ...], rows: tuple[Int64s, Int64s]) -> Int64s:
    """How the entries of equal records differ: bits for the format, the codec, the leader epoch, and the offsets of the entries."""
    both = (rows[0] >= 0) & (rows[1] >= 0)
    bits = np.zeros(len(rows[0]), np.int64)
    if both.any():
        a, b = rows[0][both], rows[1][both]
        for name, bit in ((row.MAGIC, 0), (row.CODEC, 1), (row.EPOCH, 2), (row.BASE, 3), (row.LAST, 3)):
            differs = records[0].rows[:, name][a] != records[1].rows[:, name][b]
            bits[both] |= differs.astype(np.int64) << bit
    return bits


def _storage_text(bits: int, records: tuple[Records, ...], rows: tuple[Int64s, Int64s], at: int) -> str:
    left, right = (own.rows[numbers[at]] for own, numbers in zip(records, rows, strict=True))
    codecs = [NAMES[int(one[row.CODEC])] if 0 <= one[row.CODEC] < len(NAMES) else str(one[row.CODEC]) for one in (left, right)]
    texts = (
        f"formats {left[row.MAGIC]} and {right[row.MAGIC]}", f"codecs {' and '.join(codecs)}",
        f"leader epochs {left[row.EPOCH]} and {right[row.EPOCH]}", "other batches",
    )  # fmt: skip
    return ", ".join(text for bit, text in enumerate(texts) if bits >> bit & 1) or "other bytes of a batch"
