"""`export`: the workers write Parquet themselves. Every record is in the target exactly once, even if tasks fail or are repeated.

Plan of an export: the new records of each partition are cut into jobs, and jobs are combined into tasks.
"""

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal, Unpack, get_args
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import SparkSession

from kolumn.copies.copies import copies, overlaps
from kolumn.copies.ends import log_end
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import known_keywords
from kolumn.decode.pipeline import scan_ranges
from kolumn.log.seek import select_ranges
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.readers.types import with_types
from kolumn.source.segments import Range, Segment
from kolumn.spark_plugin.options.read import NOT_IN_SPARK, SPLIT_BYTES, LoadOptions
from kolumn.spark_plugin.read.splits import created_anew, even, log_start, lost, pack, topic_ids, wanted
from kolumn.spark_plugin.session.session import Run, by_job, by_threads, slots, use_this_python
from kolumn.spark_plugin.write.staged import ExportJob, ExportLayout, make_staging, write_job
from kolumn.tools.parquet import refuse_empty_records
from kolumn.writers.commit.manifest import FOLDER, ExportTarget, Manifest

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


_RESULT = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("day", pa.string()),
        ("staged", pa.string()),
        ("rows", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)
_RESULT_DDL = "topic string, partition int, day string, staged string, rows bigint, first bigint, last bigint"


@known_keywords(NOT_IN_SPARK)
def export(
    spark: SparkSession,
    source: keywords.Source,
    target: str,
    format: Literal["parquet"] = "parquet",
    *,
    by_day: bool = False,
    filesystem: Any = None,
    row_group_rows: int = keywords.ROW_GROUP_ROWS,
    compression: keywords.Compression = "zstd",
    split_bytes: int = SPLIT_BYTES,
    fail_on_data_loss: bool = True,
    **options: Unpack[keywords.RecordOptions],
) -> Manifest:
    """Write the records that the target does not have yet to Parquet, in the workers.

    Files are ``topic=…/partition=…/[day=…/]<first offset>-<…>.parquet`` below the target: topic, partition and day are in the
    names of folders, ``offset`` is always written. A file gets its name once it is complete and Spark has accepted its attempt.
    Only one export may write to a target at a time; on file systems of this machine a second one is rejected.

    Parameters
    ----------
    spark : SparkSession
    source : str, PathLike or iterable of those
        As for `kolumn.read`; every segment needs a topic and a partition.
    target : str
        A folder, or a URI of a file system that pyarrow supports. Every worker must be able to reach it.
    format : "parquet"
    by_day : bool, for folders of UTC days of the timestamps below each partition's
    filesystem : pyarrow.fs.FileSystem or an fsspec one, optional: what ``target`` is a path of
    row_group_rows, compression : int, str
        Maximum rows of a row group, sorted by offset; a codec of Parquet, "none" for no compression.
    split_bytes : int
        Approximate maximum of log bytes that one task reads; it is reduced if slots would otherwise be idle.
    fail_on_data_loss : bool
        Whether it is an error if a log does not continue where the target ends: it ends before, it begins later (retention), or
        its topic was created again (with another id). With False a warning is logged, and only later offsets are added.
    columns, start_offset, …
        All others as in `kolumn.scan`; ``threads`` and ``binary`` are rejected.

    Returns
    -------
    Manifest
        Which offsets of which partitions the target contains, and the files that this run added.

    Raises
    ------
    ArgumentError
        An option is invalid or differs from the one that the target was made with (``end_offset`` may differ), a segment has no
        topic or partition, or two folders of one partition overlap while ``replicas`` is "raise".
    KolumnError
        A log does not continue where the target ends (with ``fail_on_data_loss``), or another export is writing to the target.
    """
    _check(spark, format, compression, row_group_rows)
    asked = LoadOptions.given(source, split_bytes, slots(spark), **options)
    decode = asked.decode.with_columns(_columns(asked.decode.columns, by_day))
    place, run = _target(target, filesystem), uuid.uuid4().hex
    layout = ExportLayout(place.files, place.staging(run), decode, by_day, row_group_rows, compression)
    with place.alone():
        return _run(spark, replace(asked, fail_on_data_loss=fail_on_data_loss), place, layout, run)


def _run(spark: SparkSession, asked: LoadOptions, place: ExportTarget, layout: ExportLayout, run: str) -> Manifest:
    segments = live_segments(asked.paths, layout.options).segments
    layout = replace(layout, options=with_types(layout.options, asked.paths, map(Range.whole, segments)))
    refuse_empty_records(layout.options.schema)
    before = _continue(place.open(), place.root, layout.options, layout.by_day)
    target = even(sum(segment.size for segment in segments), asked.split_bytes, asked.slots)
    now = topic_ids(segments)
    for what in created_anew(before.topics, now):
        lost(what, asked.fail_on_data_loss, GOES_ON)
    before.topics = before.topics | now
    jobs = plan_jobs(segments, layout.options, before, target, by_job(spark), asked.fail_on_data_loss)
    tasks = list(plan_tasks(jobs, target))
    if not tasks:
        return before
    try:
        make_staging(place.files, layout.staging)
        found = _write(spark, tasks, layout)
        return _publish(place, before, run, found) if found else before
    finally:
        _tidy(place, run)


def _check(spark: SparkSession, format: str, compression: str, row_group_rows: int) -> None:
    use_this_python(spark)
    if format != "parquet":
        raise ArgumentError(f"format={format!r}: expected 'parquet'; the format of the log is always found out")
    if compression not in get_args(keywords.Compression):
        raise ArgumentError(f"compression={compression!r}: expected one of {', '.join(get_args(keywords.Compression))}")
    if row_group_rows < 1:
        raise ArgumentError(f"row_group_rows={row_group_rows}: expected at least 1")


def _columns(columns: tuple[str, ...], by_day: bool) -> tuple[str, ...]:
    needed = ("offset", "timestamp") if by_day else ("offset",)
    return (*columns, *(name for name in needed if name not in columns))


def _target(target: str, filesystem: Any) -> ExportTarget:
    if filesystem is None:
        if "://" not in target:
            return ExportTarget(fs.LocalFileSystem(), os.path.abspath(target))
        return ExportTarget(*fs.FileSystem.from_uri(target))
    if not isinstance(filesystem, fs.FileSystem):
        filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    return ExportTarget(filesystem, target)


def _continue(manifest: Manifest, root: str, decode: Options, by_day: bool) -> Manifest:
    """Check that this run has the settings of earlier runs: otherwise the offsets in the target would not tell which records are new."""
    names = ("columns", "start_offset", "start_timestamp", "end_timestamp", "isolation_level", "include_control", "topic", "partition")
    settings = {name: list(value) if isinstance(value := getattr(decode, name), tuple) else value for name in names} | {"by_day": by_day}
    if decode.typed or "types" in manifest.settings:
        # Targets of reads without typed columns say nothing of types.
        settings["types"] = {one.column: str(one.type) for one in decode.typed if one.column in decode.columns}
    for name in (*manifest.settings, *({"types"} & set(settings) - set(manifest.settings))) if manifest.settings else ():
        if manifest.settings.get(name) != settings.get(name):
            raise ArgumentError(
                f"{root} was made with {name}={manifest.settings.get(name)!r}, now it is {settings.get(name)!r}: "
                "give what it was made with, or another target"
            )
    manifest.settings = settings
    return manifest


def _write(spark: SparkSession, tasks: list[list[ExportJob]], layout: ExportLayout) -> list[dict[str, Any]]:
    """Run the tasks; returns what the successful attempts have written, one attempt for each task."""

    def work(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (value.as_py() for batch in numbers for value in batch.column(0)):
            for job in tasks[number]:
                yield pa.RecordBatch.from_pylist(list(write_job(job, layout)), schema=_RESULT)

    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(work, _RESULT_DDL)
    return [row.asDict() for row in frame.collect()]


def _publish(place: ExportTarget, before: Manifest, run: str, found: list[dict[str, Any]]) -> Manifest:
    moves, files = {}, []
    for one in found:
        folder = f"topic={quote(one['topic'], safe=' ')}/partition={one['partition']}" + (f"/day={one['day']}" if one["day"] else "")
        final = f"{folder}/{one['first']:020d}-{one['staged']}"
        moves[f"{FOLDER}/staging/{run}/{one['staged']}"] = final
        files.append({"path": final} | {name: one[name] for name in ("topic", "partition", "rows", "first", "last")})
    after = before.after(sorted(files, key=lambda file: file["path"]))
    place.publish(after, moves)
    return after


def _tidy(place: ExportTarget, run: str) -> None:
    """Remove the run's staged files, unless its intent is written: such a run still needs them. One without has failed or is done."""
    if not place.pending():
        place.discard(run)
