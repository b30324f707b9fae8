"""How far a log goes according to the files next to it: index files, including those of missing segments, and leader epochs."""

import sys
from dataclasses import dataclass, replace
from typing import Any

from kolumn.formats import layouts
from kolumn.log.seek import ENRICHED_INDEX, OFFSET_INDEX, TIME_INDEX, read_index
from kolumn.source import storage
from kolumn.source.segments import Segment
from kolumn.source.side_files import TIER_CHECKPOINT, read_epochs


@dataclass(frozen=True)
class Reach:
    """How far the log goes according to an index file: an offset in it, and the position of that offset's batch or of one before it."""

    offset: int
    position: int
    name: str


def reach_of(segment: Segment, floor: int, size: int) -> Reach | None:
    """The index file of a segment that goes furthest past an offset and a number of bytes; None if no index file goes past either.

    An index entry of zeros is preallocated space.
    """
    if segment.base_offset is None:
        return None
    found = []
    for suffix, kind in _kinds(segment):
        index = read_index(segment, suffix, kind)
        if index is None:
            continue
        last = index[-1]
        position = int(last["position"]) if "position" in kind.names else 0
        if position > 0 or ("timestamp" in kind.names and last["timestamp"] > 0):
            name = storage.base_name(storage.with_suffix(segment.path, suffix))
            found.append(Reach(segment.base_offset + int(last["offset"]), position, name))
    beyond = [one for one in found if one.offset > floor or one.position >= size]
    return max(beyond, key=lambda one: (one.offset, one.position), default=None)


def _kinds(segment: Segment) -> list[tuple[str, Any]]:
    if layouts.format_of(segment.format).timed_index:
        return [(".index", ENRICHED_INDEX)]
    return [(".index", OFFSET_INDEX), (".timeindex", TIME_INDEX)]


def orphan_of(segment: Segment, floor: int) -> tuple[Segment, Reach] | None:
    """The first segment without a log whose index files list offsets that no segment has."""
    for name in segment.orphans:
        base = int(storage.base_name(name).partition(".")[0])
        gone = replace(segment, path=storage.with_suffix(name, ".log"), base_offset=base, size=0, orphans=(), beside=None)
        reach = reach_of(gone, -1 if base < (segment.base_offset or 0) else floor, sys.maxsize)
        if reach is not None:
            return gone, reach
    return None


def first_epoch(segment: Segment) -> int | None:
    """Start offset of the first leader epoch that ``leader-epoch-checkpoint`` lists; Kafka raises it when it deletes segments.

    A version, a number of lines, and a line ``epoch start-offset`` for each (``LeaderEpochCheckpointFile``). A tier has one per segment.
    """
    if segment.copy_id is not None:
        beside = storage.with_suffix(segment.path, TIER_CHECKPOINT)
        epochs = read_epochs(beside) if segment.manifest is None else segment.manifest.epochs
        return epochs[0][1] if epochs else None
    raw = storage.read_bytes(storage.beside(segment.path, "leader-epoch-checkpoint"))
    words = (raw or b"").split()
    if len(words) < 4 or words[0] != b"0" or not words[3].isdigit():
        return None
    return int(words[3])
