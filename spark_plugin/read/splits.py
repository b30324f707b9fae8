"""Splits: which bytes of which segments one task reads, planned from headers alone. A split contains ranges, never bytes.

A segment that is not larger than a split is not opened. The headers of the others are read by several threads, or by a Spark job if
there are thousands and a session is available: Spark plans Python data sources in one worker without a session.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby

from pyspark.sql.datasource import InputPartition

from kolumn.copies.consumers import consumers_offset
from kolumn.copies.copies import log_end, log_start
from kolumn.copies.ranges import log_ranges
from kolumn.copies.raw_offsets import RawOffsets
from kolumn.copies.tiers import log_of
from kolumn.copies.transactions import with_transactions
from kolumn.core.errors import A_FRAME_EACH, ArgumentError, KolumnError
from kolumn.core.threads import PLAN, SIZES
from kolumn.damage.stopped import joined, lines
from kolumn.decode.host.aborted import may_stop
from kolumn.decode.host.headers import cut, headers
from kolumn.decode.stops import reaches, stop_of
from kolumn.formats import layouts
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.readers.topics import types_by_topic
from kolumn.readers.types import with_types
from kolumn.source.segments import Range, Segment
from kolumn.spark_plugin.read.options import EARLIEST, LATEST, PAST_IT, Key, LoadOptions
from kolumn.spark_plugin.session.session import Run, by_threads
from kolumn.values.typed import Typed

logger = logging.getLogger(__name__)

Bounds = tuple[int | None, int | None]
"""First offset and the one after the last; None for no bound."""


def limits_of(options: LoadOptions, groups: dict[Key, list[Segment]]) -> dict[Key, Bounds]:
    """The bounds of each topic partition that the positions of the options mean, compared with the offsets of its log.

    An offset outside of the log raises `KolumnError` with ``fail_on_data_loss``; otherwise a warning is logged, and what exists is read.
    """
    starts, ends = ({} if side is None else side.resolve(groups, options.decode) for side in (options.start, options.end))
    limits: dict[Key, Bounds] = {}
    for key, segments in groups.items():
        start, end = starts.get(key, EARLIEST), ends.get(key, LATEST)
        if start == LATEST or end == EARLIEST:
            # The read starts at the end or ends at the beginning: nothing is read.
            limits[key] = (0, 0)
            continue
        if max(start, end) >= 0:
            _compare(key, start, end, segments, options)
        limits[key] = (None if start < 0 else start, None if end < 0 else end)
    return limits


def _compare(key: Key, start: int, end: int, segments: list[Segment], options: LoadOptions) -> None:
    first, stop, fail = log_start(segments), log_end(segments), options.fail_on_data_loss
    if segments[0].format in layouts.RAW:
        known = [None if raw is None else consumers_offset(segments, options.decode, raw) for raw in (first, stop)]
        # Where nothing translates them, the read has raw offsets too.
        first, stop = (first if known[0] is None else known[0]), (stop if known[1] is None else known[1])
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


_SMALLEST = 4 << 20
"""Minimum bytes of a task: fewer are not worth its start."""
PAYLOAD_RATIO = 16
"""Factor on a task's bytes of the log if it reads only headers: walking 16 KiB batches takes a sixteenth of the time of decoding them."""


def key_of(part: Range) -> Key:
    """The topic partition of a range."""
    return part.segment.topic, part.segment.partition


class Split(InputPartition):
    """The input of one task: ranges of whole batches in the order of the log, and bounds of partitions that are not read as a whole."""

    def __init__(self, ranges: tuple[Range, ...], bounds: Mapping[Key, Bounds] = {}) -> None:
        super().__init__(ranges)
        keys = set(map(key_of, ranges))
        self.ranges = ranges
        self.bounds = {key: value for key, value in bounds.items() if key in keys and value != (None, None)}

    def bounds_of(self, key: Key) -> Bounds:
        """The bounds of a topic partition."""
        return self.bounds.get(key, (None, None))

    def parts(self, options: Options) -> Iterator[tuple[list[Range], Options]]:
        """The ranges of each topic partition, and ``options`` within its bounds."""
        for key, ranges in groupby(self.ranges, key_of):
            yield list(ranges), options.within(*self.bounds_of(key))


def plan_splits(options: LoadOptions, run: Run = by_threads) -> list[Split]:
    """Find the segments and distribute them among splits, at least one: for an empty list Spark would make a partition of its own."""
    groups = segments_by_partition(options)
    return share(options, groups, limits_of(options, groups), run) or [Split(())]


def segments_by_partition(options: LoadOptions) -> dict[Key, list[Segment]]:
    """The live segments of each selected topic partition; with ``replicas="merge"``, those of all its copies.

    Raises `ArgumentError` as `kolumn.copies.copies.one_log`, and if a topic or partition is named that does not exist.
    """
    return _by_partition(options, live_segments(options.paths, options.decode).segments)


def _by_partition(options: LoadOptions, segments: list[Segment]) -> dict[Key, list[Segment]]:
    groups = options.wanted.choose(segments)
    if options.decode.replicas == "merge":
        return groups
    return {key: log_of(segments, options.decode) for key, segments in groups.items()}


_A_TABLE_EACH = "a catalog of the class kolumn.Catalog, which has a table for each"


def with_types_of(options: LoadOptions) -> LoadOptions:
    """The options with the types of their typed columns, on the driver. One topic that is chosen of several, such as a table of a catalog,
    stays bytes without a schema.
    """
    if not options.decode.typed:
        return options
    segments = live_segments(options.paths, options.decode).segments
    ranges = [Range.whole(segment) for own in _by_partition(options, segments).values() for segment in own]
    chosen = {part.segment.topic for part in ranges}
    try:
        if len(chosen) == 1 and len({segment.topic for segment in segments}) > 1:
            (decode,) = types_by_topic(options.decode, options.paths, ranges, is_one_of_several=True).values()
        else:
            decode = with_types(options.decode, options.paths, ranges)
    except ArgumentError as error:
        error.args = (str(error).replace(A_FRAME_EACH, _A_TABLE_EACH),)
        raise
    return replace(options, decode=replace(decode, typed=tuple(map(_in_microseconds, decode.typed))))


def _in_microseconds(typed: Typed) -> Typed:
    """Timestamps of Protobuf in Spark's unit. Their own, nanoseconds, has only the years 1677 to 2262, of 1 to 9999."""
    if typed.kind != "protobuf" or typed.time_unit is not None:
        return typed
    made = replace(typed, time_unit="us")
    made.__dict__["writers"] = typed.writers
    if made.type == typed.type:
        return typed
    logging.getLogger("kolumn.values").warning(
        "Spark has no nanoseconds: timestamps of Protobuf in %ss are cut to microseconds", typed.column
    )
    return made


def even(size: int, split_bytes: int, slots: int | None) -> int:
    """How many of ``size`` bytes one task reads, so that no slot is idle in the last round. ``slots`` tasks run at a time (None: unknown).

    Spark's own file sources do the same, and also assign no less than 4 MiB to a slot (``spark.sql.files.openCostInBytes``).
    """
    if slots is None:
        return split_bytes
    rounds = max(1, -(-size // (slots * split_bytes)))
    return min(split_bytes, max(_SMALLEST, -(-size // (slots * rounds))))


def _say_stops(ranges: list[Range], decode: Options, limits: Mapping[Key, Bounds]) -> None:
    """Warn of partitions that are not read to their end. How many records come after it, tasks count: it is a metric of the scan."""
    within = ((part, decode.within(*limits.get(key_of(part), (None, None)))) for part in ranges)
    stopped = [stop_of(part) for part, options in within if reaches(part, options)]
    for line in lines(joined(stopped), PAST_IT):
        logger.warning("%s", line)


def share(options: LoadOptions, groups: dict[Key, list[Segment]], limits: Mapping[Key, Bounds], run: Run = by_threads) -> list[Split]:
    """Distribute the bytes within the bounds of each topic partition among splits."""
    chosen: list[Range] = []
    for key, segments in groups.items():
        limit = limits.get(key, (None, None))
        if limit != (0, 0):
            # Without the batches before the first record that the range of offsets or times can select.
            chosen += log_ranges(segments, replace(options.decode.within(*limit), threads=SIZES[PLAN]))
    size = sum(part.end - part.start for part in chosen)
    target = even(size, options.split_bytes, options.slots)
    if options.min_partitions is not None:
        target = max(1, min(target, size // options.min_partitions))
    offsets: dict[str, RawOffsets] = {part.segment.path: part.offsets for part in chosen if part.offsets is not None}
    # Nothing of a log goes to other processes but what is known of a range.
    counts = dict(_parts((replace(part, offsets=None) if part.offsets else part for part in chosen), target, options.max_records, run))
    settled = with_transactions(list(counts), options.decode)
    if may_stop(options.decode):
        _say_stops(settled, options.decode, limits)
    packed = pack(settled, target, counts, options.max_records)
    return [Split(tuple(_with_delta(part, offsets) for part in group), limits) for group in packed]


def _with_delta(part: Range, offsets: Mapping[str, RawOffsets]) -> Range:
    """A range of Redpanda's with the number that translates its first raw offset, so that its task reads no headers before it."""
    known = offsets.get(part.segment.path)
    return part if known is None else replace(part, offsets=known.before(part))


def _parts(chosen: Iterable[Range], target: int, records: int | None, run: Run) -> Iterator[tuple[Range, int]]:
    """Parts of ranges, with the number of offsets in each; 0 if offsets are not limited.

    Only ranges whose headers have to be read are passed to ``run``.
    """
    ranges = [(part, part.fault is None and (records is not None or part.end - part.start > target)) for part in chosen]
    cut_parts = iter(run(partial(_cut, target=target, records=records), [part for part, is_cut in ranges if is_cut]))
    for part, is_cut in ranges:
        yield from next(cut_parts) if is_cut else [(part, 0)]


def _cut(chosen: Range, target: int, records: int | None) -> list[tuple[Range, int]]:
    """Like `kolumn.decode.host.headers.cut`, with at most ``records`` offsets in a part, unless one entry has more."""
    if records is None:
        return [(part, 0) for part in cut(chosen, target)]
    parts, rest, first = [], chosen, chosen.floor + 1
    last = rest.floor
    for entries in headers(chosen.segment, chosen.start, chosen.end):
        for position, offset in zip(entries.position.tolist(), entries.last_offset.tolist(), strict=True):
            if position > rest.start and (position - rest.start >= target or offset - first >= records):
                parts.append((replace(rest, end=position), last - rest.floor))
                rest, first = replace(rest, start=position, floor=last), last + 1
            last = offset
    return [*parts, (rest, last - rest.floor)]


def pack(ranges: Iterable[Range], target: int, counts: Mapping[Range, int] = {}, records: int | None = None) -> Iterator[tuple[Range, ...]]:
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
