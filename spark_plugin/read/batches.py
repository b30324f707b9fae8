"""``option("table", "batches")``: one row for each entry of the log, from headers alone."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kolumn.errors import ArgumentError
from kolumn.log.batch_table import batch_tables
from kolumn.replicas.ranges import whole_ranges
from kolumn.schema import BATCH_SCHEMA
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.bounds import Bounds
from kolumn.spark_plugin.read.schema import arrow_schema, conform, spark_schema
from kolumn.spark_plugin.read.splits import Split, limits_of, narrowed, pack, segments_by_partition
from kolumn.threads import PLAN, SIZES

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
