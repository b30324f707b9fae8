"""Which strands of entries belong to the log: leader epochs decide (KIP-101, KIP-279).

The strand with the newest epoch is the log. What it knows of epochs by offset is the lineage. The others follow from the newest to the
oldest, and what belongs of each is added to the lineage:

    lineage   0 0 0 0 0 0 0 0 ? ? 2 2 2 2
    strand    0 0 0 0 0 0 1 1 1 1 1
                        │ └── contradicts: superseded from here on
                        └──── the last agreement: one log up to here

No checksum covers an entry's offset and leader epoch, so the ones that are damaged are found first (`placed`, `trusted_epochs`).
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.errors import shown
from kolumn.source.segments import HIGHEST

_MOST_ELECTIONS = 1000  # elections between two entries, at most, in which an epoch that one entry alone has is believed
Known = tuple[int, int, int]  # first and last offset of neighbouring entries, and their leader epoch


class EpochRun(NamedTuple):
    """Neighbouring entries with one leader epoch: first and last offset, epoch, how many there are; checksum and size of the first one."""

    low: int
    high: int
    epoch: int
    entries: int
    content: tuple[int, int]


@dataclass
class Notes:
    """What the intact entries of a segment, or of one strand of it, tell of leader epochs."""

    folder: str
    first: int
    last: int  # offset; lower than ``first`` if there is no entry
    runs: list[EpochRun]  # of the entries that have an epoch
    headers: list[Known]  # of damaged entries whose headers fit
    doubts: list[tuple[int, int, int]]  # first and last offset whose entries are damaged, and bytes: doubtful unless headers tell of them


@dataclass(eq=False)
class Strand:
    """Entries of one copy, in one segment or several, whose offsets and leader epochs never go back; ``number`` is its place in the
    order of all, by copy and then as it was written. From offset ``stale`` on it is not part of the log."""

    folder: str
    number: int
    runs: list[EpochRun] = field(default_factory=list)
    headers: list[Known] = field(default_factory=list)
    doubts: list[tuple[int, int, int]] = field(default_factory=list)
    last: int = -1
    stale: int = HIGHEST

    @property
    def epoch(self) -> int:
        """The newest epoch of its intact entries, -1 if none is known."""
        return self.runs[-1].epoch if self.runs else -1

    def goes_on(self, notes: Notes) -> bool:
        epoch = notes.runs[0].epoch if notes.runs else self.epoch
        return notes.last < notes.first or (notes.first > self.last and epoch >= self.epoch)

    def add(self, notes: Notes) -> None:
        for run in notes.runs:
            if self.runs and self.runs[-1].epoch == run.epoch:
                before = self.runs.pop()
                run = before._replace(high=run.high, entries=before.entries + run.entries)
            self.runs.append(run)
        self.headers += notes.headers
        self.doubts += notes.doubts
        self.last = max(self.last, notes.last)


def strands_of(notes: list[Notes]) -> list[Strand]:
    """For each of the notes, in the order of offsets, the strand that it is part of."""
    newest: dict[str, Strand] = {}
    strands: list[Strand] = []
    number = 0
    for note in notes:
        strand = newest.get(note.folder)
        if strand is None or not strand.goes_on(note):
            strand = newest[note.folder] = Strand(note.folder, number)
            number += 1
        strand.add(note)
        strands.append(strand)
    return strands


def untrusted_epochs(notes: list[Notes], has_other: Callable[[EpochRun], bool]) -> set[int]:
    """Epochs that one entry of all copies has, and that is damaged, since no checksum covers it. It is too far from all others, what
    follows it in its copy has a lower one, or ``has_other`` says that the same entry has another epoch in another copy."""
    contradicted, newest, entries = set[int](), dict[str, EpochRun](), Counter[int]()
    first_run: dict[int, EpochRun] = {}
    for note in notes:
        for run in note.runs:
            previous = newest.get(note.folder, run)
            if previous.high < run.low and previous.epoch > run.epoch:
                contradicted.add(previous.epoch)
            newest[note.folder] = run
            entries[run.epoch] += run.entries
            first_run.setdefault(run.epoch, run)
    entries.update(epoch for note in notes for *_, epoch in note.headers if epoch in first_run)
    untrusted, before = set[int](), -1
    for epoch, count in sorted(entries.items()):
        is_wrong = epoch in contradicted or (before >= 0 and epoch - before > _MOST_ELECTIONS)
        if count == 1 and (is_wrong or has_other(first_run[epoch])):
            untrusted.add(epoch)
        else:
            before = epoch
    return untrusted


@dataclass(frozen=True)
class Divergence:
    """Two leaders assigned the same offsets to different records: the copy of the earlier leader is left out from there on."""

    offset: int
    kept: str  # directory that is read from there on
    left: str
    epochs: tuple[int, int]  # leader epochs there, in the same order; -1 where the order in which one directory was written decided

    def __str__(self) -> str:
        if min(self.epochs) < 0:
            return shown(f"{self.left} has two records at offset {self.offset}: those written earlier are left out from there on")
        return shown(
            f"{self.left} has other records than {self.kept} from offset {self.offset} on: those of leader epoch {self.epochs[1]} are left "
            f"out for those of epoch {self.epochs[0]}, as a broker does after an unclean election"
        )


_low = itemgetter(0)


class _Lineage:
    """Epochs by offset: stretches that do not overlap, in the order of offsets and of epochs."""

    def __init__(self, strands: Iterable[Strand]) -> None:
        self.epochs = {run.epoch for strand in strands for run in strand.runs}
        self.newest = max(self.epochs, default=-1)
        self.known: list[Known] = []
        self.owners: list[str] = []
        self.doubts: list[tuple[int, int, int]] = []

    def add(self, strand: Strand) -> None:
        """Take over what a strand knows below its stale offset."""
        # An epoch that only damaged entries have is damaged too, as far as anybody can tell.
        headers = [header for header in strand.headers if header[2] in self.epochs]
        for low, high, epoch in sorted([*(run[:3] for run in strand.runs), *headers]):
            high = min(high, strand.stale - 1)
            while low <= high:
                i = bisect_right(self.known, low, key=_low)
                if i and self.known[i - 1][1] >= low:
                    low = self.known[i - 1][1] + 1
                    continue
                end = min(high, self.known[i][0] - 1) if i < len(self.known) else high
                lowest, highest = self._around(i)
                if lowest <= epoch <= highest:
                    self.known.insert(i, (low, end, epoch))
                    self.owners.insert(i, strand.folder)
                low = end + 1
        told = sorted(low for low, *_ in headers)
        self.doubts += [
            doubt for doubt in strand.doubts if doubt[0] < strand.stale and bisect_left(told, doubt[0]) >= bisect_right(told, doubt[1])
        ]

    def _around(self, i: int) -> tuple[int, int]:
        """The lowest and the highest epoch possible before the known stretch ``i``."""
        return self.known[i - 1][2] if i else -1, self.known[i][2] if i < len(self.known) else self.newest

    def parts(self, low: int, high: int) -> Iterable[tuple[int, int, int, int, str]]:
        """[low, high] in parts: first and last offset, the lowest and the highest epoch possible there, and whose copy says so."""
        i = max(bisect_right(self.known, low, key=_low) - 1, 0)
        while low <= high:
            while i < len(self.known) and self.known[i][1] < low:
                i += 1
            if i < len(self.known) and self.known[i][0] <= low:
                end = min(high, self.known[i][1])
                yield low, end, self.known[i][2], self.known[i][2], self.owners[i]
            else:
                end = min(high, self.known[i][0] - 1) if i < len(self.known) else high
                if self.known:
                    yield low, end, *self._around(i), self.owners[min(i, len(self.known) - 1)]
            low = end + 1


Fills = Callable[[Strand, int, int, int], bool]
"""Whether a strand's entries within some offsets have exactly that many bytes, one after the other."""


def elect(strands: list[Strand], fills: Fills) -> list[Divergence]:
    """Set the stale offset of each strand, and return where strands leave the log, from the newest to the oldest. ``fills`` is asked only
    where bytes of the log are damaged at a change of leaders."""
    lineage, divergences = _Lineage(strands), []
    for strand in sorted(strands, key=lambda strand: (-strand.epoch, -strand.last, strand.number)):
        border = _border(strand, lineage, fills)
        if border is not None:
            strand.stale = border.offset
            divergences.append(border)
        lineage.add(strand)
    return divergences


def _border(strand: Strand, lineage: _Lineage, fills: Fills) -> Divergence | None:
    """Where a strand stops being the log: at the first contradiction, or doubt, after the last agreement."""
    agreed, border = -1, None
    for low, high, epoch, *_ in strand.runs:
        for first, last, lowest, highest, owner in lineage.parts(low, high):
            if epoch == highest:
                # The log has what this leader wrote here, or wrote later.
                agreed, border = last, None
            elif border is None and not lowest <= epoch <= highest:
                border = Divergence(first, owner, strand.folder, (highest if epoch > highest else lowest, epoch))
            elif border is None and (doubtful := _doubtful(strand, lineage, first, last, fills)) is not None:
                border = Divergence(doubtful, owner, strand.folder, (highest, epoch))
    assert border is None or border.offset > agreed
    return border


def _doubtful(strand: Strand, lineage: _Lineage, first: int, last: int, fills: Fills) -> int | None:
    """The first of some offsets that may be of another leader: the log has bytes there, they are damaged, and others than the strand's."""
    doubts = sorted(lineage.doubts)
    return next(
        (max(low, first) for low, high, size in doubts if low <= last and high >= first and not fills(strand, low, high, size)), None
    )


_EDGE = 3  # entries on each side of a break that are examined one by one
_WINDOW = 512  # how many entries back the predecessor of an entry is searched


def placed(base: Int64s, last: Int64s, content: Int64s, start: int) -> Flags:
    """Flags of the entries of a file that begins with offset ``start`` by its name whose offsets are believed. Those are the longest
    sequence of growing offsets, and others that were written so, since offsets can go back: entries that adjoin the one before or after
    them in the file, that fill a gap between two others, that are there twice (with the same checksum and size as ``content``), or where no
    offset is missing that they could have had."""
    flags = _fitting(base, last)
    if flags.all():
        return flags
    leads = np.append(last[:-1] + 1 == base[1:], False)
    follows = np.insert(leads[:-1], 0, base[0] == start)
    fills = np.isin(base - 1, last) & np.isin(last + 1, base) & ~np.isin(base, base[flags])
    chosen = np.flatnonzero(flags)
    rank = np.searchsorted(chosen, np.arange(len(base)))
    before, after = np.append(chosen, len(base))[rank - 1], np.append(chosen, len(base))[rank]
    floor = np.where(rank > 0, np.append(last, 0)[before], start - 1)
    ceiling = np.where(rank < len(chosen), np.append(base, 0)[after], HIGHEST)
    has_room = ceiling - floor - 1 > last - base
    _, number, count = np.unique(np.column_stack([base, last, content]), axis=0, return_inverse=True, return_counts=True)
    return flags | leads | follows | fills | (count[number.ravel()] > 1) | ~has_room


def strands(base: Int64s, last: Int64s, epoch: Int64s) -> tuple[Int64s, Int64s]:
    """Cut the entries of a file into strands: their leader epochs, -1 where damaged, and the entries before which one begins."""
    breaks = np.append(False, base[1:] <= last[:-1])[: len(base)]
    bounds = [0, *np.flatnonzero(breaks).tolist(), len(base)]
    epoch = np.concatenate([trusted_epochs(epoch[start:end]) for start, end in pairwise(bounds)])
    highest = np.maximum.accumulate(epoch) if len(epoch) else epoch
    if ((epoch < highest) & (epoch >= 0)).any():
        known = -1
        for i, (goes_back, own) in enumerate(zip(breaks.tolist(), epoch.tolist(), strict=True)):
            breaks[i] = goes_back or 0 <= own < known
            known = own if breaks[i] else max(known, own)
    return epoch, np.flatnonzero(breaks)


def trusted_epochs(epoch: Int64s) -> Int64s:
    """Leader epochs, -1 where one entry alone contradicts those on both sides of it: then its epoch is damaged."""
    rows = np.flatnonzero(epoch >= 0)
    own = epoch[rows]
    if len(own) < 3 or (own[1:] >= own[:-1]).all():
        return epoch
    before, after = np.concatenate([own[1:2], own[:-1]]), np.concatenate([own[1:], own[-2:-1]])
    # At the ends there is one neighbour, which has to agree with the one after it.
    agree = np.concatenate([own[1:2] <= own[2:3], own[:-2] <= own[2:], own[-3:-2] <= own[-2:-1]])
    wrong = agree & ((own < np.minimum(before, after)) | (own > np.maximum(before, after)))
    wrong[0], wrong[-1] = bool(agree[0] and own[0] > own[1]), bool(agree[-1] and own[-1] < own[-2])
    # Of two in a row that contradict each other the first is taken for damaged.
    wrong[1:] &= ~wrong[:-1]
    trusted = epoch.copy()
    trusted[rows[wrong]] = -1
    return trusted


def _fitting(base: Int64s, last: Int64s) -> Flags:
    """Flags of the entries that form the longest sequence of growing offsets. If two entries exclude each other, the one whose offsets
    adjoin its neighbours' is kept: a damaged offset rarely adjoins them."""
    flags = np.ones(len(base), np.bool_)
    breaks = np.flatnonzero(base[1:] <= last[:-1])
    if not len(breaks):
        return flags
    near = np.zeros(len(base), np.bool_)
    for step in range(1 - _EDGE, _EDGE + 1):
        near[np.clip(breaks + step, 0, len(base) - 1)] = True
    starts = np.flatnonzero(near | np.concatenate([[True], near[:-1]]))
    ends = np.append(starts[1:], len(base))
    for run in np.flatnonzero(~_heaviest(base[starts], last[ends - 1], ends - starts)):
        flags[starts[run] : ends[run]] = False
    return flags


def _heaviest(low: Int64s, high: Int64s, weight: Int64s) -> Flags:
    """Flags of the runs in the sequence with most entries, and among those with most neighbours that touch."""
    score, before = 2 * weight, np.full(len(low), -1)
    for i in range(len(low)):
        first = max(0, i - _WINDOW)
        value = np.where(high[first:i] < low[i], score[first:i] + (high[first:i] + 1 == low[i]), -1)
        if len(value) and value.max() >= 0:
            nearest = len(value) - 1 - int(value[::-1].argmax())
            before[i] = first + nearest
            score[i] += value[nearest]
    chosen = np.zeros(len(low), np.bool_)
    # Among equally good ones, the one that ends lowest: a damaged offset is mostly far away.
    best = np.flatnonzero(score == score.max())
    run = int(best[high[best].argmin()])
    while run >= 0:
        chosen[run] = True
        run = int(before[run])
    return chosen
