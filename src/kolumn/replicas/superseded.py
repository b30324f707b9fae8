"""Intact entries that are not part of the log, and how many records the result lacks for that."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kolumn.arrays import Int64s
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.replicas.examine import BASE, LAST, POSITION, SIZE, Examined
from kolumn.replicas.joined import ranges_of
from kolumn.replicas.window import CopyPart
from kolumn.source.segments import Range, Segment

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
