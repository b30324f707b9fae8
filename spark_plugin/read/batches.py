"""``option("table", "batches")``: one row for each entry of the log, from headers alone.

``option("table", "remarks")``: absent offsets and the other remarks of `kolumn.verify`, as rows, found in tasks.

The data source ``kolumn-damage``: the parts of the log that a read with ``errors=skip`` leaves out, as rows, found in tasks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kolumn.copies.ranges import whole_ranges
from kolumn.core.errors import ArgumentError
from kolumn.core.schema import BATCH_SCHEMA, DAMAGE_SCHEMA, REMARK_SCHEMA
from kolumn.core.threads import PLAN, SIZES
from kolumn.damage.findings import Damage
from kolumn.damage.remarks import Remark, remark_table
from kolumn.log.batch_table import batch_tables
from kolumn.readers.verified import damage_table
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.schema import arrow_schema, conform, spark_schema
from kolumn.spark_plugin.read.splits import Bounds, Split, limits_of, narrowed, pack, plan_splits, segments_by_partition
from kolumn.spark_plugin.read.task import read_split, warn

PAYLOAD_RATIO = 16
"""Factor on a task's bytes of the log if it reads only headers: walking 16 KiB batches takes a sixteenth of the time of decoding them."""


class BatchTableReader(DataSourceReader):
    """The table of `kolumn.batches`: payloads are read only with checkCrcs=true."""

    def __init__(self, options: LoadOptions, schema: StructType) -> None:
        if schema != spark_schema(BATCH_SCHEMA):
            raise ArgumentError("the table of batches has columns of its own: read it without a schema, and select")
        if options.names_columns:
            raise ArgumentError("the table of batches has columns of its own: leave out the options columns and includeHeaders")
        decode = options.decode
        if decode.start_timestamp is not None or decode.end_timestamp is not None:
            raise ArgumentError("the table of batches has no range of times: select by maxTimestampMs")
        self.options = replace(options, decode=replace(decode, check_crcs=options.checks_crcs))

    def partitions(self) -> Sequence[InputPartition]:
        """Whole segments, many in one split."""
        options = self.options
        groups = segments_by_partition(options)
        limits = limits_of(options, groups)
        whole = (one for segments in groups.values() for one in whole_ranges(segments, replace(options.decode, threads=SIZES[PLAN])))
        target = options.split_bytes * (1 if options.decode.check_crcs else PAYLOAD_RATIO)
        return [Split(group, limits) for group in pack(whole, target)] or [Split(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The entries of one split's segments."""
        assert isinstance(partition, Split)
        schema = arrow_schema(spark_schema(BATCH_SCHEMA))
        for one in partition.ranges:
            limit = partition.bounds.get((one.segment.topic, one.segment.partition), (None, None))
            decode = narrowed(self.options, limit).decode
            for entries in batch_tables(one, decode):
                for batch in _within(entries, (decode.start_offset, decode.end_offset)).to_batches():
                    yield from conform(batch, schema)


def _within(entries: pa.Table, limit: Bounds) -> pa.Table:
    """Entries that can have offsets within the bounds; the header of a wrapper does not contain its first offset."""
    first, stop = limit
    if first is not None:
        entries = entries.filter(pc.greater_equal(entries["lastOffset"], first))
    if stop is not None:
        entries = entries.filter(pc.fill_null(pc.less(entries["baseOffset"], stop), True))
    return entries


class RemarkReader(DataSourceReader):
    """Decodes like a read with the same options, and returns the remarks about segments instead of the records."""

    def __init__(self, options: LoadOptions, schema: StructType) -> None:
        if schema != spark_schema(REMARK_SCHEMA):
            raise ArgumentError("the table of remarks has columns of its own: read it without a schema, and select")
        if options.names_columns:
            raise ArgumentError("the table of remarks has columns of its own: leave out the options columns and includeHeaders")
        self.options = replace(options, decode=replace(options.decode, columns=("offset",), typed=(), remarks=True))

    def partitions(self) -> Sequence[InputPartition]:
        """The same splits as a read."""
        return plan_splits(self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The remarks about one split, after all of the split has been decoded."""
        assert isinstance(partition, Split)
        found: list[Remark] = []
        for _ in read_split(partition, self.options, warn, tally=lambda _, tally: found.extend(tally.remarks)):
            pass
        for batch in remark_table(found).to_batches():
            yield from conform(batch, arrow_schema(spark_schema(REMARK_SCHEMA)))


class DamageSource(DataSource):
    """``spark.read.format("kolumn-damage")``: one row for each damaged place, no rows for an undamaged log."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.read_options = LoadOptions.of(options)

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kolumn-damage"

    def schema(self) -> StructType:
        """The columns of ``kolumn.verify(...).damage``."""
        return spark_schema(DAMAGE_SCHEMA)

    def reader(self, schema: StructType) -> "DamageReader":
        """The reader of one DataFrame; Spark passes ``schema`` by name."""
        if schema != self.schema():
            raise ArgumentError("kolumn-damage has columns of its own: read it without a schema, and select")
        return DamageReader(self.read_options.for_batch())


class DamageReader(DataSourceReader):
    """Decodes like a read with the same options, and returns the damage instead of the records."""

    def __init__(self, options: LoadOptions) -> None:
        self.options = replace(options, decode=replace(options.decode.untyped, errors="skip"))

    def partitions(self) -> Sequence[InputPartition]:
        """The same splits as a read."""
        return plan_splits(self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The damage in one split, after all of the split has been decoded."""
        assert isinstance(partition, Split)
        found: list[Damage] = []
        for _ in read_split(partition, self.options, found.append):
            pass
        for batch in damage_table(found).to_batches():
            yield from conform(batch, arrow_schema(spark_schema(DAMAGE_SCHEMA)))
