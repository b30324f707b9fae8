"""Which bytes of a segment a small range of offsets or times needs, by the headers of format 2 batches; other payloads are not read.

No checksum covers a base offset or a length. So headers count only as long as their offsets grow, `BEYOND` the end of the range too, and
the entry before the first one that is read must be intact: with a wrong length it could hide entries of the range.

Of times, only batches are left out to which a broker gave one time for all records (LogAppendTime). Otherwise the header has a largest
timestamp that some producers and brokers never set, and none that says when the batch begins.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kolumn.cpu_fallback.check.checksums import check
from kolumn.formats import layouts, table, v2
from kolumn.formats.entries import Entries
from kolumn.log.chunks import header_rows
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment

SMALLEST = 1 << 20
"""Bytes of a range that is read as it is: its headers cost as much as the rest of it."""
_WORTH = 0.5
"""Largest share of its bytes that a narrowed range may have."""
BEYOND = 1 << 20
"""Bytes after the end of a range of offsets of which headers are read: offsets may go back. What is left of a segment is often less."""


def narrowed(one: Range, options: Options) -> Range:
    """The part of a range that has all records within the options' ranges; the range itself if that is not known, or not much less."""
    if one.end - one.start < SMALLEST or one.segment.is_swap:
        return one
    low, high = _inside(one.segment, options)
    by_offset, by_time = low is not None or high is not None, options.start_timestamp is not None or options.end_timestamp is not None
    if not (by_offset or by_time):
        return one
    with SegmentFile(one.segment) as file:
        if not file.is_local or file.format != layouts.KAFKA:
            return one
        if by_offset:
            one = _narrowed(file, one, low, high, options.errors)
        if by_time and one.end - one.start >= SMALLEST:
            one = _of_time(file, one, options.start_timestamp, options.end_timestamp)
        return one


def _inside(segment: Segment, options: Options) -> tuple[int | None, int | None]:
    """The offsets of the options that can lie inside of a segment, from the names of segments; None for the others."""
    low, high, base, following = options.start_offset, options.end_offset, segment.base_offset, segment.following
    if low is not None and base is not None and low <= base:
        low = None
    if high is not None and following is not None and high >= following:
        high = None
    return low, high


def _narrowed(file: SegmentFile, one: Range, low: int | None, high: int | None, errors: str) -> Range:
    begun: Range | None = None
    entries: Entries | None = None
    end: int | None = None
    for entries in _walk(file, one):
        if (entries.position[0] == one.start and not _is_worth(entries, one, low, high)) or not _grow(entries):
            return one
        if begun is None:
            i = 0 if low is None else int(np.searchsorted(entries.last_offset, low))
            if i == len(entries):
                continue
            begun = _from(file, one, entries, i)
        if high is None:
            return begun
        if end is None:
            i = int(np.searchsorted(entries.base_offset, high))
            end = int(max(entries.position[i], begun.start)) if i < len(entries) else None
        if end is not None and entries.end[-1] - end >= BEYOND:
            return replace(begun, end=end)
    if entries is None:
        return one
    if begun is None:
        # Without an entry in the range the last one is read, so that the end of the segment is judged as by a read of all.
        return _from(file, one, entries, len(entries) - 1)
    # Where the chain of entries breaks, a read that goes on after damage may find offsets of the range.
    return begun if end is None or (errors == "skip" and entries.end[-1] < one.end) else replace(begun, end=end)


def _of_time(file: SegmentFile, one: Range, low: int | None, high: int | None) -> Range:
    begun = one if low is None else None
    entries, end = None, one.start
    for entries in _walk(file, one):
        if not _grow(entries):
            return one
        dated = entries.timestamp_type == table.LOG_APPEND_TIME
        if begun is None:
            assert low is not None
            late = ~dated | (entries.max_timestamp >= low)
            if not late.any():
                continue
            begun = _from(file, one, entries, int(late.argmax()))
        if high is None or not dated.all() or not _ends_early(entries, one, high):
            return begun
        inside = np.flatnonzero(entries.max_timestamp < high)
        end = int(entries.end[inside[-1]]) if len(inside) else end
    if entries is None:
        return one
    if begun is None:
        return _from(file, one, entries, len(entries) - 1)
    return begun if entries.end[-1] < one.end else replace(begun, end=max(end, begun.start))


def _ends_early(entries: Entries, one: Range, high: int) -> bool:
    """Whether the first headers suggest that much comes after a time; of later headers nothing is asked."""
    first, last = entries[0], entries[-1]
    grown = last.max_timestamp - first.max_timestamp
    if first.position > one.start or grown <= 0:
        return True
    return (high - first.max_timestamp) / grown * (last.end - first.position) < _WORTH * (one.end - one.start)


def _walk(file: SegmentFile, one: Range) -> Iterator[Entries]:
    """Headers of the range, some at a time; each part but the first begins with the last entry of the one before it."""
    last: Entries | None = None
    for entries in header_rows(file, one.start, one.end):
        yield entries if last is None else Entries.joined([last, entries])
        last = entries[-1:]


def _is_worth(entries: Entries, one: Range, low: int | None, high: int | None) -> bool:
    """Whether the first headers suggest that much less has to be read."""
    first, last = entries[0], entries[-1]
    if len(entries) == 1 or last.last_offset <= first.base_offset:
        return False
    for_each = (last.end - first.position) / (last.last_offset - first.base_offset + 1)
    from_ = 0.0 if low is None else (low - first.base_offset) * for_each
    to = float(one.end - one.start) if high is None else (high - first.base_offset) * for_each
    return min(to, one.end - one.start) - max(from_, 0) < _WORTH * (one.end - one.start)


def _grow(entries: Entries) -> bool:
    """Whether all entries are batches of format 2 whose offsets grow."""
    if entries.code.any() or (entries.layout != v2.LAYOUT.number).any() or (entries.last_offset < entries.base_offset).any():
        return False
    return bool((entries.base_offset[1:] > entries.last_offset[:-1]).all())


def _from(file: SegmentFile, one: Range, entries: Entries, i: int) -> Range:
    """The range from entry ``i`` on, if the entry before that is intact."""
    if i == 0:
        return one
    before = entries[i - 1]
    source = file.read(before.position, before.end)
    if check(source.ctypes.data, before.position, before.alone().array):
        return one
    return replace(one, start=entries[i].position, floor=before.last_offset)
