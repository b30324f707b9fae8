"""Protobuf: what a value loses of which the rest is read, JSON text, times in other units, numbers without a symbol, and what old clients
write before messages.
"""

import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import struct_pb2, timestamp_pb2

import kolumn
from kit.guarded import bodies
from kit.outcome import raises
from kit.protobuf_values import plain, varint
from kolumn.core.errors import ArgumentError
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.protobuf import ProtobufDecoder
from kolumn.values.protobuf_schema import _compiled
from kolumn.values.schemas.schema import Schema
from kolumn.values.typed import Typed
from kolumn.values.wire import framing

SHOP = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Order {
  int64 id = 1; string note = 2; Line line = 3; repeated Line lines = 4; repeated string tags = 5; map<string, string> marks = 6;
  google.protobuf.Timestamp at = 7; google.protobuf.StringValue label = 8; repeated int32 numbers = 9;
  oneof how { string card = 10; google.protobuf.Struct gift = 11; } map<int32, google.protobuf.Value> more = 12;
  repeated google.protobuf.Timestamp seen = 13;
}
message Line { string sku = 1; google.protobuf.Timestamp at = 2; int32 count = 3; }
"""
NOTHING = {"id": 0, "note": "", "line": None, "lines": [], "tags": [], "marks": {"map": {}}, "at": None, "label": None, "numbers": [],
           "card": None, "gift": None, "more": {"map": {}}, "seen": []}  # fmt: skip


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def read(decoder: ProtobufDecoder, values: list[bytes], **more: Any) -> list[tuple[Any, tuple[str, ...]]]:
    """Each value by the plain reader, with what it lost; where the loop returns it, it is the same."""
    given = bodies(values, **more)
    array, valid = decoder.decode(given)
    column, lost = decoder.salvage(given)
    column.validate(full=True)
    assert column.type == decoder.type
    found = [plain(one) for one in column]
    for number in np.flatnonzero(valid).tolist():
        assert (plain(array[number]), lost[number]) == (found[number], ())
    return list(zip(found, lost, strict=True))


@pytest.fixture(scope="module")
def shop() -> ProtobufDecoder:
    return ProtobufDecoder(SHOP, "Order", null_fields=True)


BAD, FAR = b"a\xff", timestamp_pb2.Timestamp(seconds=253402300799).SerializeToString()


@pytest.mark.parametrize(
    ("value", "found", "paths"),
    [
        (field(2, BAD), {"note": None}, ["note"]),
        (field(3, field(1, BAD) + field(3, 2)), {"line": {"sku": None, "at": None, "count": 2}}, ["line.sku"]),
        (field(3, field(1, b"s") + b"\x1d\1"), {"line": None}, ["line"]),
        (field(4, field(1, b"s")) + field(4, field(2, FAR)),
         {"lines": [{"sku": "s", "at": None, "count": 0}, {"sku": "", "at": None, "count": 0}]}, ["lines.at"]),
        (field(4, b"") + field(4, b"\x0a\5"), {"lines": None}, ["lines"]),
        (field(5, b"t") + field(5, BAD), {"tags": None}, ["tags"]),
        (field(6, field(1, b"k") + field(2, BAD)) + field(2, b"n"), {"marks": None, "note": "n"}, ["marks"]),
        (field(6, field(1, BAD)), {"marks": None}, ["marks"]),
        (field(7, FAR), {"at": None}, ["at"]),
        (field(13, FAR) + field(13, b""), {"seen": [None, 0]}, ["seen"]),
        (field(8, field(1, BAD)), {"label": None}, ["label"]),
        (field(9, b"\1\2\x80"), {"numbers": None}, ["numbers"]),
        (field(11, field(1, b"\x0a\xff")), {"gift": None}, ["gift"]),
        (field(12, field(1, 1) + field(2, b"\x0a")), {"more": None}, ["more"]),
        (field(2, BAD) + field(7, FAR), {"note": None, "at": None}, ["note", "at"]),
        # What comes later does not mend it, and what is removed counts.
        (field(2, BAD) + field(2, b"n"), {"note": None}, ["note"]),
        (field(10, BAD) + field(11, b""), {"gift": {"json": {}}}, ["card"]),
        (field(11, b"\x0a\xff") + field(10, b"c"), {"card": "c", "gift": None}, ["gift"]),
    ],
)  # fmt: skip
def test_a_field_that_is_lost_costs_no_other(shop: ProtobufDecoder, value: bytes, found: dict[str, Any], paths: list[str]) -> None:
    (row,) = read(shop, [field(1, 7) + value])
    assert row == ({**NOTHING, "id": 7, **found}, tuple(paths))


@pytest.mark.parametrize("value", [b"\x0a", b"\0", field(1, 7) + b"\x0b\x08\1", b"\x12\5abc", b"\x0c", b"\x0f"])
def test_a_malformed_message_is_lost(shop: ProtobufDecoder, value: bytes) -> None:
    assert read(shop, [value, b""]) == [(None, ("$",)), (NOTHING, ())]


def test_fields_that_cannot_be_null_cost_what_is_around_them() -> None:
    decoder = ProtobufDecoder(SHOP, "Order")
    rows = read(decoder, [field(2, BAD), field(3, field(1, BAD)), field(4, field(1, BAD)), field(7, FAR), field(8, field(1, BAD))])
    assert rows == [(None, ("note",)), (NOTHING, ("line.sku",)), (None, ("lines.sku",)), (NOTHING, ("at",)), (NOTHING, ("label",))]


def test_required_fields_and_closed_enums() -> None:
    text = """syntax = "proto2";
              message A { required int32 x = 1; optional B b = 2; repeated B c = 3; optional K k = 4; map<int32, K> m = 5; }
              message B { required int32 y = 1; optional int32 z = 2; } enum K { LOW = 0; HIGH = 2; }"""
    decoder = ProtobufDecoder(text, "A", null_fields=True)
    none = {"x": None, "b": None, "c": [], "k": None, "m": {"map": {}}}
    entries = field(5, field(1, 1) + field(2, 2)) + field(5, field(1, 2) + field(2, 9)) + field(5, field(1, 3))
    values = [b"", field(1, 1) + field(2, field(2, 5)), field(3, field(2, 5)), field(1, 1) + field(4, 9), field(1, 1) + entries]
    assert read(decoder, values) == [
        (none, ("x",)), ({**none, "x": 1, "b": {"y": None, "z": 5}}, ("b.y",)), ({**none, "c": [{"y": None, "z": 5}]}, ("x", "c.y")),
        ({**none, "x": 1}, ()), ({**none, "x": 1, "m": {"map": {1: "HIGH", 3: "LOW"}}}, ()),
    ]  # fmt: skip


SELF = """syntax = "proto3"; message A { int32 x = 1; B b = 2; repeated A many = 3; map<string, A> named = 4; }
          message B { A a = 1; int32 y = 2; }"""


def test_messages_in_themselves_are_json_text() -> None:
    value = field(1, 1) + field(2, field(1, field(1, 2) + field(3, field(1, 3))) + field(2, 5)) + field(3, b"") + field(4, field(1, b"k"))
    once = ProtobufDecoder(SELF, "A")
    assert once.type.field("b").type.field("a").type == JSON_TEXT
    inner = {"json": {"x": 2, "many": [{"x": 3}]}}
    row = {"x": 1, "b": {"a": inner, "y": 5}, "many": [{"json": {}}], "named": {"map": {"k": {"json": {}}}}}
    assert plain(once.decode(bodies([value, b""]))[0][0]) == row
    twice = ProtobufDecoder(SELF, "A", max_depth=2)
    ((found, _),) = read(twice, [value])
    assert found["b"]["a"]["many"] == [{"json": {"x": 3}}]
    assert found["many"] == [{"x": 0, "b": None, "many": [], "named": {"map": {}}}]
    never = ProtobufDecoder(SELF, "A", max_depth=0)
    assert [one.type for one in never.type][1] == JSON_TEXT
    assert read(never, [value])[0][0]["b"] == {"json": {"a": inner["json"], "y": 5}}
    assert [one.name for one in ProtobufDecoder(SELF, "A", ("b.y", "many")).type] == ["b", "many"]
    said = r"b\.a is one column: its parts cannot be named unless max_depth is more than 1"
    raises(ArgumentError, said, ProtobufDecoder, SELF, "A", ("b.a.x",))


def test_json_text_of_messages_in_parts() -> None:
    """They are merged; a part that is malformed alone is, and so is one that another field removes."""
    text = 'syntax = "proto3"; message A { int32 x = 1; string s = 2; oneof o { A a = 3; int32 y = 4; } }'
    decoder = ProtobufDecoder(text, "A", null_fields=True)
    one, other = field(3, field(1, 1) + field(2, b"s")), field(3, field(1, 2))
    values = [
        one + other,
        field(3, b"\x12\2a") + field(3, b"b"),
        one + field(4, 0) + other,
        field(3, b"\x12") + field(4, 1),
        one + field(4, 1),
    ]
    rows = read(decoder, values)
    assert [row[0]["a"] for row in rows] == [{"json": {"x": 2, "s": "s"}}, None, {"json": {"x": 2}}, None, None]
    assert [row[1] for row in rows] == [(), ("a",), (), ("a",), ()]
    assert decoder.decode(bodies([*values, one]))[1].tolist() == [False] * 5 + [True]


def test_groups_that_contain_themselves() -> None:
    text = 'syntax = "proto2"; message A { optional group G = 1 { optional A a = 2; optional int32 x = 3; } optional int32 y = 4; }'
    decoder = ProtobufDecoder(text, "A", max_depth=0, null_fields=True)
    value = b"\x0b" + field(3, 5) + field(2, field(4, 6)) + b"\x0c" + field(4, 7)
    assert read(decoder, [value, value[:-3], b""]) == [
        ({"g": {"json": {"x": 5, "a": {"y": 6}}}, "y": 7}, ()), (None, ("$",)), ({"g": None, "y": None}, ()),
    ]  # fmt: skip


def test_structs_lists_and_values() -> None:
    text = """syntax = "proto3"; import "google/protobuf/struct.proto"; import "google/protobuf/any.proto";
              message A { google.protobuf.Struct s = 1; google.protobuf.ListValue l = 2; google.protobuf.Value v = 3;
                          google.protobuf.NullValue n = 4; google.protobuf.Any any = 5; }"""
    decoder = ProtobufDecoder(text, "A")
    assert [decoder.type.field(name).type for name in "slv"] == [JSON_TEXT] * 3
    made = struct_pb2.Struct()
    made.update({"z": 1, "a": [True, None, "é", {}]})
    listed, value = struct_pb2.ListValue(), struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    listed.extend([1.5, "x"])
    parts = [one.SerializeToString() for one in (made, listed, value)]
    given = [b"".join(field(number, part) for number, part in enumerate(parts, 1)), b"", field(3, field(2, b"")[:-1] + b"\1")]
    column, valid = decoder.decode(bodies(given[:2]))
    assert (valid.tolist(), [column.field(name).to_pylist() for name in "slv"]) == (
        [True, True], [['{"a": [true, null, "é", {}], "z": 1.0}', None], ["[1.5, \"x\"]", None], ["null", None]],
    )  # fmt: skip
    assert column.field("n").to_pylist() == ["NULL_VALUE"] * 2
    assert decoder.type.field("any").type == pa.struct(
        [pa.field("type_url", pa.string(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
    )
    # JSON has no NaN.
    assert read(decoder, [field(3, b"\x11\0\0\0\0\0\0\xf8\x7f")])[0][1] == ("v",)
    wide = " ".join(f"int32 f{number} = {number};" for number in range(10, 80))
    decoder = ProtobufDecoder(text.replace("message A {", f"message A {{ {wide}"), "A")
    once, parted = given[0] + field(70, 3), given[0] + field(1, parts[0])
    assert decoder.decode(bodies([once, parted]))[1].tolist() == [True, False]
    assert json.loads(read(decoder, [parted])[0][0]["s"]["json"]["a"][2].join('""')) == "é"


def test_parts_that_json_cannot_represent() -> None:
    """An Any of an unknown type is shown as it is. What else does not fit is null in the text, and the path of the text is told."""
    known = "".join(f'import "google/protobuf/{name}.proto"; ' for name in ("any", "duration", "field_mask", "struct", "timestamp"))
    fields = """int32 x = 1; M child = 2; google.protobuf.Any any = 3; google.protobuf.Timestamp at = 4; google.protobuf.Duration took = 5;
                google.protobuf.Value v = 6; map<bool, M> m = 7; repeated M r = 8; bytes b = 9; int64 big = 10;
                repeated google.protobuf.Timestamp ats = 11; map<int32, google.protobuf.Value> vs = 12;"""
    decoder = ProtobufDecoder(f'syntax = "proto3"; {known} message M {{ {fields} }}', null_fields=True)
    any, far, nan = field(3, field(1, b"x/Y") + field(2, b"\xff\xfe")), field(1, 253402300800), b"\x11\0\0\0\0\0\0\xf8\x7f"
    shown = {"type_url": "x/Y", "value": "//4="}
    whole = field(1, 7) + any + field(8, any) + field(8, b"") + field(9, b"zz") + field(10, 2**40)
    row = {"x": 7, "any": shown, "r": [{"any": shown}, {}], "b": "eno=", "big": "1099511627776"}
    parts = [
        (whole, row, ()), (field(4, far) + whole, {**row, "at": None}, ("child",)),
        (field(5, field(1, 1) + field(2, 2**64 - 5)), {"took": None}, ("child",)),
        (field(7, field(1, 1) + field(2, field(4, far) + field(1, 3))), {"m": {"true": {"x": 3, "at": None}}}, ("child",)),
        (field(6, nan) + field(12, field(2, nan)) + field(12, field(1, 3) + field(2, b"\x08\0")),
         {"v": None, "vs": {"0": None, "3": None}}, ("child",)),
        (field(11, far) + field(11, b""), {"ats": [None, "1970-01-01T00:00:00Z"]}, ("child",)),
    ]  # fmt: skip
    found = read(decoder, [field(1, 1) + field(2, value) for value, _, _ in parts])
    assert [(one["x"], one["child"]["json"], lost) for one, lost in found] == [(1, row, lost) for _, row, lost in parts]
    assert decoder.decode(bodies([field(2, value) for value, _, _ in parts]))[1].tolist() == [not lost for _, _, lost in parts]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_of_all_years(unit: str) -> None:
    decoder = ProtobufDecoder(SHOP, "Order", ("at", "seen"), time_unit=unit)
    assert decoder.type.field("at").type == pa.timestamp(unit, "UTC")
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    values = []
    for one, nanos in ((first, 0), (last, 999_999_999)):
        made = timestamp_pb2.Timestamp(seconds=int(one.replace(microsecond=0).timestamp()), nanos=nanos)
        values.append(field(7, made.SerializeToString()))
    minus, most = (timestamp_pb2.Timestamp(seconds=seconds, nanos=999_999_999).SerializeToString() for seconds in (-1, 2**62))
    found, valid = decoder.decode(bodies([*values, field(7, minus), field(7, most), field(13, most)]))
    per = {"s": 1, "ms": 10**3, "us": 10**6}[unit]
    # Digits are cut off downwards.
    numbers = found.field("at").cast(pa.int64()).to_pylist()
    assert numbers[:3] == [-62135596800 * per, 253402300800 * per - 1, -1]
    assert valid.tolist() == [True, True, True, False, False]
    took = ProtobufDecoder(
        'syntax = "proto3"; import "google/protobuf/duration.proto"; message M { google.protobuf.Duration d = 1; }', time_unit=unit
    )
    assert [row[0]["d"] for row in read(took, [field(1, field(2, 2**64 - 1)), field(1, field(2, 1))])] == [-1, 0]
    assert [paths for _, paths in read(decoder, [field(7, most), field(13, most)])] == [("at",), ("seen",)]


def test_numbers_without_a_symbol_are_their_own() -> None:
    text = 'syntax = "proto3"; enum E { A = 0; B = 5; } message M { E e = 1; repeated E many = 2; map<int32, E> m = 3; }'
    decoder = ProtobufDecoder(text, "M")
    batches = []
    for number in (7, -2):
        entry = field(3, field(1, 1) + field(2, number))
        column, valid = decoder.decode(bodies([field(1, number) + field(2, bytes([5, 9])) + entry, b"", None, field(1, number)]))
        assert valid.tolist() == [True, True, False, True]
        column.validate(full=True)
        batches.append(pa.record_batch({"value": column}))
        wanted = {"e": str(number), "many": ["B", "9"], "m": [(1, str(number))]}
        assert column.to_pylist() == [wanted, {"e": "A", "many": [], "m": []}, None, {"e": str(number), "many": [], "m": []}]
        assert column.field("e").dictionary.to_pylist() == ["A", "B", str(number)]
    table = pa.Table.from_batches(batches)
    assert table.combine_chunks().to_pylist() == table.to_pylist() == [*batches[0].to_pylist(), *batches[1].to_pylist()]


WRITER = """syntax = "proto3"; message One { int32 x = 1; }
            message Two { int32 x = 1; message In { string s = 1; } message Other { int32 y = 1; } }"""
FRONT = b"\0\0\0\0\1"


WRITTEN = _compiled(WRITER, {}, "")


@cache
def old_client(message: str) -> ProtobufDecoder:
    return ProtobufDecoder(WRITTEN, message, null_fields=True)


@pytest.mark.parametrize(
    ("message", "body", "right"),
    [
        # Zig-zag numbers, plain ones.
        ("Two", b"\2\2" + field(1, 4), 4), ("Two", b"\1\1" + field(1, 4), 4),
        ("One", b"\0" + field(1, 4), 4), ("One", b"\1\0" + field(1, 4), 4),
        ("Two.In", b"\2\1\0" + field(1, b"s"), "s"), ("Two.In", b"\4\2\0" + field(1, b"s"), "s"),
        ("Two.Other", b"\2\1\1" + field(1, 4), 4), ("Two.Other", b"\4\2\2" + field(1, 4), 4),
        # They name another message.
        ("One", b"\2\2" + field(1, 4), None), ("One", b"\1\1" + field(1, 4), None), ("Two", b"\0" + field(1, 4), None),
        ("Two.In", b"\4\2\2" + field(1, 4), None), ("Two", b"\1\2" + field(1, 4), None), ("Two", b"\x05\x0a\3One" + field(1, 4), None),
        # No index: it may be any message of the file.
        ("Two", field(1, 4), None), ("One", field(1, 4), None),
        # Of the message not all can be read: it may be another one.
        ("Two.In", b"\2\1\0" + field(1, BAD), None), ("Two.In", field(1, BAD), None), ("Two", b"", None), ("One", b"", None),
    ],
)  # fmt: skip
def test_message_indexes_of_old_clients(message: str, body: bytes, right: Any) -> None:
    decoder = old_client(message)
    for schemas, schema in (([], -1), ([Schema("PROTOBUF", WRITER + " // the same", id=1)], 0)):
        how: dict[str, Any] = {"prefix": 5, "framing": framing.CONFLUENT, "schemas": schemas, "schema": schema}
        ((row, paths),) = read(decoder, [FRONT + body], **how)
        assert (row and next(iter(row.values())), paths) == (right, () if right is not None else ("$",))


def test_no_index_where_there_is_one_message() -> None:
    decoder = ProtobufDecoder('syntax = "proto3"; message M { message In { int32 y = 1; } int32 x = 1; In in = 2; }', null_fields=True)
    values = [FRONT + field(1, 4), FRONT]
    rows = [({"x": 4, "in": None}, ()), ({"x": 0, "in": None}, ())]
    assert read(decoder, values, prefix=5, framing=framing.CONFLUENT) == rows


def written(path: Path, values: list[bytes]) -> Path:
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), path / "00000000000000000000.log")
    return path


@pytest.mark.parametrize(
    ("name", "front"),
    [("confluent-deprecated", FRONT + b"\1\1"), ("confluent-no-index", FRONT), ("length-delimited", b"\2"), ("none", b""),
     ("confluent", FRONT + b"\2\2"), ("auto", FRONT + b"\1\1")],
)  # fmt: skip
@pytest.mark.parametrize("skip", [0, 3])
def test_framings_that_callers_name(name: str, front: bytes, skip: int, tmp_path: Path) -> None:
    values = [bytes(skip) + front + field(1, 4), bytes(skip) + front + field(1, 4)[:-1], bytes(2)]
    how: dict[str, Any] = {"value_format": "protobuf", "value_schema": WRITTEN, "value_message": "Two", "value_skip": skip}
    how["columns"] = ["value", "valueProblems"]
    if (name, skip) == ("auto", 3):
        # As before there was more than one: after bytes that are left out nothing is looked for unless it is named.
        values[0] = bytes(3) + field(1, 4)
    found = kolumn.read(written(tmp_path, values), value_framing=name, **how)
    assert found["value"].to_pylist() == [{"x": 4}, None, None]
    assert found["valueProblems"].to_pylist() == [None, ["$"], ["$"]]


def test_bytes_in_front_of_a_prefix(tmp_path: Path) -> None:
    """With schemas a prefix is recognised after bytes that are left out; other formats leave them out, too."""
    schemas = {1: Schema("PROTOBUF", WRITER, id=1)}
    how: dict[str, Any] = {"value_format": "protobuf", "value_schema": WRITTEN, "value_message": "Two", "value_schemas": schemas}
    path = written(tmp_path, [b"##" + FRONT + b"\2\2" + field(1, 4), b"##" + b"\0\0\0\0\2\2\2" + field(1, 4), b"#"])
    found = kolumn.read(path, value_skip=2, columns=["value", "valueSchemaId", "valueProblems"], **how)
    assert found["value"].to_pylist() == [{"x": 4}, None, None]
    assert (found["valueSchemaId"].to_pylist(), found["valueProblems"].to_pylist()) == ([1, 2, None], [None, ["$"], ["$"]])


@pytest.mark.parametrize(
    ("format", "schema", "value"),
    [("json", {"a": "int64"}, b'{"a": 1}'), ("csv", {"a": "int64"}, b"1"), ("fixed", {"a": "<i4"}, b"\1\0\0\0"),
     ("avro", {"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]}, b"\2")],
)  # fmt: skip
def test_every_format_leaves_out_bytes(format: str, schema: Any, value: bytes, tmp_path: Path) -> None:
    found = kolumn.read(written(tmp_path, [b"###" + value]), value_format=format, value_schema=schema, value_skip=3)
    assert found["value"].to_pylist() == [{"a": 1}]


@pytest.mark.parametrize("format", ["avro", "json", "csv"])
def test_framings_of_protobuf_alone(format: str) -> None:
    typed = Typed("value", format, framing="length-delimited", schema={"a": "int64"})
    with pytest.raises(ArgumentError, match=f"value_framing='length-delimited': not for value_format='{format}'"):
        _ = typed.framer
