"""Fields of typed values by the connector: those that a query asks for are decoded, and no others where validity does not depend on it."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import kolumn
from kit.avro_values import encoded
from kolumn.reader_types import with_types
from kolumn.spark_plugin.connector.fields import only_asked
from kolumn.spark_plugin.options.read import LoadOptions

pytestmark = pytest.mark.spark
ROWS = 4000

ORDERS = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "record", "name": "At", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}},
        {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
            {"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]}}},
    ],
}  # fmt: skip


def given(**options: str) -> LoadOptions:
    """Options of a read with the types of its values, as the connector has them when it plans."""
    found = LoadOptions.of({"path": "nowhere", **options})
    return replace(found, decode=with_types(found.decode, (), ()))


@pytest.mark.parametrize(
    ("asked", "decoded"),
    [
        ("value struct<id: long>", ("id",)),
        ("offset long, value struct<at: struct<y: int>, items: array<struct<n: int>>>", ("at.y", "items.n")),
        ("value struct<id: long, note: string, at: struct<x: int, y: int>, items: array<struct<sku: string, n: int>>>", None),
        ("value struct<note: string, at: struct<x: int, y: int>>", ("note", "at.x", "at.y")),
        ("valueValid boolean", None),
    ],
)
def test_fields_that_are_asked_for_are_decoded(spark: SparkSession, asked: str, decoded: tuple[str, ...] | None) -> None:
    avro = {"valueFormat": "avro", "valueSchema": json.dumps(ORDERS)}
    found = only_asked(given(**avro, columns="offset,value,valueValid"), StructType.fromDDL(asked)).decode
    assert found.typed[0].columns == decoded
    assert set(found.columns) == set(StructType.fromDDL(asked).fieldNames())
    flat = only_asked(given(**avro, valueAs="columns", columns="offset,value"), StructType.fromDDL("id long, at struct<x: int>")).decode
    assert flat.schema == pa.schema([("id", pa.int64()), ("at", pa.struct([pa.field("x", pa.int32(), nullable=False)]))])


def test_fields_of_json_are_all_decoded(spark: SparkSession) -> None:
    """Which members are wanted decides there whether a value is valid."""
    options = given(valueFormat="json", valueSchema='{"id": "int64", "n": "int64"}')
    assert only_asked(options, StructType.fromDDL("value struct<id: long>")).decode.typed[0].columns is None


def test_fields_of_avro_values(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {"id": i, "note": None if i % 2 else str(i), "at": {"x": i, "y": -i}, "items": [{"sku": "s", "n": i}] * (i % 3)}
        for i in range(ROWS)
    ]
    values = [encoded(ORDERS, row) for row in rows]
    values[7] += b"!"
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "orders-0")
    options = {"reader": "columnar", "columns": "offset,value", "valueFormat": "avro", "valueSchema": json.dumps(ORDERS)}
    frame = spark.read.format("kolumn").options(**options).load(str(tmp_path))
    found = frame.selectExpr("offset", "value.at.y", "value.items.n AS n", "value.note").orderBy("offset").collect()
    assert found[7][1:] == (None, None, None)
    expected = [(i, -i, [i] * (i % 3), row["note"]) for i, row in enumerate(rows) if i != 7]
    assert [tuple(row) for row in found if row.offset != 7] == expected
