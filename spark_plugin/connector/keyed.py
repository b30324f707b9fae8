"""Splits of one topic partition each, so that Spark groups, joins and sorts by topic and partition without an exchange."""

from collections.abc import Sequence
from itertools import groupby

from kolumn.arrays import Int64s
from kolumn.entries.headers import headers
from kolumn.errors import KolumnError
from kolumn.source.segments import Range
from kolumn.source.storage import is_url
from kolumn.spark_plugin.options.positions import Key
from kolumn.spark_plugin.read.splits import Split

_KEYED = 2
"""Splits are cut by topic partition if that makes at most so many times as many of them as there are, or as tasks run at a time."""
_LOOKED_AT = 1000
"""In at most so many segments headers are read to find out whether offsets ascend."""


def by_partition(splits: list[Split], slots: int, always: bool) -> tuple[list[Split], list[Key] | None]:
    """Splits of one topic partition each, and which; unless that would be too many tasks."""
    parts = [(key, Split(tuple(own), split.bounds)) for split in splits for key, own in groupby(split.ranges, _key)]
    if len(parts) > _KEYED * max(len(splits), slots) and not always:
        return splits, None
    return [split for _, split in parts], [key for key, _ in parts]


def are_ordered(splits: Sequence[Split], keys: Sequence[Key]) -> bool:
    """Whether each split is a whole topic partition whose headers say that offsets ascend. Of others the order is of no use to Spark."""
    ranges = [one for split in splits for one in split.ranges]
    if len(set(keys)) < len(keys) or len(ranges) > _LOOKED_AT or any(is_url(one.segment.path) for one in ranges):
        return False
    return all(_ascend(split.ranges) for split in splits)


def _ascend(ranges: Sequence[Range]) -> bool:
    last = -1
    for one in ranges:
        if one.fault is not None:
            return False
        for entries in headers(one.segment, one.start, one.end):
            # The first offset of a wrapper is not in its header.
            if (entries.magic != 2).any() or entries.base_offset[0] <= last or (entries.base_offset[1:] <= entries.last_offset[:-1]).any():
                return False
            last = int(entries.last_offset[-1])
    return True


def ascending(offsets: Int64s, last: int) -> int:
    """The last of some offsets, which Spark was told ascend.

    Raises
    ------
    KolumnError
        They do not, which headers did not show.
    """
    if len(offsets) and (offsets[0] <= last or (offsets[1:] <= offsets[:-1]).any()):
        raise KolumnError("offsets do not ascend within a batch of records: spark.kolumn.reportPartitioning=false reads them as they are")
    return int(offsets[-1]) if len(offsets) else last


def _key(one: Range) -> Key:
    return one.segment.topic, one.segment.partition
