"""The readers that the tests of this folder try. A new one needs a row here.

A reader plans, and then reads what it planned. A reader that does both in one call has no function for the plan.
"""

import pickle
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

import kolumn
from kolumn.core.schema import BATCH_SCHEMA, record_schema
from kolumn.damage.findings import Skipped
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.batches import BatchTableReader
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.spark_plugin.source import RecordReader, with_columns
from kolumn.spark_plugin.stream.reader import RecordStream
from kolumn.spark_plugin.write.export import plan_jobs, plan_tasks
from kolumn.spark_plugin.write.staged import ExportLayout, write_job
from kolumn.values.schemas.topic import records_of
from kolumn.writers.commit.manifest import Manifest

COLUMNS = ("topic", "partition", "offset", "value")
CHUNK = 700
"""Size of chunks and of tasks in bytes: a segment has several of each."""

Rows = list[Any]


@dataclass(frozen=True)
class Reader:
    """A way of reading a log directory."""

    name: str
    # ``(planned, log, folder)``: rows, in any order, from the result of ``plan``, the log directory and an empty folder
    read: Callable[[Any, Path, Path], Rows]
    # ``(before, log)``: the plan, from the result of ``before`` and the log directory
    plan: Callable[[Any, Path], Any] = lambda before, log: None
    # ``(log)``: facts of the unchanged log from an earlier time; it is not a step of the reader
    before: Callable[[Path], Any] = lambda log: None


def rows(batches: Iterable[pa.RecordBatch]) -> Rows:
    """Records as tuples."""
    return [tuple(row[name] for name in COLUMNS) for batch in batches for row in batch.to_pylist()]


def read(_: Any, log: Path, scratch: Path, **options: Any) -> Rows:
    return rows(kolumn.read(log, columns=COLUMNS, **options).to_batches())


def scan(_: Any, log: Path, scratch: Path, **options: Any) -> Rows:
    return rows(kolumn.scan(log, columns=COLUMNS, chunk_bytes=CHUNK, **options))


def batch_table(_: Any, log: Path, scratch: Path, **options: Any) -> Rows:
    """Rows without the path, which depends on the folder of the test."""
    found = kolumn.batches(log, **options)
    return [(Path(row.pop("segment")).name, *row.values()) for row in found.to_pylist()]


def verify(_: Any, log: Path, scratch: Path) -> Rows:
    report = kolumn.verify(log)
    return [(report.ok, report.segments, report.batches, report.records)]


def space(_: Any, log: Path, scratch: Path) -> Rows:
    return [str(one) for one in kolumn.space(log)]


def convert(_: Any, log: Path, scratch: Path) -> Rows:
    kolumn.convert(log, scratch / "to", magic=1)
    return rows(kolumn.read(scratch / "to", columns=COLUMNS).to_batches())


def compact(_: Any, log: Path, scratch: Path) -> Rows:
    kolumn.compact(log, scratch / "to")
    return rows(kolumn.read(scratch / "to", columns=COLUMNS).to_batches())


def spark_options(log: Path, **texts: str) -> LoadOptions:
    given = {"path": str(log), "splitBytes": str(CHUNK)}
    return LoadOptions.of(given | texts)


def schemas_topic(_: Any, log: Path, scratch: Path) -> Rows:
    """Keys and values as the schemas are made of; those of this log are none."""
    return [value for _, value in records_of([str(log)], Skipped())]


def record_reader(log: Path, **texts: str) -> RecordReader:
    schema = spark_schema(record_schema(COLUMNS))
    return RecordReader(spark_options(log, **texts), schema)


def batch_reader(log: Path) -> BatchTableReader:
    return BatchTableReader(spark_options(log, table="batches"), spark_schema(BATCH_SCHEMA))


def sent(tasks: Any) -> Any:
    """Pickle tasks and load them again, as Spark does to send them to workers."""
    return pickle.loads(pickle.dumps(tasks))


def spark_plan(_: Any, log: Path, **texts: str) -> Any:
    return sent(record_reader(log, **texts).partitions())


def spark_read(splits: Any, log: Path, scratch: Path, **texts: str) -> Rows:
    return [row for split in splits for row in rows(record_reader(log, **texts).read(split))]


def spark_batches_read(splits: Any, log: Path, scratch: Path) -> Rows:
    found = [row for split in splits for batch in batch_reader(log).read(split) for row in batch.to_pylist()]
    return [(Path(row.pop("segment")).name, *row.values()) for row in found]


def stream(log: Path) -> RecordStream:
    schema = spark_schema(record_schema(COLUMNS))
    return RecordStream(with_columns(spark_options(log, startingOffsets="earliest"), schema), schema)


def stream_ends(log: Path) -> Any:
    start = {"t": {"0": 0}, "u": {"0": 0}}
    return start, stream(log).latestOffset(start, None)


def stream_plan(ends: Any, log: Path) -> Any:
    return sent(stream(log).partitions(*ends))


def stream_read(splits: Any, log: Path, scratch: Path) -> Rows:
    return [row for split in splits for row in rows(stream(log).read(split))]


def export_plan(_: Any, log: Path) -> Any:
    options = Options.of(columns=COLUMNS)
    return sent(list(plan_tasks(plan_jobs(live_segments(log, options).segments, options, Manifest(), CHUNK), CHUNK)))


def export_read(tasks: Any, log: Path, scratch: Path) -> Rows:
    layout = ExportLayout(fs.LocalFileSystem(), str(scratch), Options.of(columns=COLUMNS), False, 100, "none")
    found: Rows = []
    for job in (job for task in tasks for job in task):
        for file in write_job(job, layout):
            records = ds.dataset(scratch / file["staged"]).to_table().to_pylist()
            found += [(file["topic"], file["partition"], row["offset"], row["value"]) for row in records]
    return found


READERS = [
    Reader("read", partial(read, threads=1)),
    Reader("read-view", partial(read, threads=3, binary="view")),
    Reader("read-from-offset", partial(read, threads=1, start_offset=50, end_offset=150)),
    Reader("read-committed", partial(read, threads=1, isolation_level="read_committed")),
    Reader("scan-1", partial(scan, threads=1)),
    Reader("scan-3", partial(scan, threads=3)),
    Reader("scan-skip", partial(scan, threads=1, errors="skip")),
    Reader("batches", batch_table),
    Reader("verify", verify),
    Reader("space", space),
    Reader("convert", convert),
    Reader("compact", compact),
    Reader("schemas-topic", schemas_topic),
    Reader("open-transactions", lambda _, log, scratch: kolumn.open_transactions(log, now=0).to_pylist()),
    Reader("spark", spark_read, plan=spark_plan),
    Reader("spark-merge", partial(spark_read, replicas="merge"), plan=partial(spark_plan, replicas="merge")),
    Reader("spark-batches", spark_batches_read, plan=lambda _, log: sent(batch_reader(log).partitions())),
    Reader("stream", stream_read, plan=stream_plan, before=stream_ends),
    Reader("stream-ends", lambda _, log, scratch: [stream_ends(log)]),
    Reader("export", export_read, plan=export_plan),
]


def fresh(folder: Path) -> Path:
    """Create an empty folder, which replaces an existing one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
