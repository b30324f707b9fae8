"""How far a stream goes in one micro-batch: the offset after its last record in each topic partition, within the limits.

In Spark's JSON an offset of a stream is ``{"topic": {"0": 23}}``, as in Spark's Kafka source: the next record to read. If the log contains
topic ids, they are added under a name that no topic can have: ``{"@ids": {"topic": "CB7H1K6OSfK1-BrQJPzEKQ"}, …}``.

Splits of a log that is being written: without the incomplete last batch, and only from the files that were planned.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kolumn.core.errors import KolumnError
from kolumn.log.headers import headers
from kolumn.source.segments import Range, Segment
from kolumn.source.storage import current
from kolumn.spark_plugin.options.positions import Key
from kolumn.spark_plugin.read.splits import Bounds, Split

Topics = dict[str, dict[str, Any]]
Pair = tuple[str, int]
IDS = "@ids"


def to_json(offsets: dict[Pair, int], ids: Mapping[str, str] = {}) -> Topics:
    """Offsets as Spark keeps them in the checkpoint."""
    topics = {topic for topic, _ in offsets}
    known = {topic: ids[topic] for topic in sorted(ids) if topic in topics}
    found: Topics = {IDS: known} if known else {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Topics) -> dict[Pair, int]:
    """The offsets of `to_json`."""
    topics = {topic: found for topic, found in offsets.items() if topic != IDS}
    return {(topic, int(partition)): offset for topic, found in topics.items() for partition, offset in found.items()}


def ids_of(offsets: Topics) -> dict[str, str]:
    """The topic ids of `to_json`; empty for a checkpoint without ids."""
    return dict(offsets.get(IDS, {}))


def behind(offsets: Topics, ends: Topics) -> dict[str, str]:
    """How far offsets are from the ends of their partitions, as Spark's Kafka source reports it with the progress of a query."""
    there, done = from_json(ends), from_json(offsets)
    found = [max(0, end - done.get(key, 0)) for key, end in there.items()]
    if not found:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(found)),
        "maxOffsetsBehindLatest": str(max(found)),
        "avgOffsetsBehindLatest": str(sum(found) / len(found)),
    }


def limit_ends(
    groups: dict[Pair, list[Segment]], starts: dict[Pair, int], ends: dict[Pair, int], limits: dict[str, int]
) -> dict[Pair, int]:
    """The end offsets of a micro-batch that starts at ``starts`` and goes to ``ends`` at most.

    Parameters
    ----------
    groups : dict
        The live segments of each topic partition.
    limits : dict
        Any of ``offsets``, ``bytes`` and ``files``; all that are given apply. ``offsets`` are divided in proportion to what each
        partition has, as Spark's Kafka source does, ``bytes`` evenly. Every limit allows at least one batch, or record.
    """
    found = dict(ends)
    if "offsets" in limits:
        found = _by_offsets(starts, found, limits["offsets"])
    if "files" in limits:
        found = _by_files(groups, starts, found, limits["files"])
    if "bytes" in limits:
        busy = [key for key in found if found[key] > starts[key]]
        for key in busy:
            found[key] = _by_bytes(groups[key], starts[key], found[key], max(1, limits["bytes"] // len(busy)))
    return found


def _by_offsets(starts: dict[Pair, int], ends: dict[Pair, int], most: int) -> dict[Pair, int]:
    total = sum(ends[key] - starts[key] for key in ends)
    if total <= most:
        return ends
    found, left = dict(starts), most
    # The largest first: the remainder of rounding down goes to the partitions with the largest backlog.
    for key in sorted(ends, key=lambda key: starts[key] - ends[key]):
        waiting = ends[key] - starts[key]
        share = min(left, waiting, max(1, most * waiting // total))
        found[key] += share
        left -= share
    return found


def _by_files(groups: dict[Pair, list[Segment]], starts: dict[Pair, int], ends: dict[Pair, int], most: int) -> dict[Pair, int]:
    """Up to the end of ``most`` segments, one of each partition in turn; the partition with the largest backlog comes first."""
    stops = {key: _boundaries(groups[key], starts[key], ends[key]) for key in ends if ends[key] > starts[key]}
    found, order = dict(starts), sorted(stops, key=lambda key: starts[key] - ends[key])
    while most and any(stops.values()):
        for key in order:
            if most and stops[key]:
                found[key] = stops[key].pop(0)
                most -= 1
    return found


def _boundaries(segments: Iterable[Segment], start: int, end: int) -> list[int]:
    bases = sorted(s.base_offset for s in segments if s.base_offset is not None)
    return [base for base in bases if start < base < end] + [end]


def _by_bytes(segments: list[Segment], start: int, end: int, most: int) -> int:
    """The offset after the last of the batches from ``start`` on that fit into ``most`` bytes."""
    taken, reached = 0, start
    for segment, following in zip(segments, [*(s.lowest for s in segments[1:]), None], strict=True):
        if following is not None and following <= start:
            continue
        for size, last in _entries(segment):
            if last < start:
                continue
            if taken and taken + size > most:
                return min(end, reached)
            taken, reached = taken + size, last + 1
            if reached >= end:
                return end
    return end


def _entries(segment: Segment) -> Iterable[tuple[int, int]]:
    for entries in headers(segment):
        yield from zip(entries.size.tolist(), entries.last_offset.tolist(), strict=True)


def clip(split: Split, limits: Mapping[Key, Bounds]) -> Iterator[Range]:
    """The ranges of a split, cut before the first entry past the limit: entries after the limit may be incomplete."""
    for one in split.ranges:
        stop = limits[one.segment.topic, one.segment.partition][1]
        clipped = one if stop is None else replace(one, end=min(one.end, _position_of(one, stop)))
        if clipped.end > clipped.start or not one.segment.size:
            yield clipped


def _position_of(one: Range, stop: int) -> int:
    for entries in headers(one.segment):
        columns = entries.position, entries.end, entries.base_offset, entries.last_offset
        for position, end, base, last in zip(*(column.tolist() for column in columns), strict=True):
            if position >= one.start and base >= stop:
                return int(position)
            if position >= one.start and last >= stop - 1:
                return int(end)
    return one.end


def check_planned(split: Split) -> None:
    """Compare the files of a split with those it was planned from.

    Raises
    ------
    KolumnError
        A file is gone, or is another file of the same name. Positions in it are invalid then, and records could be lost without
        notice. The query fails; when it is started again, it plans the same offsets again from its checkpoint.
    """
    for segment in dict.fromkeys(one.segment for one in split.ranges):
        path, now = segment.path, current(segment.path)
        if now is None or (segment.identity is not None and segment.identity.is_another(now)):
            what = "is gone" if now is None else "has been replaced"
            raise KolumnError(f"{path}: {what} since this micro-batch was planned. Start the query again: it goes on from its checkpoint")
