"""One side of a diff: the entries of a log by their headers alone, in the order of offsets, with what is damaged between them.

Blocks of some thousand entries are loaded when they are needed. A row is an entry, or a damaged stretch of bytes with the offsets that it
may have had: those between the intact entries around it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from kolumn.copies.elections import placed
from kolumn.core.arrays import Flags, Int64s
from kolumn.damage.findings import Damage, Tally, damage_of_fault
from kolumn.decode.host.headers import first_offset, with_last_offsets
from kolumn.decode.pipeline import scan_ranges
from kolumn.formats import table
from kolumn.formats.entries import Entries, Entry
from kolumn.log.pieces import entry_chunks
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import HIGHEST, Range

LOW, HIGH, STATE, PART, WHY, BASE, LAST, CRC, SIZE, EPOCH, PRODUCER, PRODUCER_EPOCH, SEQUENCE, MAGIC = range(14)
COUNT, POSITION, FIRST_TIME, LAST_TIME, CODEC, WIDTH = range(14, 20)
"""Columns of a row. LOW and HIGH are the offsets that it covers, PART is the number of its range, WHY that of its damage."""
_TAKEN = [
    *(table.BASE_OFFSET, table.LAST_OFFSET, table.CRC, table.SIZE, table.LEADER_EPOCH, table.PRODUCER_ID, table.PRODUCER_EPOCH),
    *(table.BASE_SEQUENCE, table.MAGIC, table.COUNT, table.POSITION, table.BASE_TIMESTAMP, table.MAX_TIMESTAMP, table.CODEC),
]
INTACT, CUT, BACK, DAMAGED = range(4)
"""States of a row: CUT has offsets that do not count, outside of its range or compared already; those of BACK are not above the offsets
before it."""
UNPLACED = "base offset: expected one that fits the entries before and after it"
BACK_TEXT = "offsets go back"
_WAITING = 2  # entries that wait for those after them
NO_ROWS = np.empty((0, WIDTH), np.int64)


def same(left: Int64s, right: Int64s) -> Flags:
    """Flags of the rows that are equal entries: the checksum covers all that these columns do not have."""
    equal: Flags = (left[:, BASE:COUNT] == right[:, BASE:COUNT]).all(axis=1) & (left[:, STATE] == right[:, STATE])
    bounds = (left[:, : HIGH + 1] == right[:, : HIGH + 1]).all(axis=1)
    return equal & (left[:, STATE] != DAMAGED) & (bounds | (left[:, STATE] != CUT))


@dataclass
class Side:
    """A topic-partition of one side. ``rows`` are loaded and not compared yet; ``last`` is the highest offset that was loaded, -1 without
    any. ``epochs`` are leader epochs by headers, each with its first offset; ``records`` is None if headers do not tell."""

    name: str
    ranges: list[Range]
    options: Options
    rows: Int64s = field(default_factory=lambda: NO_ROWS)
    last: int = -1
    ended: bool = False
    ends_damaged: bool = False
    first: int | None = None
    records: int | None = 0
    bytes: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    unread: list[Damage] = field(default_factory=list)  # that a read of all keys has found
    absorbed: dict[int, int] = field(default_factory=dict)  # records of the other side in a damaged stretch of this one
    _told: int = -1
    _known: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._walk = self._blocks()

    @property
    def start(self) -> int:
        """The log start offset, as far as names and headers tell."""
        lowest = next((part.start_offset if part.start_offset is not None else part.segment.base_offset for part in self.ranges), None)
        return lowest if lowest is not None else self.first or 0

    @property
    def end(self) -> int:
        return self.start if self.first is None else min(self.last + 1, HIGHEST)

    @property
    def is_done(self) -> bool:
        return self.ended and not len(self.rows)

    def load(self, offset: int) -> None:
        """Load rows until there is an entry above an offset."""
        while not self.ended and (not len(self.rows) or self.last <= offset):
            block = next(self._walk, None)
            self.ended = block is None
            if block is not None:
                self.rows = np.concatenate([self.rows, block])

    def take(self, high: int) -> Int64s:
        """The rows with offsets up to ``high``. Those that go beyond stay, for the offsets that they have there."""
        beyond = np.flatnonzero((self.rows[:, STATE] < BACK) & (self.rows[:, LOW] > high))
        count = int(beyond[0]) if len(beyond) else len(self.rows)
        taken = self.rows[:count]
        stay = taken[(taken[:, HIGH] > high) & (taken[:, STATE] != BACK)]
        cut = stay[:, STATE] < BACK
        stay[cut, STATE], stay[cut, LOW] = CUT, min(high + 1, HIGHEST)
        self.rows = np.concatenate([stay, self.rows[count:]])
        return taken

    def path(self, row: Int64s) -> str:
        return self.ranges[int(row[PART])].segment.path

    def _blocks(self) -> Iterator[Int64s]:
        """Rows in the order of the log. Damage at the end of a block waits for the entry after it, which bounds its offsets."""
        held = NO_ROWS
        for number, part in enumerate(self.ranges):
            for block in self._of_range(number, part):
                rows = np.concatenate([held, block])
                intact = np.flatnonzero(rows[:, STATE] != DAMAGED)
                cut = int(intact[-1]) + 1 if len(intact) else 0
                held, rows = rows[cut:], rows[:cut]
                if cut:
                    self._bound(rows)
                    yield rows
        if len(held):
            self.ends_damaged = True
            self._bound(held)
            yield held

    def _of_range(self, number: int, part: Range) -> Iterator[Int64s]:
        if part.fault is not None or part.is_lost:
            lost = Damage(part.segment.path, part.start, part.end - part.start, None, None, "damaged in each of the copies", None)
            yield self._damaged([lost if part.fault is None else damage_of_fault(part)], number)
            return
        with SegmentFile(part.segment) as file:
            for entries, after, damages in _with_next(self._walked(file, part)):
                intact, unplaced = self._placed(file, entries, after, number, part)
                rows = np.concatenate([intact, unplaced, self._damaged(damages, number)])
                yield rows[np.argsort(rows[:, POSITION], kind="stable")]

    def _walked(self, file: SegmentFile, part: Range) -> Iterator[tuple[Entries, list[Damage]]]:
        """Entries of a range, some at a time, with the damage between them. From a doubted header on they are read once more with
        checksums: its length may hide intact entries, and its offsets may be those of others."""
        found, held, floor = Tally(), Entries.zeros(0), part.floor
        for chunk in chain(entry_chunks(file, self.options, found, payloads=self.options.check_crcs, part=part), [None]):
            after = None if chunk is None else with_last_offsets(file, chunk.entries)
            damages, found.damage = found.damage, []
            if self.options.check_crcs:
                yield (held if after is None else after), damages
                continue
            doubted = _doubted(held, after, part.segment.following)
            first = int(doubted.argmax()) if doubted.any() else max(len(held) - 1, 0) if damages else len(held)
            yield held[:first], [] if len(held) else damages
            if first < len(held):
                end = part.end if after is None else after[0].position
                rest = replace(part, start=held[first].position, end=end, floor=held[:first].last_known_offset(floor))
                yield from self._checked(file, rest)
            floor = held.intact().last_known_offset(floor)
            held = held if after is None else after

    def _checked(self, file: SegmentFile, part: Range) -> Iterator[tuple[Entries, list[Damage]]]:
        found = Tally()
        for chunk in entry_chunks(file, replace(self.reading(), on_progress=None), found, part=part):
            damages, found.damage = found.damage, []
            yield with_last_offsets(file, chunk.entries), damages
        yield Entries.zeros(0), found.damage

    def _placed(self, file: SegmentFile, entries: Entries, after: Entries, number: int, part: Range) -> tuple[Int64s, Int64s]:
        """Rows of intact entries; and those of entries whose base offsets are damaged, which no checksum covers."""
        entries = entries[part.counts(entries.base_offset, entries.last_offset)]
        if not len(entries):
            return NO_ROWS, NO_ROWS
        rows = np.zeros((len(entries), WIDTH), np.int64)
        rows[:, BASE:] = entries.array[:, _TAKEN]
        rows[:, PART] = number
        rows[entries.delete_horizon == 1, FIRST_TIME] = rows[entries.delete_horizon == 1, LAST_TIME]
        high, lowest, highest = rows[:, LAST].copy(), part.start_offset, part.end_offset
        # A wrapper of formats 0 and 1 has no first offset.
        wraps = rows[:, BASE] == table.UNKNOWN
        before = np.minimum(np.append(max(self.last, part.floor), high[:-1]), HIGHEST - 1) + 1
        low = np.where(wraps, np.where(before <= high, before, high), rows[:, BASE])
        following = part.segment.following
        believed = (low >= 0) & (low <= high)
        joined = Entries.joined([entries, after])
        believed &= placed(_lowest(joined), joined.last_offset, joined.crc, min(self.last + 1, HIGHEST))[: len(rows)]
        if following is not None:
            believed &= (high < following) | (low == before)
        wrong = [_unplaced(part, row) for row in entries[~believed]]
        rows, low, high, wraps, some = rows[believed], low[believed], high[believed], wraps[believed], entries[believed]
        inside = np.maximum(low, lowest or 0), high if highest is None else np.minimum(high, highest - 1)
        reach = np.maximum.accumulate(np.append(self.last, inside[1]))[:-1]
        is_back = inside[1] <= reach
        is_cut = (inside[1] != high) | ~wraps & ((inside[0] != low) | (low <= reach))
        rows[:, STATE] = np.where(is_back, BACK, np.where(is_cut, CUT, INTACT))
        rows[:, LOW] = np.where(is_back, inside[0], np.maximum(np.where(wraps, 0, inside[0]), np.minimum(reach, HIGHEST - 1) + 1))
        rows[:, HIGH] = inside[1]
        for i in np.flatnonzero(is_back & wraps).tolist():
            rows[i, LOW] = first_offset(file, some[i])
        again = np.flatnonzero(~is_back & ~wraps & (inside[0] <= reach)).tolist()
        wrong += [_of_entry(part, some[i], f"{BACK_TEXT}: {inside[0][i]} to {reach[i]} come again") for i in again]
        self._count(rows)
        return rows, self._damaged(wrong, number)

    def _count(self, rows: Int64s) -> None:
        """Add rows to what is known of the log."""
        if not len(rows):
            return
        rows[rows[:, STATE] == CUT, COUNT] = table.UNKNOWN
        self.first = int(rows[0, LOW]) if self.first is None else self.first
        self.last = max(self.last, int(rows[:, HIGH].max()))
        self.records = None if self.records is None or (rows[:, COUNT] < 0).any() else self.records + int(rows[:, COUNT].sum())
        self.bytes += int(rows[:, SIZE].sum())
        known = rows[rows[:, EPOCH] >= 0]
        newest = np.maximum.accumulate(np.append(self.epochs[-1][0] if self.epochs else -1, known[:, EPOCH]))
        self.epochs += [(int(row[EPOCH]), int(row[LOW])) for row in known[newest[1:] > newest[:-1]]]

    def _damaged(self, damages: list[Damage], number: int) -> Int64s:
        rows = np.zeros((len(damages), WIDTH), np.int64)
        rows[:, STATE], rows[:, PART] = DAMAGED, number
        rows[:, [EPOCH, PRODUCER, FIRST_TIME, LAST_TIME, LAST]] = -1
        for row, damage in zip(rows, damages, strict=True):
            row[WHY], row[POSITION], row[SIZE] = len(self.damages), damage.position, damage.size
            row[COUNT] = table.UNKNOWN if damage.records_lost is None else damage.records_lost
            # Of a stretch that is longer than its first entry the header does not tell the last offset.
            row[LAST] = -1 if damage.last_offset is None or damage.records_lost is None else damage.last_offset
            self.damages.append(damage)
            self._known.add((damage.segment, damage.position))
        return rows

    def _bound(self, rows: Int64s) -> None:
        """Set the offsets of damaged rows: those between the intact entries around them, in the segment; or the header's where
        none follows."""
        ordered = rows[:, STATE] < BACK
        reach = np.maximum.accumulate(np.append(self._told, np.where(ordered, rows[:, HIGH], -1)))
        after = np.flatnonzero(ordered)
        for i in np.flatnonzero(rows[:, STATE] == DAMAGED).tolist():
            part = self.ranges[int(rows[i, PART])]
            low = min(max(int(reach[i]), part.floor) + 1, HIGHEST)
            place, following = int(np.searchsorted(after, i)), part.segment.following
            lasts = [int(rows[after[place], LOW]) - 1] if place < len(after) else []
            lasts += [] if following is None else [following - 1]
            rows[i, LOW], rows[i, HIGH] = low, max(min(lasts, default=int(rows[i, LAST])), low - 1)
        self._told = int(reach[-1])

    def found(self, damage: Damage) -> bool:
        """Note damage inside of an entry that was opened; False if it is known."""
        place = damage.segment, damage.position
        is_new = place not in self._known
        self._known.add(place)
        return is_new

    def records_in(self, first: int, last: int) -> int:
        """How many records there are from an offset to another, by a read."""
        options = replace(self.reading(), columns=("offset",), include_control=True, on_progress=None)
        near = [part for part in self.ranges if (part.segment.base_offset or 0) <= last and (part.segment.following or HIGHEST) >= first]
        offsets = (np.asarray(batch["offset"]) for batch in scan_ranges([part for part in near if part.fault is None], options))
        return sum(int(((own >= first) & (own <= last)).sum()) for own in offsets)

    def reading(self) -> Options:
        """Options by which entries are opened."""
        return replace(self.options, check_crcs=True, errors="skip", threads=1)


def _with_next(blocks: Iterator[tuple[Entries, list[Damage]]]) -> Iterator[tuple[Entries, Entries, list[Damage]]]:
    """Blocks of intact entries, the next entries, which tell whether the last ones of a block are in their place, and damage."""
    held, damages = Entries.zeros(0), list[Damage]()
    for entries, more in blocks:
        held, damages = Entries.joined([held, entries.intact()]), damages + more
        count = max(len(held) - _WAITING, 0)
        start = held[count].position if len(held) else HIGHEST
        yield held[:count], held[count:], [one for one in damages if one.position < start]
        held, damages = held[count:], [one for one in damages if one.position >= start]
    yield held, Entries.zeros(0), damages


def _doubted(entries: Entries, after: Entries | None, following: int | None) -> Flags:
    """Flags of the entries whose headers may be wrong: of those that cannot be, and the ones before them, of those that have offsets of the
    entry after them, or more records than offsets; and of the last one of a log, which nothing follows."""
    low, last = _lowest(entries), entries.last_offset
    next_low = (HIGHEST if following is not None else -1) if after is None else _lowest(after[:1])[0]
    above = np.minimum(np.append(low[1:], next_low)[: len(low)], HIGHEST if following is None else following)
    broken = ~np.append(entries.is_intact, after is None or after[0].is_intact)
    doubted: Flags = broken[:-1] | broken[1:] | (low < 0) | (last < low) | (last >= above)
    return doubted | (entries.count > last - low + 1) & (entries.base_offset != table.UNKNOWN)


def _lowest(entries: Entries) -> Int64s:
    """First offsets of entries as far as headers tell: those of wrappers in formats 0 and 1 are unknown, and at most their last ones."""
    return np.where(entries.base_offset == table.UNKNOWN, entries.last_offset, entries.base_offset)


def _unplaced(part: Range, row: Entry) -> Damage:
    found = row.last_offset if row.base_offset == table.UNKNOWN else row.base_offset
    return _of_entry(part, row, f"{UNPLACED}, found {found}")


def _of_entry(part: Range, row: Entry, text: str) -> Damage:
    return Damage(part.segment.path, row.position, row.size, None, None, text, max(row.count, 0) or None)
