"""`kolumn.write` encodes keys and values by a schema: what is read is what was written, and what does not fit is refused with its place."""

import io
import json
import re
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

import kolumn
from kit.avro_values import encoded
from kolumn.core.errors import ArgumentError

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message Other { int32 x = 1; }
message Order {
  message Item { uint64 n = 1; }
  enum Size { SMALL = 0; LARGE = 5; }
  int32 id = 1;
  optional string note = 2;
  repeated Item items = 3;
  map<string, Item> by_name = 4;
  Size size = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Duration took = 7;
  google.protobuf.Int64Value wrapped = 8;
  oneof way { string road = 9; int64 rail = 10; }
  bytes raw = 11;
  float ratio = 12;
}
"""


def avro(*fields: tuple[str, Any], **more: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": name, "type": kind, **more} for name, kind in fields]})


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def back(path: Path, rows: pa.Array, **options: Any) -> pa.Table:
    """What is read after writing, by the same options."""
    kolumn.write(pa.table({"value": rows}), path, **options)
    number = options.pop("value_schema_id", None)
    if number is not None:
        options["value_schemas"] = {number: options["value_schema"]}
    return kolumn.read(path, columns=["value", "valueValid", "valueRaw"], **options)


def test_avro_of_all_logical_types(tmp_path: Path) -> None:
    kinds: dict[str, tuple[Any, pa.DataType, Any]] = {
        "day": (logical("int", "date"), pa.date32(), date(2026, 1, 2)),
        "ms": (logical("int", "time-millis"), pa.time32("ms"), time(1, 2, 3, 4000)),
        "us": (logical("long", "time-micros"), pa.time64("us"), time(1, 2, 3, 4)),
        "at": (logical("long", "timestamp-millis"), pa.timestamp("us", "UTC"), AT),
        "local": (logical("long", "local-timestamp-micros"), pa.timestamp("us"), AT.replace(tzinfo=None)),
        "money": (logical("bytes", "decimal", precision=9, scale=2), pa.decimal128(9, 2), Decimal("-12.30")),
        "big": (logical("bytes", "decimal", precision=50, scale=1), pa.string(), "-1234567890123456789012345678901234567890.5"),
        "id": (logical("string", "uuid"), pa.string(), "01234567-89ab-cdef-0123-456789abcdef"),
        "number": ("long", pa.uint32(), 7),
        "half": ("float", pa.float64(), 0.5),
        "label": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B"),
        "four": ({"type": "fixed", "name": "F", "size": 4}, pa.binary(), b"abcd"),
        "map": ({"type": "map", "values": ["null", "int"]}, pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", None)]),
        "list": ({"type": "array", "items": "string"}, pa.list_(pa.string()), ["x", ""]),
    }
    schema = avro(*((name, kind) for name, (kind, _, _) in kinds.items()))
    rows = pa.array(
        [{name: value for name, (_, _, value) in kinds.items()}, None], pa.struct([(name, type) for name, (_, type, _) in kinds.items()])
    )
    found = back(tmp_path / "t-0", rows, value_format="avro", value_schema=schema)
    assert found["valueRaw"].is_valid().to_pylist() == [True, False]
    row: Any = found["value"][0].as_py()
    assert row | {"big": str(row["big"]), "at": row["at"].astimezone(UTC)} == rows[0].as_py()
    theirs: Any = fastavro.schemaless_reader(io.BytesIO(found["valueRaw"][0].as_py()), json.loads(schema))  # type: ignore[call-arg]
    assert (theirs["at"], theirs["money"], theirs["day"], theirs["label"]) == (AT, Decimal("-12.30"), date(2026, 1, 2), "B")


@pytest.mark.parametrize(("style", "names"), [("types", ["int", "I"]), ("members", ["member0", "member1"])])
def test_avro_defaults_and_unions(style: str, names: list[str], tmp_path: Path) -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [
        {"name": "u", "type": ["null", "int", {"type": "record", "name": "I", "fields": [{"name": "x", "type": "string"}]}]},
        {"name": "n", "type": "int", "default": 7}, {"name": "b", "type": "bytes", "default": "\u00ff"},
        {"name": "l", "type": ["null", {"type": "array", "items": "int"}], "default": None}]})  # fmt: skip
    union = pa.struct(list(zip(names, [pa.int32(), pa.struct([("x", pa.string())])], strict=True)))
    pairs = [(3, None), (None, {"x": "y"}), (3, {"x": "y"})]
    number, inner, both = ({"u": dict(zip(names, pair, strict=True))} for pair in pairs)
    values: list[dict[str, Any]] = [number, {"u": None}, inner]
    column = pa.array(values, pa.struct([("u", union)]))
    read = dict(zip(names, ["int", "I"], strict=True))
    found = back(tmp_path / "t-0", column, value_format="avro", value_schema=schema)
    expected = [None if one["u"] is None else {read[name]: part for name, part in one["u"].items()} for one in values]
    assert found["value"].to_pylist() == [{"u": one, "n": 7, "b": b"\xff", "l": None} for one in expected]
    again = kolumn.read(tmp_path / "t-0", value_format="avro", value_schema=schema, value_unions=style, value_columns=["u"])
    assert again["value"].to_pylist() == values
    rows = pa.array([both], pa.struct([("u", union)]))
    with pytest.raises(ArgumentError, match=r"row 0: \$\.u: expected one field that is not null"):
        back(tmp_path / "t-1", rows, value_format="avro", value_schema=schema)


def test_uuids_in_their_own_type(tmp_path: Path) -> None:
    """Written as text or as 16 bytes, as the schema says; other tools have them as text."""
    fixed = {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}
    fields = [{"name": "a", "type": {"type": "string", "logicalType": "uuid"}}, {"name": "b", "type": ["null", fixed]}]
    how: dict[str, Any] = {"value_format": "avro", "value_schema": json.dumps({"type": "record", "name": "R", "fields": fields})}
    ids = pa.array([UUID(int=n).bytes for n in (5, 2**127)], pa.binary(16))
    own = pa.ExtensionArray.from_storage(pa.uuid(), ids)
    rows = pa.StructArray.from_arrays([own, own], ["a", "b"])
    found = back(tmp_path / "t-0", rows, **how)
    assert found["value"].to_pylist() == [{"a": str(UUID(bytes=one)), "b": one} for one in ids.to_pylist()]
    again = kolumn.read(tmp_path / "t-0", **how, value_uuids="arrow", columns=["value"])
    assert again["value"].combine_chunks().equals(rows)
    polars = kolumn.scan_polars(tmp_path / "t-0", **how, value_uuids="arrow", columns=["value"]).collect()["value"].to_list()
    assert polars == [dict.fromkeys("ab", str(UUID(bytes=one))) for one in ids.to_pylist()]
    json_ = back(tmp_path / "t-1", rows, value_format="json", value_schema={"a": "string", "b": "binary"})
    wanted = [{"a": str(UUID(bytes=one)), "b": one} for one in ids.to_pylist()]
    assert json_["value"].to_pylist() == wanted
    plain = avro(("a", "bytes"), ("b", {"type": "fixed", "name": "F", "size": 16}))
    found = back(tmp_path / "t-2", rows, value_format="avro", value_schema=plain)
    assert found["value"].to_pylist() == [{"a": one, "b": one} for one in ids.to_pylist()]
    message = 'syntax = "proto3"; message M { string a = 1; bytes b = 2; }'
    assert back(tmp_path / "t-3", rows, value_format="protobuf", value_schema=message)["value"].to_pylist() == wanted
    with pytest.raises(ArgumentError, match=r"row 0: \$\.a: expected boolean, found 00000000-0000-0000-0000-000000000005"):
        back(tmp_path / "t-4", rows, value_format="avro", value_schema=avro(("a", "boolean"), ("b", "bytes")))


INNER = {
    "b": "bytes", "d": logical("bytes", "decimal", precision=5, scale=2), "wide": logical("bytes", "decimal", precision=90, scale=2),
    "day": logical("int", "date"), "t": logical("int", "time-millis"), "at": logical("long", "timestamp-micros"),
    "local": logical("long", "local-timestamp-nanos"), "f": "float", "x": "double", "n": "long",
    "e": {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "l": {"type": "array", "items": ["null", "int"]},
    "m": {"type": "map", "values": "R"}, "s": "string", "u": logical("string", "uuid"), "fx": {"type": "fixed", "name": "FX", "size": 3},
    "span": {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, "un": ["E", "string", "R", "boolean"], "z": "null",
}  # fmt: skip


@pytest.mark.parametrize("depth", [1, 2])
def test_types_that_contain_themselves(tmp_path: Path, depth: int) -> None:
    """JSON text, as it is read below the depth, becomes the bytes that it was."""
    schema = avro(("me", ["null", "R"]), *INNER.items())
    value: dict[str, Any] = {
        "me": None, "b": b"\xff\0", "d": b"\x04\xd2", "wide": b"\x7f" * 37, "day": -800, "t": 3_723_004, "at": -(10**15), "local": -1,
        "f": 0.1, "x": -0.0, "n": 2**63 - 1, "e": "B", "l": [None, 7], "m": {}, "s": 'é"\n', "u": "x", "fx": b"abc",
        "span": struct.pack("<III", 1, 2, 3), "un": True, "z": None,
    }  # fmt: skip
    other = value | {"x": float("inf"), "f": float("nan"), "un": ("R", value), "m": {"k": value, "é": value}}
    third = other | {"me": other, "un": "text"}
    parsed = fastavro.parse_schema(json.loads(re.sub(', "logicalType": "[^"]*"', "", schema)))
    lines = [encoded(parsed, one) for one in (value, other, third, value | {"me": third, "un": ("R", third)})]
    kolumn.write(pa.table({"value": pa.array(lines, pa.binary())}), tmp_path / "t-0")
    how: dict[str, Any] = {"value_format": "avro", "value_schema": schema}
    read = kolumn.read(tmp_path / "t-0", **how, value_max_depth=depth, columns=["value", "valueValid"])
    assert all(read["valueValid"].to_pylist())
    assert back(tmp_path / "t-1", read["value"].combine_chunks(), **how)["valueRaw"].to_pylist() == lines


A_LIST = json.dumps({"type": "record", "name": "L", "fields": [{"name": "v", "type": "float"}, {"name": "next", "type": ["null", "L"]}]})
NOT_OF_LISTS = [
    ("{", "$.next: expected JSON text of record L, found '{' (Expecting"),
    ('{"v": 1, "v": 1}', "(a name comes twice)"),
    ('{"v": 1e999999999, "next": null}', "(a number has too many digits)"),
    ('{"v": NaN, "next": null}', "expected JSON, found NaN"),
    ('{"v": 1}', "$.next.next: expected union, which has no default, found no such field"),
    ('{"v": 1, "next": null, "q": 1}', "$.next: expected no other fields than those of record L, found q"),
    ('{"v": 1, "next": {"v": 0.1000000001, "next": null}}', "$.next.next.v: expected float that holds the number exactly, found"),
    ('{"v": "1", "next": null}', "$.next.v: expected float that holds the number exactly, found 1"),
    ("[]", "$.next: expected record L, found []"), ("null", "$.next: expected record L, found null"),
    ('{"v": 1, "next": ' * 5000 + "null" + "}" * 5000, "which is nested too deeply"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), NOT_OF_LISTS, ids=range(len(NOT_OF_LISTS)))
def test_json_text_that_is_no_record(tmp_path: Path, given: str, message: str) -> None:
    text = pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array([given]))
    rows = pa.StructArray.from_arrays([pa.array([1.0], pa.float32()), text], ["v", "next"])
    with pytest.raises(ArgumentError, match=re.escape(message)):
        back(tmp_path / "t-0", rows, value_format="avro", value_schema=A_LIST)


def test_json_text_with_the_names_of_an_older_schema(tmp_path: Path) -> None:
    old = avro(("old", "string"), ("n", ["null", "R"]))
    types: list[dict[str, Any]] = [{"name": "v", "type": "string", "aliases": ["old"]}, {"name": "d", "type": "int", "default": 9}]
    new = json.dumps({"type": "record", "name": "R", "fields": [*types, {"name": "n", "type": ["null", "R"]}]})
    kolumn.write(pa.table({"value": [b"\0\0\0\0\1\2x\2\2y\0"]}), tmp_path / "t-0")
    how: dict[str, Any] = {"value_format": "avro", "value_schema": new}
    read = kolumn.read(tmp_path / "t-0", **how, value_schemas={1: old}, columns=["value"])
    assert read["value"].to_pylist() == [{"v": "x", "d": 9, "n": '{"old":"y","n":null}'}]
    assert back(tmp_path / "t-1", read["value"].combine_chunks(), **how)["valueRaw"].to_pylist() == [b"\2x\x12\2\2y\x12\0"]


def test_json_text_for_unions_of_records_is_not_tried_again_and_again(tmp_path: Path) -> None:
    b = {"type": "record", "name": "B", "fields": [{"name": "n", "type": ["null", "R", "B"]}, {"name": "k", "type": "string"}]}
    schema = avro(("n", ["null", "R", b]), ("k", "int"))
    text = "null"
    for _ in range(40):
        text = f'{{"n":{text},"k":"q"}}'
    rows = pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array([f'{{"n":{text},"k":1}}']))
    found = back(tmp_path / "t-0", rows, value_format="avro", value_schema=schema)
    assert found["valueRaw"].to_pylist() == [b"\4" * 40 + b"\0" + b"\2q" * 40 + b"\2"]


def test_protobuf(tmp_path: Path) -> None:
    item = pa.struct([("n", pa.uint64())])
    kinds = {
        "id": pa.int32(), "note": pa.string(), "items": pa.list_(item), "by_name": pa.map_(pa.string(), item), "size": pa.string(),
        "at": pa.timestamp("us", "UTC"), "took": pa.duration("ms"), "wrapped": pa.int64(), "road": pa.string(), "rail": pa.int64(),
        "raw": pa.binary(), "ratio": pa.float32(),
    }  # fmt: skip
    type = pa.struct(list(kinds.items()))
    full = {
        "id": -5, "note": "", "items": [{"n": 2**64 - 1}, {"n": 0}], "by_name": [("k", {"n": 3})], "size": "LARGE", "at": AT,
        "took": timedelta(milliseconds=-1500), "wrapped": 0, "road": None, "rail": 9, "raw": b"\xff", "ratio": 0.25,
    }  # fmt: skip
    empty = {"id": 0, "note": None, "items": [], "by_name": [], "size": "SMALL", "at": None, "took": None, "wrapped": None, "road": "",
             "rail": None, "raw": b"", "ratio": 0.0}  # fmt: skip
    rows = pa.array([full, None, empty], type)
    options: dict[str, Any] = {"value_format": "protobuf", "value_schema": PROTO, "value_message": "Order"}
    found = back(tmp_path / "t-0", rows, **options)
    expected = [full | {"at": AT, "took": timedelta(milliseconds=-1500)}, None, empty]
    assert found["value"].combine_chunks().cast(type).to_pylist() == expected
    # The second message of the file, and one in it.
    framed = back(tmp_path / "t-1", rows, value_schema_id=260, **options)
    assert framed["valueRaw"][0].as_py()[:7] == b"\0\0\0\1\4\2\2"
    assert framed["value"].equals(found["value"])
    inner = back(tmp_path / "t-2", pa.array([{"n": 4}], item), value_schema_id=1, **options | {"value_message": "Order.Item"})
    assert inner["valueRaw"].to_pylist() == [b"\0\0\0\0\1\4\2\0\x08\4"]
    assert inner["value"].to_pylist() == [{"n": 4}]


def test_json(tmp_path: Path) -> None:
    schema = {"a": "int64", "t": "timestamp", "l": ["string"], "o": {"x": "float64", "ok": "bool"}, "d": "date32"}
    inner = pa.struct([("x", pa.float64()), ("ok", pa.bool_())])
    type = pa.struct([("a", pa.int16()), ("t", pa.timestamp("us", "UTC")), ("l", pa.list_(pa.string())), ("o", inner), ("d", pa.date32())])
    row = {"a": 5, "t": AT, "l": ["é", None], "o": {"x": 1.5, "ok": True}, "d": date(2026, 1, 2)}
    found = back(tmp_path / "t-0", pa.array([row, None], type), value_format="json", value_schema=schema)
    text = '{"a":5,"t":"2026-01-02T03:04:05.678000Z","l":["é",null],"o":{"x":1.5,"ok":true},"d":"2026-01-02"}'
    assert found["valueRaw"].to_pylist() == [text.encode(), None]
    assert found["value"].to_pylist() == [row, None]
    registered = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})
    framed = back(tmp_path / "t-1", pa.array([{"a": 5}]), value_format="json", value_schema=registered, value_schema_id=7)
    assert framed["valueRaw"].to_pylist() == [b'\0\0\0\0\7{"a":5}']
    assert framed["value"].to_pylist() == [{"a": 5}]


def test_what_is_read_can_be_written(tmp_path: Path) -> None:
    """With its own columns beside it: values that are not valid keep their bytes, if these are there."""
    schema = avro(("x", "long"))
    kolumn.write(pa.table({"value": [b"\x06", b"not one", None], "key": [b"\x02", b"\x04", None]}), tmp_path / "t-0")
    options: dict[str, Any] = {"value_format": "avro", "value_schema": schema, "key_format": "avro", "key_schema": '"long"'}
    columns = ["key", "keyValid", "value", "valueValid", "valueSchemaId", "valueRaw", "offset"]
    read = kolumn.read(tmp_path / "t-0", columns=columns, **options)
    kolumn.write(read, tmp_path / "t-1", **options)
    assert kolumn.read(tmp_path / "t-1", columns=columns, **options).equals(read)
    assert kolumn.read(tmp_path / "t-1")["value"].to_pylist() == [b"\x06", b"not one", None]


def test_single_object_encoding(tmp_path: Path) -> None:
    schema = avro(("x", "long"))
    found = back(tmp_path / "t-0", pa.array([{"x": 3}]), value_format="avro", value_schema=schema, value_framing="single-object")
    assert found["valueRaw"][0].as_py()[:2] == b"\xc3\x01"
    assert found["value"].to_pylist() == [{"x": 3}]


def one(value: Any, type: pa.DataType) -> pa.Array:
    return pa.array([{"x": value}], pa.struct([("x", type)]))


AVRO_REFUSES: list[tuple[Any, pa.Array, str]] = [
    ("int", one(2**31, pa.int64()), "$.x: expected int, -2147483648 to 2147483647, found 2147483648"),
    ("int", one(None, pa.int32()), "$.x: expected int, found null"),
    ("int", one(AT, pa.timestamp("us", "UTC")), "$.x: expected int, found timestamp[us, tz=UTC]"),
    ("float", one(0.1, pa.float64()), "$.x: expected float that holds the number exactly, found 0.1"),
    ("string", one(b"x", pa.binary()), "$.x: expected string, found b'x'"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, one("B", pa.string()), "$.x: expected one of A, found B"),
    ({"type": "fixed", "name": "F", "size": 2}, one(b"abc", pa.binary()), "$.x: expected fixed F of 2 bytes, found b'abc'"),
    (logical("long", "timestamp-millis"), one(AT, pa.timestamp("us")), "expected timestamp-millis, a timestamp with a time zone"),
    (logical("long", "timestamp-millis"), one(1, pa.timestamp("us", "UTC")), "$.x: expected a time of whole ms, found 1 us"),
    (logical("bytes", "decimal", precision=3, scale=1), one(Decimal("1.25"), pa.decimal128(3, 2)), "expected decimal(3, 1), found 1.25"),
    (logical("bytes", "decimal", precision=3, scale=1), one(Decimal("100.1"), pa.decimal128(4, 1)), "expected decimal(3, 1), found 100.1"),
    ({"type": "map", "values": "int"}, one([("a", 1), ("a", 2)], pa.map_(pa.string(), pa.int32())), "expected keys that differ"),
    ({"type": "array", "items": "int"}, one([1, None], pa.list_(pa.int32())), "$.x[1]: expected int, found null"),
    ("int", pa.array([{"y": 1}]), "$: expected no other fields than those of record R, found y"),
    ("int", pa.array([{}], pa.struct([])), "$.x: expected int, which has no default, found no such field"),
    (["int", "string"], one(1.5, pa.float64()), "$.x: expected a struct of int, string, or one of the types of union, found double"),
]


@pytest.mark.parametrize(("kind", "rows", "message"), AVRO_REFUSES)
def test_what_avro_does_not_hold(tmp_path: Path, kind: Any, rows: pa.Array, message: str) -> None:
    table = pa.table({"value": pa.concat_arrays([pa.nulls(2, rows.type), rows])})
    with pytest.raises(ArgumentError, match=f"column 'value', row 2: .*{re.escape(message)}"):
        kolumn.write(table, tmp_path / "t-0", value_format="avro", value_schema=avro(("x", kind)))
    assert not (tmp_path / "t-0").exists()


PROTOBUF_REFUSES = [
    ("int32 x = 1;", one(2**31, pa.int64()), "$.x: expected an integer, -2147483648 to 2147483647"),
    ("uint32 x = 1;", one(-1, pa.int64()), "$.x: expected an integer, 0 to 4294967295, found -1"),
    ("int32 x = 1;", one(None, pa.int32()), "$.x: expected a value: the field cannot be absent, found null"),
    ("repeated int32 x = 1;", one([1, None], pa.list_(pa.int32())), "$.x[1]: expected a value, found null"),
    ("repeated int32 x = 1;", one(1, pa.int32()), "$.x: expected a list, found int32"),
    ("float x = 1;", one(0.1, pa.float64()), "$.x: expected a number that holds the number exactly, found 0.1"),
    ("enum E { A = 0; } E x = 1;", one("B", pa.string()), "$.x: expected one of A, found B"),
    ("bool x = 1;", one("true", pa.string()), "$.x: expected a bool, found true"),
    ("int32 y = 1;", one(1, pa.int32()), "$: expected no other fields than those of M, found x"),
    ("oneof o { int32 x = 1; int32 y = 2; }", pa.array([{"x": 1, "y": 2}]), "$.y: expected one field of o, found x too"),
]


@pytest.mark.parametrize(("fields", "rows", "message"), PROTOBUF_REFUSES)
def test_what_protobuf_does_not_hold(tmp_path: Path, fields: str, rows: pa.Array, message: str) -> None:
    schema = f'syntax = "proto3"; message M {{ {fields} }}'
    with pytest.raises(ArgumentError, match=f"column 'value', row 0: {re.escape(message)}"):
        kolumn.write(pa.table({"value": rows}), tmp_path / "t-0", value_format="protobuf", value_schema=schema)


JSON_REFUSES = [
    ("float64", one(float("nan"), pa.float64()), "$.x: expected a number, which JSON has no other for, found nan"),
    ("int8", one(128, pa.int64()), "$.x: expected int8, -128 to 127, found 128"),
    ("timestamp", one(AT, pa.timestamp("us")), "$.x: expected timestamp[us, tz=UTC], found timestamp[us]"),
    ("string", one(1, pa.int64()), "$.x: expected string, found 1"),
    ("bool", one(1, pa.int64()), "$.x: expected bool, found 1"),
]


@pytest.mark.parametrize(("kind", "rows", "message"), JSON_REFUSES)
def test_what_json_does_not_hold(tmp_path: Path, kind: str, rows: pa.Array, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"column 'value', row 0: {re.escape(message)}"):
        kolumn.write(pa.table({"value": rows}), tmp_path / "t-0", value_format="json", value_schema={"x": kind})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "column 'value': expected binary, found struct<x: int64>: value_format and value_schema encode it, in Spark valueFormat"),
        ({"value_schema": {"x": "int64"}}, "value_schema has no effect without value_format: give it, one of avro, protobuf, json"),
        ({"value_format": "json"}, "value_format='json' needs value_schema when writing"),
        ({"value_format": "csv", "value_schema": {"x": "int64"}}, "unknown value_format 'csv'"),
        ({"value_format": "json", "value_schema": {"x": "int64"}, "value_message": "M"}, "value_message='M': not for value_format='json'"),
        ({"value_format": "json", "value_schema": {"x": "int64"}, "value_framing": "glue"}, "value_framing='glue': expected one of none"),
        ({"value_format": "json", "value_schema": {"x": "int64"}, "value_framing": "confluent"}, "confluent needs the id"),
        ({"value_format": "json", "value_schema": {"x": "int64"}, "value_schema_id": -1}, "value_schema_id=-1: expected 0 to 4294967295"),
        ({"value_format": "json", "value_schema": {"x": "int64"}, "value_framing": "single-object"}, "not for value_format='json'"),
        ({"value_format": "avro", "value_schema": "{}"}, "Avro schema {}: "),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        kolumn.write(pa.table({"value": pa.array([{"x": 1}])}), tmp_path / "t-0", **options)
    assert not (tmp_path / "t-0").exists()
