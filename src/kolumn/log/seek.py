"""Which bytes of which segments a range of offsets or timestamps needs.

Index files are hints. An index entry is used only if the log confirms it: the log's entry at its position has the offsets (and the
largest timestamp) of the index entry, its checksum is right, and following the lengths from there leads to the position of
the next index entry. Without such an index entry, headers are walked from the start of the segment (`narrow.py`).

That the offsets and timestamps before its position are not larger is believed of such an index entry. So an index is as right as the
headers that it was made from. A segment of less than `narrow.SMALLEST` is read whole, and of a larger one on this machine `_BEFORE` bytes
more are looked at, since offsets may go back.

    .index      i32 offset - base | i32 position                     ends at the first zero offset after the first entry
    .timeindex  i64 largest timestamp so far | i32 offset - base     likewise

Enriched logs have one index, as their proposal specifies; the offset is the entry's first, and its times are for `kolumn.clean`:

    .index      i32 offset - base | i64 largest timestamp so far | i32 position
"""

from typing import Any

import numpy as np

from kolumn.core.arrays import AnyArray
from kolumn.core.errors import Code
from kolumn.cpu_fallback.check.checksums import check
from kolumn.cpu_fallback.check.walk import HEADERS
from kolumn.formats import layouts
from kolumn.formats.entries import Entries
from kolumn.log import narrow
from kolumn.log.walk import Loaded, walk_entries
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile, side_bytes
from kolumn.source.segments import Range, Segment
from kolumn.source.storage import parent

OFFSET_INDEX = np.dtype([("offset", ">i4"), ("position", ">i4")])
ENRICHED_INDEX = np.dtype([("offset", ">i4"), ("timestamp", ">i8"), ("position", ">i4")])
TIME_INDEX = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_STEP_BYTES = 1 << 20
"""Maximum bytes between two index entries that are walked to confirm the first; the default interval is 4 KiB."""
_BEFORE = 1 << 20
"""Bytes before the position that an index says from which on a segment on this machine is looked at."""


def select_ranges(segments: list[Segment], options: Options) -> list[Range]:
    """Ranges that contain every record of ``segments`` that the options' offset and timestamp ranges keep."""
    if (options.start_offset, options.end_offset, options.start_timestamp, options.end_timestamp) == (None, None, None, None):
        return [Range.whole(one) for one in segments if _is_read(one)]
    ranges = []
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if _is_read(segment) and not _outside(segment, following, options):
            ranges.append(narrow.narrowed(_from_index(segment, options), options))
    return ranges


def _is_read(segment: Segment) -> bool:
    """Whether there is something in a segment, or to report: a rolled one should not be empty."""
    return segment.size > 0 or bool(segment.orphans) or segment.state == "rolled"


def _outside(segment: Segment, following: Segment | None, options: Options) -> bool:
    base = segment.base_offset
    if base is None or (options.start_offset, options.end_offset) == (None, None) or segment.is_swap:
        return False
    if options.end_offset is not None and base >= options.end_offset:
        return True
    next_base = following.lowest if following is not None and parent(following.path) == parent(segment.path) else None
    return options.start_offset is not None and next_base is not None and base < next_base <= options.start_offset


def _from_index(segment: Segment, options: Options) -> Range:
    whole = Range.whole(segment)
    base = segment.base_offset
    if base is None or segment.size < narrow.SMALLEST or (options.start_offset is None and options.start_timestamp is None):
        return whole
    enriched = layouts.format_of(segment.format).timed_index
    index = read_index(segment, ".index", ENRICHED_INDEX if enriched else OFFSET_INDEX)
    if index is None:
        return whole
    target = options.start_offset if options.start_offset is not None else base
    timed = options.start_timestamp is not None and not enriched
    time = read_index(segment, ".timeindex", TIME_INDEX) if timed else None
    with SegmentFile(segment) as file:
        if time is not None and options.start_timestamp is not None:
            target = max(target, _offset_before(file, base, index, time, options.start_timestamp))
        last = int(np.searchsorted(index["offset"], target - base, side="left")) - 1
        if last >= 0 and file.is_local:
            last = int(np.searchsorted(index["position"], index["position"][last] - _BEFORE, side="right")) - 1
        for i in range(last, -1, -1):
            if _agrees(file, base, index, i):
                return Range(segment, int(index["position"][i]), segment.size, base - 1)
    return whole


def read_index(segment: Segment, suffix: str, kind: np.dtype) -> Any:
    """Entries of an index file, or None if it is missing, empty or invalid."""
    raw = side_bytes(segment, suffix)
    if raw is None or len(raw) % kind.itemsize:
        return None
    entries = np.frombuffer(raw, kind)
    zeros = np.flatnonzero(entries["offset"][1:] == 0)
    entries = entries[: zeros[0] + 1] if len(zeros) else entries
    # Offsets of the time index may repeat; all other fields strictly increase.
    growth = {"offset": 0 if kind == TIME_INDEX else 1, "position": 1, "timestamp": 0 if kind == ENRICHED_INDEX else 1}
    grows = all((np.diff(entries[name].astype(np.int64)) >= growth[name]).all() for name in kind.names or ())
    return entries if len(entries) and grows and (entries["offset"] >= 0).all() else None


def _entries(file: SegmentFile, start: int, stop: int) -> Entries:
    """The entries from ``start`` up to ``stop`` with checksums compared; empty if the lengths do not lead to ``stop``."""
    entries = Entries.room(4096)
    loaded = min(stop + HEADERS, file.size)
    source = file.read(start, loaded)
    held = Loaded(source, start, loaded, file.size)
    count, position, code, _ = walk_entries(held, start, stop, file.format, entries, whole=False, decide=False)
    entries = entries[:count]
    if code != Code.OK or position != stop or check(source.ctypes.data, start, entries.array):
        return entries[:0]
    return entries


def _agrees(file: SegmentFile, base: int, index: AnyArray, i: int) -> bool:
    """Whether the log confirms entry ``i`` of the offset index (its offset is the last one of what was appended there)."""
    position = int(index["position"][i])
    stop = int(index["position"][i + 1]) if i + 1 < len(index) else file.size
    if not 0 <= position < stop <= file.size or stop - position > _STEP_BYTES:
        return False
    entries = _entries(file, position, stop)
    offset = base + int(index["offset"][i])
    if layouts.FORMATS[file.format].timed_index:
        return bool(len(entries)) and bool(entries.base_offset[0] == offset)
    return bool(len(entries)) and bool((entries.last_offset == offset).any())


def _offset_before(file: SegmentFile, base: int, index: AnyArray, time: AnyArray, start_timestamp: int) -> int:
    """Offset up to which every timestamp is below ``start_timestamp``, from a time index entry that the log confirms."""
    # -1 is the largest timestamp of batches in which it is unset.
    time = time[time["timestamp"] >= 0]
    for i in range(int(np.searchsorted(time["timestamp"], start_timestamp, side="left")) - 1, -1, -1):
        offset = base + int(time["offset"][i])
        at = int(np.searchsorted(index["offset"], offset - base, side="right")) - 1
        if at < 0 or not _agrees(file, base, index, at):
            continue
        stop = int(index["position"][at + 1]) if at + 1 < len(index) else file.size
        entries = _entries(file, int(index["position"][at]), stop)
        hit = (entries.last_offset == offset) & (entries.max_timestamp == int(time["timestamp"][i]))
        if hit.any():
            return offset
    return base
