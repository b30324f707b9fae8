"""The data source ``kolumn``: records as rows, or batches as rows, in batch reads and in streams."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kolumn.core.schema import BATCH_SCHEMA, REMARK_SCHEMA
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.options.write import WriteOptions
from kolumn.spark_plugin.read.batches import BatchTableReader, RemarkReader
from kolumn.spark_plugin.read.schema import arrow_schema, conform, spark_schema, with_columns
from kolumn.spark_plugin.read.splits import Split, plan_splits, with_types_of
from kolumn.spark_plugin.read.task import read_split, warn
from kolumn.spark_plugin.stream.reader import RecordStream
from kolumn.spark_plugin.write.writer import SegmentWriter

_TABLES = {"batches": BATCH_SCHEMA, "remarks": REMARK_SCHEMA}


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
        if self.read_options.table in _TABLES:
            return spark_schema(_TABLES[self.read_options.table])
        return spark_schema(self.typed_options.decode.schema, self.read_options.payload)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of one DataFrame; Spark passes ``schema`` by name."""
        options = self.read_options.for_batch()
        if options.table == "batches":
            return BatchTableReader(options, schema)
        return RemarkReader(options, schema) if options.table == "remarks" else RecordReader(self.typed_options.for_batch(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of one DataFrame."""
        return SegmentWriter(WriteOptions.of(self.options), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The stream of one query."""
        return RecordStream(with_columns(self.typed_options, schema), schema)


class RecordReader(DataSourceReader):
    """Plans splits on the driver, decodes them in tasks.

    There is intentionally no ``pushFilters``: with it, a filter that a reader has accepted also affects other
    queries of the same DataFrame. Ranges and columns are options.
    """

    def __init__(self, options: LoadOptions, schema: StructType) -> None:
        self.options = with_columns(options, schema)
        self.spark_schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Splits at batch boundaries."""
        return plan_splits(self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode one split."""
        assert isinstance(partition, Split)
        schema = arrow_schema(self.spark_schema)
        for batch in read_split(partition, self.options, warn):
            yield from conform(batch, schema)
