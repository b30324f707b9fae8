"""Avro schemas: names, references, types of columns, and which schemas can be read by which."""

import json
from typing import Any

import pyarrow as pa
import pytest

from kit.avro_values import registered, written
from kit.guarded import bodies
from kolumn.core.errors import ArgumentError
from kolumn.values.avro.decoder import AvroDecoder
from kolumn.values.avro.schema import parse
from kolumn.values.schemas.schema import Reference, Schema


def record(name: str, **fields: Any) -> dict[str, Any]:
    """A record; a field is a type, or a dict with more than that."""
    made = [{"name": key, **(kind if isinstance(kind, dict) and "of" in kind else {"type": kind})} for key, kind in fields.items()]
    return {"type": "record", "name": name, "fields": [{"type": one["of"], **one} if "of" in one else one for one in made]}


def type_of(schema: Any) -> pa.DataType:
    return AvroDecoder(registered(schema)).type


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("int", pa.int32()), ("bytes", pa.binary()), ({"type": {"type": "string", "avro.java.string": "String"}}, pa.string()),
        ({"type": "fixed", "name": "F", "size": 3}, pa.binary(3)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.dictionary(pa.int32(), pa.string())),
        ({"type": "array", "items": "int"}, pa.list_(pa.field("item", pa.int32(), False))),
        ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32())),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.field("value", pa.int32(), False))),
        (record("R", a="int", b=["null", "string"]), pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.string())])),
        (["int", "long"], pa.int64()), (["null", "double", "float"], pa.float64()), (["string"], pa.string()), (["null"], pa.null()),
        (["int", "null", "string"], pa.struct([("member0", pa.int32()), ("member1", pa.string())])),
        (["int", "float", "long"], pa.struct([("member0", pa.int32()), ("member1", pa.float32()), ("member2", pa.int64())])),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}, pa.decimal128(38, 2)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 76}, pa.decimal256(76, 0)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 77}, pa.binary()),
        ({"type": "long", "logicalType": "timestamp-nanos"}, pa.timestamp("ns", "UTC")),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("ms")),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, pa.binary(16)),
        ({"type": "error", "name": "X", "fields": []}, pa.struct([])),
    ],
    ids=str,
)  # fmt: skip
def test_types(schema: Any, expected: pa.DataType) -> None:
    assert type_of(schema) == expected


def test_names_are_looked_up_in_their_namespace() -> None:
    schema = {
        "type": "record", "name": "a.b.Outer", "fields": [
            {"name": "x", "type": {"type": "fixed", "name": "F", "size": 1}},
            {"name": "y", "type": "F"},
            {"name": "z", "type": "a.b.F"},
            {"name": "in", "type": {"type": "record", "name": "Inner", "namespace": "c", "fields": [
                {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
                {"name": "g", "type": "F"},
                {"name": "h", "type": "a.b.F"}]}},
            {"name": "again", "type": "c.F"},
            {"name": "none", "type": {"type": "fixed", "name": "Top", "namespace": "", "size": 3}},
            {"name": "top", "type": "Top"},
        ],
    }  # fmt: skip
    one, two, three = pa.binary(1), pa.binary(2), pa.binary(3)
    inner = pa.struct([pa.field(name, kind, False) for name, kind in (("f", two), ("g", two), ("h", one))])
    kinds = {"x": one, "y": one, "z": one, "in": inner, "again": two, "none": three, "top": three}
    assert type_of(schema) == pa.struct([pa.field(name, kind, False) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "its text is not JSON"), ("17", "the outermost type: 17 is not a type"), ('"nothing"', "'nothing' is not defined"),
        ("[]", "the union has no types"), ('["int", "int"]', "a union may have each type once"),
        ('["int", ["null"]]', "a union may have each type once, and no union in it"),
        ('{"type": "record", "fields": []}', "the record has no name"), ('{"type": "record", "name": "R"}', "the record has no fields"),
        ('{"type": "fixed", "name": "F", "size": -1}', "fixed F has no size"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "the symbols of enum E repeat"),
        ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "its default is not one of them"),
        (
            json.dumps(record("R", a="int") | {"fields": 2 * [{"name": "a", "type": "int"}]}),
            "field 'a' has no name or no type, or occurs twice",
        ),
        (json.dumps([record("R", a="int"), record("S", b=record("R", a="int"))]), "field b: R is defined twice"),
        (json.dumps(record("Node", value="int", next=["null", "Node"])), "field next: record Node contains itself"),
        (json.dumps(record("A", b=record("B", c={"type": "array", "items": "A"}))), "field b.c: record A contains itself"),
        ('{"type":"array","items":' * 500 + '"int"' + "}" * 500, "nested too deeply"),
        ('{"type":"array","items":' * 100_000, "nested too deeply"),
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_what_is_no_schema(text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        AvroDecoder(Schema("AVRO", text, id=4))
    assert message in str(caught.value)
    assert str(caught.value).startswith("Avro schema 4: ")


def test_other_kinds_and_short_schemas_of_many_types_are_refused() -> None:
    with pytest.raises(ArgumentError, match="expected an Avro schema, found one of type PROTOBUF"):
        AvroDecoder(Schema("PROTOBUF", "message A {}"))
    nested: Any = "int"
    for number in range(40):
        nested = record(f"R{number}", a=nested, b=f"R{number - 1}" if number else "int")
    with pytest.raises(ArgumentError, match="more than 20000 types"):
        AvroDecoder(registered(nested))
    writer = registered(record("R", x={"of": nested}, id="long"))
    _, valid = AvroDecoder(registered(record("R", id="long"))).decode(bodies([b"\2"], [0], (writer,)))
    assert not valid[0]


class Subjects:
    """Schemas that others refer to, by subject."""

    def __init__(self, **schemas: Schema) -> None:
        self.schemas = schemas

    def version(self, subject: str, version: int) -> Schema | None:
        return self.schemas.get(subject) if version == 1 else None


def test_references() -> None:
    money = Schema("AVRO", json.dumps(record("shop.Money", cents="long")))
    line = Schema("AVRO", json.dumps(record("shop.Line", price="shop.Money")), (Reference("shop.Money", "money", 1),))
    both = (Reference("shop.Line", "line", 1), Reference("shop.Money", "money", 1))
    order = Schema("AVRO", json.dumps(record("shop.Order", line="Line", total="Money")), both)
    subjects: Any = Subjects(money=money, line=line)
    cents = pa.struct([pa.field("cents", pa.int64(), False)])
    expected = pa.struct([pa.field("line", pa.struct([pa.field("price", cents, False)]), False), pa.field("total", cents, False)])
    assert AvroDecoder(order, schemas=subjects).type == expected
    with pytest.raises(ArgumentError, match="is not among the schemas"):
        AvroDecoder(order)
    round_again = Schema("AVRO", json.dumps(record("A", b="B")), (Reference("B", "b", 1),))
    circle: Any = Subjects(b=Schema("AVRO", json.dumps(record("B", a="A")), (Reference("A", "a", 1),)), a=round_again)
    with pytest.raises(ArgumentError, match="leads back to itself"):
        AvroDecoder(round_again, schemas=circle)


NESTED = record("R", x={"type": "array", "items": record("I", a="int")})


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        ("string", "long", "the outermost type: string is not read as long"),
        ("long", "int", "long is not read as int"),
        (record("R", a="double"), record("R", a="float"), "field a: double is not read as float"),
        (record("R", a="int"), record("R", b="int"), "field b: it is not in the writer's record R and has no default"),
        (record("R", a="int"), record("R", b={"of": "int", "default": "x"}), "field b: its default is not of type int"),
        (record("R", a="int"), record("R", b={"of": ["null", "string"], "default": 3}), "field b: its default is not of type union"),
        (NESTED, record("R", x={"type": "array", "items": record("I", a="string")}), "field x.a: int is not read as string"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "fixed F of 2 bytes is not read as fixed F of 3",
        ),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "G", "size": 2}, "the names differ"),
        (["int", "string"], "boolean", "int is not read as boolean"),
        ("int", ["null", "string", "boolean"], "int is not in the reader's union of null, string, boolean"),
        ("null", ["int", "string"], "null is not in the reader's union"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-micros"},
            "timestamp-millis is not read as timestamp-micros",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "decimal with scale 1 is not read as decimal with scale 2",
        ),
    ],
    ids=str,
)
def test_schemas_that_cannot_be_resolved(writer: Any, reader: Any, message: str, caplog: pytest.LogCaptureFixture) -> None:
    _, valid = AvroDecoder(registered(reader, 2)).decode(bodies([b"\0"], [0], (registered(writer, 1),)))
    assert not valid[0]
    (entry,) = caplog.records
    assert message in entry.getMessage()
    assert "Avro schema 1: " in entry.getMessage()
    assert "Avro schema 2" in entry.getMessage()


def resolved(writer: Any, reader: Any, *values: Any) -> list[Any]:
    """Values of the writer's as the reader has them; "invalid" for rows that are not valid."""
    column, valid = AvroDecoder(registered(reader)).decode(
        bodies([written(writer, one) for one in values], [0] * len(values), (registered(writer),))
    )
    column.validate(full=True)
    return [one if flag else "invalid" for one, flag in zip(column.to_pylist(), valid, strict=True)]


def test_unions_on_either_side() -> None:
    assert (resolved(["null", "int"], "long", None, 5), resolved("int", ["null", "double"], 5)) == (["invalid", 5], [5.0])
    assert resolved(["string", "int", "null"], ["null", "int", "bytes", "string"], "a", 5, None) == [
        {"member0": None, "member1": None, "member2": "a"}, {"member0": 5, "member1": None, "member2": None}, None
    ]  # fmt: skip
    # The same type comes before a promotion, as in Java.
    assert resolved("int", ["string", "long", "int"], 5) == [{"member0": None, "member1": None, "member2": 5}]
    assert resolved(["bytes", "string"], ["bytes", "string"], "a") == [{"member0": None, "member1": "a"}]
    assert resolved(["int", "string"], ["null", "int"], 5, "x") == [5, "invalid"]
    records = [record("A", x="int"), record("B", y="int")]
    assert resolved(records[1], records, {"y": 4}) == [{"member0": None, "member1": {"y": 4}}]
    # No name fits, but the fields of one do.
    assert resolved(record("C", y="int"), records, {"y": 4}) == [{"member0": None, "member1": {"y": 4}}]


def test_names_of_records_and_fields() -> None:
    """Those of records count among the types of a union only, those of fields come before aliases."""
    assert resolved(record("Old", a="int"), record("New", a="int"), {"a": 1}) == [{"a": 1}]
    reader = ["null", record("New", a="int", b={"of": "int", "default": 3}) | {"aliases": ["ns.Old"]}, record("Other", a="int")]
    assert resolved(record("ns.Old", a="int"), reader, {"a": 1}) == [{"member0": {"a": 1, "b": 3}, "member1": None}]
    writer = record("R", a="int", b="int")
    assert resolved(writer, record("R", c={"of": "int", "aliases": ["a"]}, a="int"), {"a": 1, "b": 2}) == ["invalid"]
    assert resolved(writer, record("R", a={"of": "int", "aliases": ["b"]}), {"a": 1, "b": 2}) == [{"a": 1}]
    assert resolved(writer, record("R", c={"of": "int", "aliases": ["x", "b"]}, a="int"), {"a": 1, "b": 2}) == [{"c": 2, "a": 1}]


def test_enums() -> None:
    writer = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
    assert resolved(writer, {"type": "enum", "name": "E", "symbols": ["C", "A"]}, "A", "B", "C") == ["A", "invalid", "C"]
    reader = {"type": "enum", "name": "x.E", "symbols": ["C", "A"], "default": "C"}
    assert resolved(writer, reader, "A", "B", "C") == ["A", "C", "C"]
    assert resolved(writer, {"type": "enum", "name": "F", "aliases": ["E"], "symbols": ["C"]}, "C") == ["C"]


def test_defaults_of_logical_types() -> None:
    reader = record(
        "R",
        a="int",
        price={"of": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "default": "\u00ff\u0038"},
        span={"of": {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, "default": "\1\0\0\0\2\0\0\0\3\0\0\0"},
        number={"of": "double", "default": "NaN"},
    )
    (found,) = resolved(record("R", a="int"), reader, {"a": 1})
    assert (str(found["price"]), tuple(found["span"])) == ("-2.00", (1, 2, 3_000_000))
    assert found["number"] != found["number"]


def test_parse_shares_named_types() -> None:
    node = parse(registered(record("R", a=record("S", x="int"), b="S")))
    assert node.fields[0].type is node.fields[1].type
