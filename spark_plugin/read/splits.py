"""Splits: which bytes of which segments one task reads. They are planned from headers alone; a split contains ranges, never bytes.

A segment that is not larger than a split is not opened. The headers of the others are read by several threads, or by a Spark job if
there are thousands and a session is available: Spark plans Python data sources in one worker without a session.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from pyspark.sql.datasource import InputPartition

from kolumn.entries.headers import cut, headers
from kolumn.log.transactions import with_transactions
from kolumn.options import Options
from kolumn.read_plan import live_segments
from kolumn.reader_types import with_types
from kolumn.replicas.ranges import log_ranges
from kolumn.replicas.tiers import log_of
from kolumn.source.segments import Range, Segment
from kolumn.spark_plugin.options.positions import Key
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.bounds import Bounds, bounds, resolve
from kolumn.spark_plugin.session.session import Run, by_threads
from kolumn.threads import PLAN, SIZES

SMALLEST = 4 << 20
"""Minimum bytes of a task: fewer are not worth its start."""


class Split(InputPartition):
    """The input of one task: ranges of whole batches, in the order of the log.

    Attributes
    ----------
    ranges : tuple of Range
    bounds : dict
        First offset and the one after the last for topic partitions that are not read as a whole.
    """

    def __init__(self, ranges: tuple[Range, ...], bounds: Mapping[Key, Bounds] = {}) -> None:
        super().__init__(ranges)
        keys = {(one.segment.topic, one.segment.partition) for one in ranges}
        self.ranges = ranges
        self.bounds = {key: value for key, value in bounds.items() if key in keys and value != (None, None)}


def plan_splits(options: LoadOptions, run: Run = by_threads) -> list[Split]:
    """Find the segments and distribute them among splits.

    Returns
    -------
    list of Split
        At least one: for an empty list Spark would make a partition of its own.
    """
    groups = segments_by_partition(options)
    return share(options, groups, limits_of(options, groups), run) or [Split(())]


def limits_of(options: LoadOptions, groups: dict[Key, list[Segment]]) -> dict[Key, Bounds]:
    """The bounds of each topic partition that the positions of the options mean; errors as `kolumn.spark_plugin.read.bounds.bounds`."""
    starts, ends = resolve(options.start, groups, options.decode), resolve(options.end, groups, options.decode)
    return bounds(starts, ends, groups, options.fail_on_data_loss)


def segments_by_partition(options: LoadOptions) -> dict[Key, list[Segment]]:
    """The live segments of each selected topic partition; with ``replicas="merge"``, those of all its copies.

    Raises
    ------
    ArgumentError
        As `kolumn.replicas.copies.one_log`; also if a topic or partition is named but does not exist.
    """
    groups = options.wanted.choose(live_segments(options.paths, options.decode).segments)
    if options.decode.replicas == "merge":
        return groups
    return {key: log_of(segments, options.decode) for key, segments in groups.items()}


def with_types_of(options: LoadOptions) -> LoadOptions:
    """The options with the types of their typed columns, on the driver."""
    if not options.decode.typed:
        return options
    ranges = [Range.whole(segment) for segments in segments_by_partition(options).values() for segment in segments]
    return replace(options, decode=with_types(options.decode, options.paths, ranges))


def even(size: int, split_bytes: int, slots: int | None) -> int:
    """How many of ``size`` bytes one task reads, so that no slot is idle in the last round. ``slots`` tasks run at a time (None: unknown).

    Spark's own file sources do the same, and also assign no less than 4 MiB to a slot (``spark.sql.files.openCostInBytes``).
    """
    if slots is None:
        return split_bytes
    rounds = max(1, -(-size // (slots * split_bytes)))
    return min(split_bytes, max(SMALLEST, -(-size // (slots * rounds))))


def share(options: LoadOptions, groups: dict[Key, list[Segment]], limits: Mapping[Key, Bounds], run: Run = by_threads) -> list[Split]:
    """Distribute the bytes within the bounds of each topic partition among splits."""
    chosen = [one for key, segments in groups.items() for one in _within(segments, limits.get(key, (None, None)), options)]
    target = even(sum(one.end - one.start for one in chosen), options.split_bytes, options.slots)
    if options.min_partitions is not None:
        target = max(1, min(target, sum(one.end - one.start for one in chosen) // options.min_partitions))
    counts = dict(_parts(chosen, target, options.max_records, run))
    packed = pack(with_transactions(list(counts), options.decode), target, counts, options.max_records)
    return [Split(group, limits) for group in packed]


def _within(segments: list[Segment], limit: Bounds, options: LoadOptions) -> list[Range]:
    """Parts of the segments, without the batches before the first record that the range of offsets or times can select."""
    if limit == (0, 0):
        return []
    return log_ranges(segments, replace(narrowed(options, limit).decode, threads=SIZES[PLAN]))


def wanted(segments: list[Segment], options: Options, target: int, run: Run = by_threads) -> list[Range]:
    """Parts of about ``target`` bytes of the segments that the range of offsets or times can select."""
    chosen = log_ranges(segments, replace(options, threads=SIZES[PLAN]))
    return with_transactions([part for part, _ in _parts(chosen, target, None, run)], options)


def narrowed(options: LoadOptions, limit: Bounds) -> LoadOptions:
    """The options with their range of offsets narrowed to ``limit``."""
    return replace(options, decode=options.decode.within(*limit))


def _parts(chosen: Iterable[Range], target: int, records: int | None, run: Run) -> Iterator[tuple[Range, int]]:
    """Parts of ranges, with the number of offsets in each. Only ranges whose headers have to be read are passed to ``run``."""
    ranges = [(one, one.fault is None and (records is not None or one.end - one.start > target)) for one in chosen]
    cut = iter(run(partial(_cut, target=target, records=records), [one for one, is_cut in ranges if is_cut]))
    for one, is_cut in ranges:
        yield from next(cut) if is_cut else [(one, 0)]


def _cut(chosen: Range, target: int, records: int | None) -> list[tuple[Range, int]]:
    """Parts of a range with the number of offsets in each; 0 if offsets are not limited."""
    return [(part, 0) for part in cut(chosen, target)] if records is None else _count(chosen, target, records)


def _count(chosen: Range, target: int, records: int) -> list[tuple[Range, int]]:
    """Like `kolumn.entries.headers.cut`, with at most ``records`` offsets in a part, unless one entry has more."""
    parts, rest, first = [], chosen, chosen.floor + 1
    last = rest.floor
    for entries in headers(chosen.segment, chosen.start, chosen.end):
        for position, offset in zip(entries.position.tolist(), entries.last_offset.tolist(), strict=True):
            if position > rest.start and (position - rest.start >= target or offset - first >= records):
                parts.append((replace(rest, end=position), last - rest.floor))
                rest, first = replace(rest, start=position, floor=last), last + 1
            last = offset
    return [*parts, (rest, last - rest.floor)]


def pack(
    ranges: Iterable[Range],
    target: int,
    counts: Mapping[Range, int] = {},
    records: int | None = None,
) -> Iterator[tuple[Range, ...]]:
    """Combine neighbouring ranges up to ``target`` bytes: starting a task takes as long as reading a few MiB.

    With ``records``, a task also has at most that many offsets, counted by ``counts``.
    """
    group: list[Range] = []
    size = count = 0
    for part in ranges:
        length, offsets = part.end - part.start, counts.get(part, 0)
        if group and (size + length > target or (records is not None and count + offsets > records)):
            yield tuple(group)
            group, size, count = [], 0, 0
        group.append(part)
        size, count = size + length, count + offsets
    if group:
        yield tuple(group)
