"""The stream of a log directory that grows. A micro-batch is a range of offsets, so segments may be rolled, compacted
or deleted between its first attempt and the next."""

import logging
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kolumn.copies.ends import log_end
from kolumn.core.errors import ArgumentError
from kolumn.log.transactions import transactions_of
from kolumn.source.segments import Segment
from kolumn.spark_plugin.options.positions import EARLIEST, LATEST, Key, Position
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.schema import arrow_schema, conform
from kolumn.spark_plugin.read.splits import Bounds, Split, created_anew, log_start, lost, segments_by_partition, share, topic_ids
from kolumn.spark_plugin.read.task import read_split, warn
from kolumn.spark_plugin.stream.progress import Pair, Topics, check_planned, clip, from_json, ids_of, limit_ends, to_json

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
except ImportError:  # pyspark 4.1: every micro-batch takes all records that exist
    _AvailableNow = object  # type: ignore[assignment, misc]


logger = logging.getLogger(__name__)

Groups = dict[Pair, list[Segment]]


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
        self.options, self.spark_schema = options, schema
        self.target: dict[Pair, int] | None = None
        self.reached: dict[Pair, int] | None = None
        self.initial: Topics | None = None
        self.triggered = -math.inf

    def initialOffset(self) -> Topics:  # noqa: N802
        """Where the first run starts. Spark asks more than once, and a log grows meanwhile: the first answer counts."""
        if self.initial is None:
            self.initial = self._initial()
        return self.initial

    def _initial(self) -> Topics:
        groups = self._groups()
        start = self.options.start or Position("startingOffsets", offset=LATEST)
        named: dict[Key, list[Segment]] = dict(groups.items())
        found = start.resolve(named, self.options.decode)
        ends = {EARLIEST: _begin, LATEST: self._end}
        resolved = {key: ends[found[key]](group) if found[key] in ends else found[key] for key, group in groups.items()}
        if self.options.start is None:
            _say_what_is_left_out(sum(resolved[key] - _begin(group) for key, group in groups.items()))
        return to_json(resolved, _ids(groups))

    def latestOffset(self, start: Topics | None = None, limit: object = None) -> Topics:  # noqa: N802
        """Where the micro-batch from ``start`` ends. pyspark 4.1 passes neither argument."""
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
        return to_json(self._next(from_json(start), ends, groups, dict(self.options.limits) if limited else {}), known | ids)

    def _reached(self, groups: Groups) -> dict[Pair, int]:
        """Where the log ends, for this run."""
        self.reached = self._ends(groups) if self.target is None else self.target
        return self.reached

    def _next(self, done: dict[Pair, int], ends: dict[Pair, int], groups: Groups, limits: dict[str, int]) -> dict[Pair, int]:
        for (topic, partition), offset in done.items():
            key, where = (topic, partition), f"{topic}-{partition}: read up to offset {offset}, and the"
            if key not in groups:
                self._lost(f"{where} partition no longer exists")
            elif ends.get(key, offset) < offset:
                self._lost(f"{where} log ends at {ends[key]}")
        starts = {key: done.get(key, _begin(groups[key])) for key in ends if key in groups}
        waiting = {key: max(ends[key], start) for key, start in starts.items()}
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

    def _lost(self, what: str) -> None:
        lost(what, self.options.fail_on_data_loss)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """One of the limits, since Spark supports no combination of them; `latestOffset` applies all of them."""
        from pyspark.sql.streaming import datasource as limits

        kinds = {"offsets": limits.ReadMaxRows, "bytes": limits.ReadMaxBytes, "files": limits.ReadMaxFiles}
        return next((kinds[kind](most) for kind, most in self.options.limits), limits.ReadAllAvailable())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where the log ends now: a run of Trigger.AvailableNow ends there."""
        self.target = self._ends(self._groups())

    def reportLatestOffset(self) -> Topics:  # noqa: N802
        """Where the log ended when the last micro-batch was planned, for the progress of the query, as Spark's Kafka source says it."""
        return to_json(self._reached(self._groups()) if self.reached is None else self.reached)

    def partitions(self, start: Topics, end: Topics) -> Sequence[InputPartition]:
        """Splits of the records with start <= offset < end: the same records at every attempt, even if the segments have changed."""
        groups, starts = self._groups(), from_json(start)
        for what in created_anew(ids_of(start) | ids_of(end), _ids(groups)):
            self._lost(what)
        limits: dict[Key, Bounds] = {}
        for key, stop in from_json(end).items():
            begin, where = starts.get(key, 0), f"{key[0]}-{key[1]}"
            if key not in groups:
                if begin < stop:
                    self._lost(f"{where}: no longer exists, but offsets up to {stop} were to be read")
                continue
            first = _begin(groups[key])
            if key in starts and begin < min(first, stop):
                self._lost(f"{where}: offset {begin} was to be read, and the log begins at {first}")
            if begin < stop:
                limits[key] = (begin, stop)
        splits = share(self.options, {key: group for key, group in groups.items() if key in limits}, limits)
        return [Split(tuple(clip(split, limits)), limits) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode one split."""
        assert isinstance(partition, Split)
        schema = arrow_schema(self.spark_schema)
        check_planned(partition)
        for batch in read_split(partition, self.options, warn):
            yield from conform(batch, schema)

    def _groups(self) -> Groups:
        """Live segments by topic partition. Streams need Kafka's file names, since base offsets tell which segments are new."""
        found = segments_by_partition(self.options)
        for key, segments in found.items():
            for segment in segments:
                if None in key or segment.base_offset is None:
                    raise ArgumentError(f"{segment.path}: a stream needs <topic>-<partition>/<base offset, 20 digits>.log")
        return found  # type: ignore[return-value]

    def _ends(self, groups: Groups) -> dict[Pair, int]:
        return {key: self._end(segments) for key, segments in groups.items()}

    def _end(self, segments: list[Segment]) -> int:
        """Where the log ends; with read_committed, not after the offset where a committed reader must stop."""
        end = log_end(segments)
        if self.options.decode.isolation_level == "read_uncommitted":
            return end
        stable = transactions_of(segments, self.options.decode).last_stable_offset
        return end if stable is None else min(end, stable)


def _say_what_is_left_out(offsets: int) -> None:
    if offsets > 0:
        logger.warning(
            "this stream begins at the end of the log, as Spark's Kafka source does: %d offsets that are there already are not read. "
            "startingOffsets=earliest reads them",
            offsets,
        )


def _ids(groups: Groups) -> dict[str, str]:
    return topic_ids(segment for segments in groups.values() for segment in segments[:1])


def _begin(segments: list[Segment]) -> int:
    return log_start(segments) or 0
