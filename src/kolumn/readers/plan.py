"""The plan of a read: from the files that a source names to the bytes that are decoded. No payload is read for it.

    names ──▶ LiveSegments ──▶ the log of each topic-partition ──▶ ReadPlan
              what a broker     `copies/ranges.py`: copies and      ranges with their transactions,
              would load        tiers joined, each offset once      types of typed columns

Every reader begins here: `kolumn.read` and the like, tools, commands and Spark's driver. What only some sources have (tiers, swap files,
names that are not Kafka's) is entered only if the listing shows it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from kolumn.copies.ranges import plan_log, whole_ranges
from kolumn.core.keywords import Source
from kolumn.decode.pipeline import OnDamage, scan_ranges
from kolumn.options import Options
from kolumn.source.segments import Listed, Range, Segment, find_segments


@dataclass(frozen=True)
class LiveSegments:
    """The segments of a source that a broker would load, those of all copies of a topic-partition.

    Attributes
    ----------
    options : Options
        Those of the read.
    listed : list of FolderEntry
        Every file and folder that was listed to find the segments.
    """

    source: Source
    options: Options
    segments: list[Segment]
    listed: Listed

    def one_log(self, of_tiers: bool = False) -> list[Segment]:
        """The segments without duplicate offsets of a topic-partition, whole; with ``of_tiers`` those in chunks of a tier too.

        Raises
        ------
        ArgumentError
            Copies of a partition overlap while ``replicas`` is "raise", or only a part of a segment belongs to the log.
        """
        from kolumn.copies.tiers import log_of, whole_segments

        return whole_segments(log_of(self.segments, self.options), of_tiers)

    def whole_ranges(self) -> list[Range]:
        """Ranges of all segments, without regard to the options' offsets and timestamps."""
        return whole_ranges(self.segments, self.options)

    def left_out(self) -> pa.Table:
        """Files and folders that were listed and are not read, with the reason; columns of `kolumn.core.schema.LEFT_OUT_SCHEMA`."""
        from kolumn.log.left_out import left_out

        return left_out(self.listed, self.segments)


@dataclass(frozen=True)
class ReadPlan:
    """What a read decodes.

    Attributes
    ----------
    live : LiveSegments
    options : Options
        Those of the read, with the types of its typed columns.
    ranges : list of Range
        In the order of the log, with its transactions if the options need them.
    """

    live: LiveSegments
    options: Options
    ranges: list[Range]

    def scan(self, options: Options | None = None, on_damage: OnDamage | None = None) -> Iterator[pa.RecordBatch]:
        """Decode the ranges, as `kolumn.decode.pipeline.scan_ranges`."""
        return scan_ranges(self.ranges, options or self.options, on_damage)


def live_segments(source: Source, options: Options) -> LiveSegments:
    """Find the segments of a source that a broker would load; errors as `kolumn.source.segments.find_segments`."""
    listed: Listed = []
    found = find_segments(source, options.topic, options.partition, options.errors == "skip", listed)
    if any(one.manifest is not None for one in found):
        found = _with_access(found, options)
    if options.format != "kafka":
        found = [replace(one, format=options.format) for one in found]
    if any(one.is_swap for one in found):
        from kolumn.log.live import without_replaced

        found = without_replaced(found)
    if any(one.base_offset is None for one in found):
        from kolumn.log.live import with_twins

        found = with_twins(found)
    if any(one.copy_id is not None for one in found):
        from kolumn.readers.remote_metadata import without_unfinished

        found = without_unfinished(found)
    if options.include_snapshots:
        from kolumn.log.live import with_snapshots

        found = with_snapshots(found)
    return LiveSegments(source, options, found, listed)


def _with_access(segments: list[Segment], options: Options) -> list[Segment]:
    """The segments with what is needed to open those of a tier: keys, and bounds on memory."""
    from kolumn.source.read_ahead import AHEAD_BYTES
    from kolumn.source.tiers.file import LARGEST_CHUNK, Access, wrapped_keys

    given = options.memory_bytes or 0
    wrapped = wrapped_keys(one.manifest for one in segments if one.manifest is not None)
    access = Access(options.keys, options.errors == "skip", min(AHEAD_BYTES, given or AHEAD_BYTES), max(LARGEST_CHUNK, given), wrapped)
    return [replace(one, access=access) for one in segments]


def plan_read(source: Source, options: Options) -> ReadPlan:
    """Plan a read of a source.

    Raises
    ------
    ArgumentError
        The source has no segments, copies of a topic-partition overlap while ``replicas`` is "raise", or a typed column has no type.
    CorruptBatchError
        A manifest of a tier cannot be used, with ``errors="raise"``.
    """
    return plan_of(live_segments(source, options))


def plan_of(live: LiveSegments, options: Options | None = None) -> ReadPlan:
    """Plan a read of segments that are known, maybe with other options than those that found them."""
    options = options or live.options
    ranges = plan_log(live.segments, options)
    if options.typed:
        from kolumn.readers.types import with_types

        options = with_types(options, live.source, ranges)
    return ReadPlan(live, options, ranges)
