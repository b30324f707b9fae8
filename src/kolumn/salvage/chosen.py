"""Which whole entries of which copy are kept, so that each offset is there once.

A merge of copies returns ranges of files. Nearly all of them are runs of whole entries, which are copied as they are. Where copies cut
entries differently, the merge takes some offsets of an entry only. A copy of bytes cannot do that, so of the entries that overlap there
those are chosen that do not, with as many records together as possible, from all copies.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from kolumn.entries.last_offsets import first_offset, with_last_offsets
from kolumn.formats import table
from kolumn.log.batch_table import entry_rows
from kolumn.options import Options
from kolumn.replicas.copies import Copies, bounds
from kolumn.replicas.examine import BASE, COUNT, LAST, POSITION, SIZE, Examined, examine
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment


@dataclass(frozen=True)
class ChosenRun:
    """Whole intact entries that follow each other in a file.

    Attributes
    ----------
    segment : Segment
    start, end : int
        Positions.
    floor : int
        Last offset before it, in this file.
    low, high : int
        First and last offset of its entries.
    records : int
        How many records it has, if it is one entry of several that overlap; 0 otherwise.
    """

    segment: Segment
    start: int
    end: int
    floor: int
    low: int
    high: int
    records: int = 0

    @property
    def range(self) -> Range:
        """The bytes, for a reader."""
        return Range(self.segment, self.start, self.end, self.floor)


@dataclass(frozen=True)
class Chosen:
    """What is kept of a topic-partition, in the order of offsets.

    Attributes
    ----------
    runs : list of ChosenRun
        They do not overlap.
    cut : list of (Segment, int, int, int, int)
        Offsets that are intact, but in no entry that can be kept whole: segment, position, size of the entry, first and last offset.
    """

    runs: list[ChosenRun]
    cut: list[tuple[Segment, int, int, int, int]]


def chosen(ranges: Iterable[tuple[Range, int, int]], folders: Copies, options: Options) -> Chosen:
    """Choose the entries to keep.

    Parameters
    ----------
    ranges : iterable of (Range, int, int)
        Of a merge, without those that are lost.
    folders : Copies
        The copies that were merged: where entries overlap, others of their entries may fit better.
    options : Options
        Limits and sizes.
    """
    found, everything = Chosen([], []), Everything(folders, options)
    for own, partial in _clusters(ranges, options):
        if not partial:
            found.runs.extend(own)
            continue
        more = everything.inside(own[0].low, max(run.high for run in own))
        kept = _heaviest([*(one for run in own for one in _entries(run, options)), *more])
        found.runs.extend(kept)
        for run, low, high in partial:
            found.cut.extend((run.segment, run.start, run.end - run.start, *one) for one in missing(low, high, kept))
    return found


class Everything:
    """Intact entries of all copies, in the order of offsets; a segment is examined when its offsets are asked for."""

    def __init__(self, folders: Copies, options: Options) -> None:
        self.options = options
        self.limits = [(one, folder, limit) for folder, own in folders.items() for one, limit in bounds(own).items()]
        self.held: dict[Segment, Examined] = {}

    def near(self, low: int, high: int) -> list[Examined]:
        """Segments that can have offsets in [low, high]; calls come in the order of offsets."""
        near = [one for one in self.limits if (one[0].base_offset or 0) <= high and (one[2] is None or one[2] >= low)]
        self.held = {one[0]: self.held.get(one[0]) or examine(*one, self.options) for one in near}
        return list(self.held.values())

    def inside(self, low: int, high: int) -> list[ChosenRun]:
        """Entries of which all offsets are in [low, high]; calls come in the order of offsets."""
        found: list[ChosenRun] = []
        for examined in self.near(low, high):
            rows = examined.entries
            for i in np.flatnonzero((rows[:, BASE] >= low) & (rows[:, LAST] <= high)).tolist():
                position, size, first, last, count = rows[i, [POSITION, SIZE, BASE, LAST, COUNT]].tolist()
                found.append(ChosenRun(examined.segment, position, position + size, examined.floor(i), first, last, max(count, 1)))
        return found


def missing(low: int, high: int, runs: list[ChosenRun]) -> list[tuple[int, int]]:
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


_Partial = tuple[ChosenRun, int, int]


def _clusters(ranges: Iterable[tuple[Range, int, int]], options: Options) -> Iterator[tuple[list[ChosenRun], list[_Partial]]]:
    """Runs that overlap each other, and the entries among them of which the merge takes some offsets only."""
    items: list[tuple[ChosenRun, _Partial | None]] = []
    for one, low, high in ranges:
        run = ChosenRun(one.segment, one.start, one.end, one.floor, low, high)
        if one.is_bounded:
            (whole,) = _entries(run, options)
            items.append((whole, (whole, low, high)))
        else:
            items.append((run, None))
    items.sort(key=lambda item: item[0].low)
    own: list[ChosenRun] = []
    partial: list[_Partial] = []
    reach = -1
    for run, some in items:
        if own and run.low > reach:
            yield own, partial
            own, partial = [], []
        reach = max(reach, run.high)
        if run not in own:
            own.append(run)
        if some is not None:
            partial.append(some)
    if own:
        yield own, partial


def _entries(run: ChosenRun, options: Options) -> list[ChosenRun]:
    """The entries of a run, each with its own offsets."""
    if run.records:
        return [run]
    found: list[ChosenRun] = []
    with SegmentFile(run.segment) as file:
        for entries in entry_rows(file, options, run.range):
            rows = with_last_offsets(file, entries.copy())
            for row in rows:
                floor = found[-1].high if found else run.floor
                low = first_offset(file, row) if row.base_offset == table.UNKNOWN else row.base_offset
                count = row.count if row.count > 0 else row.last_offset - low + 1
                found.append(ChosenRun(run.segment, row.position, row.end, floor, low, row.last_offset, max(count, 1)))
    return found


def _heaviest(entries: list[ChosenRun]) -> list[ChosenRun]:
    """Entries that do not overlap, with as many records as possible."""
    unique = sorted({(one.low, one.high, one.segment.path, one.start): one for one in entries}.values(), key=lambda one: one.high)
    ends = [one.high for one in unique]
    best = [0] * (len(unique) + 1)
    before = [bisect_right(ends, one.low - 1, 0, i) for i, one in enumerate(unique)]
    for i, one in enumerate(unique):
        best[i + 1] = max(best[i], best[before[i]] + one.records)
    kept: list[ChosenRun] = []
    i = len(unique)
    while i:
        if best[i] == best[i - 1]:
            i -= 1
        else:
            kept.append(unique[i - 1])
            i = before[i - 1]
    return kept[::-1]
