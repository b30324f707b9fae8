"""Splits: which bytes of which segments one task reads. Planned from headers alone; a split holds ranges, never bytes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pyspark.sql.datasource import InputPartition

from kolumn import plan
from kolumn.api import segments_of
from kolumn.options import Options
from kolumn.seek import select_ranges
from kolumn.source import Range, Segment
from kolumn.spark_plugin.options import ReadOptions


class Split(InputPartition):
    """What one task reads: ranges of whole batches, in the order of the log."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def plan_splits(options: ReadOptions) -> list[Split]:
    """Find the segments and share them out.

    Returns
    -------
    list of Split
        At least one: for an empty list Spark would make up a partition of its own.
    """
    segments = segments_of(options.paths, options.decode)
    return [Split(group) for group in pack(wanted(segments, options.decode, options.split_bytes), options.split_bytes)] or [Split(())]


def wanted(segments: list[Segment], options: Options, split_bytes: int) -> Iterator[Range]:
    """Parts of the segments, without what lies before the first record that a range of offsets or times can want."""
    for chosen in select_ranges(segments, options):
        for part in plan.cut(chosen.segment, split_bytes):
            if part.start >= chosen.start:
                yield part
            elif part.end > chosen.start:
                yield replace(chosen, end=part.end)


def pack(ranges: Iterable[Range], target: int) -> Iterator[tuple[Range, ...]]:
    """Put neighbours together up to ``target`` bytes: a task costs as much to start as a few MiB cost to read."""
    group: list[Range] = []
    size = 0
    for part in ranges:
        length = part.end - part.start
        if group and size + length > target:
            yield tuple(group)
            group, size = [], 0
        group.append(part)
        size += length
    if group:
        yield tuple(group)
