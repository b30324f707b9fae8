"""The plan of a read: from the files that a source names to the bytes that are decoded. Of payloads it reads
markers of transactions, a tier's metadata, and the values that a type is inferred from.

    names ──▶ LiveSegments ──▶ the log of each topic-partition ──▶ ReadPlan
              what a broker     `copies/ranges.py`: copies and      ranges with their transactions,
              would load        tiers joined, each offset once      types of typed columns

Every reader begins here: `kolumn.read` and the like, tools, commands and Spark's driver. What only some sources have (tiers, swap files,
names that are not Kafka's) is entered only if the listing shows it.
"""

import logging
import os
from dataclasses import dataclass, replace

import pyarrow as pa

from kolumn.copies.ranges import plan_log, topic_rows, whole_ranges
from kolumn.copies.transactions import with_transactions
from kolumn.core.errors import shown
from kolumn.core.keywords import Source
from kolumn.damage.findings import Skipped
from kolumn.formats import layouts
from kolumn.log.seek import select_ranges
from kolumn.options import Options
from kolumn.source.identity import scanned
from kolumn.source.names import SWAP
from kolumn.source.segments import Listed, Range, Segment, find_segments
from kolumn.source.storage import is_url, parent

logger = logging.getLogger(__name__)
TOPIC = "__remote_log_metadata"
STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
"""By their numbers (``RemoteLogSegmentState``)."""
_FINISHED = 1
_MESSAGES = ("RemoteLogSegmentMetadataRecord", "RemoteLogSegmentMetadataUpdateRecord")


@dataclass(frozen=True)
class LiveSegments:
    """The segments of a source that a broker would load, those of all copies of a topic-partition.

    ``listed`` has every file and folder that was listed to find them.
    """

    source: Source
    options: Options
    segments: list[Segment]
    listed: Listed

    def one_log(self, of_tiers: bool = False) -> list[Segment]:
        """The segments without duplicate offsets of a topic-partition, whole; with ``of_tiers`` those in chunks of a tier too.

        Raises `ArgumentError` if copies of a partition overlap while ``replicas`` is "raise", or only a part of a segment is of the log.
        """
        from kolumn.copies.tiers import log_of, whole_segments

        return whole_segments(log_of(self.segments, self.options), of_tiers)

    def whole_ranges(self) -> list[Range]:
        """Ranges of all segments, without regard to the options' offsets and timestamps."""
        return whole_ranges(self.segments, self.options)

    def left_out(self) -> pa.Table:
        """Files and folders that were listed and are not read, with the reason; columns of `kolumn.schema.LEFT_OUT_SCHEMA`."""
        from kolumn.log.live import left_out

        return left_out(self.listed, self.segments)


@dataclass(frozen=True)
class ReadPlan:
    """What a read decodes: ranges in the order of the log, with its transactions if the options need them.

    The options are those of the read, with the types of its typed columns.
    """

    live: LiveSegments
    options: Options
    ranges: list[Range]


def live_segments(source: Source, options: Options) -> LiveSegments:
    """Find the segments of a source that a broker would load; errors as `kolumn.source.segments.find_segments`."""
    listed: Listed = []
    segments = find_segments(source, options.topic, options.partition, options.errors == "skip", listed)
    stored = tiered = swapped = nameless = named = False
    for segment in segments:
        stored = stored or segment.manifest is not None
        named = named or segment.raft is not None
        tiered = tiered or (segment.copy_id is not None and segment.raft is None)
        swapped = swapped or segment.path.endswith(SWAP)
        nameless = nameless or segment.base_offset is None
    if stored:
        segments = _with_access(segments, options)
    if options.format != "kafka":
        segments = [replace(segment, format=options.format) for segment in segments]
    elif named or nameless:
        from kolumn.log.recognised import FORMAT, recognised

        segments = recognised(segments)
        if all(segment.format == FORMAT or segment.fault is not None for segment in segments):
            options = replace(options, format=FORMAT)
    if swapped:
        from kolumn.log.live import without_replaced

        segments = without_replaced(segments)
    if nameless:
        from kolumn.log.live import with_twins

        segments = with_twins(segments)
    if tiered:
        segments = _without_unfinished(segments)
    if options.include_snapshots:
        from kolumn.log.live import with_snapshots

        segments = with_snapshots(segments)
    if options.include_deleted_segments:
        from kolumn.log.live import with_deleted

        segments = with_deleted(segments, listed, options.topic, options.partition)
    return LiveSegments(source, options, segments, listed)


def _with_access(segments: list[Segment], options: Options) -> list[Segment]:
    """The segments with what is needed to open those of a tier: keys, and bounds on memory."""
    from kolumn.source.read_ahead import AHEAD_BYTES
    from kolumn.source.tier_file import LARGEST_CHUNK, Access, wrapped_keys

    given = options.memory_bytes or 0
    wrapped = wrapped_keys(segment.manifest for segment in segments if segment.manifest is not None)
    access = Access(
        options.private_keys, options.errors == "skip", min(AHEAD_BYTES, given or AHEAD_BYTES), max(LARGEST_CHUNK, given), wrapped
    )
    return [replace(segment, access=access) for segment in segments]


def _without_unfinished(segments: list[Segment]) -> list[Segment]:
    """The segments without copies in a tier that no broker would read; a warning tells of those.

    A broker notes in a topic that it begins to copy a segment, and that it has finished, and likewise when it deletes a copy. It reads no
    copy in another state than COPY_SEGMENT_FINISHED (``RemoteLogMetadataCache``): files of a copy that failed, or whose deletion did, may
    be left in the tier. The topic counts if it is among the segments, or on this machine beside a folder of a topic-partition of which
    segments are in a tier. Copies of which it says nothing stay: their brokers may have had another topic, or have lost it.
    """
    topics = {segment.topic for segment in segments if segment.copy_id is not None and segment.topic is not None}
    if not topics:
        return segments
    states = _states([segment for segment in segments if segment.topic == TOPIC] or _beside(segments, topics), topics)
    left_out = [segment for segment in segments if states.get(segment.copy_id or "", _FINISHED) != _FINISHED]
    if not left_out:
        return segments
    first = left_out[0]
    logger.warning(
        "%d segments of a tier are left out, which brokers do not read by %s: the first is %s, in state %s",
        len(left_out), TOPIC, shown(first.path), STATES[states[first.copy_id or ""]],
    )  # fmt: skip
    gone = {segment.copy_id for segment in left_out}
    return [segment for segment in segments if segment.copy_id is None or segment.copy_id not in gone]


def _beside(segments: list[Segment], topics: set[str]) -> list[Segment]:
    """Segments of brokers' topic of copies beside the folders of some topics on this machine."""
    from kolumn.log.live import segments_of_source

    local = {parent(os.path.abspath(segment.path)) for segment in segments if segment.topic in topics and not is_url(segment.path)}
    folders = []
    for above in sorted({parent(folder) for folder in local}):
        for entry in scanned(above):
            name, _, partition = entry.name.rpartition("-")
            if name == TOPIC and partition.isdecimal() and entry.is_dir() and any(file.endswith(".log") for file in os.listdir(entry.path)):
                folders.append(entry.path)
    return segments_of_source(folders) if folders else []


def _states(metadata: list[Segment], topics: set[str]) -> dict[str, int]:
    """The last state of each copy of a segment of some topics. All of a copy's records are in one partition."""
    states: dict[str, int] = {}
    if not metadata:
        return states
    # Only here: it has the messages of all internal topics.
    from kolumn.values.internal.messages import decode_value

    names, skipped = [topic.encode() for topic in topics], Skipped()
    for batch in topic_rows(metadata, ("value",), on_damage=skipped):
        for value in batch.column(0).to_pylist():
            # Most records are of other topics, and decoding is slow.
            if value is None or not any(name in value for name in names):
                continue
            record = decode_value(TOPIC, False, None, value)
            if record.type in _MESSAGES and record.fields is not None and record.fields["remoteLogSegmentState"] in range(len(STATES)):
                states[record.fields["remoteLogSegmentId"]["id"]] = record.fields["remoteLogSegmentState"]
    if skipped.pieces:
        logger.warning("%s: %s: states of copies may be older ones", TOPIC, skipped)
    return states


def plan_read(source: Source, options: Options) -> ReadPlan:
    """Plan a read of a source.

    Raises `ArgumentError` if the source has no segments, copies of a topic-partition overlap while ``replicas`` is "raise", or a typed
    column has no type, and `CorruptBatchError` if a manifest of a tier cannot be used, with ``errors="raise"``.
    """
    return plan_of(live_segments(source, options))


def plan_of(live: LiveSegments, options: Options | None = None) -> ReadPlan:
    """Plan a read of segments that are known, maybe with other options than those that found them."""
    options, segments = options or live.options, live.segments
    is_alone = len(segments) == 1 and segments[0].copy_id is None and segments[0].fault is None
    if is_alone and options.include_deleted_records is not False and segments[0].format not in layouts.RAW:
        # It has no copies, and no log start offset counts.
        ranges = with_transactions(select_ranges(segments, options), options)
    else:
        ranges = plan_log(segments, options)
    if options.typed:
        from kolumn.readers.types import with_types

        options = with_types(options, live.source, ranges)
    return ReadPlan(live, options, ranges)
