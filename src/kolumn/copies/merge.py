"""One log of several copies of a topic-partition: each offset once, damage of one copy filled from the others.

All copies are walked twice, from the lowest offset to the highest, some segments at a time. The first walk compares every checksum and
notes leader epochs, by which it is decided how far each copy belongs to the log (`elections`). The second one takes each offset from a
copy in which it is intact. A damaged stretch of one copy is healed if another copy is intact over the same offsets, even if that copy has
no records there, since compaction leaves holes. It is also healed if the entries of other copies there have exactly as many bytes: then
nothing else was in it. A stretch that no copy heals stays in the result, and the reader reports it. Intact entries that are not part of
the log are reported too.
"""

import logging
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice, product
from typing import Any

import numpy as np

from kolumn.copies.copies import Copies, bounds, in_order, refuse_other_topics
from kolumn.copies.elections import Divergence, EpochRun, Notes, Strand, elect, strands_of, untrusted_epochs
from kolumn.copies.examine import BASE, COUNT, CRC, EPOCH, LAST, POSITION, SIZE, Examined, LostStretch, examine, subtract
from kolumn.copies.window import Bounded, CopyPart, Disagreement, Filled, Joined, give_up, less_believed, ranges_of, resolve
from kolumn.core.arrays import Int64s
from kolumn.core.errors import ArgumentError
from kolumn.core.threads import MERGE, workers
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import HIGHEST, Range, Segment
from kolumn.source.storage import parent

logger = logging.getLogger("kolumn.replicas")
_KEPT_ENTRIES = 1 << 20  # entries that the first walk leaves to the second one, 80 bytes each; segments with more are examined again


@dataclass(frozen=True)
class SupersededEntries:
    """Neighbouring entries of one file of which some or all records, of offsets ``first`` to ``last``, are not part of the log."""

    segment: Segment
    position: int
    size: int
    first: int
    last: int
    records: int  # how many no part of the log has, and no other superseded entry


@dataclass
class Merged:
    ranges: list[Bounded]  # in the order of offsets
    divergences: list[Divergence]
    superseded: list[SupersededEntries]  # intact entries that are not part of the log, if they were asked for


def merge(folders: Copies, options: Options, account: bool = False) -> Merged:
    """Make one log of the directories of a topic-partition; reads all of them once, or twice if they are large.

    With ``account`` the entries that are not part of the log are listed, with the number of their records.

    Raises
    ------
    ArgumentError
        The directories have different records at the same offsets and no leader epoch decides which are right, or they have other
        topic ids: they are copies of different logs. Or a segment's name is not a base offset.
    """
    unnamed = [segment.path for own in folders.values() for segment in own if segment.base_offset is None]
    if unnamed:
        raise ArgumentError(f"{unnamed[0]}: replicas='merge' needs Kafka's names of segments, a base offset of 20 digits")
    refuse_other_topics(folders)
    sweep = _Sweep(folders, options, account)
    sweep.run()
    return Merged(sweep.joined.ranges, sweep.divergences, sweep.superseded)


class _Sweep:
    def __init__(self, folders: Copies, options: Options, account: bool) -> None:
        self.options, self.account = options, account
        self.order = {folder: i for i, folder in enumerate(folders)}
        limits = {segment: (folder, limit) for folder, own in folders.items() for segment, limit in bounds(own).items()}
        self.todo = [
            (segment, *limits[segment]) for segment in in_order(folders) if segment.size or segment.state == "rolled" or segment.orphans
        ]
        self.begins = {folder: min(segment.base_offset or 0 for segment in own) for folder, own in folders.items()}
        self.starts = deque(segment.base_offset or 0 for segment, _, _ in self.todo)
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
            for parts in source:
                noted.append([_notes(part) for part in parts])
                room -= sum(len(part.entries) for part in parts)
                if room >= 0:
                    self.kept.append(parts)
        notes = list(chain(*noted))
        self.untrusted = untrusted_epochs(notes, self._has_other)
        for note in notes:
            note.runs = [run for run in note.runs if run.epoch not in self.untrusted]
        strands = iter(strands_of(notes))
        self.parts_of = [list(islice(strands, len(own))) for own in noted]
        self.strands = list(dict.fromkeys(chain(*self.parts_of)))
        for divergence in elect(self.strands, self._fills):
            self._tell(divergence)

    def _tell(self, divergence: Divergence) -> None:
        self.divergences.append(divergence)
        logger.warning("%s", divergence)

    def _again(self) -> Generator[list[Examined], None, None]:
        """The segments once more, for the second walk: each strand of them knows how far it belongs to the log."""
        with closing(_examined(self.todo[len(self.kept) :], replace(self.options, on_progress=None))) as rest:
            for parts, strands in zip(chain(self.kept, rest), self.parts_of, strict=True):
                for part, strand in zip(parts, strands, strict=True):
                    part.strand = strand
                    if self.untrusted:
                        part.entries[np.isin(part.entries[:, EPOCH], [*self.untrusted]), EPOCH] = -1
                yield parts

    def _near(self, low: int, high: int) -> Iterator[tuple[Int64s, Strand | None]]:
        """Entries of the segments that can have some offsets, with their strands once they are known."""
        for i, (segment, folder, limit) in enumerate(self.todo):
            if (segment.base_offset or 0) <= high and (limit is None or limit >= low):
                parts = self.kept[i] if i < len(self.kept) else examine(segment, folder, limit, replace(self.options, on_progress=None))
                strands = self.parts_of[i] if self.parts_of else [None] * len(parts)
                yield from zip((part.entries for part in parts), strands, strict=True)

    def _has_other(self, run: EpochRun) -> bool:
        """Whether a copy has the first entry of a run with another epoch."""
        for entries, _ in self._near(run.low, run.low):
            same = (entries[:, BASE] == run.low) & (entries[:, CRC] == run.content[0]) & (entries[:, SIZE] == run.content[1])
            if (entries[same, EPOCH] != run.epoch).any():
                return True
        return False

    def _fills(self, strand: Strand, low: int, high: int, size: int) -> bool:
        """Whether the entries of a strand within some offsets have exactly that many bytes, one after the other."""
        total = 0
        for entries, own in self._near(low, high):
            if own is strand:
                some = entries[(entries[:, BASE] >= low) & (entries[:, LAST] <= high)]
                if (some[1:, POSITION] != some[:-1, POSITION] + some[:-1, SIZE]).any():
                    return False
                total += int(some[:, SIZE].sum())
        return total == size

    def run(self) -> None:
        with closing(self.source):
            while self.active or self.starts:
                border = self._border()
                parts = [part for part in self._parts(border) if part.end > part.start]
                pieces = np.empty((0, 5), np.int64)
                if parts:
                    before, resolved = self._measure(), resolve(parts, self.options)
                    if not isinstance(resolved, np.ndarray):
                        if resolved is not None:
                            self._settle(resolved)
                        assert self._measure() < before, "a round of the merge decided nothing"
                        continue
                    pieces = resolved
                lost = self._lost(border, Filled(parts, pieces))
                for tail in self.tails:
                    tail.see(parts)
                self.joined.add(parts, pieces, lost)
                if self.account:
                    self.superseded += superseded_entries(self._beyond(border), parts, pieces, self.options)
                for examined in self.active:
                    examined.done = _end(examined, border)
                    examined.beyond += len(_before(examined, border))
                self.active = [one for one in self.active if one.done < len(one.entries) or one.beyond < len(one.stretches)]
        tails = [tail for tail in self.tails if tail.stretch.low < tail.examined.stale]
        for tail in unhealed(tails, self.begins):
            self.joined.tail(tail.examined, tail.stretch)

    def _measure(self) -> int:
        """What each round makes smaller that does not resolve its window."""
        return sum(len(examined.entries) for examined in self.active) + sum(strand.stale for strand in self.strands)

    def _border(self) -> int:
        """The offset before which the next window ends: no entry and no stretch crosses it."""
        self._load(min(map(_next, self.active), default=self.starts[0] if self.starts else 0))
        while True:
            border = self.starts[0] if self.starts else HIGHEST
            reach = max((_reach(examined, border) for examined in self.active), default=-1)
            if reach < border:
                return border
            self._load(reach)

    def _load(self, offset: int) -> None:
        """Examine all segments that begin up to an offset."""
        while self.starts and self.starts[0] <= offset:
            self.starts.popleft()
            self.active += [examined for examined in next(self.source) if len(examined.entries) or examined.stretches]

    def _parts(self, border: int) -> list[CopyPart]:
        """The entries of each segment before the border; the copy with most records there comes first."""
        ends = [_end(examined, min(border, examined.stale)) for examined in self.active]
        records = Counter[str]()
        for examined, end in zip(self.active, ends, strict=True):
            records[examined.folder] += int(examined.entries[examined.done : end, COUNT].sum())
        ranked = sorted(records, key=lambda folder: (-records[folder], self.order[folder]))
        parts = (CopyPart(one, one.done, end, ranked.index(one.folder)) for one, end in zip(self.active, ends, strict=True))
        return sorted(parts, key=lambda part: part.rank)

    def _beyond(self, border: int) -> list[tuple[Examined, Int64s]]:
        """Rows of the entries before the border of which some or all records are not part of the log."""
        lasts = ((examined, examined.entries[examined.done : _end(examined, border), LAST]) for examined in self.active)
        return [(one, rows) for one, last in lasts if len(rows := np.flatnonzero(last >= one.stale) + one.done)]

    def _lost(self, border: int, filled: Filled) -> list[tuple[Examined, LostStretch]]:
        """Damaged stretches before the border that no other copy heals; if several copies have lost the same offsets, only one of them."""
        lost: list[tuple[Examined, LostStretch]] = []
        reported: list[tuple[int, int]] = []
        for examined in sorted(self.active, key=lambda examined: self.order[examined.folder]):
            for stretch in _before(examined, border):
                if stretch.low >= examined.stale:
                    continue
                high = stretch.high if stretch.high is not None else stretch.claim
                missing = [(stretch.low, high)] if high is not None and not filled.tiles(stretch) else []
                for other in self.active:
                    if other is not examined and missing:
                        for low, last in other.sound(missing[0][0], missing[-1][1]):
                            missing = subtract(missing, low, min(last, other.stale - 1))
                if stretch.high is None:
                    if high is None or missing:
                        self.tails.append(Tail(examined, stretch))
                    continue
                for low, last in reported:
                    missing = subtract(missing, low, last)
                if missing and stretch.low <= stretch.high:
                    reported += missing
                    lost.append((examined, stretch))
        return lost

    def _settle(self, disagreement: Disagreement) -> None:
        """Decide between two copies that differ, at offsets where leader epochs have not decided. Bytes that only look like an entry, at
        the place of a damaged one, are discarded, and so is one of two entries with the same bytes at different offsets. Of one directory
        what was written later counts. Otherwise `ArgumentError`."""
        (left, row), (right, right_row) = disagreement.left, disagreement.right
        mine, theirs = left[0], right[0]
        if mine.is_inside(row, theirs, right_row):
            mine.without(row, None)
            return
        if theirs.is_inside(right_row, mine, row):
            theirs.without(right_row, None)
            return
        damaged = less_believed(mine, row, theirs, right_row)
        if damaged is not None:
            give_up(*((mine, row) if damaged else (theirs, right_row)))
            return
        loser = _earlier(left, right)
        if loser is None:
            # Two directories can have both records, in opposite orders.
            apart = (pair for pair in product(left, right) if pair[0].folder != pair[1].folder)
            mine, theirs = next(apart, (mine, theirs))
            raise ArgumentError(
                f"{mine.segment.path} and {theirs.segment.path} have different records at offset {disagreement.offset}: they "
                "are no copies of one log. Read one of the directories by its name, or the first with replicas='first'"
            )
        keeper = right if loser is left else left
        for strand in dict.fromkeys(examined.strand for examined in loser):
            if strand is not None and strand.stale > disagreement.offset:
                strand.stale = disagreement.offset
                self._tell(Divergence(disagreement.offset, keeper[0].folder, strand.folder, (-1, -1)))


def _earlier(left: list[Examined], right: list[Examined]) -> list[Examined] | None:
    """Those of two copies that were written earlier, if that is known: to the same directory."""
    is_left: dict[str, bool] = {}
    for mine, theirs in product(left, right):
        folder = parent(mine.segment.path)
        if mine.segment.copy_id is None and folder == parent(theirs.segment.path) and mine.strand and theirs.strand:
            is_left[folder] = mine.strand.number < theirs.strand.number
    if len(set(is_left.values())) != 1:
        return None
    return left if all(is_left.values()) else right


def _notes(examined: Examined) -> Notes:
    entries = examined.entries
    known = entries[entries[:, EPOCH] >= 0]
    cuts = np.flatnonzero(np.diff(known[:, EPOCH]))
    firsts, lasts = (np.append(0, cuts + 1), np.append(cuts, len(known) - 1)) if len(known) else (cuts, cuts)
    runs = []
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        head, end = known[first].tolist(), known[last].tolist()
        runs.append(EpochRun(head[BASE], end[LAST], end[EPOCH], last - first + 1, (head[CRC], head[SIZE])))
    first, last = (int(entries[0, BASE]), int(entries[-1, LAST])) if len(entries) else (0, -1)
    return Notes(examined.folder, first, last, runs, examined.headers, examined.doubts)


def _end(examined: Examined, border: int) -> int:
    """The number of the first unresolved entry that does not begin before a border."""
    return examined.done + int(np.searchsorted(examined.entries[examined.done :, BASE], border))


def _reach(examined: Examined, border: int) -> int:
    """Last offset of the entries and stretches that begin before a border."""
    end = _end(examined, border)
    highest = int(examined.entries[end - 1, LAST]) if end > examined.done else -1
    return max([highest, *(stretch.high or -1 for stretch in _before(examined, border)[-1:])])


def _next(examined: Examined) -> int:
    """The lowest offset that is not resolved yet."""
    lows = examined.entries[examined.done : examined.done + 1, BASE].tolist()
    return min([*lows, *(stretch.low for stretch in examined.stretches[examined.beyond : examined.beyond + 1])])


def _before(examined: Examined, border: int) -> list[LostStretch]:
    """Unresolved stretches that begin before a border."""
    return [stretch for stretch in examined.stretches[examined.beyond :] if stretch.low < border]


def _examined(todo: list[tuple[Segment, str, int | None]], options: Options) -> Generator[list[Examined], None, None]:
    if options.threads == 1:
        yield from (examine(*job, options) for job in todo)
        return
    with workers(MERGE, options.threads) as pool:
        yield from pool.ahead(lambda job: examine(*job, options), (job for job in todo), options.threads)


def trimmed(merged: Merged, options: Options) -> list[Range]:
    """The ranges that can have records within the options' range of offsets."""
    start = -1 if options.start_offset is None else options.start_offset
    end = HIGHEST if options.end_offset is None else options.end_offset
    return [span for span, low, high in merged.ranges if high >= start and low < end]


_COLUMNS = ("offset", "key", "value", "timestampMs")
_Seen = dict[tuple[Any, ...], set[int]]  # offset, key and value of records, and their timestamps


def superseded_entries(
    beyond: list[tuple[Examined, Int64s]], parts: list[CopyPart], pieces: Int64s, options: Options
) -> list[SupersededEntries]:
    """Those of a window: ``beyond`` are segments with the rows of entries that do not belong to the log, or not as a whole."""
    if not beyond:
        return []
    low = min(int(examined.entries[rows[0], BASE]) for examined, rows in beyond)
    high = max(int(examined.entries[rows[-1], LAST]) for examined, rows in beyond)
    seen: _Seen = {}
    for span, first, last in ranges_of(parts, pieces):
        if first <= high and last >= low:
            _new(_superseded_records(span, options), seen)
    superseded = []
    for examined, rows in beyond:
        entries = examined.entries
        starts, ends = entries[rows, POSITION], entries[rows, POSITION] + entries[rows, SIZE]
        for some in np.split(rows, np.flatnonzero(starts[1:] != ends[:-1]) + 1):
            start, stop = int(entries[some[0], POSITION]), int(entries[some[-1], POSITION] + entries[some[-1], SIZE])
            first, last = max(int(entries[some[0], BASE]), examined.stale), int(entries[some[-1], LAST])
            span = Range(examined.segment, start, stop, examined.floor(int(some[0])), start_offset=first, end_offset=last + 1)
            if records := _new(_superseded_records(span, options), seen):
                superseded.append(SupersededEntries(examined.segment, start, stop - start, first, last, records))
    return superseded


def _new(records: list[Any], seen: _Seen) -> int:
    """How many records were not seen yet. One without a timestamp, -1, equals those that have one."""
    count = 0
    for *content, timestamp in records:
        known = seen.setdefault(tuple(content), set())
        count += not known or (timestamp != -1 and known.isdisjoint((timestamp, -1)))
        known.add(timestamp)
    return count


def _superseded_records(span: Range, options: Options) -> list[Any]:
    walk = replace(options, columns=_COLUMNS, typed=(), errors="skip", threads=1, include_control=True, on_progress=None)
    return [row for batch in scan_ranges([span], walk) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


_BLOCK = 1 << 20


@dataclass
class Tail:
    """A stretch without a known end, and for each other copy its bytes after the tail's last intact offset."""

    examined: Examined
    stretch: LostStretch
    seen: Counter[str] = field(default_factory=Counter)

    @cached_property
    def size(self) -> int:
        """Bytes without the zeros at the end."""
        with SegmentFile(self.examined.segment) as file:
            for end in range(self.stretch.end, self.stretch.start, -_BLOCK):
                start = max(self.stretch.start, end - _BLOCK)
                filled = np.flatnonzero(file.read(start, end)[: end - start])
                if len(filled):
                    return start + int(filled[-1]) + 1 - self.stretch.start
        return 0

    def see(self, parts: Iterable[CopyPart]) -> None:
        for part in parts:
            if part.examined.folder != self.examined.folder:
                entries = part.examined.entries[part.start : part.end]
                self.seen[part.examined.folder] += int(entries[entries[:, BASE] > self.stretch.floor, SIZE].sum())


def unhealed(tails: list[Tail], begins: Mapping[str, int]) -> list[Tail]:
    """Tails that may contain more than any other copy has; of those after the same offset only the longest. Copies have the same bytes, so
    a copy with as many bytes after the last intact offset, damaged ones included, has all that was lost: unless it begins later, as
    ``begins``, the first offset of each copy, tells."""
    left: dict[int, Tail] = {}
    for tail in sorted(tails, key=lambda tail: tail.size):
        for other in tails:
            if other.examined.folder != tail.examined.folder and other.stretch.floor > tail.stretch.floor:
                tail.seen[other.examined.folder] += other.size
        seen = [size for folder, size in tail.seen.items() if begins[folder] <= tail.stretch.floor + 1]
        if tail.size and max(seen, default=0) < tail.size:
            left[tail.stretch.floor] = tail
    return [left[floor] for floor in sorted(left)]
