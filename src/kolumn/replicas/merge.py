"""One log of several copies of a topic-partition: each offset once, damage of one copy filled from the others.

All copies are walked from the lowest offset to the highest, some segments at a time, and every checksum is compared. An entry is used if
it is intact in any copy. A damaged stretch of one copy is healed if another copy is intact over the same offsets, even if that copy has
no records there, since compaction leaves holes. It is also healed if the entries of other copies there have exactly as many bytes: then
nothing else was in it. A stretch that no copy heals stays in the result, and the reader reports it.
"""

import logging
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from kolumn.errors import ArgumentError
from kolumn.options import Options
from kolumn.replicas.contested import Disagreement
from kolumn.replicas.copies import Copies, bounds, in_order
from kolumn.replicas.examine import BASE, COUNT, HIGHEST, LAST, SIZE, Examined, LostStretch, examine, subtract
from kolumn.replicas.joined import Filled, Joined
from kolumn.replicas.tails import Tail, unhealed
from kolumn.replicas.window import CopyPart, resolve
from kolumn.source.segments import Range, Segment

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Divergence:
    """Two leaders assigned the same offsets to different records: the copy of the earlier leader is left out from there on.

    Attributes
    ----------
    offset : int
    kept, left : str
        Directory that is read from there on, and directory that is left out.
    epochs : tuple of two int
        Leader epochs there, in the same order.
    """

    offset: int
    kept: str
    left: str
    epochs: tuple[int, int]

    def __str__(self) -> str:
        return (
            f"{self.left} has other records than {self.kept} from offset {self.offset} on: those of leader epoch {self.epochs[1]} are left "
            f"out for those of epoch {self.epochs[0]}, as a broker does after an unclean election"
        )


@dataclass
class Merged:
    """Result of the merge of a topic-partition's copies.

    Attributes
    ----------
    ranges : list of (Range, int, int)
        In the order of offsets, with the lowest and highest offset that each can have.
    divergences : list of Divergence
    """

    ranges: list[tuple[Range, int, int]] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)


def merge(folders: Copies, options: Options) -> Merged:
    """Make one log of the directories of a topic-partition; reads all of them once.

    Raises
    ------
    ArgumentError
        The directories have different records at the same offsets and no leader epoch decides which are right: they are copies of
        different logs. Or a segment's name is not a base offset.
    """
    unnamed = [one.path for own in folders.values() for one in own if one.base_offset is None]
    if unnamed:
        raise ArgumentError(f"{unnamed[0]}: replicas='merge' needs Kafka's names of segments, a base offset of 20 digits")
    sweep = _Sweep(folders, options)
    sweep.run()
    return Merged(sweep.joined.ranges, sweep.divergences)


class _Sweep:
    """Walks all copies together, from the lowest offset to the highest."""

    def __init__(self, folders: Copies, options: Options) -> None:
        self.options = options
        self.order = {folder: i for i, folder in enumerate(folders)}
        limits = {one: (folder, limit) for folder, own in folders.items() for one, limit in bounds(own).items()}
        todo = [(one, *limits[one]) for one in in_order(folders) if one.size or one.state == "rolled" or one.orphans]
        self.begins = {folder: min(one.base_offset or 0 for one in own) for folder, own in folders.items()}
        self.starts = deque(one.base_offset or 0 for one, _, _ in todo)
        self.source = _examined(todo, options)
        self.active: list[Examined] = []
        self.stale: dict[str, int] = {}
        self.tails: list[Tail] = []
        self.joined = Joined(options.check_crcs)
        self.divergences: list[Divergence] = []

    def run(self) -> None:
        """Process all windows, from the first to the last."""
        with closing(self.source):
            while self.active or self.starts:
                border = self._border()
                parts = [part for part in self._parts(border) if part.end > part.start]
                pieces = np.empty((0, 5), np.int64)
                if parts:
                    resolved = resolve(parts, self.options)
                    if resolved.pieces is None:
                        if resolved.disagreement is not None:
                            self._settle(resolved.disagreement)
                        continue
                    pieces = resolved.pieces
                lost = self._lost(border, Filled(parts, pieces))
                for tail in self.tails:
                    tail.see(parts)
                self.joined.add(parts, pieces, lost)
                self._done(border)
        for tail in unhealed([tail for tail in self.tails if not self._is_stale(tail.examined, tail.stretch.low)], self.begins):
            self.joined.tail(tail.examined, tail.stretch)

    def _border(self) -> int:
        """The offset before which the next window ends: no entry and no stretch crosses it."""
        self._load(min((_next(one) for one in self.active), default=self.starts[0] if self.starts else 0))
        while True:
            border = self.starts[0] if self.starts else HIGHEST
            reach = max(_reach(one, border) for one in self.active)
            if reach < border:
                return border
            self._load(reach)

    def _load(self, offset: int) -> None:
        """Examine all segments that begin up to an offset."""
        while self.starts and self.starts[0] <= offset:
            self.starts.popleft()
            self.active.append(next(self.source))

    def _parts(self, border: int) -> list[CopyPart]:
        """The entries of each segment before the border; the copy with most records there comes first."""
        found = []
        records: dict[str, int] = {}
        for one in self.active:
            end = one.at + int(np.searchsorted(one.entries[one.at :, BASE], min(border, self.stale.get(one.folder, border))))
            found.append((one, end))
            records[one.folder] = records.get(one.folder, 0) + int(one.entries[one.at : end, COUNT].sum())
        ranked = sorted(records, key=lambda folder: (-records[folder], self.order[folder]))
        return sorted((CopyPart(one, one.at, end, ranked.index(one.folder)) for one, end in found), key=lambda part: part.rank)

    def _lost(self, border: int, filled: Filled) -> list[tuple[Examined, LostStretch]]:
        """Damaged stretches before the border that no other copy heals; if several copies have lost the same offsets, only one of them."""
        lost: list[tuple[Examined, LostStretch]] = []
        reported: list[tuple[int, int]] = []
        for one in sorted(self.active, key=lambda one: self.order[one.folder]):
            for stretch in _before(one, border):
                if self._is_stale(one, stretch.low):
                    continue
                high = stretch.high if stretch.high is not None else stretch.claim
                missing = [(stretch.low, high)] if high is not None and not filled.tiles(stretch) else []
                for other in self.active:
                    if other is not one and missing:
                        for low, last in other.sound(missing[0][0], missing[-1][1]):
                            missing = subtract(missing, low, min(last, self.stale.get(other.folder, HIGHEST) - 1))
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
            one.at += int(np.searchsorted(one.entries[one.at :, BASE], border))
            one.beyond += len(_before(one, border))
        self.active = [one for one in self.active if one.at < len(one.entries) or one.beyond < len(one.stretches)]

    def _is_stale(self, one: Examined, offset: int) -> bool:
        return offset >= self.stale.get(one.folder, HIGHEST)

    def _settle(self, found: Disagreement) -> None:
        """Decide between two copies that differ.

        Bytes that only look like an entry, at the place of a damaged one, are discarded. Otherwise the copies of the earlier leader are
        left out from there on; `ArgumentError` if no epoch tells which that is.
        """
        (one, row), (other, other_row) = found.one, found.other
        for mine, at, theirs, there in ((one[0], row, other[0], other_row), (other[0], other_row, one[0], row)):
            if mine.is_inside(at, int(theirs.entries[there, SIZE])):
                mine.without(at, None)
                return
        epochs = found.epochs
        if min(epochs) < 0 or epochs[0] == epochs[1]:
            raise ArgumentError(
                f"{one[0].segment.path} and {other[0].segment.path} have different records at offset {found.offset}: they are no copies of "
                "one log. Read one of the directories by its name, or the first with replicas='first'"
            )
        if epochs[0] < epochs[1]:
            one, row, other, epochs = other, other_row, one, (epochs[1], epochs[0])
        # If the kept copy has damage directly before, the other copy's entries there may be of the earlier leader too.
        offset, base = found.offset, int(one[0].entries[row, BASE])
        offset = min([offset, *(stretch.low for stretch in one[0].stretches if stretch.high == base - 1)])
        for loser in dict.fromkeys(examined.folder for examined in other):
            self.stale[loser] = min(offset, self.stale.get(loser, HIGHEST))
            self.divergences.append(Divergence(offset, one[0].folder, loser, (max(epochs), min(epochs))))
            logger.warning("%s", self.divergences[-1])


def _reach(one: Examined, border: int) -> int:
    """Last offset of the entries and stretches that begin before a border."""
    end = one.at + int(np.searchsorted(one.entries[one.at :, BASE], border))
    highest = int(one.entries[end - 1, LAST]) if end > one.at else -1
    return max([highest, *(stretch.high or -1 for stretch in _before(one, border)[-1:])])


def _next(one: Examined) -> int:
    """The lowest offset that is not resolved yet."""
    lows = [int(base) for base in one.entries[one.at : one.at + 1, BASE]]
    return min([*lows, *(stretch.low for stretch in one.stretches[one.beyond : one.beyond + 1])])


def _before(one: Examined, border: int) -> list[LostStretch]:
    """Unresolved stretches that begin before a border."""
    return [stretch for stretch in one.stretches[one.beyond :] if stretch.low < border]


def _examined(todo: list[tuple[Segment, str, int | None]], options: Options) -> Generator[Examined, None, None]:
    """Examine segments in order; some are examined ahead by other threads."""
    if options.threads == 1:
        yield from (examine(*one, options) for one in todo)
        return
    rest = iter(todo)
    with ThreadPoolExecutor(options.threads, thread_name_prefix="kolumn-merge") as pool:

        def ahead(count: int) -> list[Future[Examined]]:
            return [pool.submit(examine, segment, folder, limit, options) for segment, folder, limit in islice(rest, count)]

        pending = deque(ahead(options.threads))
        try:
            while pending:
                yield pending.popleft().result()
                pending += ahead(1)
        finally:
            for future in pending:
                future.cancel()


def trimmed(merged: Merged, options: Options) -> list[Range]:
    """The ranges that can have records within the options' range of offsets."""
    start = -1 if options.start_offset is None else options.start_offset
    end = HIGHEST if options.end_offset is None else options.end_offset
    return [one for one, low, high in merged.ranges if high >= start and low < end]
