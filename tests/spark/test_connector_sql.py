"""The connector in SQL: tables of Spark's own catalog, and a catalog of topics."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import kolumn
from kit.avro_values import encoded
from kolumn.readers.types import with_types
from kolumn.spark_plugin.connector.conditions import only_asked
from kolumn.spark_plugin.options.read import LoadOptions

pytestmark = pytest.mark.spark

PARTITIONS, ROWS = 3, 1000


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("logs")
    for topic in ("orders", "notes"):
        for partition in range(PARTITIONS):
            kolumn.write(pa.table({"value": [b"%d" % i for i in range(ROWS)]}), root / f"{topic}-{partition}")
    return root


@pytest.fixture
def columnar(spark: SparkSession) -> Iterator[None]:
    """The connector is what a session reads by, as it is unless tests say otherwise."""
    before = spark.conf.get("spark.kolumn.reader")
    spark.conf.set("spark.kolumn.reader", "columnar")
    yield
    spark.conf.set("spark.kolumn.reader", before)


@pytest.mark.usefixtures("columnar")
def test_tables(spark: SparkSession, logs: Path) -> None:
    for how in (f"OPTIONS (path '{logs}/orders-*', includeHeaders 'true', subscribe 'orders')", f"LOCATION '{logs}/orders-*'"):
        spark.sql(f"CREATE TABLE connector_table USING kolumn {how}")
        try:
            assert spark.sql("SELECT count(*), max(offset) FROM connector_table WHERE offset >= 10").collect()[0][0] == 3 * (ROWS - 10)
            assert ("headers" in spark.table("connector_table").columns) == ("OPTIONS" in how)
            # Properties of the table are no options.
            spark.sql("ALTER TABLE connector_table SET TBLPROPERTIES ('team' = 'data')")
            assert spark.table("connector_table").where("offset < 2").count() == 6
            told = {row.col_name: row.data_type for row in spark.sql("DESCRIBE EXTENDED connector_table").collect()}
            assert (told["Type"], told["Provider"], told["Location"]) == ("EXTERNAL", "kolumn", f"file:{logs}/orders-*")
            made = spark.sql("SHOW CREATE TABLE connector_table").collect()[0][0]
            assert "USING kolumn" in made
            assert ("'includeHeaders' = 'true'" in made) == ("OPTIONS" in how)
            with pytest.raises(PySparkException, match="tables over a log are read"):
                spark.sql("INSERT INTO connector_table SELECT * FROM connector_table LIMIT 1")
        finally:
            spark.sql("DROP TABLE connector_table")


def test_a_catalog_of_topics(spark: SparkSession, logs: Path) -> None:
    spark.conf.set("spark.sql.catalog.disk", "kolumn.Catalog")
    spark.conf.set("spark.sql.catalog.disk.root", str(logs))
    assert sorted(row.tableName for row in spark.sql("SHOW TABLES IN disk").collect()) == ["notes", "orders"]
    assert spark.sql("SELECT count(*), count(DISTINCT partition) FROM disk.orders").collect()[0] == (3 * ROWS, 3)
    joined = spark.sql("SELECT count(*) FROM disk.orders o JOIN disk.notes n USING (partition, offset) WHERE o.offset >= 990")
    assert joined.collect()[0][0] == 30
    assert spark.sql(f"SELECT max(offset) FROM disk.`{logs}/notes-1`").collect()[0][0] == ROWS - 1
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM disk.none")
    with pytest.raises(PySparkException, match="reads topics, and changes nothing"):
        spark.sql("DROP TABLE disk.orders")
    with pytest.raises(PySparkException):
        spark.sql("INSERT INTO disk.orders SELECT * FROM disk.notes")


# Fields of typed values by the connector: those that a query asks for are decoded, and no others where validity does not depend on it.


FIELD_ROWS = 4000

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
        for i in range(FIELD_ROWS)
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
