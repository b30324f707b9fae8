"""Reads of Spark's source written in Python, without a JVM: options are texts, readers and splits are pickled."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.types import StructType

from kolumn.spark_plugin import DamageSource, RecordSource
from kolumn.spark_plugin.read.schema import arrow_schema
from kolumn.spark_plugin.read.stream import RecordStream

SOURCES = {source.name(): source for source in (RecordSource, DamageSource)}


class Builder(dict[str, str]):
    """Keeps the settings of a session, as Spark's builder does."""

    @property
    def _options(self) -> dict[str, str]:
        return self

    def config(self, map: dict[str, str]) -> "Builder":
        self.update(map)
        return self


class Frame:
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


def stream_rows(reader: RecordStream, start: Any, end: Any) -> list[dict[str, Any]]:
    """The rows of a micro-batch."""
    return [row for split in reader.partitions(start, end) for part in reader.read(split) for row in part.to_pylist()]


def soon(ask: Callable[[], object], seconds: float = 20) -> bool:
    """Whether something becomes true within some time."""
    until = time.monotonic() + seconds
    while not ask():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True
