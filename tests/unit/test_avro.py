"""Avro: rows by plain Python and machine code, memory that grows, prefixes, columns; schemas, and which can be read by which."""

import json
import logging
import random
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ctypes import memset, string_at
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from kit.avro_reader import as_column, of_column, read
from kit.avro_values import registered, side_by_side, written
from kit.avro_writer import EVERYTHING, Writer, damaged, random_value, varint
from kit.guarded import bodies
from kit.outcome import raises
from kolumn.core.errors import ArgumentError
from kolumn.cpu_fallback.values.avro import decode_rows
from kolumn.values import avro as module
from kolumn.values.avro import AvroDecoder
from kolumn.values.avro_schema import parse
from kolumn.values.decoder import Bodies
from kolumn.values.memory import ColumnMemory
from kolumn.values.schemas.collections import ListedSchemas
from kolumn.values.schemas.schema import Reference, Registered, Schema
from kolumn.values.wire.columns import full_column, full_level

_SLACK = 64


def plain_rows(target: Any, programs: Any, stack: int, *rest: Any) -> Any:
    """The loop as plain Python, on Python's integers."""
    *arrays, bare, fill, fills, first, valid = rest
    loop: Any = decode_rows
    return loop.py_func(target, programs.tolist(), stack, *(array.tolist() for array in arrays), bare, fill, fills, first, valid)


def lines(seed: int, count: int) -> list[bytes]:
    """Values of `EVERYTHING`, some of them damaged."""
    rng = random.Random(seed)
    whole = [Writer(rng).write(EVERYTHING, random_value(rng, EVERYTHING)) for _ in range(count)]
    return [line if rng.random() < 0.7 else damaged(rng, line, rng.choice(whole)) for line in whole]


def rows_of(decoder: AvroDecoder, given: Bodies) -> list[tuple[Any, bool]]:
    column, valid = decoder.decode(given)
    column.validate(full=True)
    return list(zip(of_column(column), valid.tolist(), strict=True))


@pytest.mark.parametrize("columns", [None, ("id", "items.parts", "place.name", "attributes")], ids=["all", "some"])
def test_plain_python_and_machine_code_agree(columns: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    given = bodies(lines(1, 150))
    compiled = rows_of(AvroDecoder(registered(EVERYTHING), columns), given)
    monkeypatch.setattr(module, "decode_rows", plain_rows)
    assert rows_of(AvroDecoder(registered(EVERYTHING), columns), given) == compiled
    assert 90 < sum(valid for _, valid in compiled) < 150


class Watched(ColumnMemory):
    """Memory with next to no room, and known bytes after each buffer."""

    codes: ClassVar[set[int]] = set()

    def __init__(self, layout: Any, rows: int, elements: int, data: int) -> None:
        super().__init__(layout, rows, 0, 0)
        self._mark()

    def _mark(self) -> None:
        for spec, (data, _, _, room) in zip(self.layout.columns, self._table.tolist(), strict=True):
            if data:
                memset(self._end(spec, data, room), 0xA5, _SLACK)

    def _end(self, spec: Any, data: int, room: int) -> int:
        return data + (self._room[spec.level] * spec.width if spec.width else room)

    def check(self) -> None:
        for spec, (data, _, _, room) in zip(self.layout.columns, self._table.tolist(), strict=True):
            if data:
                assert string_at(self._end(spec, data, room), _SLACK) == b"\xa5" * _SLACK

    def grow(self, code: int) -> None:
        self.check()
        self.codes.add(code)
        super().grow(code)
        self._mark()

    def array(self, rows: int) -> pa.Array:
        self.check()
        return super().array(rows)


def test_every_buffer_grows_and_nothing_is_written_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    given = lines(2, 400)
    decoder = AvroDecoder(registered(EVERYTHING))
    expected = rows_of(decoder, bodies(given))
    monkeypatch.setattr(module, "ColumnMemory", Watched)
    Watched.codes.clear()
    assert rows_of(decoder, bodies(given)) == expected
    layout = decoder.layout
    levels = {full_level(level) for level in range(1, len(layout.levels))}
    assert Watched.codes == levels | {full_column(number) for number, spec in enumerate(layout.columns) if spec.kind == 1}


ORDER: Any = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
            {"name": "sku", "type": "string"}, {"name": "qty", "type": "int"}]}}},
    ],
}  # fmt: skip
ROWS = [
    {"id": 5, "customer": "hé", "note": None, "items": [{"sku": "a", "qty": 1}, {"sku": "b", "qty": -2}]},
    {"id": 2**40, "customer": "x" * 100, "note": "n", "items": []},
]


def test_columns_are_those_that_are_asked_for() -> None:
    given = bodies([written(ORDER, row) for row in ROWS])
    assert AvroDecoder(registered(ORDER), ("id",)).decode(given)[0].to_pylist() == [{"id": 5}, {"id": 2**40}]
    decoder = AvroDecoder(registered(ORDER), ("items.qty", "note"))
    assert decoder.decode(given)[0].to_pylist() == [{"note": None, "items": [{"qty": 1}, {"qty": -2}]}, {"note": "n", "items": []}]
    whole = AvroDecoder(registered(ORDER), ("items.qty", "items", "items.sku"))
    assert whole.decode(given)[0].to_pylist() == [{"items": row["items"]} for row in ROWS]
    assert AvroDecoder(registered(ORDER), ()).decode(given)[0].to_pylist() == [{}, {}]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("custmer", "column custmer is not in the Avro schema; did you mean customer?"),
        ("items.zzz", "column items.zzz is not in the Avro schema; there are sku, qty"),
        ("id.x", "column id.x: id has no fields"),
    ],
)
def test_columns_that_are_not_there(column: str, message: str) -> None:
    raises(ArgumentError, message.replace("?", r"\?"), AvroDecoder, registered(ORDER, 7), (column,))


def test_rows_are_valid_or_not_whatever_columns_are_wanted() -> None:
    """But for text, decimals and times that no column gets, and blocks that are skipped by their size."""
    given = [line for line in lines(3, 400) if b"\xc3" not in line]
    everything = AvroDecoder(registered(EVERYTHING)).decode(bodies(given))[1]
    some = AvroDecoder(registered(EVERYTHING), ("id",)).decode(bodies(given))[1]
    assert (some >= everything).all()
    assert (some != everything).sum() < 25


def test_rows_without_a_value_and_with_unknown_schemas() -> None:
    line, writers = written(ORDER, ROWS[0]), (registered(ORDER), Schema("AVRO", '{"type": "nothing"}', id=9))
    row, nothing = (as_column(ORDER, read(ORDER, line)), True), (None, False)
    found = rows_of(AvroDecoder(registered(ORDER)), bodies([line, None, line, b"", line], [0, 0, 1, 0, -1], writers))
    assert (found, rows_of(AvroDecoder(registered(ORDER)), bodies([]))) == ([row, nothing, nothing, nothing, row], [])


def test_values_that_only_look_as_if_they_had_a_prefix() -> None:
    """The first is one with a prefix, the second begins with the bytes of a prefix, the third is neither."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
    framed = b"\0\0\0\0\1" + written(schema, {"a": 3, "b": "x"})
    long_bare = written(schema, {"a": -1, "b": "prefixed"})
    given = bodies([framed, long_bare, b"\0\0\0\0\1\7"], [0, 0, 0], (registered(schema),), prefix=5, bare=True)
    found = rows_of(AvroDecoder(registered(schema)), given)
    assert found == [({"a": 3, "b": "x"}, True), ({"a": -1, "b": "prefixed"}, True), (None, False)]
    strict = bodies([framed, long_bare], [0, 0], (registered(schema),), prefix=5)
    assert [valid for _, valid in rows_of(AvroDecoder(registered(schema)), strict)] == [True, False]


def test_a_writers_schema_that_does_not_fit_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    other = registered({**ORDER, "fields": [{"name": "id", "type": "string"}, *ORDER["fields"][1:]]}, 12)
    line = written(ORDER, ROWS[0])
    decoder = AvroDecoder(registered(ORDER, 3))
    with caplog.at_level(logging.WARNING, "kolumn"):
        for _ in range(2):
            found = rows_of(decoder, bodies([b"\2a", line], [1, 0], (registered(ORDER, 3), other)))
            assert [valid for _, valid in found] == [False, True]
    text = "fields are null, because Avro schema 12: field id: string is not read as long (read as Avro schema 3)"
    assert [record.getMessage() for record in caplog.records] == [text]


def test_threads_share_a_decoder() -> None:
    writers = [registered({**ORDER, "doc": str(number)}) for number in range(20)]
    given = bodies([written(ORDER, row) for row in ROWS] * 200, [k % 20 for k in range(400)], writers)
    decoder = AvroDecoder(registered(ORDER))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: decoder.decode(given)[0], range(16)))
    assert all(one.equals(found[0]) for one in found)
    assert found[0].to_pylist() == ROWS * 200


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "E", "fields": []}, {"type": "fixed", "name": "F", "size": 0}])
@pytest.mark.parametrize("columns", [None, ()], ids=["read", "skipped"])
def test_counts_of_items_without_bytes_are_bounded(items: Any, columns: tuple[str, ...] | None) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}
    decoder = AvroDecoder(registered(schema), columns)
    counts = [0, 1, 65536, 65536 + 6, 2**31, 2**62, 2**63 - 1, -(2**63)]
    given = [varint(count) + (varint(0) if count else b"") for count in counts]
    _, valid = decoder.decode(bodies(given))
    # The count itself has up to ten bytes, the end of the blocks one.
    assert valid.tolist() == [True, True, True, False, False, False, False, False]
    nested = AvroDecoder(registered({"type": "array", "items": {"type": "array", "items": "boolean"}}))
    for count in (2**20, 2**62, 2**63 - 1):
        assert not nested.decode(bodies([varint(count) + varint(count) + b"\0"]))[1][0], "other counts cost nothing"


def numbers() -> Iterator[int]:
    rng = random.Random(4)
    yield from (0, 1, -1, 2**24, 2**24 + 1, 2**24 + 3, 2**53 + 1, 2**53 + 3, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1, 2**31 - 1, -(2**31))
    for bits in range(1, 64):
        for _ in range(20):
            yield rng.choice((1, -1)) * rng.getrandbits(bits)


@pytest.mark.parametrize("loop", [decode_rows, plain_rows], ids=["compiled", "plain"])
def test_promotions_are_to_the_nearest_number(loop: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "decode_rows", loop)

    def promoted(writer: str, reader: str, rows: list[bytes]) -> list[Any]:
        return AvroDecoder(registered(reader)).decode(bodies(rows, [0] * len(rows), (registered(writer),)))[0].to_pylist()

    given = list(numbers())
    fitting = [number if -(2**31) <= number < 2**31 else None for number in given]
    for writer, own in (("long", given), ("int", fitting)):
        rows = [varint(number) for number in given]
        assert promoted(writer, "long", rows) == own
        for reader, kind in (("float", np.float32), ("double", np.float64)):
            assert promoted(writer, reader, rows) == [None if one is None else float(np.int64(one).astype(kind)) for one in own]
    rng = random.Random(5)
    bits = [0, 1 << 31, 1, 0x7FFFFF, 0x800000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, *(rng.getrandbits(32) for _ in range(2000))]
    floats = [struct.pack("<I", one) for one in bits if one & 0x7F800000 != 0x7F800000 or not one & 0x7FFFFF]
    expected = [struct.pack("<d", *struct.unpack("<f", one)) for one in floats]
    assert [struct.pack("<d", one) for one in promoted("float", "double", floats)] == expected


SOME: list[tuple[str, ...]] = [(one["name"],) for one in EVERYTHING["fields"]]
SOME += [(), ("place.x",), ("place.name",), ("id", "color"), ("f", "d", "flag"), ("place.x", "place.tags"), ("id", "place.x", "text")]


@pytest.mark.parametrize("wanted", SOME)
def test_some_fields_are_those_of_the_whole(wanted: tuple[str, ...]) -> None:
    rng = random.Random(7)
    given = side_by_side([Writer(rng).write(EVERYTHING, random_value(rng, EVERYTHING)) for _ in range(300)])
    some, valid = AvroDecoder(registered(EVERYTHING), wanted).decode(given)
    some.validate(full=True)
    assert valid.all()
    for name in wanted:
        found, whole = some, AvroDecoder(registered(EVERYTHING)).decode(given)[0]
        for part in name.split("."):
            found, whole = found.field(part), whole.field(part)
        assert found.equals(whole)


def test_schemas_take_turns() -> None:
    """Runs of rows of one schema, long and short, and defaults for a field that a writer does not have."""
    rng = random.Random(9)
    newer = {**EVERYTHING, "fields": [{"name": "z", "type": "long", "default": 9}, *EVERYTHING["fields"]]}
    values, schema, expected = list[bytes](), list[int](), []
    for number, run in enumerate((1, 300, 2, 20, 1, 257, 3)):
        for row in [random_value(rng, EVERYTHING) for _ in range(run)]:
            values.append(b"\x04" * (number % 2) + Writer(rng).write(EVERYTHING, row))
            schema.append(number % 2)
            expected.append({"z": 2 if number % 2 else 9, "small": row[1]})
    decoder = AvroDecoder(registered(newer, 2), ("z", "small"))
    found, valid = decoder.decode(side_by_side(values, schema, (registered(EVERYTHING, 1), registered(newer, 2))))
    assert valid.all()
    assert found.to_pylist() == expected


def test_a_long_list_in_few_rows_and_more_items_than_bytes() -> None:
    """The bytes after a count of 63 items, of which there is none, are those of a row whose list ends there."""
    fields: list[Any] = [{"name": "a", "type": {"type": "array", "items": "string"}}, {"name": "b", "type": "int"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    lists = {number: ["x"] * 5000 for number in range(0, 600, 100)} | {300: ["x" * 20_000]}
    values = [written(schema, {"a": lists.get(k, []), "b": k}) for k in range(600)]
    found, valid = AvroDecoder(registered(schema), ("b",)).decode(side_by_side(values))
    assert valid.all()
    assert pa.compute.struct_field(found, "b").to_pylist() == list(range(600))
    fixed = {"type": "fixed", "name": "F", "size": 16}
    fields = [{"name": "a", "type": {"type": "array", "items": "long"}}, {"name": "b", "type": "int"}, {"name": "c", "type": fixed}]
    rest = b"\x06" + bytes(16)
    rows = [b"\x00" + rest, b"\x7e" + rest, b"\x02\x02\x00" + rest, b"\x02\x02\x7e" + rest] * 100
    decoder = AvroDecoder(registered({"type": "record", "name": "R", "fields": fields}), ("b",))
    assert decoder.decode(side_by_side(rows))[1].tolist() == [True, False, True, False] * 100


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
        (record("R", a="int", b=["null", "string"]), pa.struct([("a", pa.int32()), ("b", pa.string())])),
        (["int", "long"], pa.int64()), (["null", "double", "float"], pa.float64()), (["string"], pa.string()), (["null"], pa.null()),
        (["int", "null", "string"], pa.struct([("int", pa.int32()), ("string", pa.string())])),
        (["int", "float", "long"], pa.struct([("int", pa.int32()), ("float", pa.float32()), ("long", pa.int64())])),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}, pa.decimal128(38, 2)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 76}, pa.decimal256(76, 0)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 77}, pa.string()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10_001}, pa.binary()),
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
    inner = pa.struct([("f", two), ("g", two), ("h", one)])
    kinds = {"x": one, "y": one, "z": one, "in": inner, "again": two, "none": three, "top": three}
    assert type_of(schema) == pa.struct(list(kinds.items()))


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
        (json.dumps(record("R") | {"fields": 2 * [{"name": "a", "type": "int"}]}), "field 'a' has no name or no type, or occurs twice"),
        (json.dumps([record("R", a="int"), record("S", b=record("R", a="int"))]), "field b: R is defined twice"),
        (json.dumps(record("Node", value="int", next="Node")), "record Node always contains itself, so no value of it ends"),
        (json.dumps(record("A", b=record("B", c="A"))), "always contains itself"),
        ('{"type":"array","items":' * 500 + '"int"' + "}" * 500, "nested too deeply"),
        ('{"type":"array","items":' * 100_000, "nested too deeply"),
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_what_is_no_schema(text: str, message: str) -> None:
    assert message in str(raises(ArgumentError, "^Avro schema 4: ", AvroDecoder, Schema("AVRO", text, id=4)))


def test_other_kinds_and_short_schemas_of_many_types_are_refused() -> None:
    raises(ArgumentError, "expected an Avro schema, found one of type PROTOBUF", AvroDecoder, Schema("PROTOBUF", "message A {}"))
    nested: Any = "int"
    for number in range(40):
        nested = record(f"R{number}", a=nested, b=f"R{number - 1}" if number else "int")
    raises(ArgumentError, "more than 20000 types", AvroDecoder, registered(nested))
    writer = registered(record("R", x={"of": nested}, id="long"))
    _, valid = AvroDecoder(registered(record("R", id="long"))).decode(bodies([b"\2"], [0], (writer,)))
    assert not valid[0]


def listed(**schemas: Schema) -> ListedSchemas:
    """Schemas that others refer to, by subject."""
    return ListedSchemas(Registered(subject, 1, one) for subject, one in schemas.items())


def test_references() -> None:
    money = Schema("AVRO", json.dumps(record("shop.Money", cents="long")))
    line = Schema("AVRO", json.dumps(record("shop.Line", price="shop.Money")), (Reference("shop.Money", "money", 1),))
    both = (Reference("shop.Line", "line", 1), Reference("shop.Money", "money", 1))
    order = Schema("AVRO", json.dumps(record("shop.Order", line="Line", total="Money")), both)
    cents = pa.struct([("cents", pa.int64())])
    expected = pa.struct([("line", pa.struct([("price", cents)])), ("total", cents)])
    assert AvroDecoder(order, schemas=listed(money=money, line=line)).type == expected
    raises(ArgumentError, "is not among the schemas", AvroDecoder, order)
    round_again = Schema("AVRO", json.dumps(record("A", b="B")), (Reference("B", "b", 1),))
    circle = listed(b=Schema("AVRO", json.dumps(record("B", a="A")), (Reference("A", "a", 1),)), a=round_again)
    raises(ArgumentError, "leads back to itself", AvroDecoder, round_again, schemas=circle)


LIST = record("R", x={"type": "array", "items": record("I", a="int")})
TWO_BYTES = {"type": "fixed", "name": "F", "size": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        ("string", "long", "the outermost type: string is not read as long"),
        ("long", "int", "long is not read as int"),
        (record("R", a="double"), record("R", a="float"), "field a: double is not read as float"),
        (record("R", a="int"), record("R", b="int"), "field b: it is not in the writer's record R and has no default"),
        (record("R", a="int"), record("R", b={"of": "int", "default": "x"}), "field b: its default is not of type int"),
        (record("R", a="int"), record("R", b={"of": ["null", "string"], "default": 3}), "field b: its default is not of type union"),
        (LIST, record("R", x={"type": "array", "items": record("I", a="string")}), "field x.a: int is not read as string"),
        (TWO_BYTES, TWO_BYTES | {"size": 3}, "fixed F of 2 bytes is not read as fixed F of 3"),
        (TWO_BYTES, TWO_BYTES | {"name": "G"}, "the names differ"),
        (["int", "string"], "boolean", "int is not read as boolean"),
        ("int", ["null", "string", "boolean"], "int is not in the reader's union of null, string, boolean"),
        ("null", ["int", "string"], "null is not in the reader's union"),
        (MILLIS, MILLIS | {"logicalType": "timestamp-micros"}, "timestamp-millis is not read as timestamp-micros"),
        (DECIMAL, DECIMAL | {"scale": 2}, "decimal with scale 1 is not read as decimal with scale 2"),
    ],
    ids=str,
)
def test_schemas_that_cannot_be_resolved(writer: Any, reader: Any, message: str, caplog: pytest.LogCaptureFixture) -> None:
    _, valid = AvroDecoder(registered(reader, 2)).decode(bodies([b"\0"], [0], (registered(writer, 1),)))
    assert not valid[0]
    (entry,) = caplog.records
    assert [words for words in (message, "Avro schema 1: ", "Avro schema 2") if words not in entry.getMessage()] == []


def resolved(writer: Any, reader: Any, *values: Any) -> list[Any]:
    """Values of the writer's as the reader has them; "invalid" for rows that are not valid."""
    given = bodies([written(writer, one) for one in values], [0] * len(values), (registered(writer),))
    column, valid = AvroDecoder(registered(reader)).decode(given)
    column.validate(full=True)
    return [one if flag else "invalid" for one, flag in zip(column.to_pylist(), valid, strict=True)]


def test_unions_on_either_side() -> None:
    assert (resolved(["null", "int"], "long", None, 5), resolved("int", ["null", "double"], 5)) == (["invalid", 5], [5.0])
    assert resolved(["string", "int", "null"], ["null", "int", "bytes", "string"], "a", 5, None) == [
        {"int": None, "bytes": None, "string": "a"}, {"int": 5, "bytes": None, "string": None}, None
    ]  # fmt: skip
    # The same type comes before a promotion, as in Java.
    assert resolved("int", ["string", "long", "int"], 5) == [{"string": None, "long": None, "int": 5}]
    assert resolved(["bytes", "string"], ["bytes", "string"], "a") == [{"bytes": None, "string": "a"}]
    assert resolved(["int", "string"], ["null", "int"], 5, "x") == [5, "invalid"]
    records = [record("A", x="int"), record("B", y="int")]
    assert resolved(records[1], records, {"y": 4}) == [{"A": None, "B": {"y": 4}}]
    # No name fits, but the fields of one do.
    assert resolved(record("C", y="int"), records, {"y": 4}) == [{"A": None, "B": {"y": 4}}]


def test_names_of_records_and_fields() -> None:
    """Those of records count among the types of a union only, those of fields come before aliases."""
    assert resolved(record("Old", a="int"), record("New", a="int"), {"a": 1}) == [{"a": 1}]
    reader = ["null", record("New", a="int", b={"of": "int", "default": 3}) | {"aliases": ["ns.Old"]}, record("Other", a="int")]
    assert resolved(record("ns.Old", a="int"), reader, {"a": 1}) == [{"New": {"a": 1, "b": 3}, "Other": None}]
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
