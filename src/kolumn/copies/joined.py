"""Pieces of copies, in the order of offsets, become ranges: neighbours in a file are one range.

Intact entries that are not part of the log, and how many records the result lacks for that.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kolumn.copies.examine import BASE, LAST, POSITION, SIZE, WIDTH, Examined, LostStretch
from kolumn.copies.window import LANE, LOW, ROW, STOP, WHOLE, CopyPart
from kolumn.core.arrays import Int64s
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.source.segments import Range, Segment


class Joined:
    """Ranges with the lowest and highest offset that each can have.

    Parameters
    ----------
    check_crcs : bool
        Whether the reader compares checksums. Then it detects damage that no copy heals; otherwise it may read wrong records there.
    """

    def __init__(self, check_crcs: bool) -> None:
        self.check_crcs = check_crcs
        self.ranges: list[tuple[Range, int, int]] = []

    def add(self, parts: list[CopyPart], pieces: Int64s, lost: list[tuple[Examined, LostStretch]]) -> None:
        """Add the pieces of a window, and the stretches in it that are damaged in every copy."""
        items = [*ranges_of(parts, pieces), *(self._stretch(examined, stretch) for examined, stretch in lost)]
        for one, low, high in sorted(items, key=lambda item: item[1]):
            self._append(one, low, high)

    def tail(self, examined: Examined, stretch: LostStretch) -> None:
        """Add the stretch after the last intact entry of a copy."""
        self._append(*self._stretch(examined, stretch))

    def _stretch(self, examined: Examined, stretch: LostStretch) -> tuple[Range, int, int]:
        high = 2**63 - 2 if stretch.high is None else stretch.high
        one = replace(
            Range.whole(examined.segment),
            start=stretch.start,
            end=stretch.end,
            floor=stretch.floor,
            start_offset=stretch.low,
            end_offset=stretch.low if self.check_crcs else high + 1,
            fault=stretch.fault,
        )
        return one, stretch.low, high

    def _append(self, one: Range, low: int, high: int) -> None:
        if self.ranges:
            last, lowest, highest = self.ranges[-1]
            plain = not (last.is_bounded or one.is_bounded)
            if plain and last.segment == one.segment and last.end == one.start:
                self.ranges[-1] = replace(last, end=one.end), lowest, max(high, highest)
                return
        self.ranges.append((one, low, high))


class Filled:
    """The entries that were taken from all copies in a window."""

    def __init__(self, parts: list[CopyPart], pieces: Int64s) -> None:
        entries = _entries(parts, pieces)
        self.base, self.last = entries[:, BASE], entries[:, LAST]
        self.size = np.append(0, np.cumsum(entries[:, SIZE]))
        self.partial = np.append(0, np.cumsum(pieces[:, WHOLE] == 0))

    def tiles(self, stretch: LostStretch) -> bool:
        """Whether entries taken from other copies have exactly the bytes of a damaged stretch."""
        if stretch.high is None:
            return False
        first, stop = int(np.searchsorted(self.base, stretch.low)), int(np.searchsorted(self.last, stretch.high, side="right"))
        if first >= stop or self.partial[stop] > self.partial[first]:
            return False
        return bool(self.size[stop] - self.size[first] == stretch.end - stretch.start)


def _entries(parts: list[CopyPart], pieces: Int64s) -> Int64s:
    """Rows of `Examined.entries` for pieces."""
    found = np.empty((len(pieces), WIDTH), np.int64)
    for lane in np.unique(pieces[:, LANE]).tolist():
        mine = pieces[:, LANE] == lane
        found[mine] = parts[lane].examined.entries[pieces[mine, ROW]]
    return found


def ranges_of(parts: list[CopyPart], pieces: Int64s) -> list[tuple[Range, int, int]]:
    """Ranges of pieces that follow each other in one file."""
    if not len(pieces):
        return []
    entries = _entries(parts, pieces)
    start, size = entries[:, POSITION], entries[:, SIZE]
    goes_on = (pieces[1:, LANE] == pieces[:-1, LANE]) & (start[1:] == start[:-1] + size[:-1])
    goes_on &= (pieces[1:, WHOLE] == 1) & (pieces[:-1, WHOLE] == 1)
    firsts = np.flatnonzero(np.append(True, ~goes_on)).tolist()
    found = []
    for first, stop in zip(firsts, [*firsts[1:], len(pieces)], strict=True):
        examined, row = parts[int(pieces[first, LANE])].examined, int(pieces[first, ROW])
        low, high = int(pieces[first, LOW]), int(pieces[stop - 1, STOP]) - 1
        one = replace(
            Range.whole(examined.alone),
            start=int(start[first]),
            end=int(start[stop - 1] + size[stop - 1]),
            floor=examined.floor(row),
        )
        if not pieces[first, WHOLE]:
            one = replace(one, start_offset=low, end_offset=high + 1)
        found.append((one, low, high))
    return found


_COLUMNS = ("offset", "key", "value", "timestampMs")
_Seen = dict[tuple[Any, ...], set[int]]
"""Offset, key and value of records, and their timestamps."""


@dataclass(frozen=True)
class SupersededEntries:
    """Neighbouring entries of one file of which some or all records are not part of the log.

    Attributes
    ----------
    segment : Segment
    position, size : int
    first, last : int
        Offsets that are not part of the log.
    records : int
        Of these, how many no part of the log has, and no other superseded entry.
    """

    segment: Segment
    position: int
    size: int
    first: int
    last: int
    records: int


def superseded_entries(
    beyond: list[tuple[Examined, Int64s]], parts: list[CopyPart], pieces: Int64s, options: Options
) -> list[SupersededEntries]:
    """Those of a window.

    Parameters
    ----------
    beyond : list of (Examined, int64 array)
        Segments with the numbers of their entries that do not belong to the log, or not as a whole.
    parts, pieces
        What the log has there.
    options : Options
    """
    if not beyond:
        return []
    low = min(int(one.entries[rows[0], BASE]) for one, rows in beyond)
    high = max(int(one.entries[rows[-1], LAST]) for one, rows in beyond)
    seen: _Seen = {}
    for one, first, last in ranges_of(parts, pieces):
        if first <= high and last >= low:
            _new(_records(one, options), seen)
    found = []
    for examined, rows in beyond:
        entries = examined.entries
        starts, ends = entries[rows, POSITION], entries[rows, POSITION] + entries[rows, SIZE]
        for some in np.split(rows, np.flatnonzero(starts[1:] != ends[:-1]) + 1):
            start, stop = int(entries[some[0], POSITION]), int(entries[some[-1], POSITION] + entries[some[-1], SIZE])
            first, last = max(int(entries[some[0], BASE]), examined.stale), int(entries[some[-1], LAST])
            one = Range(examined.segment, start, stop, examined.floor(int(some[0])), start_offset=first, end_offset=last + 1)
            if records := _new(_records(one, options), seen):
                found.append(SupersededEntries(examined.segment, start, stop - start, first, last, records))
    return found


def _new(records: list[Any], seen: _Seen) -> int:
    """How many records were not seen yet. One without a timestamp, -1, equals those that have one."""
    count = 0
    for *content, timestamp in records:
        known = seen.setdefault(tuple(content), set())
        count += not known or (timestamp != -1 and known.isdisjoint((timestamp, -1)))
        known.add(timestamp)
    return count


def _records(one: Range, options: Options) -> list[Any]:
    walk = replace(options, columns=_COLUMNS, typed=(), errors="skip", threads=1, include_control=True, on_progress=None)
    return [row for batch in scan_ranges([one], walk) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
