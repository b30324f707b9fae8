"""Which strands of entries belong to the log: leader epochs decide (KIP-101, KIP-279).

The strand with the newest epoch is the log. What it knows of epochs by offset is the lineage. The others follow from the newest to the
oldest, and what belongs of each is added to the lineage:

    lineage   0 0 0 0 0 0 0 0 ? ? 2 2 2 2
    strand    0 0 0 0 0 0 1 1 1 1 1
                        │ └── contradicts: superseded from here on
                        └──── the last agreement: one log up to here
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kolumn.core.errors import shown
from kolumn.source.segments import HIGHEST

_MOST_ELECTIONS = 1000
"""Elections between two entries, at most, in which an epoch that one entry alone has is believed."""
Known = tuple[int, int, int]
"""First and last offset of neighbouring entries, and their leader epoch."""


class EpochRun(NamedTuple):
    """Neighbouring entries with one leader epoch: first and last offset, epoch, how many there are; checksum and size of the first one."""

    low: int
    high: int
    epoch: int
    entries: int
    content: tuple[int, int]


@dataclass
class Notes:
    """What the intact entries of a segment, or of one strand of it, tell of leader epochs.

    Attributes
    ----------
    folder : str
        Its copy.
    first, last : int
        First and last offset of the entries; ``last`` is lower if there is none.
    runs : list of EpochRun
        Of the entries that have an epoch.
    headers : list of Known
        Of damaged entries whose headers fit.
    doubts : list of (int, int, int)
        Offsets whose entries are damaged: first and last one, and the number of bytes. They are doubtful unless headers tell of them.
    """

    folder: str
    first: int
    last: int
    runs: list[EpochRun]
    headers: list[Known]
    doubts: list[tuple[int, int, int]]


@dataclass(eq=False)
class Strand:
    """Entries of one copy, in one segment or several, whose offsets and leader epochs never go back.

    Attributes
    ----------
    folder : str
    number : int
        Its place in the order of all: by copy, then as it was written.
    runs : list of EpochRun
    headers, doubts
        As in `Notes`.
    last : int
        Its last offset.
    stale : int
        The offset from which on it is not part of the log.
    """

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
        """Whether other entries can be part of it."""
        epoch = notes.runs[0].epoch if notes.runs else self.epoch
        return notes.last < notes.first or (notes.first > self.last and epoch >= self.epoch)

    def add(self, notes: Notes) -> None:
        """Add entries to it."""
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
    found: list[Strand] = []
    number = 0
    for one in notes:
        strand = newest.get(one.folder)
        if strand is None or not strand.goes_on(one):
            strand = newest[one.folder] = Strand(one.folder, number)
            number += 1
        strand.add(one)
        found.append(strand)
    return found


def untrusted_epochs(notes: list[Notes], has_other: Callable[[EpochRun], bool]) -> set[int]:
    """Epochs that one entry of all copies has, and that is damaged, since no checksum covers it.

    It is too far from all others, what follows it in its copy has a lower one, or ``has_other`` says that the same entry has another
    epoch in another copy.
    """
    runs = [run for one in notes for run in one.runs]
    contradicted, newest = set[int](), dict[str, EpochRun]()
    for one in notes:
        for run in one.runs:
            previous = newest.get(one.folder, run)
            if previous.high < run.low and previous.epoch > run.epoch:
                contradicted.add(previous.epoch)
            newest[one.folder] = run
    entries: dict[int, int] = {}
    for run in runs:
        entries[run.epoch] = entries.get(run.epoch, 0) + run.entries
    for epoch in (epoch for one in notes for *_, epoch in one.headers if epoch in entries):
        entries[epoch] += 1
    found, before = set[int](), -1
    for epoch, count in sorted(entries.items()):
        is_wrong = epoch in contradicted or (before >= 0 and epoch - before > _MOST_ELECTIONS)
        if count == 1 and (is_wrong or has_other(next(run for run in runs if run.epoch == epoch))):
            found.add(epoch)
        else:
            before = epoch
    return found


@dataclass(frozen=True)
class Divergence:
    """Two leaders assigned the same offsets to different records: the copy of the earlier leader is left out from there on.

    Attributes
    ----------
    offset : int
    kept, left : str
        Directory that is read from there on, and directory that is left out.
    epochs : tuple of two int
        Leader epochs there, in the same order; -1 where none decided, but the order in which one directory was written.
    """

    offset: int
    kept: str
    left: str
    epochs: tuple[int, int]

    def __str__(self) -> str:
        if min(self.epochs) < 0:
            return shown(f"{self.left} has two records at offset {self.offset}: those written earlier are left out from there on")
        return shown(
            f"{self.left} has other records than {self.kept} from offset {self.offset} on: those of leader epoch {self.epochs[1]} are left "
            f"out for those of epoch {self.epochs[0]}, as a broker does after an unclean election"
        )


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
        headers = [one for one in strand.headers if one[2] in self.epochs]
        for low, high, epoch in sorted([*(run[:3] for run in strand.runs), *headers]):
            high = min(high, strand.stale - 1)
            while low <= high:
                at = bisect_right(self.known, low, key=_low)
                if at and self.known[at - 1][1] >= low:
                    low = self.known[at - 1][1] + 1
                    continue
                end = min(high, self.known[at][0] - 1) if at < len(self.known) else high
                lowest, highest = self._around(at)
                if lowest <= epoch <= highest:
                    self.known.insert(at, (low, end, epoch))
                    self.owners.insert(at, strand.folder)
                low = end + 1
        told = sorted(low for low, *_ in headers)
        is_told = [bisect_left(told, low) < bisect_right(told, high) for low, high, _ in strand.doubts]
        self.doubts += [one for one, known in zip(strand.doubts, is_told, strict=True) if one[0] < strand.stale and not known]

    def _around(self, at: int) -> tuple[int, int]:
        """The lowest and the highest epoch possible before the known stretch ``at``."""
        return self.known[at - 1][2] if at else -1, self.known[at][2] if at < len(self.known) else self.newest

    def parts(self, low: int, high: int) -> Iterable[tuple[int, int, int, int, str]]:
        """[low, high] in parts: first and last offset, the lowest and the highest epoch possible there, and whose copy says so."""
        at = max(bisect_right(self.known, low, key=_low) - 1, 0)
        while low <= high:
            while at < len(self.known) and self.known[at][1] < low:
                at += 1
            if at < len(self.known) and self.known[at][0] <= low:
                end = min(high, self.known[at][1])
                yield low, end, self.known[at][2], self.known[at][2], self.owners[at]
            else:
                end = min(high, self.known[at][0] - 1) if at < len(self.known) else high
                if self.known:
                    yield low, end, *self._around(at), self.owners[min(at, len(self.known) - 1)]
            low = end + 1


def _low(one: Known) -> int:
    return one[0]


Fills = Callable[[Strand, int, int, int], bool]
"""Whether a strand's entries within some offsets have exactly that many bytes, one after the other."""


def elect(strands: list[Strand], fills: Fills) -> list[Divergence]:
    """Set the stale offset of each strand, and return where strands leave the log, from the newest to the oldest.

    Parameters
    ----------
    strands : list of Strand
    fills : callable
        Asked only where bytes of the log are damaged at a change of leaders.
    """
    lineage, found = _Lineage(strands), []
    for strand in sorted(strands, key=lambda one: (-one.epoch, -one.last, one.number)):
        border = _border(strand, lineage, fills)
        if border is not None:
            strand.stale = border.offset
            found.append(border)
        lineage.add(strand)
    return found


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
            elif border is None:
                doubtful = _doubtful(strand, lineage, first, last, fills)
                if doubtful is not None:
                    border = Divergence(doubtful, owner, strand.folder, (highest, epoch))
    assert border is None or border.offset > agreed
    return border


def _doubtful(strand: Strand, lineage: _Lineage, first: int, last: int, fills: Fills) -> int | None:
    """The first of some offsets that may be of another leader: the log has bytes there, they are damaged, and others than the strand's."""
    for low, high, size in sorted(lineage.doubts):
        if low <= last and high >= first and not fills(strand, low, high, size):
            return max(low, first)
    return None
