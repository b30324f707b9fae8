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
from kolumn.source.names import LOG, is_partition_folder
from kolumn.source.storage import within
from kolumn.spark_plugin.read.options import READ_NAMES, Rule, is_ignored, local, parsed, refuse_table
from kolumn.spark_plugin.read.schema import arrow_schema
from kolumn.spark_plugin.write.staging import StagedSegments, Staging, end_of, publish
from kolumn.writers.commit.run import recover, withdraw
from kolumn.writers.entries import EntrySettings, check_columns
from kolumn.writers.outgoing import name_of
from kolumn.writers.payloads import NAMES, PayloadEncoder, encoded, encoders_of, written_schema
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
    **{
        f"{column}{name.title().replace('_', '')}": (f"{column}_{name}", *((int, "an integer") if name == "schema_id" else (str, "a text")))
        for column in ("value", "key")
        for name in NAMES
    },
}
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


QUERY_ID, TABLE = "kolumn.queryId", "kolumn.table"
"""Options that the connector adds: the id that Spark gave a write, and the table that is written, whose options are those of a read."""
_SELECTING = ("subscribe", "start", "end", "topic", "partition", "isolationlevel", "kafka.isolation.level", "errors", "replicas")
"""What names of options begin with if a read with them may leave records out."""


@dataclass(frozen=True)
class WriteOptions:
    """The options of one ``save``: those of `kolumn.write` in camelCase, and where the records go.

    ``path`` is the log directory, or its URL. ``topic`` and ``partition`` are those of records that have none in their row. A table has
    no others than its ``topics``, if it names any; ``part`` is the option by which it is a part of the log directory.
    """

    path: str
    how: EntrySettings
    segment_bytes: int
    index_interval_bytes: int
    topic: str | None
    partition: int | None
    topics: tuple[str, ...] = ()
    part: str = ""
    encoders: tuple[PayloadEncoder, ...] = ()

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "WriteOptions":
        """Read the options of a data source. Raises `ArgumentError` for an unknown name, a value that is not allowed, or without a path."""
        refuse_table(texts)
        own = {name.lower() for name in (QUERY_ID, TABLE)}
        table, texts = lowered(texts).get(TABLE.lower()), {name: text for name, text in texts.items() if name.lower() not in own}
        topics: tuple[str, ...] = ()
        part = ""
        if table is not None:
            topics = _topics_of_table(table, texts)
            part = next((name for name in sorted(texts) if name.lower().startswith(_SELECTING)), "")
            texts = {name: text for name, text in texts.items() if not _only_reads(name)}
        values = dict(parsed(name, text, _RULES, "Options of a write") for name, text in texts.items())
        if "path" not in values:
            raise ArgumentError("no path: name a log directory in save(...)")
        how = settings(
            values.get("format", "kafka"), values.get("magic"), values.get("codec", "none"), values.get("level"),
            values.get("batch_bytes", 16384), values.get("batch_records"),
        )  # fmt: skip
        if not FORMATS[how.format].indexed:
            raise ArgumentError(
                f"format={values['format']!r}: a write goes on where a log of Kafka ends. Write format='kafka', and convert the result: "
                f"kolumn.convert(path, target, format={values['format']!r})"
            )
        for name in ("segment_bytes", "index_interval_bytes"):
            if values.get(name, 1) < 1:
                raise ArgumentError(f"{name}={values[name]}: expected at least 1")
        for topic in (*filter(None, [values.get("topic")]), *topics):
            check_topic(topic)
        sizes = values.get("segment_bytes", 1 << 30), values.get("index_interval_bytes", 4096)
        topic = values.get("topic", topics[0] if len(topics) == 1 else None)
        return cls(name_of(local(values["path"])), how, *sizes, topic, values.get("partition"), topics, part, encoders_of(values))

    def for_overwrite(self) -> "WriteOptions":
        """The same options. Raises `ArgumentError` if a table is replaced that is a part of its log directory."""
        if self.part:
            raise ArgumentError(
                f"overwrite replaces all topics below {self.path}, and the table may show a part of them, since it has the option "
                f"{self.part}: expected INSERT INTO, or a table of the whole log directory"
            )
        return self


def lowered(texts: Mapping[str, str]) -> dict[str, str]:
    """Options by their names in lower case."""
    return {name.lower(): text for name, text in texts.items()}


def _only_reads(name: str) -> bool:
    return (name.lower() in READ_NAMES or is_ignored(name)) and name.lower() not in {own.lower() for own in _RULES}


def _topics_of_table(table: str, texts: Mapping[str, str]) -> tuple[str, ...]:
    """The topics that a table names. Raises `ArgumentError` if its options do not say where new records would go."""
    given = lowered(texts)
    path = given.get("path", "")
    name = path.rstrip("/").rpartition("/")[2]
    wrong = next((option for option in ("paths", "subscribePattern", "assign") if option.lower() in given), "")
    if any(sign in path for sign in "*?[") or name.endswith(LOG) or is_partition_folder(name):
        wrong = f"path {path}"
    if wrong:
        raise ArgumentError(
            f"INSERT into the table {table}: its {wrong} does not say where new records go: expected the path of a log directory, and no "
            'choice of topics but subscribe. Or write with df.write.format("kolumn").save(path)'
        )
    return tuple(filter(None, (topic.strip() for topic in given.get("subscribe", "").split(","))))


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

    Records without a partition, in their row or as an option, go to the partition with the number of their task. Without offsets they
    continue at the end of the partition's log.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        check_write(options, schema)
        self.options, self.overwrite = options.for_overwrite() if overwrite else options, overwrite
        # This has to be done before anything looks for the end of a log.
        recover(options.path)
        self.staging = Staging(options.path, "write", by_jvm=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenSegments:
        """Write the rows of one task; every attempt has its own folder."""
        return WrittenSegments(write_segments(iterator, self.options, self.staging, self.overwrite))

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


def check_write(options: WriteOptions, schema: StructType) -> None:
    """Raise `ArgumentError` for columns that records do not have, or without a topic."""
    check_columns(written_schema(arrow_schema(schema), options.encoders))
    if options.topic is None and "topic" not in schema.names:
        raise ArgumentError("no topic: give the DataFrame a column 'topic', or the write an option 'topic'")


def write_segments(
    rows: Iterator[pa.RecordBatch], options: WriteOptions, staging: Staging, overwrite: bool = False
) -> list[StagedSegments]:
    """Write the rows of one attempt of a task into a folder of its own."""

    def next_offset(key: tuple[str, int]) -> int:
        folder = within(options.path, f"{key[0]}-{key[1]}")
        return 0 if overwrite else end_of(folder, FORMAT_NAMES[options.how.format]) or 0

    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    partitions: dict[tuple[str, int], _Partition] = {}
    with staging.attempt() as (folder, name), ExitStack() as stack:
        for batch in _encoded(rows, options):
            for key, part in _by_partition(batch, options, task):
                if key not in partitions:
                    partitions[key] = stack.enter_context(_Partition(folder, key, options, next_offset(key)))
                partitions[key].add(part)
        for own in partitions.values():
            own.finish()
    return [own.piece(name) for own in partitions.values()]


def _encoded(rows: Iterator[pa.RecordBatch], options: WriteOptions) -> Iterator[pa.RecordBatch]:
    if not options.encoders:
        return rows
    tables = encoded((pa.Table.from_batches([batch]) for batch in rows), options.encoders)
    return (batch for table in tables for batch in table.combine_chunks().to_batches())


class _Partition:
    """The segments of one topic-partition in one task."""

    def __init__(self, folder: Path, key: tuple[str, int], options: WriteOptions, next_offset: int) -> None:
        self.key = key
        self.files = SegmentFiles(folder / f"{key[0]}-{key[1]}", options.segment_bytes, options.index_interval_bytes, options.how.format)
        self.writer = Writer(self.files, options.how, next_offset)
        self.schema: pa.Schema | None = None

    def __enter__(self) -> "_Partition":
        self.files.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.files.__exit__(*error)

    def add(self, batch: pa.RecordBatch) -> None:
        batch = self._with_all_offsets_or_none(batch)
        self.schema = batch.schema
        self._add(pa.Table.from_batches([batch]), last=False)

    def _with_all_offsets_or_none(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """INSERT fills a column that it is not given with nulls."""
        nulls = batch.column("offset").null_count if "offset" in batch.schema.names else batch.num_rows
        before = nulls == 0 if self.schema is None else "offset" in self.schema.names
        if nulls not in (0, batch.num_rows) or before != (nulls == 0):
            raise ArgumentError(
                f"{self.key[0]}-{self.key[1]}: column 'offset': some rows are null, some are not: expected an offset in every record of a "
                "partition, or in none"
            )
        return batch.drop_columns(["offset"]) if nulls and "offset" in batch.schema.names else batch

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
        if options.topics and topic not in options.topics:
            raise ArgumentError(f"topic {topic!r}: the table has {', '.join(options.topics)}: leave the column out, or insert elsewhere")
        mine = pairs == pair
        yield (check_topic(topic), int(partition)), batch if mine.all() else batch.filter(pa.array(mine))


def _values(batch: pa.RecordBatch, name: str, given: Any) -> tuple[list[Any], Any]:
    """The distinct values of a column, and the index of each row's value; ``given`` for rows without one."""
    if name not in batch.schema.names:
        return [given], np.zeros(batch.num_rows, np.int64)
    column = batch.column(name)
    filled = column if given is None or not column.null_count else pc.fill_null(column, pa.scalar(given, column.type))
    encoded = pc.dictionary_encode(filled, null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
