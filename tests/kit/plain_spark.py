"""Batch reads of Spark's source written in Python, without a JVM: options are texts, readers and splits are pickled."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.types import StructType

from kolumn.spark_plugin import DamageSource, RecordSource
from kolumn.spark_plugin.read.schema import arrow_schema

SOURCES = {source.name(): source for source in (RecordSource, DamageSource)}


class Frame:
    """What ``load`` returns."""

    def __init__(self, source: Any, schema: StructType | None) -> None:
        self.schema: StructType = schema or source.schema()
        self.columns = self.schema.names
        self.splits, self._reader = cloudpickle.loads(cloudpickle.dumps(_planned(source, self.schema)))

    def toArrow(self) -> pa.Table:  # noqa: N802
        batches = [batch for split in self.splits for batch in self._reader.read(split)]
        return pa.Table.from_batches(batches, arrow_schema(self.schema))

    def count(self) -> int:
        return self.toArrow().num_rows

    def collect(self) -> list[Row]:
        return [Row(**row) for row in self.toArrow().to_pylist()]


def _planned(source: Any, schema: StructType) -> tuple[Any, Any]:
    reader = source.reader(schema=schema)
    return reader.partitions(), reader


def load(source: str | Path | Sequence[str | Path], name: str = "kolumn", schema: StructType | None = None, **options: Any) -> Frame:
    """``spark.read.format(name).schema(schema).options(**options).load(source)``."""
    paths = {"path": str(source)} if isinstance(source, str | Path) else {"paths": json.dumps([str(one) for one in source])}
    texts = {one.lower(): str(value).lower() if isinstance(value, bool) else str(value) for one, value in options.items()}
    return Frame(SOURCES[name](paths | texts), schema)
