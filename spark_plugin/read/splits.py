"""Splits: which bytes of which segments one task reads. They are planned from headers alone; a split contains ranges, never bytes.

A segment that is not larger than a split is not opened. The headers of the others are read by several threads, or by a Spark job if
there are thousands and a session is available: Spark plans Python data sources in one worker without a session.

Where the log of a topic partition begins and ends now, and whether the requested offsets still exist.

Whether a topic is the one that was read before: brokers assign an id to each topic, and write it next to the segments.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from pyspark.sql.datasource import InputPartition

from kolumn.copies.ends import log_end
from kolumn.copies.ranges import log_ranges
from kolumn.copies.tiers import log_of
from kolumn.core.errors import KolumnError
from kolumn.core.threads import PLAN, SIZES
from kolumn.log.headers import cut, headers
from kolumn.log.transactions import with_transactions
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.readers.types import with_types
from kolumn.source.segments import Range, Segment
from kolumn.source.side_files import read_topic_id
from kolumn.source.storage import beside
from kolumn.spark_plugin.options.positions import EARLIEST, LATEST, Key, Position
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.session.session import Run, by_threads

logger = logging.getLogger(__name__)

Bounds = tuple[int | None, int | None]
"""First offset and the one after the last; None for no bound."""


def resolve(position: Position | None, groups: dict[Key, list[Segment]], decode: Options) -> dict[Key, int]:
    """Offsets of a position that may not have been given."""
    return {} if position is None else position.resolve(groups, decode)


def log_start(segments: list[Segment]) -> int | None:
    """The earliest offset, from the first segment's name; None if that is not a base offset."""
    return min((s.base_offset for s in segments if s.base_offset is not None), default=None)


def bounds(starts: dict[Key, int], ends: dict[Key, int], groups: dict[Key, list[Segment]], fail: bool) -> dict[Key, Bounds]:
    """The bounds of each partition, compared with the offsets of its log.

    Raises
    ------
    KolumnError
        An offset is outside of the log, if ``fail``; otherwise a warning is logged, and the offsets that exist are read.
    """
    found: dict[Key, Bounds] = {}
    for key, segments in groups.items():
        start, end = starts.get(key, EARLIEST), ends.get(key, LATEST)
        if start == LATEST or end == EARLIEST:
            # The read starts at the end or ends at the beginning: nothing is read.
            found[key] = (0, 0)
            continue
        if max(start, end) >= 0:
            _compare(key, start, end, segments, fail)
        found[key] = (None if start < 0 else start, None if end < 0 else end)
    return found


def _compare(key: Key, start: int, end: int, segments: list[Segment], fail: bool) -> None:
    first, stop = log_start(segments), log_end(segments)
    if start >= 0 and first is not None and start < first:
        lost(f"{key[0]}-{key[1]}: offset {start} was asked for, and the log begins at {first}", fail)
    for offset in (start, end):
        if offset > stop:
            lost(f"{key[0]}-{key[1]}: offset {offset} was asked for, and the log ends at {stop}", fail)


def lost(what: str, fail: bool, option: str = "failOnDataLoss=false") -> None:
    """Raise an error or log a warning: offsets are missing, because they were deleted by retention, truncated, or never written."""
    if fail:
        raise KolumnError(f"{what}. Data may have been lost; {option} reads what is there")
    logger.warning("%s. Continuing with what is there, as %s says", what, option)


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
    """The bounds of each topic partition that the positions of the options mean; errors as `kolumn.spark_plugin.read.splits.bounds`."""
    starts, ends = resolve(options.start, groups, options.decode), resolve(options.end, groups, options.decode)
    return bounds(starts, ends, groups, options.fail_on_data_loss)


def segments_by_partition(options: LoadOptions) -> dict[Key, list[Segment]]:
    """The live segments of each selected topic partition; with ``replicas="merge"``, those of all its copies.

    Raises
    ------
    ArgumentError
        As `kolumn.copies.copies.one_log`; also if a topic or partition is named but does not exist.
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
    """Like `kolumn.log.headers.cut`, with at most ``records`` offsets in a part, unless one entry has more."""
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


def topic_ids(segments: Iterable[Segment]) -> dict[str, str]:
    """Ids of topics from ``partition.metadata`` (Kafka 2.8 and later); one file of each topic is read. Topics without one are left out."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for segment in segments:
        if segment.topic is None or segment.topic in seen:
            continue
        seen.add(segment.topic)
        number = read_topic_id(beside(segment.path, "partition.metadata"))
        if number is not None:
            found[segment.topic] = number
    return found


def created_anew(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """A message for each topic whose id has changed; no message if one of the two ids is unknown."""
    return [
        f"topic {topic}: its id was {before[topic]} and is {now[topic]}: it was deleted and created anew, and its offsets began again at 0"
        for topic in sorted(before)
        if now.get(topic, before[topic]) != before[topic]
    ]
