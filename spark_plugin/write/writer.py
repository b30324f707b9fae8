"""``df.write.format("kolumn")``: each task writes segments into its own folder, the driver moves those of successful tasks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kolumn.core.errors import ArgumentError
from kolumn.formats.layouts import FORMAT_NAMES, FORMATS
from kolumn.source.storage import within
from kolumn.spark_plugin.read.options import Rule, local, parsed, refuse_table
from kolumn.spark_plugin.read.schema import arrow_schema
from kolumn.spark_plugin.write.staging import StagedSegments, Staging, end_of, publish
from kolumn.writers.commit.run import recover, withdraw
from kolumn.writers.entries import EntrySettings, check_columns
from kolumn.writers.outgoing import name_of
from kolumn.writers.write import SegmentFiles, Writer, settings

_RULES: dict[str, Rule] = {
    "path": ("path", str, "a path"),
    "format": ("format", str, "the name of a format"),
    "magic": ("magic", int, "an integer"),
    "codec": ("codec", str, "the name of a codec"),
    "level": ("level", int, "an integer"),
    "batchBytes": ("batch_bytes", int, "an integer"),
    "batchRecords": ("batch_records", int, "an integer"),
    "segmentBytes": ("segment_bytes", int, "an integer"),
    "indexIntervalBytes": ("index_interval_bytes", int, "an integer"),
    "topic": ("topic", str, "a name"),
    "partition": ("partition", int, "an integer"),
}
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True)
class WriteOptions:
    """The options of one ``save``: those of `kolumn.write` in camelCase, and where the records go.

    ``path`` is the log directory, or its URL. ``topic`` and ``partition`` are those of all records, if the DataFrame has no such column.
    """

    path: str
    how: EntrySettings
    segment_bytes: int
    index_interval_bytes: int
    topic: str | None
    partition: int | None

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "WriteOptions":
        """Read the options of a data source. Raises `ArgumentError` for an unknown name, a value that is not allowed, or without a path."""
        refuse_table(texts)
        values = dict(parsed(name, text, _RULES, "Options of a write") for name, text in texts.items())
        if "path" not in values:
            raise ArgumentError("no path: name a log directory in save(...)")
        how = settings(
            values.get("format", "kafka"), values.get("magic"), values.get("codec", "none"), values.get("level"),
            values.get("batch_bytes", 16384), values.get("batch_records"),
        )  # fmt: skip
        for name in ("segment_bytes", "index_interval_bytes"):
            if values.get(name, 1) < 1:
                raise ArgumentError(f"{name}={values[name]}: expected at least 1")
        if "topic" in values:
            check_topic(values["topic"])
        sizes = values.get("segment_bytes", 1 << 30), values.get("index_interval_bytes", 4096)
        return cls(name_of(local(values["path"])), how, *sizes, values.get("topic"), values.get("partition"))


def check_topic(name: object) -> str:
    """Raise `ArgumentError` unless Kafka would accept a topic name (``Topic.validate``): it becomes part of a folder's name."""
    if not isinstance(name, str) or not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise ArgumentError(f"topic {name!r}: expected 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'")
    return name


_SORTED = 'df.repartition("topic", "partition").sortWithinPartitions("offset") brings the records of a partition together, in order'


@dataclass
class WrittenSegments(WriterCommitMessage):
    """The segments that a task has written."""

    pieces: list[StagedSegments]


class SegmentWriter(DataSourceArrowWriter):
    """Writes one DataFrame as ``<path>/<topic>-<partition>/<base offset>.log``, with indexes.

    Without a column ``partition`` and without that option, records go to the partition with the number of their task. Without a column
    ``offset``, their offsets continue at the end of the partition's log.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        check_columns(arrow_schema(schema))
        if options.topic is None and "topic" not in schema.names:
            raise ArgumentError("no topic: give the DataFrame a column 'topic', or the write an option 'topic'")
        self.options, self.overwrite = options, overwrite
        # This has to be done before anything looks for the end of a log.
        recover(options.path)
        self.staging = Staging(options.path, "write", by_jvm=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenSegments:
        """Write the rows of one task; every attempt has its own folder."""
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        partitions: dict[tuple[str, int], _Partition] = {}
        with self.staging.attempt() as (folder, name), ExitStack() as stack:
            for batch in iterator:
                for key, part in _by_partition(batch, self.options, task):
                    if key not in partitions:
                        partitions[key] = stack.enter_context(_Partition(folder, key, self.options, self._next_offset(key)))
                    partitions[key].add(part)
            for own in partitions.values():
                own.finish()
        return WrittenSegments([own.piece(name) for own in partitions.values()])

    def _next_offset(self, key: tuple[str, int]) -> int:
        folder = within(self.options.path, f"{key[0]}-{key[1]}")
        return 0 if self.overwrite else end_of(folder, FORMAT_NAMES[self.options.how.format]) or 0

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Move the segments that the tasks have written to their places, on the driver."""
        pieces = [piece for message in messages if isinstance(message, WrittenSegments) for piece in message.pieces]
        try:
            publish(self.options.path, self.staging.name, pieces, self.overwrite, FORMAT_NAMES[self.options.how.format])
        finally:
            self.staging.remove()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the segments that the tasks have written. Undo a commit whose process died, or complete it if it was replacing files."""
        withdraw(self.options.path, self.staging.name)
        self.staging.remove()
        recover(self.options.path)


class _Partition:
    """The segments of one topic-partition in one task."""

    def __init__(self, folder: Path, key: tuple[str, int], options: WriteOptions, next_offset: int) -> None:
        self.key = key
        enriched = FORMATS[options.how.format].timed_index
        self.files = SegmentFiles(folder / f"{key[0]}-{key[1]}", options.segment_bytes, options.index_interval_bytes, enriched)
        self.writer = Writer(self.files, options.how, next_offset)
        self.schema: pa.Schema | None = None

    def __enter__(self) -> "_Partition":
        self.files.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.files.__exit__(*error)

    def add(self, batch: pa.RecordBatch) -> None:
        self.schema = batch.schema
        self._add(pa.Table.from_batches([batch]), last=False)

    def finish(self) -> None:
        """Write the records that are waiting for a batch to become full."""
        assert self.schema is not None
        self._add(self.schema.empty_table(), last=True)

    def _add(self, table: pa.Table, last: bool) -> None:
        try:
            self.writer.add(table, last)
        except ArgumentError as error:
            hint = f". {_SORTED}" if "offsets have to increase" in str(error) else ""
            raise ArgumentError(f"{self.key[0]}-{self.key[1]}: {error}{hint}") from error

    def piece(self, folder: str) -> StagedSegments:
        """The segments in the attempt's folder, once the task is finished."""
        first = int(self.files.paths[0].stem) if self.files.paths else 0
        return StagedSegments(*self.key, within(folder, f"{self.key[0]}-{self.key[1]}"), first, self.files.last_offset)


def _by_partition(batch: pa.RecordBatch, options: WriteOptions, task: int) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """The rows of each topic-partition, in their order."""
    topics, topic_of = _values(batch, "topic", options.topic)
    partitions, partition_of = _values(batch, "partition", options.partition if options.partition is not None else task)
    pairs = topic_of * len(partitions) + partition_of
    for pair in np.unique(pairs).tolist():
        topic, partition = topics[pair // len(partitions)], partitions[pair % len(partitions)]
        if partition is None or partition < 0:
            raise ArgumentError(f"partition {partition}: expected a number from 0 on in column 'partition'")
        mine = pairs == pair
        yield (check_topic(topic), int(partition)), batch if mine.all() else batch.filter(pa.array(mine))


def _values(batch: pa.RecordBatch, name: str, given: Any) -> tuple[list[Any], Any]:
    """The distinct values of a column, and the index of each row's value; without the column, ``given`` for all rows."""
    if name not in batch.schema.names:
        return [given], np.zeros(batch.num_rows, np.int64)
    encoded = pc.dictionary_encode(batch.column(name), null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
