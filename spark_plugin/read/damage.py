"""The data source ``kolumn-damage``: the parts of the log that a read with ``errors=skip`` leaves out, as rows, found in tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kolumn.damage.findings import Damage
from kolumn.errors import ArgumentError
from kolumn.schema import DAMAGE_SCHEMA
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.schema import arrow_schema, conform, spark_schema
from kolumn.spark_plugin.read.splits import Split, plan_splits
from kolumn.spark_plugin.read.task import read_split
from kolumn.verification.report import damage_table


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
