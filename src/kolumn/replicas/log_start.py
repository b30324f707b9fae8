"""Log start offsets: what a broker has noted of records that were deleted, by DeleteRecords or by retention.

A segment is deleted as a whole, so the first one may still have records below the log start offset. No consumer gets them. A broker
begins a log at the larger of the noted offset and its first segment (``LogLoader``), and writes the offsets every minute.
"""

import logging
import os
from collections.abc import Iterable
from dataclasses import replace

from kolumn.errors import shown
from kolumn.replicas.copies import Key
from kolumn.replicas.ends import last_offset
from kolumn.source.log_names import topic_partition
from kolumn.source.segments import Range, Segment
from kolumn.source.side_files import offsets_in
from kolumn.source.storage import base_name, is_url, parent, read_bytes, within

logger = logging.getLogger(__name__)
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
