"""The first records of a sorted query, as bounds of offsets or times that headers tell: what ``ORDER BY offset DESC LIMIT 10`` needs.

Spark sorts all that a scan returns, so the plan only has to leave out what cannot be among the first. Of any entries, however few, whose
records all lie at or after an offset, and that have as many records as are wanted, no earlier record is among the last ones. So it does
not matter which headers are looked at, but that they are near the end. A batch has at least one record of its largest timestamp, and
only records of it if a broker dated them (LogAppendTime). Records that are equal by the first column are all kept: other columns decide
between them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, cast

import numpy as np

from kolumn.copies.copies import last_offset, log_start
from kolumn.copies.ranges import every_range, log_ranges
from kolumn.core.arrays import Int64s
from kolumn.decode.host.headers import headers
from kolumn.formats import table
from kolumn.formats.entries import Entries
from kolumn.options import Options
from kolumn.source.segments import Range, Segment
from kolumn.spark_plugin.connector.conditions import EVERYTHING, NAMES, Box
from kolumn.spark_plugin.connector.statistics import tells
from kolumn.spark_plugin.connector.work import Json
from kolumn.spark_plugin.read.options import Key, LoadOptions
from kolumn.spark_plugin.session.session import Run

_FARTHER = 8
"""How many times as many offsets are looked at if those before do not suffice."""
_SEGMENTS = 100
"""Headers of at most so many segments of a topic partition are read. With fewer records than are wanted a bound is only wider."""
_LAST = 2**63 - 1
_LATEST_MS = _LAST // 1000
"""Later times are none in microseconds."""


class By(NamedTuple):
    """One column of an order; "?" for any other expression."""

    column: str
    descending: bool
    nulls_first: bool


class Top(NamedTuple):
    """So many rows of an order are wanted."""

    by: tuple[By, ...]
    rows: int

    @classmethod
    def of(cls, question: Json) -> "Top | None":
        """That of a query; None without one."""
        asked = cast(Json | None, question.get("top"))
        return None if asked is None else cls(tuple(By(*one) for one in cast(list[list[object]], asked["by"])), cast(int, asked["rows"]))  # type: ignore[arg-type]

    @property
    def within(self) -> tuple[By, ...]:
        """The columns before the first that is not the same for all records of a topic partition."""
        others = (i for i, one in enumerate(self.by) if one.column not in NAMES)
        return self.by[: next(others, len(self.by))]

    @property
    def then(self) -> By | None:
        """The column after those, if headers tell of it."""
        one = next(iter(self.by[len(self.within) :]), None)
        if one is None or one.column not in ("offset", "timestamp"):
            return None
        # The least timestamp of a batch is not in its header, and records without one may be anywhere.
        return one if one.column == "offset" or (one.descending and not one.nulls_first) else None

    def is_told(self, options: LoadOptions, columns: frozenset[str]) -> bool:
        """Whether headers tell of an order over these record columns."""
        known = {one.column for one in self.within} | ({self.then.column} if self.then is not None else set())
        return bool(known) and known <= columns and self.rows > 0 and tells(options)


def first(groups: Mapping[Key, Sequence[Segment]], options: Options, top: Top, run: Run) -> dict[Key, Box]:
    """The topic partitions, and where in them, that have the first rows of an order. ``run`` reads headers of many topic partitions."""
    found: dict[Key, Box] = {}
    left = top.rows
    for _, same in groupby(_in_order(list(groups), top.within), partial(_values, top.within)):
        keys = list(same)
        ranks, counts = _ends(keys, groups, options, Top(top.by, left), run)
        if counts.sum() < left:
            left -= int(counts.sum())
            found |= dict.fromkeys(keys, EVERYTHING)
            continue
        # Ranks grow from the first rows on.
        bound = int(ranks[np.searchsorted(counts.cumsum(), left)])
        return found | dict.fromkeys(keys, _box(top.then, bound))
    return found


def _box(then: By | None, rank: int) -> Box:
    if then is None:
        return EVERYTHING
    if then.column == "timestamp":
        return Box(start_timestamp=-rank)
    if then.descending:
        return Box(start_offset=-rank if rank < 0 else None)
    return Box(end_offset=rank + 1 if rank < _LAST else None)


def _values(within: tuple[By, ...], key: Key) -> tuple[object, ...]:
    return tuple(key[NAMES[one.column]] for one in within)


def _in_order(keys: list[Key], within: tuple[By, ...]) -> list[Key]:
    """Topic partitions as Spark orders them: strings by their bytes."""
    for one in reversed(within):
        at = NAMES[one.column]
        nulls, others = ([key for key in keys if (key[at] is None) is is_null] for is_null in (True, False))
        others.sort(key=lambda key: key[at].encode() if isinstance(key[at], str) else key[at], reverse=one.descending)  # type: ignore[arg-type, union-attr, return-value]
        keys = nulls + others if one.nulls_first else others + nulls
    return keys


def _ends(keys: list[Key], groups: Mapping[Key, Sequence[Segment]], options: Options, top: Top, run: Run) -> tuple[Int64s, Int64s]:
    """Ranks of entries in some topic partitions, in order, and how many records have at most that rank for sure."""
    items = [tuple(groups[key]) for key in keys]
    parts = list(run(partial(_end, options=options, then=top.then, rows=top.rows), items))
    ranks, counts = (np.concatenate([np.zeros(0, np.int64), *(part[i] for part in parts)]) for i in (0, 1))
    order = np.argsort(ranks, kind="stable")
    return ranks[order], counts[order]


def _end(segments: tuple[Segment, ...], options: Options, then: By | None, rows: int) -> tuple[Int64s, Int64s]:
    """The same of a topic partition, until there are enough."""
    if then is None or not then.descending:
        return _ranked(every_range([*segments], options)[:_SEGMENTS], then, rows)
    lowest, last = log_start([*segments]), next((last_offset(one) for one in reversed(segments) if one.size), -1)
    distance = rows
    while True:
        start = last + 1 - distance
        is_all = lowest is None or start <= lowest
        ranges = log_ranges([*segments], options if is_all else options.within(start, None))
        found = _ranked(ranges[-_SEGMENTS:], then, None)
        if is_all or found[1].sum() >= rows or len(ranges) >= _SEGMENTS:
            return found
        distance *= _FARTHER


def _ranked(ranges: list[Range], then: By | None, enough: int | None) -> tuple[Int64s, Int64s]:
    ranks, counts, total = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for entries in _sound(ranges):
        if then is None:
            rank, count = np.zeros(len(entries), np.int64), entries.count
        elif then.column == "offset":
            rank, count = (-entries.base_offset if then.descending else entries.last_offset), entries.count
        else:
            entries = entries[(entries.magic == 2) & (entries.max_timestamp >= 0) & (entries.max_timestamp <= _LATEST_MS)]
            rank, count = -entries.max_timestamp, np.where(entries.timestamp_type == table.LOG_APPEND_TIME, entries.count, 1)
        ranks.append(rank)
        counts.append(count)
        total += int(count.sum())
        if enough is not None and total >= enough:
            break
    return np.concatenate(ranks), np.concatenate(counts)


def _sound(ranges: list[Range]) -> Iterator[Entries]:
    """Entries whose headers tell which records they have: no wrappers, no control records, and within what is read of a segment."""
    for part in ranges:
        if part.fault is not None:
            continue
        low, high = (table.UNKNOWN if part.start_offset is None else part.start_offset), part.end_offset
        for entries in headers(part.segment, part.start, part.end):
            kept = (entries.count > 0) & (entries.control == 0) & (entries.base_offset >= low)
            kept &= (entries.base_offset != table.UNKNOWN) & (entries.code == 0) & (entries.last_offset >= entries.base_offset)
            yield entries[kept if high is None else kept & (entries.last_offset < high)]
