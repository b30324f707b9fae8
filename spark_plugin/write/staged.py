"""The task of an export: decode, split by day if requested, and write Parquet under names that no other attempt has."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from kolumn.options import Options
from kolumn.source.segments import Range
from kolumn.spark_plugin.read.task import read_task, warn
from kolumn.tools import parquet
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
        if sum(one.num_rows for one in self.waiting) >= self.layout.row_group_rows:
            self._write()

    def close(self) -> dict[str, Any]:
        """Complete the file."""
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
