"""Streams of a log directory that grows. A micro-batch is a range of offsets, so segments may be rolled, compacted or deleted between
its first attempt and the next.

In Spark's JSON an offset of a stream is ``{"topic": {"0": 23}}``, as in Spark's Kafka source: the next record to read. If the log contains
topic ids, they are added under a name that no topic can have: ``{"@ids": {"topic": "CB7H1K6OSfK1-BrQJPzEKQ"}, …}``.
"""

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kolumn.copies.copies import created_anew, log_end, log_start, topic_ids
from kolumn.copies.transactions import readable_end
from kolumn.core.errors import ArgumentError, KolumnError, shown
from kolumn.decode.host.headers import headers, position_of
from kolumn.formats import layouts
from kolumn.source.segments import Range, Segment
from kolumn.source.storage import current
from kolumn.spark_plugin.read.options import EARLIEST, LATEST, Key, LoadOptions, Position
from kolumn.spark_plugin.read.schema import arrow_schema, conformed
from kolumn.spark_plugin.read.splits import Bounds, Split, key_of, lost, segments_by_partition, share
from kolumn.spark_plugin.read.task import read_split

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
except ImportError:  # pyspark 4.0 and 4.1: every micro-batch takes all records that exist
    _AvailableNow = object  # type: ignore[assignment, misc]

logger = logging.getLogger(__name__)

Topics = dict[str, dict[str, Any]]
Pair = tuple[str, int]
Groups = dict[Pair, list[Segment]]
IDS = "@ids"


class RecordStream(DataSourceStreamReader, _AvailableNow):
    """Plans micro-batches in one process on the driver, decodes them in tasks.

    Options for the start apply to the first run only, and the default is ``latest``, as in Spark's Kafka source. A topic
    partition that appears later is read from its beginning.
    """

    def __init__(self, options: LoadOptions, schema: StructType) -> None:
        if options.end is not None:
            raise ArgumentError(f"option {options.end.option}: a stream has no end")
        if options.table != "records":
            raise ArgumentError("option table: a stream has records alone")
        if options.decode.replicas == "merge":
            raise ArgumentError("option replicas: a stream reads one copy of a growing log: replicas=first, or name one of the directories")
        if options.decode.open_transactions != "stop":
            raise ArgumentError(
                "option openTransactions: a stream waits for the end of a transaction, since it reads each offset once. Leave it out, or "
                "read the log without a stream"
            )
        self.options, self.spark_schema = options, schema
        self.target: dict[Pair, int] | None = None
        self.reached: dict[Pair, int] | None = None
        self.initial: Topics | None = None
        self.triggered = -math.inf

    def initialOffset(self) -> Topics:  # noqa: N802
        """Where the first run starts. Spark asks more than once, and a log grows meanwhile: the first answer counts."""
        if self.initial is not None:
            return self.initial
        groups = self._groups()
        start = self.options.start or Position("startingOffsets", LATEST)
        offsets = start.resolve(dict(groups.items()), self.options.decode)
        ends = {EARLIEST: _begin, LATEST: self._end}
        resolved = {key: ends[offsets[key]](group) if offsets[key] in ends else offsets[key] for key, group in groups.items()}
        left_out = sum(resolved[key] - _begin(group) for key, group in groups.items())
        if self.options.start is None and left_out > 0:
            logger.warning(
                "this stream begins at the end of the log, as Spark's Kafka source does: %d offsets that are there already are not read. "
                "startingOffsets=earliest reads them",
                left_out,
            )
        self.initial = to_json(resolved, _ids(groups))
        return self.initial

    def latestOffset(self, start: Topics | None = None, limit: object = None) -> Topics:  # noqa: N802
        """Where the micro-batch from ``start`` ends. pyspark 4.0 and 4.1 pass neither argument."""
        if start is None:
            groups = self._groups()
            return to_json(self._reached(groups), _ids(groups))
        # Spark passes the one limit that it knows, or ReadAllAvailable for no limit in this run.
        return self.next_offset(start, type(limit).__name__ != "ReadAllAvailable")

    def next_offset(self, start: Topics, limited: bool) -> Topics:
        """Where the micro-batch from ``start`` ends, within the limits of the options or not."""
        groups = self._groups()
        ends, ids, known = self._reached(groups), _ids(groups), ids_of(start)
        for what in created_anew(known, ids):
            self._lost(what)
        done = _of_same_topics(from_json(start), known, ids)
        return to_json(self._next(done, ends, groups, dict(self.options.limits) if limited else {}), known | ids)

    def _reached(self, groups: Groups) -> dict[Pair, int]:
        """Where the log ends, for this run."""
        self.reached = self._ends(groups) if self.target is None else self.target
        return self.reached

    def _next(self, done: dict[Pair, int], ends: dict[Pair, int], groups: Groups, limits: dict[str, int]) -> dict[Pair, int]:
        if self.target is not None:
            # The log may have been cut off, or created anew, since this run began.
            ends = {key: min(end, log_end(groups[key])) if key in groups else end for key, end in ends.items()}
        self._compare(done, {key: ends.get(key, math.inf) for key in groups})
        # What comes where the log was cut off is new, though its offsets have been read before: as in Spark's Kafka source.
        starts = {key: min(done.get(key, _begin(groups[key])), end) for key, end in ends.items() if key in groups}
        waiting = {key: ends[key] for key in starts}
        # Offsets deleted by retention must not count against a limit.
        if self.target is None and self._too_few(sum(waiting[key] - start for key, start in starts.items())):
            return done
        there = {key: max(start, min(_begin(groups[key]), waiting[key])) for key, start in starts.items()}
        return done | limit_ends(groups, there, waiting, limits)

    def _too_few(self, offsets: int) -> bool:
        """Whether the micro-batch should wait for more offsets (``KafkaMicroBatchStream.delayBatch`` of Spark)."""
        now = time.monotonic()
        if offsets < self.options.least and (now - self.triggered) * 1000 < self.options.delay_ms:
            return True
        self.triggered = now
        return False

    def _compare(self, done: dict[Pair, int], ends: Mapping[Pair, float]) -> None:
        """Say which partitions do not go on where they were read up to."""
        for (topic, partition), offset in done.items():
            end = ends.get((topic, partition))
            if end is None or end < offset:
                what = "partition no longer exists" if end is None else f"log ends at {end}"
                self._lost(f"{topic}-{partition}: read up to offset {offset}, and the {what}")

    def _lost(self, what: str) -> None:
        lost(what, self.options.fail_on_data_loss)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """One of the limits, since Spark supports no combination of them; `latestOffset` applies all of them."""
        from pyspark.sql.streaming import datasource as limits

        classes = {"offsets": limits.ReadMaxRows, "bytes": limits.ReadMaxBytes, "files": limits.ReadMaxFiles}
        return next((classes[limit](most) for limit, most in self.options.limits), limits.ReadAllAvailable())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where the log ends now: a run of Trigger.AvailableNow ends there."""
        self.target = self._ends(self._groups())

    def reportLatestOffset(self) -> Topics:  # noqa: N802
        """Where the log ended when the last micro-batch was planned, for the progress of the query, as Spark's Kafka source says it."""
        return to_json(self._reached(self._groups()) if self.reached is None else self.reached)

    def partitions(self, start: Topics, end: Topics) -> Sequence[InputPartition]:
        """Splits of the records with start <= offset < end: the same records at every attempt, even if the segments have changed."""
        groups = self._groups()
        before, planned, now = ids_of(start), ids_of(end), _ids(groups)
        for what in dict.fromkeys(created_anew(before, planned | now) + created_anew(planned, now)):
            self._lost(what)
        # A topic that was created anew before this micro-batch was planned is read from its beginning; one that was later, in the next one.
        starts, stops = _of_same_topics(from_json(start), before, planned), from_json(end)
        # pyspark 4.0 and 4.1 do not say where a micro-batch starts when they ask where it ends.
        self._compare(starts, stops)
        limits: dict[Key, Bounds] = {}
        for key, stop in _of_same_topics(stops, planned, now).items():
            begin, where = starts.get(key, 0), f"{key[0]}-{key[1]}"
            if key not in groups:
                if begin < stop:
                    self._lost(f"{where}: offsets {begin} to {stop - 1} were to be read, and the partition no longer exists")
                continue
            first = _begin(groups[key])
            if key in starts and begin < min(first, stop):
                self._lost(f"{where}: offset {begin} was to be read, and the log begins at {first}")
            if begin < stop:
                limits[key] = (begin, stop)
        splits = share(self.options, {key: group for key, group in groups.items() if key in limits}, limits)
        return [Split(tuple(_clip(split, limits)), limits) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode one split."""
        assert isinstance(partition, Split)
        check_planned(partition)
        yield from conformed(read_split(partition, self.options), arrow_schema(self.spark_schema))

    def _groups(self) -> Groups:
        """Live segments by topic partition. Streams need Kafka's file names, since base offsets tell which segments are new."""
        groups = segments_by_partition(self.options)
        for segment in (segment for segments in groups.values() for segment in segments):
            if segment.format in layouts.RAW:
                raise ArgumentError(
                    f"{shown(segment.path)}: a stream goes on by the offsets in segments, and those of {segment.format} are raw "
                    "offsets: read it without a stream, or convert the log to Kafka's format first"
                )
            if None in (segment.topic, segment.partition, segment.base_offset):
                raise ArgumentError(f"{segment.path}: a stream needs <topic>-<partition>/<base offset, 20 digits>.log")
        return groups  # type: ignore[return-value]

    def _ends(self, groups: Groups) -> dict[Pair, int]:
        return {key: self._end(segments) for key, segments in groups.items()}

    def _end(self, segments: list[Segment]) -> int:
        return readable_end(segments, self.options.decode)


def _ids(groups: Groups) -> dict[str, str]:
    return topic_ids(segment for segments in groups.values() for segment in segments[:1])


def _begin(segments: list[Segment]) -> int:
    return log_start(segments) or 0


def to_json(offsets: dict[Pair, int], ids: Mapping[str, str] = {}) -> Topics:
    """Offsets as Spark keeps them in the checkpoint."""
    known = {topic: ids[topic] for topic in sorted(ids) if topic in {topic for topic, _ in offsets}}
    topics: Topics = {IDS: known} if known else {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def from_json(offsets: Topics) -> dict[Pair, int]:
    """The offsets of `to_json`."""
    return {(topic, int(number)): offset for topic, own in offsets.items() if topic != IDS for number, offset in own.items()}


def _of_same_topics(offsets: dict[Pair, int], before: Mapping[str, str], now: Mapping[str, str]) -> dict[Pair, int]:
    """Without the offsets of topics that were created anew."""
    return {key: offset for key, offset in offsets.items() if key[0] not in before or now.get(key[0], before[key[0]]) == before[key[0]]}


def ids_of(offsets: Topics) -> dict[str, str]:
    """The topic ids of `to_json`; empty for a checkpoint without ids."""
    return dict(offsets.get(IDS, {}))


def behind(offsets: Topics, ends: Topics) -> dict[str, str]:
    """How far offsets are from the ends of their partitions, as Spark's Kafka source reports it with the progress of a query."""
    done = from_json(offsets)
    waiting = [max(0, end - done.get(key, 0)) for key, end in from_json(ends).items()]
    totals = {"min": min(waiting), "max": max(waiting), "avg": sum(waiting) / len(waiting)} if waiting else {}
    return {f"{name}OffsetsBehindLatest": str(total) for name, total in totals.items()}


def limit_ends(groups: Groups, starts: dict[Pair, int], ends: dict[Pair, int], limits: dict[str, int]) -> dict[Pair, int]:
    """The end offsets of a micro-batch that starts at ``starts`` and goes to ``ends`` at most.

    All ``limits`` that are given apply: ``offsets``, in proportion to what each partition has, as in Spark's Kafka source, ``bytes``,
    in equal parts, and ``files``. Every limit allows at least one batch, or record.
    """
    if "offsets" in limits:
        ends = _by_offsets(starts, ends, limits["offsets"])
    if "files" in limits:
        ends = _by_files(groups, starts, ends, limits["files"])
    if "bytes" in limits:
        busy = [key for key in ends if ends[key] > starts[key]]
        ends = ends | {key: _by_bytes(groups[key], starts[key], ends[key], max(1, limits["bytes"] // len(busy))) for key in busy}
    return ends


def _by_offsets(starts: dict[Pair, int], ends: dict[Pair, int], most: int) -> dict[Pair, int]:
    total = sum(ends[key] - starts[key] for key in ends)
    if total <= most:
        return ends
    reached, left = dict(starts), most
    # The largest first: the remainder of rounding down goes to the partitions with the largest backlog.
    for key in sorted(ends, key=lambda key: starts[key] - ends[key]):
        waiting = ends[key] - starts[key]
        part = min(left, waiting, max(1, most * waiting // total))
        reached[key] += part
        left -= part
    return reached


def _by_files(groups: Groups, starts: dict[Pair, int], ends: dict[Pair, int], most: int) -> dict[Pair, int]:
    """Up to the end of ``most`` segments, one of each partition in turn; the partition with the largest backlog comes first."""
    stops = {
        key: [*sorted(s.base_offset for s in groups[key] if s.base_offset is not None and starts[key] < s.base_offset < end), end]
        for key, end in ends.items()
        if end > starts[key]
    }
    reached, order = dict(starts), sorted(stops, key=lambda key: starts[key] - ends[key])
    while most and any(stops.values()):
        for key in order:
            if most and stops[key]:
                reached[key] = stops[key].pop(0)
                most -= 1
    return reached


def _by_bytes(segments: list[Segment], start: int, end: int, most: int) -> int:
    """The offset after the last of the batches from ``start`` on that fit into ``most`` bytes."""
    taken, reached = 0, start
    for segment, following in zip(segments, [*(s.lowest for s in segments[1:]), None], strict=True):
        if following is not None and following <= start:
            continue
        for entries in headers(segment):
            for size, last in zip(entries.size.tolist(), entries.last_offset.tolist(), strict=True):
                if last < start:
                    continue
                if taken and taken + size > most:
                    return min(end, reached)
                taken, reached = taken + size, last + 1
                if reached >= end:
                    return end
    return end


def _clip(split: Split, limits: Mapping[Key, Bounds]) -> Iterator[Range]:
    """The ranges of a split, cut before the first entry past the limit: entries after the limit may be incomplete."""
    for part in split.ranges:
        stop = limits[key_of(part)][1]
        clipped = part if stop is None else replace(part, end=min(part.end, position_of(part, stop)))
        if clipped.end > clipped.start or not part.segment.size:
            yield clipped


def check_planned(split: Split) -> None:
    """Raise `KolumnError` if a file of a split is gone, or is another file of the same name than when it was planned.

    Positions in it are invalid then, and records could be lost without notice. When the query is started again, it plans the same offsets
    again from its checkpoint.
    """
    for segment in dict.fromkeys(part.segment for part in split.ranges):
        path, now = segment.path, current(segment.path)
        if now is None or (segment.identity is not None and segment.identity.is_another(now)):
            what = "is gone" if now is None else "has been replaced"
            raise KolumnError(f"{path}: {what} since this micro-batch was planned. Start the query again: it goes on from its checkpoint")
