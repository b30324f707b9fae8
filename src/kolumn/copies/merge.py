"""One log of several copies of a topic-partition: each offset once, damage of one copy filled from the others.

All copies are walked twice, from the lowest offset to the highest, some segments at a time. The first walk compares every checksum and
notes leader epochs, by which it is decided how far each copy belongs to the log (`elections`). The second one takes each offset from a
copy in which it is intact. A damaged stretch of one copy is healed if another copy is intact over the same offsets, even if that copy has
no records there, since compaction leaves holes. It is also healed if the entries of other copies there have exactly as many bytes: then
nothing else was in it. A stretch that no copy heals stays in the result, and the reader reports it. Intact entries that are not part of
the log are reported too.
"""

import logging
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, islice, product

import numpy as np

from kolumn.copies.contested import Disagreement
from kolumn.copies.copies import Copies, bounds, in_order, refuse_other_topics
from kolumn.copies.elections import Divergence, EpochRun, Notes, Strand, elect, strands_of, untrusted_epochs
from kolumn.copies.ends import Tail, unhealed
from kolumn.copies.examine import BASE, COUNT, CRC, EPOCH, HIGHEST, LAST, POSITION, SIZE, Examined, LostStretch, examine, subtract
from kolumn.copies.joined import Filled, Joined, SupersededEntries, superseded_entries
from kolumn.copies.window import CopyPart, give_up, less_believed, resolve
from kolumn.core.arrays import Int64s
from kolumn.core.errors import ArgumentError
from kolumn.core.threads import MERGE, workers
from kolumn.options import Options
from kolumn.source.segments import Range, Segment
from kolumn.source.storage import parent

logger = logging.getLogger("kolumn.replicas")
_KEPT_ENTRIES = 1 << 20
"""Entries that the first walk leaves to the second one, 80 bytes each; segments with more are examined again."""


@dataclass
class Merged:
    """Result of the merge of a topic-partition's copies.

    Attributes
    ----------
    ranges : list of (Range, int, int)
        In the order of offsets, with the lowest and highest offset that each can have.
    divergences : list of Divergence
    superseded : list of SupersededEntries
        Intact entries that are not part of the log, if they were asked for.
    """

    ranges: list[tuple[Range, int, int]] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    superseded: list[SupersededEntries] = field(default_factory=list)


def merge(folders: Copies, options: Options, account: bool = False) -> Merged:
    """Make one log of the directories of a topic-partition; reads all of them once, or twice if they are large.

    Parameters
    ----------
    folders : Copies
    options : Options
    account : bool
        Whether to list the entries that are not part of the log, with the number of their records.

    Raises
    ------
    ArgumentError
        The directories have different records at the same offsets and no leader epoch decides which are right, or they have other
        topic ids: they are copies of different logs. Or a segment's name is not a base offset.
    """
    unnamed = [one.path for own in folders.values() for one in own if one.base_offset is None]
    if unnamed:
        raise ArgumentError(f"{unnamed[0]}: replicas='merge' needs Kafka's names of segments, a base offset of 20 digits")
    refuse_other_topics(folders)
    sweep = _Sweep(folders, options, account)
    sweep.run()
    return Merged(sweep.joined.ranges, sweep.divergences, sweep.superseded)


class _Sweep:
    """Walks all copies together, from the lowest offset to the highest."""

    def __init__(self, folders: Copies, options: Options, account: bool) -> None:
        self.options, self.account = options, account
        self.order = {folder: i for i, folder in enumerate(folders)}
        limits = {one: (folder, limit) for folder, own in folders.items() for one, limit in bounds(own).items()}
        self.todo = [(one, *limits[one]) for one in in_order(folders) if one.size or one.state == "rolled" or one.orphans]
        self.begins = {folder: min(one.base_offset or 0 for one in own) for folder, own in folders.items()}
        self.starts = deque(one.base_offset or 0 for one, _, _ in self.todo)
        self.divergences: list[Divergence] = []
        self.parts_of: list[list[Strand]] = []
        self.kept: list[list[Examined]] = []
        self._elect()
        self.source = self._again()
        self.active: list[Examined] = []
        self.tails: list[Tail] = []
        self.joined = Joined(options.check_crcs)
        self.superseded: list[SupersededEntries] = []

    def _elect(self) -> None:
        """Walk all copies and decide which strands belong to the log."""
        noted: list[list[Notes]] = []
        room = _KEPT_ENTRIES
        with closing(_examined(self.todo, self.options)) as source:
            for found in source:
                noted.append([_notes(one) for one in found])
                room -= sum(len(one.entries) for one in found)
                if room >= 0:
                    self.kept.append(found)
        notes = list(chain(*noted))
        self.untrusted = untrusted_epochs(notes, self._has_other)
        for one in notes:
            one.runs = [run for run in one.runs if run.epoch not in self.untrusted]
        parts = iter(strands_of(notes))
        self.parts_of = [list(islice(parts, len(own))) for own in noted]
        self.strands = list(dict.fromkeys(chain(*self.parts_of)))
        for divergence in elect(self.strands, self._fills):
            self._tell(divergence)

    def _tell(self, divergence: Divergence) -> None:
        self.divergences.append(divergence)
        logger.warning("%s", divergence)

    def _again(self) -> Generator[list[Examined], None, None]:
        """The segments once more, for the second walk: each strand of them knows how far it belongs to the log."""
        with closing(_examined(self.todo[len(self.kept) :], replace(self.options, on_progress=None))) as rest:
            for found, parts in zip(chain(self.kept, rest), self.parts_of, strict=True):
                for one, strand in zip(found, parts, strict=True):
                    one.strand = strand
                    if self.untrusted:
                        one.entries[np.isin(one.entries[:, EPOCH], [*self.untrusted]), EPOCH] = -1
                yield found

    def _near(self, low: int, high: int) -> Iterator[tuple[Examined, Strand | None]]:
        """The segments that can have some offsets, with their strands once they are known."""
        for i, (segment, folder, limit) in enumerate(self.todo):
            if (segment.base_offset or 0) <= high and (limit is None or limit >= low):
                found = self.kept[i] if i < len(self.kept) else examine(segment, folder, limit, replace(self.options, on_progress=None))
                yield from zip(found, self.parts_of[i] if self.parts_of else [None] * len(found), strict=True)

    def _has_other(self, run: EpochRun) -> bool:
        """Whether a copy has the first entry of a run with another epoch."""
        for one, _ in self._near(run.low, run.low):
            entries = one.entries
            same = (entries[:, BASE] == run.low) & (entries[:, CRC] == run.content[0]) & (entries[:, SIZE] == run.content[1])
            if (entries[same, EPOCH] != run.epoch).any():
                return True
        return False

    def _fills(self, strand: Strand, low: int, high: int, size: int) -> bool:
        """Whether the entries of a strand within some offsets have exactly that many bytes, one after the other."""
        total = 0
        for one, own in self._near(low, high):
            if own is strand:
                some = one.entries[(one.entries[:, BASE] >= low) & (one.entries[:, LAST] <= high)]
                if (some[1:, POSITION] != some[:-1, POSITION] + some[:-1, SIZE]).any():
                    return False
                total += int(some[:, SIZE].sum())
        return total == size

    def run(self) -> None:
        """Process all windows, from the first to the last."""
        with closing(self.source):
            while self.active or self.starts:
                border = self._border()
                parts = [part for part in self._parts(border) if part.end > part.start]
                pieces = np.empty((0, 5), np.int64)
                if parts:
                    before, resolved = self._measure(), resolve(parts, self.options)
                    if resolved.pieces is None:
                        if resolved.disagreement is not None:
                            self._settle(resolved.disagreement)
                        assert self._measure() < before, "a round of the merge decided nothing"
                        continue
                    pieces = resolved.pieces
                lost = self._lost(border, Filled(parts, pieces))
                for tail in self.tails:
                    tail.see(parts)
                self.joined.add(parts, pieces, lost)
                if self.account:
                    self.superseded += superseded_entries(self._beyond(border), parts, pieces, self.options)
                self._done(border)
        tails = [tail for tail in self.tails if tail.stretch.low < tail.examined.stale]
        for tail in unhealed(tails, self.begins):
            self.joined.tail(tail.examined, tail.stretch)

    def _measure(self) -> int:
        """What each round makes smaller that does not resolve its window."""
        return sum(len(one.entries) for one in self.active) + sum(strand.stale for strand in self.strands)

    def _border(self) -> int:
        """The offset before which the next window ends: no entry and no stretch crosses it."""
        self._load(min((_next(one) for one in self.active), default=self.starts[0] if self.starts else 0))
        while True:
            border = self.starts[0] if self.starts else HIGHEST
            reach = max((_reach(one, border) for one in self.active), default=-1)
            if reach < border:
                return border
            self._load(reach)

    def _load(self, offset: int) -> None:
        """Examine all segments that begin up to an offset."""
        while self.starts and self.starts[0] <= offset:
            self.starts.popleft()
            self.active += [one for one in next(self.source) if len(one.entries) or one.stretches]

    def _parts(self, border: int) -> list[CopyPart]:
        """The entries of each segment before the border; the copy with most records there comes first."""
        found = []
        records: dict[str, int] = {}
        for one in self.active:
            end = _end(one, min(border, one.stale))
            found.append((one, end))
            records[one.folder] = records.get(one.folder, 0) + int(one.entries[one.at : end, COUNT].sum())
        ranked = sorted(records, key=lambda folder: (-records[folder], self.order[folder]))
        return sorted((CopyPart(one, one.at, end, ranked.index(one.folder)) for one, end in found), key=lambda part: part.rank)

    def _beyond(self, border: int) -> list[tuple[Examined, Int64s]]:
        """Rows of the entries before the border of which some or all records are not part of the log."""
        found = []
        for one in self.active:
            rows = np.flatnonzero(one.entries[one.at : _end(one, border), LAST] >= one.stale) + one.at
            if len(rows):
                found.append((one, rows))
        return found

    def _lost(self, border: int, filled: Filled) -> list[tuple[Examined, LostStretch]]:
        """Damaged stretches before the border that no other copy heals; if several copies have lost the same offsets, only one of them."""
        lost: list[tuple[Examined, LostStretch]] = []
        reported: list[tuple[int, int]] = []
        for one in sorted(self.active, key=lambda one: self.order[one.folder]):
            for stretch in _before(one, border):
                if stretch.low >= one.stale:
                    continue
                high = stretch.high if stretch.high is not None else stretch.claim
                missing = [(stretch.low, high)] if high is not None and not filled.tiles(stretch) else []
                for other in self.active:
                    if other is not one and missing:
                        for low, last in other.sound(missing[0][0], missing[-1][1]):
                            missing = subtract(missing, low, min(last, other.stale - 1))
                if stretch.high is None:
                    if high is None or missing:
                        self.tails.append(Tail(one, stretch))
                    continue
                for low, last in reported:
                    missing = subtract(missing, low, last)
                if missing and stretch.low <= stretch.high:
                    reported += missing
                    lost.append((one, stretch))
        return lost

    def _done(self, border: int) -> None:
        for one in self.active:
            one.at = _end(one, border)
            one.beyond += len(_before(one, border))
        self.active = [one for one in self.active if one.at < len(one.entries) or one.beyond < len(one.stretches)]

    def _settle(self, found: Disagreement) -> None:
        """Decide between two copies that differ, at offsets where leader epochs have not decided.

        Bytes that only look like an entry, at the place of a damaged one, are discarded, and so is one of two entries with the same bytes
        at different offsets. Of one directory what was written later counts. Otherwise `ArgumentError`.
        """
        (one, row), (other, other_row) = found.one, found.other
        for mine, at, theirs, there in ((one[0], row, other[0], other_row), (other[0], other_row, one[0], row)):
            if mine.is_inside(at, theirs, there):
                mine.without(at, None)
                return
        damaged = less_believed(one[0], row, other[0], other_row)
        if damaged is not None:
            give_up(*((one[0], row) if damaged else (other[0], other_row)))
            return
        loser, keeper = self._earlier(one, other), one
        if loser is one:
            keeper = other
        elif loser is None:
            # Two directories can have both records, in opposite orders.
            apart = (pair for pair in product(one, other) if pair[0].folder != pair[1].folder)
            mine, theirs = next(apart, (one[0], other[0]))
            raise ArgumentError(
                f"{mine.segment.path} and {theirs.segment.path} have different records at offset {found.offset}: they "
                "are no copies of one log. Read one of the directories by its name, or the first with replicas='first'"
            )
        for strand in dict.fromkeys(examined.strand for examined in loser):
            if strand is not None and strand.stale > found.offset:
                strand.stale = found.offset
                self._tell(Divergence(found.offset, keeper[0].folder, strand.folder, (-1, -1)))

    def _earlier(self, one: list[Examined], other: list[Examined]) -> list[Examined] | None:
        """Those of two copies that were written earlier, if that is known: to the same directory."""
        numbers: dict[str, tuple[int, int]] = {}
        for mine in one:
            for theirs in other:
                place = parent(mine.segment.path)
                if mine.segment.copy_id is None and place == parent(theirs.segment.path) and mine.strand and theirs.strand:
                    numbers[place] = (mine.strand.number, theirs.strand.number)
        if not numbers or len({first < second for first, second in numbers.values()}) > 1:
            return None
        first, second = next(iter(numbers.values()))
        return one if first < second else other


def _notes(one: Examined) -> Notes:
    entries = one.entries
    known = entries[entries[:, EPOCH] >= 0]
    cuts = np.flatnonzero(np.diff(known[:, EPOCH]))
    firsts, lasts = (np.append(0, cuts + 1), np.append(cuts, len(known) - 1)) if len(known) else (cuts, cuts)
    runs = []
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        head, end = known[first].tolist(), known[last].tolist()
        runs.append(EpochRun(head[BASE], end[LAST], end[EPOCH], last - first + 1, (head[CRC], head[SIZE])))
    first, last = (int(entries[0, BASE]), int(entries[-1, LAST])) if len(entries) else (0, -1)
    return Notes(one.folder, first, last, runs, one.headers, one.doubts)


def _end(one: Examined, border: int) -> int:
    """The number of the first unresolved entry that does not begin before a border."""
    return one.at + int(np.searchsorted(one.entries[one.at :, BASE], border))


def _reach(one: Examined, border: int) -> int:
    """Last offset of the entries and stretches that begin before a border."""
    end = _end(one, border)
    highest = int(one.entries[end - 1, LAST]) if end > one.at else -1
    return max([highest, *(stretch.high or -1 for stretch in _before(one, border)[-1:])])


def _next(one: Examined) -> int:
    """The lowest offset that is not resolved yet."""
    lows = [int(base) for base in one.entries[one.at : one.at + 1, BASE]]
    return min([*lows, *(stretch.low for stretch in one.stretches[one.beyond : one.beyond + 1])])


def _before(one: Examined, border: int) -> list[LostStretch]:
    """Unresolved stretches that begin before a border."""
    return [stretch for stretch in one.stretches[one.beyond :] if stretch.low < border]


def _examined(todo: list[tuple[Segment, str, int | None]], options: Options) -> Generator[list[Examined], None, None]:
    """Examine segments in order; some are examined ahead by other threads."""
    if options.threads == 1:
        yield from (examine(*one, options) for one in todo)
        return
    with workers(MERGE, options.threads) as pool:
        yield from pool.ahead(lambda one: examine(*one, options), (one for one in todo), options.threads)


def trimmed(merged: Merged, options: Options) -> list[Range]:
    """The ranges that can have records within the options' range of offsets."""
    start = -1 if options.start_offset is None else options.start_offset
    end = HIGHEST if options.end_offset is None else options.end_offset
    return [one for one, low, high in merged.ranges if high >= start and low < end]
