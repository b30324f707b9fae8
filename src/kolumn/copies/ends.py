"""Where a segment ends.

Where the log of a topic-partition ends now.

Log start offsets: what a broker has noted of records that were deleted, by DeleteRecords or by retention.

A segment is deleted as a whole, so the first one may still have records below the log start offset. No consumer gets them. A broker
begins a log at the larger of the noted offset and its first segment (``LogLoader``), and writes the offsets every minute.

Stretches after the last intact entry of a copy: part of an entry, preallocated zeros, or damage of unknown extent.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from kolumn.copies.copies import Key, copies, span
from kolumn.copies.examine import BASE, SIZE, Examined, LostStretch
from kolumn.copies.window import CopyPart
from kolumn.core.errors import KolumnError, shown
from kolumn.cpu_fallback.check.checksums import check
from kolumn.log.headers import headers
from kolumn.log.seek import OFFSET_INDEX, read_index
from kolumn.source.names import topic_partition
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment
from kolumn.source.side_files import offsets_in
from kolumn.source.storage import base_name, is_url, parent, read_bytes, within


def last_offset(segment: Segment) -> int:
    """Last offset of a segment, from its last headers; from all headers where the chain of entries does not lead to its end.

    -1 if it has no intact entry.
    """
    index = read_index(segment, ".index", OFFSET_INDEX)
    starts = [0] if index is None or not 0 < index["position"][-1] < segment.size else [int(index["position"][-1]), 0]
    for start in starts:
        last, end = -1, start
        try:
            for entries in headers(segment, start):
                if len(entries):
                    last, end = max(last, int(entries.last_offset.max())), entries[-1].end
        except KolumnError:
            continue
        if end == segment.size and last >= (segment.base_offset or 0):
            return last
    found = span(segment, None)
    return -1 if found is None else found[1]


def log_end(segments: list[Segment]) -> int:
    """The offset after the last complete entry of a partition. Reads the headers of the last segment, or that of each copy.

    An entry whose checksum is wrong at the very end counts as half written: a file that was allocated in advance has room for
    all of it before it has the bytes. For a partition without entries the result is the base offset of its last segment.
    """
    for folders in copies(segments).values():
        return max(log_end(own) for own in folders.values())
    for segment in reversed(segments):
        last = _last_offset(segment)
        if last is not None:
            return last + 1
    return segments[-1].base_offset or 0


def _last_offset(segment: Segment) -> int | None:
    last = [entries[i : i + 1] for entries in headers(segment) for i in range(max(len(entries) - 2, 0), len(entries))]
    with SegmentFile(segment) as file:
        for entry in reversed(last[-2:]):
            checked, start = entry.copy(), entry[0].position
            check(file.read(start, entry[0].end).ctypes.data, start, checked.array)
            if checked[0].is_intact:
                return checked[0].last_offset
    # Two damaged entries in a row are damage, not a write in progress: the read reports them.
    return last[-1][0].last_offset if last else None


logger = logging.getLogger("kolumn.replicas")
FILE = "log-start-offset-checkpoint"


def log_starts(segments: Iterable[Segment]) -> dict[Key, int]:
    """Log start offsets that leave out something, of the topic-partitions in brokers' folders that are named after them.

    An offset counts only where it is sure to be of this log: its line names the topic-partition, and the log goes as far. Of a partition
    in several folders all must have one, and the lowest counts. A broker deletes a log that ends before its log start offset; here it
    is another log's, or was written after the log was copied, and nothing is left out.
    """
    logs: dict[Key, dict[str, list[Segment]]] = {}
    first: dict[Key, int] = {}
    for one in segments:
        if one.topic is None or one.partition is None or one.base_offset is None or one.path.endswith(".checkpoint"):
            continue
        key = one.topic, one.partition
        first[key] = min(first.get(key, one.base_offset), one.base_offset)
        if one.copy_id is None and one.memory is None:
            logs.setdefault(key, {}).setdefault(parent(one.path if is_url(one.path) else os.path.abspath(one.path)), []).append(one)
    files: dict[str, dict[Key, int]] = {}
    found = {}
    for key, folders in logs.items():
        starts = [_start(key, folder, own, files) for folder, own in folders.items()]
        known = [start for start in starts if start is not None]
        if len(known) == len(starts) and min(known) > first[key]:
            found[key] = min(known)
    return found


def _start(key: Key, folder: str, own: list[Segment], files: dict[str, dict[Key, int]]) -> int | None:
    if topic_partition(base_name(folder)) != key:
        return None
    name = within(parent(folder), FILE)
    if name not in files:
        files[name] = offsets_in(read_bytes(name)) or {}
    start = files[name].get(key)
    newest = max(own, key=_base)
    if start is None or start <= _base(newest):
        return start
    end = last_offset(newest) + 1
    if start <= end:
        return start
    of = f"{shown(key[0])}-{key[1]}"
    logger.warning("%s: log start offset %d of %s is after the end of the log, %d: nothing is left out", shown(name), start, of, end)
    return None


def _base(segment: Segment) -> int:
    return segment.base_offset or 0


def from_log_start(ranges: list[Range], starts: dict[Key, int]) -> list[Range]:
    """The ranges without records below the log start offsets."""
    found = []
    for one in ranges:
        segment = one.segment
        start = starts.get((segment.topic or "", -1 if segment.partition is None else segment.partition))
        lowest = one.start_offset if one.start_offset is not None else segment.lowest
        if start is None or one.is_lost or lowest is None or lowest >= start:
            found.append(one)
        elif not (one.end_offset is not None and one.end_offset <= start) and not (
            segment.following is not None and segment.following <= start
        ):
            found.append(replace(one, start_offset=start))
    return found


_BLOCK = 1 << 20


@dataclass
class Tail:
    """A stretch without a known end.

    Attributes
    ----------
    examined : Examined
    stretch : LostStretch
    seen : dict
        For each other copy, its bytes after the tail's last intact offset.
    """

    examined: Examined
    stretch: LostStretch
    seen: dict[str, int] = field(default_factory=dict)

    @cached_property
    def size(self) -> int:
        """Bytes without the zeros at the end."""
        with SegmentFile(self.examined.segment) as file:
            for end in range(self.stretch.end, self.stretch.start, -_BLOCK):
                start = max(self.stretch.start, end - _BLOCK)
                filled = np.flatnonzero(file.read(start, end)[: end - start])
                if len(filled):
                    return start + int(filled[-1]) + 1 - self.stretch.start
        return 0

    def see(self, parts: Iterable[CopyPart]) -> None:
        """Count the bytes that other copies have."""
        for part in parts:
            one = part.examined
            if one.folder != self.examined.folder:
                entries = one.entries[part.start : part.end]
                self._add(one.folder, int(entries[entries[:, BASE] > self.stretch.floor, SIZE].sum()))

    def _add(self, folder: str, size: int) -> None:
        self.seen[folder] = self.seen.get(folder, 0) + size


def unhealed(tails: list[Tail], begins: Mapping[str, int]) -> list[Tail]:
    """Tails that may contain more than any other copy has; of those after the same offset only the longest.

    Copies have the same bytes, so a copy with as many bytes after the last intact offset, damaged ones included, has all that was lost:
    unless it begins later, as ``begins``, the first offset of each copy, tells.
    """
    left: dict[int, Tail] = {}
    for tail in sorted(tails, key=lambda tail: tail.size):
        for other in tails:
            if other.examined.folder != tail.examined.folder and other.stretch.floor > tail.stretch.floor:
                tail._add(other.examined.folder, other.size)
        seen = [size for folder, size in tail.seen.items() if begins[folder] <= tail.stretch.floor + 1]
        if tail.size and max(seen, default=0) < tail.size:
            left[tail.stretch.floor] = tail
    return [left[floor] for floor in sorted(left)]
