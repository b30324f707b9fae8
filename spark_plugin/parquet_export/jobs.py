"""Plan of an export: the new records of each partition are cut into jobs, and jobs are combined into tasks."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from kolumn.commit.manifest import Manifest
from kolumn.decode.pipeline import scan_ranges
from kolumn.errors import ArgumentError
from kolumn.options import Options
from kolumn.plan.seek import select_ranges
from kolumn.replicas.copies import copies, overlaps
from kolumn.replicas.log_end import log_end
from kolumn.source.segments import Segment
from kolumn.spark_plugin.parquet_export.staged import ExportJob
from kolumn.spark_plugin.read.bounds import log_start, lost
from kolumn.spark_plugin.read.splits import pack, wanted
from kolumn.spark_plugin.session.session import Run, by_threads

GOES_ON = "fail_on_data_loss=False"
"""The argument that exports the records that exist, as messages name it."""


def plan_jobs(
    segments: list[Segment], decode: Options, manifest: Manifest, split_bytes: int, run: Run = by_threads, fail_on_data_loss: bool = True
) -> Iterator[ExportJob]:
    """The new records of each partition, in pieces of about ``split_bytes``.

    Raises
    ------
    ArgumentError
        A segment has no topic or partition, or a partition is in two folders that overlap while ``replicas`` is "raise".
    KolumnError
        With ``fail_on_data_loss``: the log of a partition ends before the target's last offset, or begins after it.
    """
    unnamed = [segment.path for segment in segments if segment.topic is None or segment.partition is None]
    if unnamed:
        raise ArgumentError(f"{unnamed[0]}: its folder is not named topic-partition: give the options topic and partition")
    for overlap in overlaps(segments) if decode.replicas == "raise" else ():
        raise ArgumentError(f"{overlap}: export one copy of a partition, the first by replicas='first', or all as one by replicas='merge'")
    for (topic, partition), group in groupby(sorted(segments, key=_key), key=_key):
        # Several directories keep the order of the source, which decides which of them is the first.
        own = list(group)
        own = own if copies(own) else sorted(own, key=_base)
        start = manifest.next_offset(topic, partition)
        if start is not None:
            _compare(own, start, decode, fail_on_data_loss)
        options = decode if start is None else replace(decode, start_offset=start)
        for ranges in pack(wanted(own, options, split_bytes, run), split_bytes):
            yield ExportJob(topic, partition, start, ranges)


def _compare(segments: list[Segment], start: int, decode: Options, fail: bool) -> None:
    """Check that a log continues where the target ends. Damage may hide the log's end from the headers; records are decoded then."""
    if decode.end_offset is not None and decode.end_offset <= start:
        return
    where = f"{segments[0].topic}-{segments[0].partition}: the target has the offsets up to {start - 1}, and the log"
    first, end = log_start(segments), log_end(segments)
    if end < start and not _has_records(segments, start - 1, decode):
        lost(f"{where} ends at {end}: the topic was created anew, or its log was cut. Name another target", fail, GOES_ON)
    elif first is not None and first > start:
        lost(f"{where} begins at {first}: those between were deleted before they were exported", fail, GOES_ON)


def _has_records(segments: list[Segment], offset: int, decode: Options) -> bool:
    if decode.errors != "skip":
        return False
    search = Options(columns=("offset",), start_offset=offset, include_control=True, errors="skip", format=decode.format, backend="cpu")
    return any(batch.num_rows for batch in scan_ranges(select_ranges(segments, search), search))


def _key(segment: Segment) -> tuple[str, int]:
    return segment.topic or "", segment.partition or 0


def _base(segment: Segment) -> int:
    return segment.base_offset or 0


def plan_tasks(jobs: Iterable[ExportJob], target: int) -> Iterator[list[ExportJob]]:
    """Small partitions share a task."""
    group: list[ExportJob] = []
    size = 0
    for job in jobs:
        length = sum(part.end - part.start for part in job.ranges)
        if group and size + length > target:
            yield group
            group, size = [], 0
        group.append(job)
        size += length
    if group:
        yield group
