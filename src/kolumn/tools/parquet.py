"""Segments become Parquet files. All files appear when the last is complete, or no file does."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from kolumn.backend import choose, require
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import Compression
from kolumn.core.lost import LostValues
from kolumn.core.results import counted
from kolumn.core.threads import PARQUET, workers
from kolumn.damage.findings import OnDamage, Skipped, tell_lost, tell_stops
from kolumn.damage.stopped import StoppedAt, joined
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.readers.plan import ReadPlan
from kolumn.source.names import MANIFEST
from kolumn.source.segments import Range, Segment
from kolumn.source.storage import base_name, is_url, parent
from kolumn.values.narrowing import Narrowed, narrowed_schema, say_narrowed
from kolumn.writers.commit.run import Commit
from kolumn.writers.commit.staged_file import StagedFile
from kolumn.writers.outgoing import name_of, refuse_data_folder

_CODECS = get_args(Compression)
_PAYLOADS = ("value", "valueRaw")  # columns of bytes that hardly repeat
_DICTIONARY_BYTES = 1 << 16  # a larger dictionary of a column's values in a row group is given up


def write_parquet(
    plans: Sequence[ReadPlan],
    target: str,
    row_group_rows: int,
    compression: str,
    overwrite: bool,
    on_damage: OnDamage | None = None,
) -> Iterator[tuple[list[Range], int]]:
    """Write one file for each segment that has records, and yield its ranges and record count when the file is complete.

    The plans are those of `kolumn.readers.topics.plan_topics`: topics may have types of their own. As many files are written at a time as
    the options have threads. Damage is reported with the file that it is missing in, and what was lost of values at the end, to a `Skipped`
    or in the log. If copies are merged, a file has the offsets from the segment on that it is named after; they may come from several
    copies. All files get their names together when the iterator ends; a run that fails leaves no files. Raises `ArgumentError` if a file
    exists already, the target contains Kafka segments, or Parquet does not have the compression, and `MissingError` without the GPU that
    was requested, before anything is written; `KolumnError` if a file cannot be written.
    """
    if compression not in _CODECS:
        raise ArgumentError(f"compression={compression!r}: expected one of {', '.join(_CODECS)}")
    name = name_of(target)
    if is_url(name):
        raise ArgumentError(
            f"{target}: Parquet is written to folders of this machine; kolumn.append writes tables at URLs, and so does Spark"
        )
    refuse_data_folder(name)
    root = Path(name)
    for plan in plans:
        say_narrowed(plan.options.schema, "Parquet")
    options = plans[0].options
    files = [(file_of(some[0], root), some, plan.options) for plan in plans for some in _by_segment(plan.ranges)]
    if len({file for file, *_ in files}) < len(files):
        raise ArgumentError("two segments of the same topic, partition and base offset: convert them into different targets")
    require(options.backend)
    with Commit(root, replace=overwrite) as commit:
        there = [str(file) for file, *_ in files if os.path.lexists(file)]
        if there and not overwrite:
            raise ArgumentError(f"{there[0]} already exists ({counted(len(there), 'file')} in all): use --overwrite, or another target")
        # Most of the time is compression, which one file does in one thread.
        count = 1 if choose(options.backend) == "gpu" else max(1, min(options.threads, len(files)))
        values, stopped = LostValues(), list[StoppedAt]()
        how = _How(commit, row_group_rows, compression)
        with workers(PARQUET, count) as pool:
            begun = [pool.submit(how.write, some, file, own.shared_by(count)) for file, some, own in files]
            try:
                for (_, some, _), written in zip(files, begun, strict=True):
                    rows, lost = written.result()
                    values.update(lost.values)
                    stopped += lost.stopped
                    if on_damage is not None:
                        for piece in lost.pieces:
                            on_damage(piece)
                    yield some, rows
            finally:
                how.stopped.set()
                tell_lost(values, on_damage)
            tell_stops(joined(stopped), on_damage)


def _by_segment(ranges: list[Range]) -> list[list[Range]]:
    """Groups of ranges for one file: a range and the following ones that continue its segment, from any copy of a merge."""
    groups: list[list[Range]] = []
    for part in ranges:
        if groups and _goes_on(groups[-1][0].segment, part.segment):
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _goes_on(segment: Segment, other: Segment) -> bool:
    if (segment.topic, segment.partition) != (other.topic, other.partition) or segment.base_offset is None or other.base_offset is None:
        return False
    return segment.path == other.path or (parent(segment.path) != parent(other.path) and other.base_offset <= segment.base_offset)


def writer(where: Any, schema: pa.Schema, compression: str, **options: Any) -> pq.ParquetWriter:
    """A Parquet writer for record columns.

    Dictionaries are used only for columns that repeat: Parquet gives up a dictionary of values only after the work has been done. Keys
    may repeat or not, so their dictionaries are given up early. Offsets and times are written as differences. Payloads have no smallest and
    largest value, which would be compared for nothing.
    """
    deltas = [name for name in ("offset", "timestamp", "timestampMs", "position") if name in schema.names]
    payloads = [field.name for field in schema if field.name == "headers" or (field.name in _PAYLOADS and field.type == pa.binary())]
    # Of a struct each member has a dictionary of its own.
    leaves = [f"{field.name}.{member.name}" for field in schema if pa.types.is_struct(field.type) for member in field.type]
    dictionaries = [name for name in (*schema.names, *leaves) if name not in (*deltas, *payloads)]
    encodings = dict.fromkeys(deltas, "DELTA_BINARY_PACKED")
    statistics = [name for name in (*schema.names, *leaves) if name not in payloads]
    return pq.ParquetWriter(
        where, schema, compression=compression, use_dictionary=dictionaries, column_encoding=encodings, write_statistics=statistics,
        dictionary_pagesize_limit=_DICTIONARY_BYTES, **options,
    )  # fmt: skip


def file_of(part: Range, folder: Path) -> Path:
    """Path of the file for a range: ``topic=…/partition=…/<segment>.parquet``, with names quoted as in Hive."""
    segment = part.segment
    if segment.topic is not None:
        folder = folder / f"topic={quote(segment.topic, safe=' ', errors='surrogateescape')}" / f"partition={segment.partition}"
    name = base_name(segment.path).removesuffix(".swap").removesuffix(".log").removesuffix(MANIFEST)
    return folder / f"{name}.parquet"


@dataclass
class _How:
    commit: Commit
    row_group_rows: int
    compression: str
    stopped: threading.Event = field(default_factory=threading.Event)
    _one_thread: threading.Lock = field(default_factory=threading.Lock)

    def write(self, ranges: list[Range], file: Path, options: Options) -> tuple[int, Skipped]:
        """Write one file; returns its records, and what was left out. Raises `CancelledError` when ``stopped`` is set."""
        rows, out, file_writer, skipped = 0, None, None, Skipped()
        narrowed = Narrowed(narrowed_schema(options.schema, "Parquet"))
        try:
            for batch in map(narrowed.batch, scan_ranges(ranges, options, skipped)):
                if self.stopped.is_set():
                    raise CancelledError
                if out is None or file_writer is None:
                    with self._one_thread:
                        staged = self.commit.place(file)
                    out = StagedFile(staged)
                    file_writer = writer(out, narrowed.schema, self.compression)
                file_writer.write_batch(batch, row_group_size=self.row_group_rows)
                rows += batch.num_rows
            if out is not None and file_writer is not None:
                file_writer.close()
                out.complete()
        except BaseException:
            if out is not None:
                out.abandon()
            if file_writer is not None:
                # Otherwise the writer would try to close again when it is garbage collected.
                file_writer.close()
            raise
        narrowed.say()
        return rows, skipped
