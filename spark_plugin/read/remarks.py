"""``option("table", "remarks")``: absent offsets and the other remarks of `kolumn.verify`, as rows, found in tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kolumn.damage.remarks import Remark, remark_table
from kolumn.errors import ArgumentError
from kolumn.schema import REMARK_SCHEMA
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.schema import arrow_schema, conform, spark_schema
from kolumn.spark_plugin.read.splits import Split, plan_splits
from kolumn.spark_plugin.read.task import read_split, warn


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
