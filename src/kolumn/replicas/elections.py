"""Which strands of entries belong to the log: leader epochs decide (KIP-101, KIP-279).

The strand with the newest epoch is the log. What it knows of epochs by offset is the lineage. The others follow from the newest to the
oldest, and what belongs of each is added to the lineage:

    lineage   0 0 0 0 0 0 0 0 ? ? 2 2 2 2
    strand    0 0 0 0 0 0 1 1 1 1 1
                        │ └── contradicts: superseded from here on
                        └──── the last agreement: one log up to here
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kolumn.source.segments import HIGHEST

Known = tuple[int, int, int]
"""First and last offset of neighbouring entries, and their leader epoch."""


@dataclass(eq=False)
class Strand:
    """Entries of one copy, in one segment or several, whose offsets and leader epochs never go back.

    Attributes
    ----------
    folder : str
        Its copy.
    number : int
        Its place in the order of all: by copy, then as it was written.
    runs : list of Known
        Of its intact entries that have an epoch.
    headers : list of Known
        Of damaged entries whose headers fit.
    doubts : list of (int, int, int)
        Offsets whose entries are damaged, and whose headers tell nothing: first and last one, and the number of bytes.
    last : int
        Its last offset.
    stale : int
        The offset from which on it is not part of the log.
    """

    folder: str
    number: int
    runs: list[Known] = field(default_factory=list)
    headers: list[Known] = field(default_factory=list)
    doubts: list[tuple[int, int, int]] = field(default_factory=list)
    last: int = -1
    stale: int = HIGHEST

    @property
    def epoch(self) -> int:
        """The newest epoch of its intact entries, -1 if none is known."""
        return self.runs[-1][2] if self.runs else -1

    def add(self, runs: Iterable[Known]) -> None:
        """Add runs; of one epoch with the last run they are one."""
        for low, high, epoch in runs:
            if self.runs and self.runs[-1][2] == epoch:
                low = self.runs.pop()[0]
            self.runs.append((low, high, epoch))

    def goes_on(self, base: int, epoch: int) -> bool:
        """Whether an intact entry can be part of it; ``epoch`` is -1 if it is not known."""
        return base > self.last and (epoch < 0 or epoch >= self.epoch)


@dataclass(frozen=True)
class Superseded:
    """A strand does not belong to the log from an offset on; ``epochs`` are those of the lineage and its own there."""

    strand: Strand
    offset: int
    kept: str
    epochs: tuple[int, int]


class _Lineage:
    """Epochs by offset: stretches that do not overlap, in the order of offsets and of epochs."""

    def __init__(self, strands: Iterable[Strand]) -> None:
        self.epochs = {epoch for strand in strands for _, _, epoch in strand.runs}
        self.newest = max(self.epochs, default=-1)
        self.known: list[Known] = []
        self.owners: list[str] = []
        self.doubts: list[tuple[int, int, int]] = []

    def add(self, strand: Strand) -> None:
        """Take over what a strand knows below its stale offset."""
        # An epoch that only damaged entries have is damaged too, as far as anybody can tell.
        headers = [one for one in strand.headers if one[2] in self.epochs]
        for low, high, epoch in sorted([*strand.runs, *headers]):
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
        self.doubts += [one for one in strand.doubts if one[0] < strand.stale]

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


def elect(strands: list[Strand], fills: Fills) -> list[Superseded]:
    """Set the stale offset of each strand, and return those that are superseded, from the newest to the oldest.

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


def _border(strand: Strand, lineage: _Lineage, fills: Fills) -> Superseded | None:
    """Where a strand stops being the log: at the first contradiction, or doubt, after the last agreement."""
    agreed, border = -1, None
    for low, high, epoch in strand.runs:
        for first, last, lowest, highest, owner in lineage.parts(low, high):
            if epoch == highest:
                # The log has what this leader wrote here, or wrote later.
                agreed, border = last, None
            elif border is None and not lowest <= epoch <= highest:
                border = Superseded(strand, first, owner, (highest if epoch > highest else lowest, epoch))
            elif border is None:
                doubtful = _doubtful(strand, lineage, first, last, fills)
                if doubtful is not None:
                    border = Superseded(strand, doubtful, owner, (highest, epoch))
    assert border is None or border.offset > agreed
    return border


def _doubtful(strand: Strand, lineage: _Lineage, first: int, last: int, fills: Fills) -> int | None:
    """The first of some offsets that may be of another leader: the log has bytes there, they are damaged, and others than the strand's."""
    for low, high, size in sorted(lineage.doubts):
        if low <= last and high >= first and not fills(strand, low, high, size):
            return max(low, first)
    return None
