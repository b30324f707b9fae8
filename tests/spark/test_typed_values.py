"""Values and keys with a format in Spark: the rows of `kolumn.read`, in Spark's types, with a schema that is known at planning."""

import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import kolumn
from kit.avro_values import encoded
from kit.plain_spark import load
from kit.protobuf_values import varint
from kit.spark_session import streamed
from kolumn.spark_plugin import read_segments
from kolumn.spark_plugin.read.options import READ_NAMES
from kolumn.spark_plugin.read.schema import arrow_schema, conformed, spark_schema
from kolumn.values.extensions import JSON_TEXT

pytestmark = pytest.mark.spark
ROWS = 500
SCHEMA = json.dumps({"customer": "string", "amount": "float64", "count": "uint64", "at": [{"t": "timestamp"}]})


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"customer": f"c{i % 3}", "amount": i / 2, "count": 2**64 - 1 - i, "at": [{"t": "2026-01-31T12:00:00Z"}]} for i in range(ROWS)]
    values: list[bytes | None] = [json.dumps(row).encode() for row in rows]
    values[3], values[400] = None, b'{"customer":"c1'
    path = tmp_path_factory.mktemp("log") / "orders-0"
    kolumn.write(pa.table({"key": pa.array([b'{"k":1}'] * ROWS), "value": pa.array(values, pa.binary())}), path, batch_bytes=2000)
    return path


def test_rows_are_those_of_a_read(log: Path) -> None:
    frame = load(log, valueFormat="json", valueSchema=SCHEMA, splitBytes=3000, keyFormat="json", keySchema='{"k": "int32"}')
    assert len(frame.splits) > 3
    table = kolumn.read(log, value_format="json", value_schema=SCHEMA, key_format="json", key_schema={"k": "int32"})
    assert frame.columns == table.schema.names
    told = "struct<customer:string,amount:double,count:decimal(20,0),at:array<struct<t:timestamp>>>"
    assert frame.schema["value"].dataType.simpleString() == told
    rows, names = frame.toArrow(), ["key", "offset", "valueValid", "keyValid", "valueSchemaId"]
    assert rows.select(names).to_pylist() == table.select(names).to_pylist()
    wanted = [None if one is None else one | {"count": Decimal(one["count"])} for one in table["value"].to_pylist()]
    assert rows["value"].to_pylist() == wanted
    assert [row.offset for row in frame.collect() if not row.valueValid] == [3, 400]


def test_fields_as_columns_and_inferred_types(log: Path) -> None:
    options = {"valueAs": "columns", "valueColumns": "amount,customer", "columns": "offset,value,valueRaw"}
    frame = load(log, valueFormat="json", valueSchema=SCHEMA, **options)
    assert frame.columns == ["offset", "customer", "amount", "valueRaw"]
    assert frame.collect()[2][:3] == (2, "c2", 1.0)
    frame = load(log, valueFormat="json", columns="value", endOffset=300)
    told = "struct<customer:string,amount:double,count:decimal(38,0),at:array<struct<t:string>>>"
    assert frame.schema["value"].dataType.simpleString() == told
    assert frame.count() == 300


def test_streams_and_frames(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    rows = streamed(spark, log, tmp_path, "value.customer", "value.count", valueFormat="json", valueSchema=SCHEMA)
    assert rows.agg(sql.count("customer"), sql.max("count")).collect() == [(ROWS - 2, 2**64 - 1)]
    frame = read_segments(spark, log, value_format="json", value_schema=SCHEMA, columns=["offset", "key", "value"])
    assert frame.schema["value"].dataType == load(log, valueFormat="json", valueSchema=SCHEMA).schema["value"].dataType
    assert frame.filter("value.customer = 'c1'").count() == len([i for i in range(ROWS) if i % 3 == 1 and i not in (3, 400)])
    assert frame.select("key").first() == (b'{"k":1}',)


def test_errors_of_options(log: Path) -> None:
    for options, message in (
        ({"valueFromat": "json"}, "did you mean 'valueFormat'"),
        ({"valueFormat": "jsonn"}, "did you mean 'json'"),
        ({"valueFormat": "json", "valueSchema": '{"a": "int46"}'}, "did you mean 'int64'"),
        ({"valueSchema": "{}"}, "go with value_format"),
        ({"columns": "valueValid"}, "goes with value_format"),
        ({"valueFormat": "json", "valueSchema": SCHEMA, "valueErrors": "raise"}, "offset 400: value: 15 bytes"),
    ):
        with pytest.raises(kolumn.KolumnError, match=f"(?i){message}"):
            load(log, **options).count()


ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def test_types_that_spark_has_not(caplog: pytest.LogCaptureFixture) -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    members: dict[str, tuple[pa.Array, Any]] = {
        "label": (pa.array(["a", None, "b"]).dictionary_encode(), ["a", None, "b"]),
        "u8": (pa.array([255, None, 0], pa.uint8()), [255, None, 0]),
        "u64": (pa.array([2**64 - 1, None, 0], pa.uint64()), [Decimal(2**64 - 1), None, Decimal(0)]),
        "ms": (pa.array([moment, None, moment], pa.timestamp("ms", "UTC")), [moment, None, moment]),
        "ns": (pa.array([1001, None, 0], pa.timestamp("ns")), [datetime(1970, 1, 1, 0, 0, 0, 1), None, datetime(1970, 1, 1)]),
        "time": (pa.array([7, None, 0], pa.time32("ms")), [7, None, 0]),
        "micros": (pa.array([7, None, 0], pa.time64("us")), [7, None, 0]),
        "fixed": (pa.array([b"ab", None, b"cd"], pa.binary(2)), [b"ab", None, b"cd"]),
        "interval": (
            pa.array([pa.MonthDayNano([1, 2, 3]), None, pa.MonthDayNano([0, 0, 0])]),
            [{"months": 1, "days": 2, "nanoseconds": 3}, None, {"months": 0, "days": 0, "nanoseconds": 0}],
        ),
        "map": (pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.uint8())), [[("k", 1)], None, []]),
        "json": (pa.ExtensionArray.from_storage(JSON_TEXT, pa.array(["[1]", None, "null"])), ["[1]", None, "null"]),
        "uuid": (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ID.bytes, None, bytes(16)], pa.binary(16))),
                 [str(ID), None, str(uuid.UUID(int=0))]),
        "wide": (pa.array([Decimal("1.50"), None, Decimal(10**40)], pa.decimal256(50, 2)), ["1.50", None, f"{10**40}.00"]),
        "empty": (pa.array([{}, None, {}], pa.struct([])), ["{}", None, "{}"]),
        "nothing": (pa.nulls(3), [None, None, None]),
    }  # fmt: skip
    kinds = [pa.field(name, array.type) for name, (array, _) in members.items()]
    mask = pa.array(np.array([False, False, True]))
    struct = pa.StructArray.from_arrays([array for array, _ in members.values()], fields=kinds, mask=mask)
    lists = pa.ListArray.from_arrays(pa.array([0, None, 1, 1], pa.int32()), struct.slice(0, 1))
    batch = pa.RecordBatch.from_arrays([struct, lists], ["value", "list"])
    schema = spark_schema(batch.schema)
    (found,) = conformed([batch], arrow_schema(schema))
    found.validate(full=True)
    assert found["value"].to_pylist() == [{name: wanted[i] for name, (_, wanted) in members.items()} for i in range(2)] + [None]
    assert found["list"].to_pylist() == [[{name: wanted[0] for name, (_, wanted) in members.items()}], None, []]
    (sliced,) = conformed([batch.slice(1)], arrow_schema(schema))
    assert sliced.to_pylist() == found.slice(1).to_pylist()
    far = pa.RecordBatch.from_arrays([pa.array([2**63 - 1, 5, None, -(2**63)], pa.timestamp("ms"))], ["far"])
    (found,) = conformed([far], arrow_schema(spark_schema(far.schema)))
    assert found["far"].cast(pa.int64()).to_pylist() == [None, 5000, None, None]
    assert caplog.messages == ["times out of the range of their type here are null: far (2)"]


@pytest.mark.parametrize("reader", ["python", "columnar"])
def test_what_was_lost_is_a_column(spark: SparkSession, tmp_path: Path, reader: str) -> None:
    """Both sources know the options of values in camel case, and the columns beside values."""
    values = [b'{"id": 1}', None, b"no", b'{"id": "x"}']
    kolumn.write(pa.table({"key": [b"k"] * 4, "value": pa.array(values, pa.binary())}), tmp_path / "t-0")
    options = {"valueFormat": "json", "valueSchema": '{"id": "int64"}', "valueErrors": "keep", "valueTimeUnit": "us", "valueMaxDepth": "2"}
    options |= {
        "keyFormat": "csv",
        "keySchema": '{"k": "string"}',
        "keyErrors": "null-field",
        "columns": "offset,value,valueProblems,keyProblems",
    }
    frame = spark.read.format("kolumn").options(reader=reader, **options).load(str(tmp_path / "t-0"))
    assert frame.schema.simpleString() == (
        "struct<offset:bigint,value:struct<id:bigint>,valueProblems:array<string>,keyProblems:array<string>>"
    )
    rows = [tuple(row) for row in frame.orderBy("offset").select("value.id", "valueProblems", "keyProblems").collect()]
    assert [row[0] for row in rows] == [1, None, None, None]
    assert [bool(row[1]) for row in rows] == [False, False, True, True]
    assert [row[2] for row in rows] == [None] * 4
    wrong = spark.read.format("kolumn").options(reader=reader, **{**options, "valueErrors": "null_field"})
    with pytest.raises(PySparkException, match="did you mean 'null-field'"):
        wrong.load(str(tmp_path / "t-0")).collect()
    other = {"valueSkip": "0", "valueUnions": "members", "valueEnvelope": "auto", "valueSubject": "record", "valueAsOf": "2026-01-31"}
    known = {name.lower() for name in READ_NAMES}
    assert {name.lower() for both in ("value", "key") for name in (n.replace("value", both) for n in other)} <= known


def test_a_dead_cluster_without_a_registry(spark: SparkSession, tmp_path: Path) -> None:
    """Schemas are found beside the topic when the query is planned, and again in the workers."""
    schema = {"type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "customer", "type": "string"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "items", "type": {"type": "array", "items": "int"}},
    ]}  # fmt: skip
    key = {"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1}
    registered = {"subject": "orders-value", "version": 1, "id": 7, "schema": json.dumps(schema), "deleted": False}
    kolumn.write(pa.table({"key": [json.dumps(key).encode()], "value": [json.dumps(registered).encode()]}), tmp_path / "_schemas-0")
    parsed, values = fastavro.parse_schema(schema), []
    for i in range(500):
        row = {"id": i, "customer": f"c{i % 3}", "state": ("NEW", "PAID")[i % 2], "items": [i] * (i % 3)}
        values.append(b"\0\0\0\0\7" + encoded(parsed, row) if i % 100 else b"bad")
    kolumn.write(pa.table({"value": values}), tmp_path / "orders-0", batch_bytes=2000)
    frame = spark.read.format("kolumn").option("valueFormat", "registry").load(str(tmp_path / "orders-0"))
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,customer:string,state:string,items:array<int>>"
    found = {row["customer"]: row["sum"] for row in frame.groupBy("value.customer").agg(sql.sum("value.id").alias("sum")).collect()}
    good = [i for i in range(500) if i % 100]
    assert found == {None: None, **{f"c{k}": sum(i for i in good if i % 3 == k) for k in range(3)}}
    assert frame.where("valueValid").groupBy("valueSchemaId").count().collect() == [(7, 495)]
    assert frame.select(sql.explode("value.items").alias("item")).count() == sum(i % 3 for i in good)
    stream = spark.readStream.format("kolumn").option("valueFormat", "registry").load(str(tmp_path / "orders-0"))
    assert stream.schema["value"] == frame.schema["value"]
    frames = read_segments(spark, str(tmp_path / "orders-0"), columns=["value"], value_format="registry")
    assert frames.groupBy("value.state").count().orderBy("state").collect() == [(None, 5), ("NEW", 245), ("PAID", 250)]


WRITTEN = json.dumps({"type": "record", "name": "W", "fields": [
    {"name": "id", "type": "long"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "tags", "type": {"type": "array", "items": "string"}}, {"name": "more", "type": ["null", "double"]},
]})  # fmt: skip


def test_values_are_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    """By a DataFrame, a stream, and SQL: a table has the schema for both."""
    query = "named_struct('id', id, 'at', timestamp_micros(id), 'tags', array('a', string(id)), 'more', IF(id = 1, 0.5D, NULL))"
    frame = spark.range(0, 4, 1, 1).selectExpr("named_struct('k', string(id)) AS key", f"IF(id = 3, NULL, {query}) AS value")
    options = {"topic": "t", "valueFormat": "avro", "valueSchema": WRITTEN, "keyFormat": "json", "keySchema": '{"k": "string"}'}
    options |= {"valueFraming": "confluent", "valueSchemaId": "5"}
    frame.write.format("kolumn").mode("append").options(**options).save(str(tmp_path / "log"))
    assert kolumn.read(tmp_path / "log")["value"].to_pylist()[0][:5] == b"\0\0\0\0\5"
    number = options.pop("valueSchemaId")
    found = spark.read.format("kolumn").options(**options).load(str(tmp_path / "log"))
    assert found.select("key", "value").collect() == frame.collect()
    stream = spark.readStream.format("kolumn").options(**options, startingOffsets="earliest").load(str(tmp_path / "log"))
    writer = stream.select("key", "value").writeStream.format("kolumn").options(**options, valueSchemaId=number)
    writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start(str(tmp_path / "copy")).awaitTermination()
    assert spark.read.format("kolumn").options(**options).load(str(tmp_path / "copy")).select("key", "value").collect() == frame.collect()
    before = spark.conf.get("spark.kolumn.reader")
    spark.conf.set("spark.kolumn.reader", "columnar")
    try:
        # A table reads what it writes, so it has no id to write.
        given = ", ".join(f"{name} '{text}'" for name, text in {**options, "valueFraming": "auto", "path": tmp_path / "log"}.items())
        spark.sql(f"CREATE TABLE written_values USING kolumn OPTIONS ({given})")
        spark.sql("INSERT INTO written_values (value) SELECT value FROM written_values WHERE value.id = 1")
        assert spark.sql("SELECT value.more FROM written_values WHERE value.id = 1").collect() == [(0.5,), (0.5,)]
        assert kolumn.read(tmp_path / "log")["value"].to_pylist()[-1][:1] == b"\2"
    finally:
        spark.sql("DROP TABLE IF EXISTS written_values")
        spark.conf.set("spark.kolumn.reader", before)
    wrong = frame.selectExpr("named_struct('id', string(1)) AS value")
    with pytest.raises(PySparkException, match=r"column 'value', row 0: \$.id: expected long.* found 1"):
        wrong.write.format("kolumn").mode("append").options(topic="t", valueFormat="avro", valueSchema=WRITTEN).save(str(tmp_path / "log"))
    with pytest.raises(PySparkException, match="in Spark valueFormat and valueSchema"):
        wrong.write.format("kolumn").mode("append").options(topic="t").save(str(tmp_path / "log"))


def test_timestamps_of_protobuf_have_the_years_that_spark_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    schema = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp at = 1; }"""
    first, last = (-62135596800, b""), (253402300799, b"\x10\xff\x93\xeb\xdc\x03")
    bodies = [b"\x08" + varint(seconds % 2**64) + nanos for seconds, nanos in (first, last)]
    values = [b"\n" + varint(len(body)) + body for body in bodies]
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "t-0")
    frame = load(tmp_path / "t-0", valueFormat="protobuf", valueSchema=schema, valueAs="columns", columns="value,valueValid")
    assert [row["at"].replace(tzinfo=None) for row in frame.toArrow().to_pylist()] == [datetime(1, 1, 1), datetime.max]
    assert "timestamps of Protobuf in values are cut to microseconds" in caplog.text
