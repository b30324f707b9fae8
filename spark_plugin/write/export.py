"""`export`: the workers write Parquet themselves. Every record is in the target exactly once, even if tasks fail or are repeated.

The new records of each partition are cut into jobs, and jobs are combined into tasks. A task decodes, splits by day if requested, and
writes files under names that no other attempt has.
"""

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Unpack, get_args
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import SparkSession

from kolumn.copies.copies import copies, log_end, overlaps
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import ChoiceOptions, known_keywords
from kolumn.decode.pipeline import scan_ranges
from kolumn.log.seek import select_ranges
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.readers.types import with_types
from kolumn.source.segments import Range, Segment
from kolumn.spark_plugin.read.options import NOT_IN_SPARK, SPLIT_BYTES, LoadOptions
from kolumn.spark_plugin.read.splits import created_anew, even, log_start, lost, pack, topic_ids, wanted
from kolumn.spark_plugin.read.task import read_task, warn
from kolumn.spark_plugin.session.session import Run, by_job, by_threads, slots, use_this_python
from kolumn.tools import parquet
from kolumn.writers.commit.manifest import FOLDER, ExportTarget, Manifest
from kolumn.writers.commit.staged_file import StagedFile, make_folders, writing

NO_DAY = "__HIVE_DEFAULT_PARTITION__"
IN_THE_FOLDER = ("topic", "partition")
"""Columns that are in the names of folders, and therefore not in the files."""


@dataclass(frozen=True)
class ExportJob:
    """Ranges of one topic-partition, from the first offset that is not in the target yet."""

    topic: str
    partition: int
    start_offset: int | None
    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class ExportLayout:
    """How files are written: file system, folder of the run's attempts, and contents of a file."""

    files: fs.FileSystem
    staging: str
    options: Options
    by_day: bool
    row_group_rows: int
    compression: str


GOES_ON = "fail_on_data_loss=False"
"""The argument that exports the records that exist, as messages name it."""


def plan_jobs(
    segments: list[Segment], decode: Options, manifest: Manifest, split_bytes: int, run: Run = by_threads, fail_on_data_loss: bool = True
) -> Iterator[ExportJob]:
    """The new records of each partition, in pieces of about ``split_bytes``.

    Raises `ArgumentError` if a segment has no topic or partition, or if a partition is in two folders that overlap while ``replicas`` is
    "raise", and `KolumnError` with ``fail_on_data_loss`` if a log ends before the target's last offset, or begins after it.
    """
    unnamed = [segment.path for segment in segments if segment.topic is None or segment.partition is None]
    if unnamed:
        raise ArgumentError(f"{unnamed[0]}: its folder is not named topic-partition: give the options topic and partition")
    for overlap in overlaps(segments) if decode.replicas == "raise" else ():
        raise ArgumentError(f"{overlap}: export one copy of a partition, the first by replicas='first', or all as one by replicas='merge'")
    for (topic, partition), group in groupby(sorted(segments, key=_key), key=_key):
        # Several directories keep the order of the source, which decides which of them is the first.
        own = list(group)
        own = own if copies(own) else sorted(own, key=lambda segment: segment.base_offset or 0)
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


_TEXTS, _NUMBERS = ("topic", "day", "staged"), ("partition", "rows", "first", "last")
_RESULT = pa.schema([*((name, pa.string()) for name in _TEXTS), *((name, pa.int64()) for name in _NUMBERS)])
_RESULT_DDL = ", ".join([*(f"{name} string" for name in _TEXTS), *(f"{name} bigint" for name in _NUMBERS)])


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
    use_this_python(spark)
    if format != "parquet":
        raise ArgumentError(f"format={format!r}: expected 'parquet'; the format of the log is always found out")
    if compression not in get_args(keywords.Compression):
        raise ArgumentError(f"compression={compression!r}: expected one of {', '.join(get_args(keywords.Compression))}")
    if row_group_rows < 1:
        raise ArgumentError(f"row_group_rows={row_group_rows}: expected at least 1")
    asked = replace(LoadOptions.given(source, split_bytes, slots(spark), **options), fail_on_data_loss=fail_on_data_loss)
    columns = dict.fromkeys((*asked.decode.columns, "offset", *(("timestamp",) if by_day else ())))
    destination, run = _target(target, filesystem), uuid.uuid4().hex
    decode = asked.decode.with_columns(tuple(columns))
    layout = ExportLayout(destination.files, destination.staging(run), decode, by_day, row_group_rows, compression)
    with destination.alone():
        return _run(spark, asked, destination, layout, run)


def _run(spark: SparkSession, asked: LoadOptions, destination: ExportTarget, layout: ExportLayout, run: str) -> Manifest:
    segments = live_segments(asked.paths, layout.options).segments
    layout = replace(layout, options=with_types(layout.options, asked.paths, map(Range.whole, segments)))
    parquet.refuse_empty_records(layout.options.schema)
    before = _continue(destination.open(), destination.root, layout.options, layout.by_day)
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
        make_staging(destination.files, layout.staging)
        files = _write(spark, tasks, layout)
        return _publish(destination, before, run, files) if files else before
    finally:
        # A run whose intent is written still needs its staged files. One without has failed or is done.
        if not destination.pending():
            destination.discard(run)


def _target(target: str, filesystem: Any) -> ExportTarget:
    if filesystem is None:
        if "://" not in target:
            return ExportTarget(fs.LocalFileSystem(), os.path.abspath(target))
        return ExportTarget(*fs.FileSystem.from_uri(target))
    if not isinstance(filesystem, fs.FileSystem):
        filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    return ExportTarget(filesystem, target)


MAY_CHANGE = frozenset({"include_headers", "end_offset", "binary", "backend", "threads", "trusted"})
"""Choices that a later run of an export may make anew: they select no other rows or columns, or, as the last offset does, only more."""


def _continue(manifest: Manifest, root: str, decode: Options, by_day: bool) -> Manifest:
    """Check that this run has the settings of earlier runs: otherwise the offsets in the target would not tell which records are new."""
    names = (*(name for name in ChoiceOptions.__annotations__ if name not in MAY_CHANGE), "topic", "partition")
    settings = {name: list(value) if isinstance(value := getattr(decode, name), tuple) else value for name in names} | {"by_day": by_day}
    if decode.typed or "types" in manifest.settings:
        # Targets of reads without typed columns say nothing of types.
        settings["types"] = {typed.column: str(typed.type) for typed in decode.typed if typed.column in decode.columns}
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


def _publish(destination: ExportTarget, before: Manifest, run: str, staged: list[dict[str, Any]]) -> Manifest:
    moves, files = {}, []
    for file in staged:
        folder = f"topic={quote(file['topic'], safe=' ')}/partition={file['partition']}" + (f"/day={file['day']}" if file["day"] else "")
        final = f"{folder}/{file['first']:020d}-{file['staged']}"
        moves[f"{FOLDER}/staging/{run}/{file['staged']}"] = final
        files.append({"path": final} | {name: file[name] for name in ("topic", "partition", "rows", "first", "last")})
    after = before.after(sorted(files, key=lambda file: file["path"]))
    destination.publish(after, moves)
    return after


def make_staging(files: fs.FileSystem, staging: str) -> None:
    """Make the folder of a run's attempts, on the driver, so that a task still running after the run's end cannot make it again."""
    if not isinstance(files, fs.LocalFileSystem):
        files.create_dir(staging, recursive=True)
        return
    folder = Path(staging)
    with writing(folder):
        make_folders(folder.parent.parent)
        make_folders(folder, 0o700)


def write_job(job: ExportJob, layout: ExportLayout) -> Iterator[dict[str, Any]]:
    """Write the records of a job; yields the place and contents of each complete file."""
    options = layout.options if job.start_offset is None else replace(layout.options, start_offset=job.start_offset)
    files: dict[str, _File] = {}
    try:
        for batch in read_task([(job.ranges, options)], warn):
            for day, part in _days(batch) if layout.by_day else [("", batch)]:
                if day not in files:
                    files[day] = _File(layout)
                files[day].add(part)
        for day, file in files.items():
            yield {"topic": job.topic, "partition": job.partition, "day": day} | file.close()
    finally:
        for file in files.values():
            file.abandon()


def _days(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Parts of a batch by UTC day of the timestamp, records in order."""
    days = pc.strftime(batch.column("timestamp"), "%Y-%m-%d").fill_null(NO_DAY)
    for day in pc.unique(days).to_pylist():
        yield day, batch.filter(pc.equal(days, day))


class _File:
    """One Parquet file whose row groups have the same number of rows and are sorted by offset, as a log is."""

    def __init__(self, layout: ExportLayout) -> None:
        self.layout = layout
        self.name = f"{uuid.uuid4().hex}.parquet"
        self.schema = pa.schema([field for field in layout.options.schema if field.name not in IN_THE_FOLDER])
        path = f"{layout.staging}/{self.name}"
        is_local = isinstance(layout.files, fs.LocalFileSystem)
        self.stream: Any = StagedFile(Path(path)) if is_local else layout.files.open_output_stream(path)
        order = pq.SortingColumn(self.schema.get_field_index("offset"))
        self.writer = parquet.writer(self.stream, self.schema, layout.compression, sorting_columns=[order])
        self.waiting: list[pa.RecordBatch] = []
        self.rows, self.first, self.last = 0, 2**63 - 1, -1

    def add(self, batch: pa.RecordBatch) -> None:
        """Take records; a row group is written when there are enough for it."""
        part = batch.select(self.schema.names)
        span = pc.min_max(part.column("offset")).as_py()
        self.first, self.last = min(self.first, span["min"]), max(self.last, span["max"])
        self.rows += part.num_rows
        self.waiting.append(part)
        if sum(batch.num_rows for batch in self.waiting) >= self.layout.row_group_rows:
            self._write()

    def close(self) -> dict[str, Any]:
        self._write()
        self.writer.close()
        if isinstance(self.stream, StagedFile):
            self.stream.complete()
        else:
            self.stream.close()
        return {"staged": self.name, "rows": self.rows, "first": self.first, "last": self.last}

    def abandon(self) -> None:
        """Close the file without completing it; its bytes are removed with the staging folder."""
        if isinstance(self.stream, StagedFile):
            self.stream.abandon()
            self.writer.close()
        elif not self.stream.closed:
            self.writer.close()
            self.stream.close()

    def _write(self) -> None:
        table = pa.Table.from_batches(self.waiting, self.schema)
        if bool(np.any(np.diff(table["offset"].to_numpy()) < 0)):
            table = table.sort_by("offset")
        if table.num_rows:
            self.writer.write_table(table, row_group_size=self.layout.row_group_rows)
        self.waiting = []
