"""Splits: which bytes of which segments one task reads. Planned from headers alone; a split holds ranges, never bytes."""

from collections.abc import Iterable, Iterator

from pyspark.sql.datasource import InputPartition

from kolumn import plan
from kolumn.source import Range, find_segments
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
    segments = find_segments(list(options.paths), topic=options.decode.topic, partition=options.decode.partition)
    ranges = (part for segment in plan.without_replaced(segments) for part in plan.cut(segment, options.split_bytes))
    return [Split(group) for group in pack(ranges, options.split_bytes)] or [Split(())]


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
