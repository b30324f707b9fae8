"""What is kept: whole entries of the copies, in the order of offsets, and parts of those of which the log has some offsets only."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from kolumn.options import Options
from kolumn.replicas.copies import Copies, bounds
from kolumn.replicas.examine import Examined, examine
from kolumn.source.segments import Range, Segment


@dataclass(frozen=True)
class KeptRun:
    """Intact entries that follow each other in a file, at the positions [start, end), of which the offsets ``low`` to ``high`` are kept.

    ``floor`` is the last offset before it in this file. A run that is ``is_cut`` is one entry that may have other offsets too: these are
    kept from another copy, or are not part of the log.
    """

    segment: Segment
    start: int
    end: int
    floor: int
    low: int
    high: int
    is_cut: bool = False

    @property
    def range(self) -> Range:
        """The bytes, for a reader."""
        return Range(self.segment, self.start, self.end, self.floor)


def kept_runs(ranges: Iterable[tuple[Range, int, int]]) -> list[KeptRun]:
    """The ranges of a merge, without those that are lost, in the order of offsets."""
    found = [KeptRun(one.segment, one.start, one.end, one.floor, low, high, one.is_bounded) for one, low, high in ranges if not one.is_lost]
    return sorted(found, key=lambda run: run.low)


class Everything:
    """Intact entries of all copies, in the order of offsets; a segment is examined when its offsets are asked for."""

    def __init__(self, folders: Copies, options: Options) -> None:
        self.options = options
        self.limits = [(one, folder, limit) for folder, own in folders.items() for one, limit in bounds(own).items()]
        self.held: dict[Segment, list[Examined]] = {}

    def near(self, low: int, high: int) -> list[Examined]:
        """Segments that can have offsets in [low, high]; calls come in the order of offsets."""
        near = [one for one in self.limits if (one[0].base_offset or 0) <= high and (one[2] is None or one[2] >= low)]
        self.held = {one[0]: self.held.get(one[0]) or examine(*one, self.options) for one in near}
        return [strand for found in self.held.values() for strand in found]


def missing(low: int, high: int, runs: list[KeptRun]) -> list[tuple[int, int]]:
    """Parts of [low, high] that no run covers; ``runs`` are in order and do not overlap."""
    found: list[tuple[int, int]] = []
    for run in runs[max(bisect_right(runs, low, key=lambda one: one.low) - 1, 0) :]:
        if run.low > high:
            break
        if run.high < low:
            continue
        if run.low > low:
            found.append((low, run.low - 1))
        low = run.high + 1
    return [*found, (low, high)] if low <= high else found
