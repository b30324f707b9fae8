"""Which bytes of which segments a range of offsets or timestamps needs.

Index files are hints. An index entry is used only if the log confirms it: the log's entry at its position has the offsets (and the
largest timestamp) of the index entry, its checksum is right, and following the lengths from there leads to the position of the
next index entry. Without such an index entry, headers are walked from the start of the segment (`narrowed`).

Of an entry of an enriched log's index it is believed that the offsets and timestamps before its position are not larger: an index is as
right as the headers that it was made from. A segment of less than `SMALLEST` is read whole, and of a larger one on this machine `_BEFORE`
bytes more are looked at, since offsets may go back.

No checksum covers a base offset or a length. So headers count only as long as their offsets grow, `BEYOND` the end of the range too, and
the entry before the first one that is read must be intact: with a wrong length it could hide entries of the range. Of times, only batches
are left out to which a broker gave one time for all records (LogAppendTime). Otherwise the header has a largest timestamp that some
producers and brokers never set, and none that says when the batch begins.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kolumn.core.arrays import AnyArray
from kolumn.core.errors import Code
from kolumn.cpu_fallback.check import HEADERS, check
from kolumn.decode.host.chunks import Loaded, header_rows, walk_entries
from kolumn.formats import layouts, table
from kolumn.formats.entries import Entries
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile, side_bytes
from kolumn.source.segments import Range, Segment
from kolumn.source.side_files import ENRICHED_INDEX, OFFSET_INDEX, TIME_INDEX, index_in
from kolumn.source.storage import parent

_STEP_BYTES = 1 << 20  # maximum bytes between two index entries that are walked to confirm the first; the default interval is 4 KiB
_BEFORE = 1 << 20  # bytes before the position that an index says from which on a segment on this machine is looked at


SMALLEST = 1 << 20  # bytes of a range that is read as it is: its headers cost as much as the rest of it
_WORTH = 0.5  # largest share of its bytes that a narrowed range may have
BEYOND = 1 << 20
"""Bytes after the end of a range of offsets of which headers are read: offsets may go back. What is left of a segment is often less."""


def select_ranges(segments: list[Segment], options: Options) -> list[Range]:
    """Ranges that contain every record of ``segments`` that the options' offset and timestamp ranges keep."""
    takes_all = (options.start_offset, options.end_offset, options.start_timestamp, options.end_timestamp) == (None, None, None, None)
    ranges = []
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        # A rolled segment should not be empty.
        if not (segment.size > 0 or segment.orphans or segment.state == "rolled"):
            continue
        if takes_all:
            ranges.append(Range.whole(segment))
        elif not _outside(segment, following, options):
            ranges.append(narrowed(_from_index(segment, options), options))
    return ranges


def _outside(segment: Segment, following: Segment | None, options: Options) -> bool:
    base, start, end = segment.base_offset, options.start_offset, options.end_offset
    if base is None or segment.is_swap:
        return False
    if end is not None and base >= end:
        return True
    if start is not None and segment.raft is not None and segment.raft.last is not None and segment.raft.last < start:
        # In a bucket each segment may be in a folder of its own.
        return True
    next_base = following.lowest if following is not None and parent(following.path) == parent(segment.path) else None
    return start is not None and next_base is not None and base < next_base <= start


def _from_index(segment: Segment, options: Options) -> Range:
    whole = Range.whole(segment)
    base = segment.base_offset
    if base is None or segment.size < SMALLEST or (options.start_offset is None and options.start_timestamp is None):
        return whole
    enriched = layouts.format_of(segment.format).timed_index
    index = index_in(side_bytes(segment, ".index"), ENRICHED_INDEX if enriched else OFFSET_INDEX)
    if index is None:
        return whole
    target = options.start_offset if options.start_offset is not None else base
    time = index_in(side_bytes(segment, ".timeindex"), TIME_INDEX) if options.start_timestamp is not None and not enriched else None
    with SegmentFile(segment) as file:
        if time is not None and options.start_timestamp is not None:
            target = max(target, _offset_before(file, base, index, time, options.start_timestamp))
        last = int(np.searchsorted(index["offset"], target - base, side="left")) - 1
        if last >= 0 and file.is_local:
            last = int(np.searchsorted(index["position"], index["position"][last] - _BEFORE, side="right")) - 1
        for i in range(last, -1, -1):
            if len(_confirmed(file, base, index, i)):
                return Range(segment, int(index["position"][i]), segment.size, base - 1)
    return whole


def _confirmed(file: SegmentFile, base: int, index: AnyArray, i: int) -> Entries:
    """The entries from entry ``i`` of the offset index up to the next one, with checksums compared; none unless the log confirms it. Its
    offset is the last one of what was appended there."""
    entries = Entries.room(4096)
    position = int(index["position"][i])
    stop = int(index["position"][i + 1]) if i + 1 < len(index) else file.size
    if not 0 <= position < stop <= file.size or stop - position > _STEP_BYTES:
        return entries[:0]
    loaded = min(stop + HEADERS, file.size)
    source = file.read(position, loaded)
    held = Loaded(source, position, loaded, file.size)
    count, end, code, _ = walk_entries(held, position, stop, file.format, entries, whole=False, decide=False)
    entries = entries[:count]
    if not count or code != Code.OK or end != stop or check(source.ctypes.data, position, entries.array):
        return entries[:0]
    offset = base + int(index["offset"][i])
    timed = layouts.FORMATS[file.format].timed_index
    return entries if (entries.base_offset[0] == offset if timed else (entries.last_offset == offset).any()) else entries[:0]


def _offset_before(file: SegmentFile, base: int, index: AnyArray, time: AnyArray, start_timestamp: int) -> int:
    """Offset up to which every timestamp is below ``start_timestamp``, from a time index entry that the log confirms."""
    # -1 is the largest timestamp of batches in which it is unset.
    time = time[time["timestamp"] >= 0]
    for i in range(int(np.searchsorted(time["timestamp"], start_timestamp, side="left")) - 1, -1, -1):
        offset = base + int(time["offset"][i])
        row = int(np.searchsorted(index["offset"], offset - base, side="right")) - 1
        if row >= 0:
            entries = _confirmed(file, base, index, row)
            if ((entries.last_offset == offset) & (entries.max_timestamp == int(time["timestamp"][i]))).any():
                return offset
    return base


def narrowed(span: Range, options: Options) -> Range:
    """The part of a range that has all records within the options' ranges; the range itself if that is not known, or not much less."""
    if span.end - span.start < SMALLEST or span.segment.is_swap:
        return span
    low, high = _inside(span.segment, options)
    by_offset, by_time = low is not None or high is not None, options.start_timestamp is not None or options.end_timestamp is not None
    if not (by_offset or by_time):
        return span
    with SegmentFile(span.segment) as file:
        if not file.is_local or file.format not in layouts.STREAMED:
            return span
        if by_offset:
            span = _narrowed(file, span, low, high, options.errors)
        if by_time and span.end - span.start >= SMALLEST:
            span = _of_time(file, span, options.start_timestamp, options.end_timestamp)
        return span


def _inside(segment: Segment, options: Options) -> tuple[int | None, int | None]:
    """The offsets of the options that can lie inside of a segment, from the names of segments; None for the others."""
    low, high, base, following = options.start_offset, options.end_offset, segment.base_offset, segment.following
    if low is not None and base is not None and low <= base:
        low = None
    if high is not None and following is not None and high >= following:
        high = None
    return low, high


def _narrowed(file: SegmentFile, span: Range, low: int | None, high: int | None, errors: str) -> Range:
    begun: Range | None = None
    entries: Entries | None = None
    end: int | None = None
    for entries in _walk(file, span):
        if (entries.position[0] == span.start and not _is_worth(entries, span, low, high)) or not _grow(entries):
            return span
        if begun is None:
            i = 0 if low is None else int(np.searchsorted(entries.last_offset, low))
            if i == len(entries):
                continue
            begun = _from(file, span, entries, i)
        if high is None:
            return begun
        if end is None:
            i = int(np.searchsorted(entries.base_offset, high))
            end = int(max(entries.position[i], begun.start)) if i < len(entries) else None
        if end is not None and entries.end[-1] - end >= BEYOND:
            return replace(begun, end=end)
    if entries is None:
        return span
    if begun is None:
        # Without an entry in the range the last one is read, so that the end of the segment is judged as by a read of all.
        return _from(file, span, entries, len(entries) - 1)
    # Where the chain of entries breaks, a read that goes on after damage may find offsets of the range.
    return begun if end is None or (errors == "skip" and entries.end[-1] < span.end) else replace(begun, end=end)


def _of_time(file: SegmentFile, span: Range, low: int | None, high: int | None) -> Range:
    begun = span if low is None else None
    entries, end = None, span.start
    for entries in _walk(file, span):
        if not _grow(entries):
            return span
        dated = entries.timestamp_type == table.LOG_APPEND_TIME
        if begun is None:
            assert low is not None
            late = ~dated | (entries.max_timestamp >= low)
            if not late.any():
                continue
            begun = _from(file, span, entries, int(late.argmax()))
        if high is None or not dated.all() or not _ends_early(entries, span, high):
            return begun
        inside = np.flatnonzero(entries.max_timestamp < high)
        end = int(entries.end[inside[-1]]) if len(inside) else end
    if entries is None:
        return span
    if begun is None:
        return _from(file, span, entries, len(entries) - 1)
    return begun if entries.end[-1] < span.end else replace(begun, end=max(end, begun.start))


def _ends_early(entries: Entries, span: Range, high: int) -> bool:
    """Whether the first headers suggest that much comes after a time; of later headers nothing is asked."""
    first, last = entries[0], entries[-1]
    grown = last.max_timestamp - first.max_timestamp
    if first.position > span.start or grown <= 0:
        return True
    return (high - first.max_timestamp) / grown * (last.end - first.position) < _WORTH * (span.end - span.start)


def _walk(file: SegmentFile, span: Range) -> Iterator[Entries]:
    """Headers of the range, some at a time; each part but the first begins with the last entry of the one before it."""
    last: Entries | None = None
    for entries in header_rows(file, span.start, span.end):
        yield entries if last is None else Entries.joined([last, entries])
        last = entries[-1:]


def _is_worth(entries: Entries, span: Range, low: int | None, high: int | None) -> bool:
    """Whether the first headers suggest that much less has to be read."""
    first, last = entries[0], entries[-1]
    if len(entries) == 1 or last.last_offset <= first.base_offset:
        return False
    for_each = (last.end - first.position) / (last.last_offset - first.base_offset + 1)
    from_ = 0.0 if low is None else (low - first.base_offset) * for_each
    to = float(span.end - span.start) if high is None else (high - first.base_offset) * for_each
    return min(to, span.end - span.start) - max(from_, 0) < _WORTH * (span.end - span.start)


def _grow(entries: Entries) -> bool:
    """Whether all entries are record batches whose offsets grow."""
    if entries.code.any() or not layouts.among(entries.layout, layouts.BATCHES).all() or (entries.last_offset < entries.base_offset).any():
        return False
    return bool((entries.base_offset[1:] > entries.last_offset[:-1]).all())


def _from(file: SegmentFile, span: Range, entries: Entries, i: int) -> Range:
    """The range from entry ``i`` on, if the entry before that is intact."""
    if i == 0:
        return span
    before = entries[i - 1]
    source = file.read(before.position, before.end)
    if check(source.ctypes.data, before.position, before.alone().array):
        return span
    return replace(span, start=entries[i].position, floor=before.last_offset)
