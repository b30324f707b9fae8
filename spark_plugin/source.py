"""The data source ``kolumn``: records in batch reads and in streams, or the tables of batches, damage or remarks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kolumn.copies.ranges import whole_ranges
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import warn_renamed
from kolumn.core.threads import PLAN, SIZES
from kolumn.damage.findings import Damage, Remark, remark_table
from kolumn.log.pieces import batch_tables
from kolumn.readers.verified import damage_table
from kolumn.spark_plugin.read.options import TABLES, LoadOptions
from kolumn.spark_plugin.read.schema import arrow_schema, conformed, say_spark_types, spark_schema, with_columns
from kolumn.spark_plugin.read.splits import (
    PAYLOAD_RATIO,
    Bounds,
    Split,
    key_of,
    limits_of,
    pack,
    plan_splits,
    segments_by_partition,
    with_types_of,
)  # fmt: skip
from kolumn.spark_plugin.read.stream import RecordStream
from kolumn.spark_plugin.read.task import read_split
from kolumn.spark_plugin.write.stream import StreamWriter
from kolumn.spark_plugin.write.writer import SegmentWriter, WriteOptions


class RecordSource(DataSource):
    """``format("kolumn")``. Options are checked on the driver, before anything is read or written."""

    @cached_property
    def read_options(self) -> LoadOptions:
        """The options of a read. Those of a write are `WriteOptions`."""
        return LoadOptions.of(self.options)

    @cached_property
    def typed_options(self) -> LoadOptions:
        """The same with the types of values and keys, which are found out once, on the driver."""
        return with_types_of(self.read_options)

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kolumn"

    def schema(self) -> StructType:
        """The columns if the user gives no schema."""
        if self.read_options.table in TABLES:
            return spark_schema(TABLES[self.read_options.table])
        return spark_schema(self.typed_options.decode.schema, self.read_options.payload)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of one DataFrame; Spark passes ``schema`` by name."""
        options = self.read_options.for_batch()
        if options.table in TABLES:
            return {"batches": BatchTableReader, "damage": DamageReader, "remarks": RemarkReader}[options.table](options, schema)
        return RecordReader(self.typed_options.for_batch(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of one DataFrame."""
        return SegmentWriter(WriteOptions.of(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """The writer of one epoch of a query, or what commits it."""
        return StreamWriter(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The stream of one query."""
        options = with_columns(self.typed_options, schema)
        say_spark_types(options)
        return RecordStream(options, schema)


class DamageSource(RecordSource):
    """``format("kolumn-damage")``, as ``option("table", "damage")`` was called in version 0.1."""

    def __init__(self, options: dict[str, str]) -> None:
        warn_renamed('format("kolumn-damage")', 'format("kolumn").option("table", "damage")')
        super().__init__({**options, "table": "damage"})

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kolumn-damage"


class _SplitReader(DataSourceReader):
    """Plans splits at batch boundaries on the driver, decodes them in tasks.

    There is intentionally no ``pushFilters``: with it, a filter that a reader has accepted also affects other queries of the same
    DataFrame. Ranges and columns are options.
    """

    def __init__(self, options: LoadOptions, schema: StructType) -> None:
        self.options, self.schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        return plan_splits(self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Split)
        yield from conformed(self._rows(partition), arrow_schema(self.schema))

    def _rows(self, split: Split) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class RecordReader(_SplitReader):
    """Records."""

    def __init__(self, options: LoadOptions, schema: StructType) -> None:
        super().__init__(with_columns(options, schema), schema)
        say_spark_types(self.options)

    def _rows(self, split: Split) -> Iterator[pa.RecordBatch]:
        return read_split(split, self.options)


def _refuse_columns(options: LoadOptions, schema: StructType) -> None:
    if schema != spark_schema(TABLES[options.table]):
        raise ArgumentError(f"the table of {options.table} has columns of its own: read it without a schema, and select")
    if options.names_columns:
        raise ArgumentError(f"the table of {options.table} has columns of its own: leave out the options columns and includeHeaders")


class BatchTableReader(_SplitReader):
    """``option("table", "batches")``: one row for each entry of the log, as `kolumn.batches`. Only checkCrcs=true reads payloads."""

    def __init__(self, options: LoadOptions, schema: StructType) -> None:
        _refuse_columns(options, schema)
        decode = options.decode
        if decode.start_timestamp is not None or decode.end_timestamp is not None:
            raise ArgumentError("the table of batches has no range of times: select by maxTimestampMs")
        super().__init__(replace(options, decode=replace(decode, check_crcs=options.checks_crcs)), schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Whole segments, many in one split."""
        options = self.options
        groups = segments_by_partition(options)
        limits = limits_of(options, groups)
        whole = (part for segments in groups.values() for part in whole_ranges(segments, replace(options.decode, threads=SIZES[PLAN])))
        target = options.split_bytes * (1 if options.decode.check_crcs else PAYLOAD_RATIO)
        return [Split(group, limits) for group in pack(whole, target)] or [Split(())]

    def _rows(self, split: Split) -> Iterator[pa.RecordBatch]:
        for part in split.ranges:
            decode = self.options.decode.within(*split.bounds_of(key_of(part)))
            for entries in batch_tables(part, decode):
                yield from _within(entries, (decode.start_offset, decode.end_offset)).to_batches()


def _within(entries: pa.Table, limit: Bounds) -> pa.Table:
    """Entries that can have offsets within the bounds; the header of a wrapper does not contain its first offset."""
    first, stop = limit
    if first is not None:
        entries = entries.filter(pc.greater_equal(entries["lastOffset"], first))
    if stop is not None:
        entries = entries.filter(pc.fill_null(pc.less(entries["baseOffset"], stop), True))
    return entries


class RemarkReader(_SplitReader):
    """``option("table", "remarks")``: absent offsets and the other remarks of `kolumn.verify`, after all of a split has been decoded."""

    def __init__(self, options: LoadOptions, schema: StructType) -> None:
        _refuse_columns(options, schema)
        super().__init__(replace(options, decode=replace(options.decode, columns=("offset",), typed=(), remarks=True)), schema)

    def _rows(self, split: Split) -> Iterator[pa.RecordBatch]:
        remarks: list[Remark] = []
        for _ in read_split(split, self.options, tally=lambda _, tally: remarks.extend(tally.remarks)):
            pass
        yield from remark_table(remarks).to_batches()


class DamageReader(_SplitReader):
    """``option("table", "damage")``: one row for each damaged part of the log, as ``kolumn.verify(...).damage``; none if it is intact."""

    def __init__(self, options: LoadOptions, schema: StructType) -> None:
        _refuse_columns(options, schema)
        super().__init__(replace(options, decode=replace(options.decode.untyped, errors="skip")), schema)

    def _rows(self, split: Split) -> Iterator[pa.RecordBatch]:
        damage: list[Damage] = []
        for _ in read_split(split, self.options, damage.append):
            pass
        yield from damage_table(damage).to_batches()
