"""Protobuf: imports that a registry has built in, and values of schemas in which fields have other types, or messages another package."""

import base64
import json
import logging
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

import kolumn
from kit.guarded import bodies
from kit.outcome import raises
from kit.protobuf_values import plain, varint
from kolumn.core.errors import ArgumentError
from kolumn.values.protobuf import ProtobufDecoder
from kolumn.values.protobuf_schema import file_of
from kolumn.values.schemas.schema import Schema
from kolumn.values.wire import framing

BUILT_IN = ["confluent/meta.proto", "confluent/type/decimal.proto", "confluent/types/decimal.proto", "confluent/type/variant.proto",
            "google/type/date.proto", "google/type/datetime.proto", "google/type/interval.proto", "google/protobuf/type.proto"]  # fmt: skip


def proto(fields: str, more: str = "", package: str = "", syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; {f"package {package};" if package else ""} {more} message M {{ {fields} }}'


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def read(reader: str, writer: str | Schema, value: bytes, null_fields: bool = True, **how: Any) -> tuple[Any, tuple[str, ...]]:
    """A value of a writer's schema as a reader's, and what it lost; the loop returns it if it lost nothing, and then the same."""
    schema = writer if isinstance(writer, Schema) else Schema("PROTOBUF", writer, id=1)
    decoder = ProtobufDecoder(reader, "M", null_fields=null_fields)
    given = bodies([value, None, value], schema=[0, -1, 0], schemas=[schema], **how)
    column, valid = decoder.decode(given)
    others, lost = decoder.salvage(given.rows(valid_rows(given)))
    others.validate(full=True)
    assert (lost[0], plain(others[0])) == (lost[1], plain(others[1]))
    assert valid.tolist() == [not lost[0], False, not lost[0]]
    assert plain(column[0]) == (None if lost[0] else plain(others[0]))
    return plain(others[0]), lost[0]


def valid_rows(given: Any) -> Any:
    return (given.length >= 0).nonzero()[0]


@pytest.mark.parametrize("name", BUILT_IN)
def test_imports_that_nobody_registers(name: str) -> None:
    assert file_of(proto("int32 a = 1;", f'import "{name}";')).message(None).full_name == "M"
    described = descriptor_pb2.FileDescriptorProto(name="m.proto", syntax="proto3", dependency=[name])
    described.message_type.add(name="M")
    assert file_of(Schema("PROTOBUF", base64.b64encode(described.SerializeToString()).decode())).message(None).full_name == "M"


def test_options_and_types_of_built_in_files() -> None:
    more = 'import "confluent/meta.proto"; import public "confluent/types/decimal.proto"; import \'google/type/date.proto\';'
    fields = """option (confluent.message_meta).doc = "all"; int32 a = 1 [(confluent.field_meta) = {tags: "PII", params: {key: "k"}}];
                confluent.type.Decimal d = 2; google.type.Date on = 3;"""
    decoder = ProtobufDecoder(proto(fields, more), "M")
    value = field(1, 1) + field(2, field(1, b"\5") + field(2, 3) + field(3, 1)) + field(3, field(1, 2026))
    assert decoder.decode(bodies([value]))[0].to_pylist() == [
        {"a": 1, "d": {"value": b"\5", "precision": 3, "scale": 1}, "on": {"year": 2026, "month": 0, "day": 0}}
    ]


def test_imports_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = r"^schema 7 imports 'a/b\.proto', which is none of its references: register it as one, or name a FileDescriptorSet"
    raises(ArgumentError, said, file_of, Schema("PROTOBUF", proto("", 'import "a/b.proto";'), id=7))
    monkeypatch.setattr("importlib.resources.files", lambda name: Path("/nowhere"))
    said = r"schema imports 'google/type/date\.proto': pip install googleapis-common-protos"
    raises(ArgumentError, said, file_of, proto("", 'import "google/type/date.proto";'))


@pytest.mark.parametrize(
    ("written", "read_as"),
    [("int32", "string"), ("int32", "sint32"), ("sint64", "int64"), ("fixed32", "float"), ("fixed64", "double"), ("float", "double"),
     ("fixed32", "fixed64"), ("int32", "fixed32"), ("In", "string"), ("string", "In"), ("bool", "In"), ("repeated int32", "int32"),
     ("repeated bool", "bool"), ("map<int32, int32>", "map<string, int32>"), ("map<int32, int32>", "map<int32, float>"),
     ("repeated Other", "map<int32, int32>"), ("Other", "google.protobuf.Timestamp"), ("Other", "google.protobuf.Int32Value"),
     ("int32", "google.protobuf.Int32Value"), ("repeated sint32", "repeated int32"), ("E", "sint32"), ("Deep", "M")],
)  # fmt: skip
def test_types_of_which_one_is_not_read_as_the_other(written: str, read_as: str, caplog: pytest.LogCaptureFixture) -> None:
    row, lost = read(version(f"int32 x = 1; {read_as} y = 2;"), version(f"int32 x = 1; {written} y = 2;"), field(1, 5))
    assert (row, lost) == ({"x": 5, "y": None}, ("y",))
    (told,) = caplog.messages
    assert re.fullmatch(r"fields are null, because schema 1: field y: .* is not read as .* \(read as M\)", told)
    assert read(version(f"int32 x = 1; {read_as} y = 2;"), version(f"{written} y = 2;"), b"", null_fields=False)[1] == ("y",)


@pytest.mark.parametrize(
    ("written", "read_as", "value", "right"),
    [("int32", "int64", field(2, 7), 7), ("int32", "bool", field(2, 1), True), ("bool", "uint64", field(2, 1), 1),
     ("E", "int32", field(2, 1), 1), ("int64", "E", field(2, 1), "B"), ("sint32", "sint64", field(2, 3), -2),
     ("fixed32", "sfixed32", b"\x15\5\0\0\0", 5),
     ("sfixed64", "fixed64", b"\x11\5" + bytes(7), 5), ("string", "bytes", field(2, b"a"), b"a"),
     ("bytes", "string", field(2, b"a"), "a"), ("bytes", "In", field(2, field(1, 3)), {"a": 3}),
     ("In", "bytes", field(2, b"\x08\3"), b"\x08\3"),
     ("string", "repeated string", field(2, b"a"), ["a"]), ("repeated string", "string", field(2, b"a") + field(2, b"b"), "b"),
     ("int32", "repeated int32", field(2, 5), [5]), ("map<int32, string>", "map<int64, bytes>", field(2, field(1, 4)), {"map": {4: b""}}),
     ("map<int32, In>", "repeated Pair", field(2, field(1, 4)), [{"key": 4, "value": None}]),
     ("In", "Same", field(2, field(1, 3)), {"a": 3, "b": ""}),
     ("Moment", "google.protobuf.Timestamp", field(2, field(1, 3)), 3_000_000_000), ("optional int32", "int32", field(2, 3), 3)],
)  # fmt: skip
def test_types_that_are_alike(written: str, read_as: str, value: bytes, right: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert read(version(f"{read_as} y = 2;"), version(f"{written} y = 2;"), value) == ({"y": right}, ())
    assert not caplog.messages


def version(fields: str) -> str:
    """A message M with all the others that fields may have."""
    inner = """message In { int32 a = 1; } message Same { uint32 a = 1; string b = 2; } message Other { string key = 1; string nanos = 2; }
               message Pair { int32 key = 1; In value = 2; } message Moment { int64 seconds = 1; sint32 other = 3; }
               message Deep { M y = 2; string x = 1; } enum E { A = 0; B = 1; }"""
    known = "".join(f'import "google/protobuf/{name}.proto"; ' for name in ("timestamp", "wrappers"))
    return proto(fields, f"{known} {inner}")


NEW = """int32 x = 1; In one = 2; repeated In many = 3; map<int32, In> named = 4; M self = 5; oneof o { string s = 6; int32 t = 7; }"""
OLD = """int32 x = 1; In one = 2; repeated In many = 3; map<int32, In> named = 4; M self = 5; string s = 6; sint32 t = 7;"""


def test_fields_of_messages_in_a_value(caplog: pytest.LogCaptureFixture) -> None:
    """Where there is no such message, nothing is lost. JSON text is lost as a whole."""
    new, old = (proto(fields, f"message In {{ int32 a = 1; {kind} b = 2; }}") for fields, kind in ((NEW, "float"), (OLD, "string")))
    inner = field(1, 3) + field(2, b"text")
    nothing: dict[str, Any] = {"x": 1, "one": None, "many": [], "named": {"map": {}}, "self": None, "s": None, "t": None}
    always = ("self", "t")
    assert read(new, old, field(1, 1)) == (nothing, always)
    part = {"a": 3, "b": None}
    assert read(new, old, field(1, 1) + field(2, inner)) == ({**nothing, "one": part}, ("one.b", *always))
    row, lost = read(new, old, field(1, 1) + field(3, inner) + field(3, b"") + field(6, b"s") + field(7, 5))
    assert (row, lost) == ({**nothing, "many": [part, {"a": 0, "b": None}], "s": "s"}, ("many.b", *always))
    row, lost = read(new, old, field(1, 1) + field(4, field(1, 9) + field(2, inner)) + field(5, field(1, 1)))
    assert (row, lost) == ({**nothing, "named": {"map": {9: part}}}, ("named.b", *always))
    # The plain reader says the same of a value that the loop does not return.
    assert read(new, old, field(1, 1) + field(2, inner) + field(6, b"\xff")) == ({**nothing, "one": part}, ("s", "one.b", *always))
    assert "field one.b: string is not read as float; field many.b: string" in caplog.messages[0]
    assert "field self: string is not read as float in In.b; field t: sint32 is not read as int32" in caplog.messages[0]


def test_a_message_of_which_all_is_lost() -> None:
    many = " ".join(f"{{}} f{number} = {number};" for number in range(1, 80))
    for fields in ("{} f1 = 1;", many):
        names = [one.split()[1] for one in fields.split(";") if one.strip()]
        found = read(proto(fields.replace("{}", "int32")), proto(fields.replace("{}", "sint32")), field(1, 1))
        assert found == (dict.fromkeys(names), tuple(names))
    assert read(proto("int32 a = 1;"), proto("string a = 1;"), b"\0\1") == (None, ("$",))


def test_a_message_in_another_package(caplog: pytest.LogCaptureFixture) -> None:
    front = b"\0\0\0\0\1"
    how: dict[str, Any] = {"prefix": 5, "framing": framing.CONFLUENT}
    reader = proto("int32 a = 1; message In { int32 b = 1; }", package="new.one")
    for package in ("old", ""):
        writer = proto("uint32 a = 1; message In { int32 b = 1; }", "message Other {}", package)
        assert read(reader, writer, front + b"\2\2" + field(1, 4), **how) == ({"a": 4}, ())
        assert read(reader, writer, front + b"\0" + field(1, 4), **how) == (None, ("$",))
        decoder = ProtobufDecoder(reader, "M.In")
        given = bodies([front + b"\4\2\0" + field(1, 4)], schema=[0], schemas=[Schema("PROTOBUF", writer)], **how)
        assert decoder.decode(given)[0].to_pylist() == [{"b": 4}]
    assert not caplog.messages
    other = [Schema("PROTOBUF", proto("").replace("message M", "message N"), id=3), Schema("AVRO", '"int"', id=4)]
    decoder = ProtobufDecoder(reader, "M")
    for _ in range(2):
        given = bodies([front + b"\0", front + b"\0"], schema=[0, 1], schemas=other, **how)
        assert (decoder.decode(given)[0].to_pylist(), decoder.salvage(given)[1]) == ([None, None], [("$",), ("$",)])
    assert caplog.messages == [
        "values are null, because schema 3 has no message M: it has N (read as new.one.M)",
        "values are null, because schema 4 is of type AVRO, not PROTOBUF (read as new.one.M)",
    ]


def test_versions_of_a_registry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = [proto("string a = 1; google.type.Date on = 2;", 'import "google/type/date.proto";'), proto("int32 a = 1;", package="p")]
    values = [b"\0\0\0\0\1\0" + field(1, b"text"), b"\0\0\0\0\2\0" + field(1, 5)] * 3
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "orders-0")
    keys = [json.dumps({"keytype": "SCHEMA", "subject": "orders-value", "version": number, "magic": 1}) for number in (1, 2)]
    records = [
        {"subject": "orders-value", "version": number, "id": number, "schemaType": "PROTOBUF", "schema": text, "deleted": False}
        for number, text in enumerate(texts, 1)
    ]
    kolumn.write(pa.table({"key": keys, "value": list(map(json.dumps, records))}), tmp_path / "_schemas-0")
    with caplog.at_level(logging.WARNING):
        found = kolumn.read(tmp_path / "orders-0", value_format="registry", columns=["value", "valueValid", "valueProblems"])
    assert found["value"].to_pylist() == [{"a": None}, {"a": 5}] * 3
    assert found["valueValid"].to_pylist() == [False, True] * 3
    assert found["valueProblems"].to_pylist() == [["a"], None] * 3
    assert caplog.messages[0] == "fields are null, because schema 1: field a: string is not read as int32 (read as p.M)"
