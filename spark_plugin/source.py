"""The data source ``kolumn``: records as rows, in batch reads."""

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kolumn.damage import Damage
from kolumn.decode import scan_ranges
from kolumn.errors import ArgumentError
from kolumn.schema import record_schema
from kolumn.spark_plugin.options import ReadOptions
from kolumn.spark_plugin.schema import arrow_schema, check_schema, conform, spark_schema
from kolumn.spark_plugin.splits import Split, plan_splits

logger = logging.getLogger(__name__)


class RecordSource(DataSource):
    """``spark.read.format("kolumn")``. Options are checked here, on the driver, before anything is read."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.read_options = ReadOptions.of(options)

    @classmethod
    def name(cls) -> str:
        """The word for ``format``."""
        return "kolumn"

    def schema(self) -> StructType:
        """The columns where the user gives no schema."""
        return spark_schema(record_schema(self.read_options.decode.columns))

    def reader(self, schema: StructType) -> "RecordReader":
        """The reader of one DataFrame; Spark passes ``schema`` by name."""
        return RecordReader(self.read_options, schema)


class RecordReader(DataSourceReader):
    """Plans splits on the driver, decodes them in tasks.

    There is no ``pushFilters`` on purpose: Spark lets a filter that a reader has accepted leak into other
    queries of the same DataFrame. Ranges and columns are options.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        columns = check_schema(schema)
        if options.names_columns and columns != options.decode.columns:
            asked = ", ".join(options.decode.columns)
            raise ArgumentError(f"the schema has the columns {', '.join(columns)}, the options ask for {asked}: give one of the two")
        self.options = options.only(columns)
        self.spark_schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Splits at batch boundaries."""
        return plan_splits(self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode one split."""
        assert isinstance(partition, Split)
        schema = arrow_schema(self.spark_schema)
        for batch in scan_ranges(partition.ranges, self.options.decode, damage=warn):
            yield from conform(batch, schema)


def warn(damage: Damage) -> None:
    """Spark gives a source no counters: a line in the worker's log for each damage; ``kolumn-damage`` is the table."""
    lost = "an unknown number of" if damage.records_lost is None else damage.records_lost
    logger.warning(
        "%s: position %d: left out %d bytes with %s records: %s", damage.segment, damage.position, damage.size, lost, damage.reason
    )
