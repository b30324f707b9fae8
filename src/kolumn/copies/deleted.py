"""Segments that a broker renamed to delete them (``.log.deleted``): what only they still have of a topic-partition's log.

A cleaner leaves them beside segments with some of the same records, retention and truncation beside segments with others. So offsets of
records decide, not those of entries: of an entry that was compacted the live one covers the same offsets, with holes. A record that is in
several files is that of the live log, else that of the first file by name.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import attrgetter

import numpy as np

from kolumn.copies.copies import Key, span
from kolumn.copies.transactions import of_ranges
from kolumn.core.arrays import Int64s
from kolumn.core.buffers import int64s
from kolumn.decode.host.aborted import matter
from kolumn.decode.pipeline import scan_ranges
from kolumn.log.pieces import entry_rows
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import HIGHEST, Range, Segment
from kolumn.source.storage import parent

_Spans = list[tuple[Range, int, int]]  # ranges of deleted segments, and the first and the last offset of each


def ranges_of_deleted(deleted: list[Segment], live: list[Range], whole: Callable[[], list[Range]], options: Options) -> list[Range]:
    """Ranges of the records that only deleted segments have; reads the offsets of what is ``live`` and may have the same ones.

    ``whole`` makes ranges of the live log without regard to the options' offsets and timestamps: transactions may end in them.
    """
    ranges = list[Range]()
    for key in dict.fromkeys(map(_log, deleted)):
        own = [segment for segment in deleted if _log(segment) == key]
        if options.replicas == "first":
            own = [segment for segment in own if parent(segment.path) == parent(own[0].path)]
        ranges += _of_log(own, [part for part in live if _log(part.segment) == key], whole, options)
    return ranges


def _log(segment: Segment) -> Key:
    """What tells the logs of segments apart: topic and partition, else the folder."""
    return segment.key if segment.topic is not None else (parent(segment.path), -1)


def _of_log(deleted: list[Segment], live: list[Range], whole: Callable[[], list[Range]], options: Options) -> list[Range]:
    spans: _Spans = []
    for segment in sorted(deleted, key=attrgetter("path")):
        part = Range.whole(segment)
        low, high = span(segment, None) or (0, -1)
        before = [other for other, first, last in spans if first <= high and last >= low]
        same = [*before, *(other for other in live if _named(other)[0] <= high and _named(other)[1] >= low)]
        spans.append((replace(part, without=_offsets(same, options.within(low, high + 1))), low, high))
    ranges = [part for part, _, _ in spans]
    if not matter(options):
        return ranges
    key = _log(deleted[0])
    spans += [(part, *_named(part)) for part in whole() if _log(part.segment) == key]
    transactions = of_ranges(_as_it_was(spans, options), options)
    return [replace(part, transactions=transactions) for part in ranges]


def _named(part: Range) -> tuple[int, int]:
    """First and last offset that a range can have, by the names of segments."""
    ends = [end for end in (part.end_offset, part.segment.following) if end is not None]
    return part.start_offset or part.segment.lowest or 0, min(ends, default=HIGHEST) - 1


def _offsets(ranges: list[Range], options: Options) -> Int64s:
    walk = Options(
        columns=("offset",), include_control=True, errors="skip", start_offset=options.start_offset, end_offset=options.end_offset,
        check_crcs=options.check_crcs, format=options.format, threads=options.threads, backend="cpu",
    )  # fmt: skip
    plain = (replace(part, without=None, transactions=None) for part in ranges)
    return np.unique(np.concatenate([np.empty(0, np.int64), *(int64s(batch.column(0)) for batch in scan_ranges(plain, walk))]))


def _as_it_was(spans: _Spans, options: Options) -> list[Range]:
    """The log before it was compacted, as far as it is there: of files with the same offsets the one with most records, which has the
    markers of transactions that the others have."""
    borders = sorted({border for _, low, high in spans for border in (low, high + 1)})
    log = []
    for start, end in pairwise(borders):
        own = [replace(part, without=None, start_offset=start, end_offset=end) for part, low, high in spans if low < end and high >= start]
        if own:
            log.append(own[0] if len(own) == 1 else max(own, key=partial(_records, options)))
    return log


def _records(options: Options, part: Range) -> int:
    with SegmentFile(part.segment) as file:
        return sum(int(entries.count.sum()) for entries in entry_rows(file, replace(options, errors="skip", check_crcs=False), part))
