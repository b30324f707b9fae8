"""What is left of Avro values that do not fit: by fields, by writers' schemas, below the depth of types that contain themselves."""

import json
import random
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.avro_reader import of_column
from kit.avro_values import encoded, registered, written
from kit.encoder import varint
from kit.guarded import bodies
from kit.outcome import raises
from kolumn.core.errors import ArgumentError
from kolumn.values import avro as module
from kolumn.values.avro import AvroDecoder
from kolumn.values.avro_types import AvroShape
from kolumn.values.decoder import Bodies

LOST = ("$",)


def record(name: str, **fields: Any) -> dict[str, Any]:
    made = [{"name": key, **(kind if isinstance(kind, dict) and "of" in kind else {"type": kind})} for key, kind in fields.items()]
    return {"type": "record", "name": name, "fields": [{"type": one["of"], **one} if "of" in one else one for one in made]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def read(decoder: AvroDecoder, given: Bodies) -> list[tuple[Any, tuple[str, ...]]]:
    """What a call returns of each value, and what is lost of it."""
    column, valid = decoder.decode(given)
    left = np.flatnonzero(~valid)
    others, lost = decoder.salvage(given.rows(left))
    for one in (column, others):
        one.validate(full=True)
        assert one.type == decoder.type
    rows: list[tuple[Any, tuple[str, ...]]] = [(row, ()) for row in of_column(column)]
    for number, row, paths in zip(left.tolist(), of_column(others), lost, strict=True):
        rows[number] = row, paths
    return rows


def text(data: bytes) -> bytes:
    return varint(len(data)) + data


FIELDS: list[tuple[Any, bytes, Sequence[bytes]]] = [
    ("string", text(b"ok"), [text(b"\xff")]),
    ("int", varint(1), [varint(2**31), varint(-(2**31) - 1)]),
    ("boolean", b"\1", [b"\2"]),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, varint(1), [varint(2), varint(-1)]),
    (logical("bytes", "decimal", precision=3, scale=1), text(b"\1"), [text(b""), text(b"\x04\0")]),
    ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 3, "scale": 0}, b"\0\1", [b"\x04\0"]),
    (logical("int", "time-millis"), varint(5), [varint(86_400_000), varint(-1)]),
    (logical("long", "time-micros"), varint(5), [varint(86_400_000_000), varint(-1)]),
    ({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, bytes(12), [struct.pack("<III", 1 << 31, 0, 0)]),
    ({"type": "array", "items": "string"}, varint(0), [varint(1) + text(b"\xff") + varint(0)]),
    ({"type": "map", "values": "string"}, varint(0), [varint(1) + text(b"\xff") + text(b"v") + varint(0)]),
    (["null", "string"], b"\0", [varint(1) + text(b"\xff")]),
]


@pytest.mark.parametrize(("kind", "good", "bad"), FIELDS, ids=lambda given: str(given)[:50] if not isinstance(given, bytes) else "")
@pytest.mark.parametrize("around", ["record", "inner", "optional", "list"])
def test_a_field_that_does_not_fit_costs_itself(kind: Any, good: bytes, bad: Sequence[bytes], around: str) -> None:
    inner = record("I", x=kind, y="long")
    forms: dict[str, tuple[Any, str, bytes, bytes]] = {
        "record": (kind, "f", b"", b""), "inner": (inner, "f.x", b"", varint(4)),
        "optional": (["null", inner], "f.x", varint(1), varint(4)),
        "list": ({"type": "array", "items": inner}, "f.x", varint(1), varint(4) + varint(0)),
    }  # fmt: skip
    given, path, before, after = forms[around]
    decoder = AvroDecoder(registered(record("R", a="string", f=given, z="long")))
    lines = [text(b"a") + before + one + after + varint(9) for one in (good, *bad)]
    (whole, *parts) = read(decoder, bodies(lines))
    assert whole[1] == ()
    for row, lost in parts:
        assert (lost, row["a"], row["z"]) == ((path,), "a", 9)
        field = row["f"]
        if around == "list":
            (field,) = field
        assert field is None if around == "record" else field == {"x": None, "y": 4}
    # What cannot be followed to its end is lost.
    assert read(decoder, bodies([lines[1] + b"\0", lines[1][:-1]])) == [(None, LOST)] * 2


def test_elements_that_can_be_null_are() -> None:
    schema = record("R", l={"type": "array", "items": ["null", "string"]}, m={"type": "map", "values": ["string", "null"]}, z="long")
    lists = varint(3) + varint(1) + text(b"a") + varint(1) + text(b"\xff") + varint(0) + varint(0)
    maps = varint(2) + text(b"k") + varint(0) + text(b"\xff") + text(b"l") + varint(0) + text(b"v") + varint(0)
    ((row, lost),) = read(AvroDecoder(registered(schema)), bodies([lists + maps + varint(7)]))
    assert (row, lost) == ({"l": ["a", None, None], "m": [("k", None), ("l", "v")], "z": 7}, ("l", "m"))


@pytest.mark.parametrize("kind", ["array", "map"])
def test_elements_of_a_whole_value_have_a_path(kind: str) -> None:
    items = {"type": "array", "items": ["null", "boolean"]} if kind == "array" else {"type": "map", "values": ["null", "boolean"]}
    entry = b"" if kind == "array" else text(b"k")
    ((row, paths),) = read(AvroDecoder(registered(items)), bodies([varint(1) + entry + varint(1) + b"\2" + varint(0)]))
    assert (row, paths) == ([None] if kind == "array" else [("k", None)], ("$[]",))


def test_decimals_of_very_many_bytes() -> None:
    decoder = AvroDecoder(registered(record("R", a="string", f=logical("bytes", "decimal", precision=20, scale=2))))
    begin = time.perf_counter()
    many = 1_000_000
    rows = read(decoder, bodies([text(b"a") + text(bytes(1) * many + b"\1"), text(b"a") + text(b"\1" * many)]))
    assert rows == [({"a": "a", "f": 1}, ()), ({"a": "a", "f": None}, ("f",))]
    assert time.perf_counter() - begin < 10


def test_values_that_are_one_field() -> None:
    assert read(AvroDecoder(registered("string")), bodies([text(b"a"), text(b"\xff")])) == [("a", ()), (None, LOST)]


def test_a_value_that_only_looks_as_if_it_had_a_prefix() -> None:
    """It is read without one, whatever the prefix means; one with a prefix loses its field."""
    schema = record("R", a="long", b="string")
    framed, bare = b"\0\0\0\0\1" + varint(3) + text(b"\xff"), varint(-1) + text(b"prefixed")
    unread = bodies([bare], [0], (registered("long"),), prefix=5, bare=True)
    assert read(AvroDecoder(registered(schema)), unread) == [({"a": -1, "b": "prefixed"}, ())]
    given = bodies([framed, bare], [0, 0], (registered(schema),), prefix=5, bare=True)
    assert read(AvroDecoder(registered(schema)), given) == [({"a": 3, "b": None}, ("b",)), ({"a": -1, "b": "prefixed"}, ())]


ITEM = record("Item", sku="string", qty="int")
WRITER = record(
    "Order", id="string", note="string", items={"type": "array", "items": ITEM}, first=["null", "Item"], u=["Item", "long"], size="int"
)
OTHER_ITEM = record("Item", qty="string", sku="string", more="int")
READER = record(
    "Order", id="long", note="string", items={"type": "array", "items": OTHER_ITEM}, first=["null", "Item"], u=["Item", "long"],
    size="int", missing=["null", "int"], default={"of": "int", "default": 3},
)  # fmt: skip
BAD = {"qty": None, "sku": "s", "more": None}


def orders() -> list[bytes]:
    item = {"sku": "s", "qty": 1}
    rows: list[dict[str, Any]] = [
        {"items": [], "first": None, "u": 5}, {"items": [item, item], "first": None, "u": 6}, {"items": [], "first": item, "u": item}
    ]  # fmt: skip
    return [written(WRITER, {"id": "x", "note": f"n{number}", "size": number, **row}) for number, row in enumerate(rows)]


@pytest.mark.parametrize("by_program", [True, False], ids=["program", "plain"])
def test_fields_that_a_schema_does_not_have(by_program: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Only what is in a row is lost of it. Both readers return the same."""
    decoder = AvroDecoder(registered(READER, 2))
    if not by_program:
        monkeypatch.setattr(module, "program", lambda plan, root: None)
    lines, own = (
        orders(),
        written(READER, {"id": 7, "note": "own", "items": [], "first": None, "u": 1, "size": 1, "missing": 4, "default": 5}),
    )
    rows = read(decoder, bodies([*lines, own, lines[0] + b"\0"], [0, 0, 0, -1, 0], (registered(WRITER, 1),)))
    always = {"id": None, "missing": None, "default": 3}
    assert sorted(rows[0][1]) == ["id", "missing"]
    assert sorted(rows[1][1]) == ["id", "items.more", "items.qty", "missing"]
    assert sorted(rows[2][1]) == ["first.more", "first.qty", "id", "missing", "u.Item.more", "u.Item.qty"]
    assert [row for row, _ in rows] == [
        {**always, "note": "n0", "items": [], "first": None, "u": {"Item": None, "long": 5}, "size": 0},
        {**always, "note": "n1", "items": [BAD, BAD], "first": None, "u": {"Item": None, "long": 6}, "size": 1},
        {**always, "note": "n2", "items": [], "first": BAD, "u": {"Item": BAD, "long": None}, "size": 2},
        {"id": 7, "note": "own", "items": [], "first": None, "u": {"Item": None, "long": 1}, "size": 1, "missing": 4, "default": 5},
        None,
    ]
    assert (rows[3][1], rows[4][1]) == ((), LOST)
    (entry,) = caplog.records
    assert entry.getMessage().startswith("fields are null, because Avro schema 1: field id: string is not read as long; field items.")


def test_a_branch_or_symbol_that_the_reader_lacks() -> None:
    writer = record("R", u=["string", "int", record("S", x="long")], e={"type": "enum", "name": "E", "symbols": ["A", "B"]}, z="int")
    reader = record("R", u=["int", "null"], e={"type": "enum", "name": "E", "symbols": ["A"]}, z="int")
    rows: list[Any] = [{"u": 5, "e": "A"}, {"u": "text", "e": "A"}, {"u": {"x": 2**40}, "e": "B"}]
    given = bodies([written(writer, {**row, "z": 1}) for row in rows], [0] * 3, (registered(writer),))
    assert read(AvroDecoder(registered(reader)), given) == [
        ({"u": 5, "e": "A", "z": 1}, ()), ({"u": None, "e": "A", "z": 1}, ("u",)), ({"u": None, "e": None, "z": 1}, ("u", "e"))
    ]  # fmt: skip


NODE = record("Node", value="long", next={"of": ["null", "Node"], "default": None})


def chain(*values: int) -> Any:
    rest: Any = None
    for value in reversed(values):
        rest = {"value": value, "next": rest}
    return rest


def test_depth() -> None:
    """`max_depth` is how often the type is nested; then its text in JSON follows, and null where nothing does."""
    lines = [written(NODE, chain(*range(1, count + 1))) for count in (1, 2, 3)]
    texts = ["null", '{"value":2,"next":null}', '{"value":2,"next":{"value":3,"next":null}}']
    once = [({"value": 1, "next": None if one == "null" else one}, ()) for one in texts]
    twice = [(chain(1), ()), (chain(1, 2), ()), ({"value": 1, "next": {"value": 2, "next": '{"value":3,"next":null}'}}, ())]
    for depth, rows in enumerate((once, twice, [(chain(*range(1, count + 1)), ()) for count in (1, 2, 3)]), 1):
        assert read(AvroDecoder(registered(NODE), shape=AvroShape(depth)), bodies(lines)) == rows
    assert AvroDecoder(registered(NODE)).decode(bodies(lines))[1].tolist() == [True, False, False], "the loop reads what has ended"


def test_types_that_contain_each_other() -> None:
    """A type that does not contain itself is never text."""
    schema = record("A", b=record("B", a=["null", "A"], plain=record("P", x="int")), p="P")
    value = {"b": {"a": {"b": {"a": None, "plain": {"x": 2}}, "p": {"x": 3}}, "plain": {"x": 1}}, "p": {"x": 4}}
    given = bodies([written(schema, value)])
    ((row, _),) = read(AvroDecoder(registered(schema)), given)
    assert row == {"b": {"a": '{"b":{"a":null,"plain":{"x":2}},"p":{"x":3}}', "plain": {"x": 1}}, "p": {"x": 4}}
    assert read(AvroDecoder(registered(schema), ("p", "b.plain.x")), given) == [({"b": {"plain": {"x": 1}}, "p": {"x": 4}}, ())]


def test_values_nested_more_often_than_python_calls() -> None:
    line = b"\2\2" * 50_000 + b"\2\0"
    ((row, lost),) = read(AvroDecoder(registered(NODE)), bodies([line]))
    assert (row["value"], row["next"].count('"next"'), lost) == (1, 50_000, ())
    assert read(AvroDecoder(registered(NODE), ("value",)), bodies([line, line[:-1], b"\2\2\2\0"])) == [
        ({"value": 1}, ()), (None, LOST), ({"value": 1}, ())
    ]  # fmt: skip


def test_many_ways_into_itself() -> None:
    """Programs that unroll them stay small."""
    ways = record("W", **{f"f{number}": ["null", "W"] for number in range(40)}, z="int")
    decoder = AvroDecoder(registered(ways), ("z",))
    value: Any = {**{f"f{number}": None for number in range(40)}, "z": 5}
    line = written(ways, {**value, "f7": {**value, "f8": value}})
    assert len(decoder.programs([])[0].words) < 1 << 17  # type: ignore[union-attr]
    assert read(decoder, bodies([line])) == [({"z": 5}, ())]


def test_json_text() -> None:
    """As ``kolumn cat --json`` has it."""
    types = {
        "b": "bytes", "d": logical("bytes", "decimal", precision=5, scale=2), "day": logical("int", "date"),
        "t": logical("int", "time-millis"), "at": logical("long", "timestamp-micros"), "far": logical("long", "timestamp-millis"),
        "local": logical("long", "local-timestamp-nanos"), "f": "float", "x": "double",
        "e": {"type": "enum", "name": "E", "symbols": ["A"]}, "l": {"type": "array", "items": "int"},
        "m": {"type": "map", "values": "boolean"}, "s": "string",
        "span": {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
    }  # fmt: skip
    schema = record("R", me=["null", "R"], **types)
    value: dict[str, Any] = {
        "me": None, "b": b"\xff\0", "d": b"\x04\xd2", "day": 1, "t": 3_723_004, "at": 1_700_000_000_000_001, "far": 2**62, "local": -1,
        "f": 0.1, "x": float("nan"), "e": "A", "l": [1, 2], "m": {"k": True}, "s": 'é"\n', "span": struct.pack("<III", 1, 2, 3),
    }  # fmt: skip
    ((row, lost),) = read(AvroDecoder(registered(schema)), bodies([written(schema, {**value, "me": value})]))
    assert (json.loads(row["me"]), lost) == ({
        "me": None, "b": "/wA=", "d": 12.34, "day": "1970-01-02", "t": "01:02:03.004", "at": "2023-11-14T22:13:20.000001Z",
        "far": "+146140482-04-24T15:36:27.904Z", "local": "1969-12-31T23:59:59.999999999", "f": 0.1, "x": "NaN", "e": "A", "l": [1, 2],
        "m": {"k": True}, "s": 'é"\n',
        "span": {"months": 1, "days": 2, "nanoseconds": 3_000_000},
    }, ())  # fmt: skip
    assert '"é\\"\\n"' in row["me"]


def test_text_in_json_that_is_no_text() -> None:
    schema = record("R", me=["null", "R"], s="string", z="int")
    inner = varint(0) + text(b"\xff") + varint(1)
    assert read(AvroDecoder(registered(schema)), bodies([varint(1) + inner + text(b"a") + varint(2)])) == [
        ({"me": None, "s": "a", "z": 2}, ("me",))
    ]


UNION = record("R", u=["null", "int", record("a.b.C", x="long", y="string"), {"type": "array", "items": "int"}, record("D", x="int")])


def test_columns_of_unions() -> None:
    values: list[Any] = [None, 5, ("a.b.C", {"x": 1, "y": "q"}), [1], ("D", {"x": 2})]
    parsed = fastavro.parse_schema(json.loads(json.dumps(UNION)))
    given = bodies([encoded(parsed, {"u": one}) for one in values])
    empty = {"int": None, "C": None, "array": None, "D": None}
    whole = [None, {**empty, "int": 5}, {**empty, "C": {"x": 1, "y": "q"}}, {**empty, "array": [1]}, {**empty, "D": {"x": 2}}]
    assert read(AvroDecoder(registered(UNION)), given) == [({"u": one}, ()) for one in whole]
    some = [None if one is None else {"int": one["int"], "C": one["C"] and {"y": "q"}} for one in whole]
    assert read(AvroDecoder(registered(UNION), ("u.int", "u.C.y")), given) == [({"u": one}, ()) for one in some]
    numbered = AvroDecoder(registered(UNION), shape=AvroShape(unions="members"))
    assert [field.name for field in numbered.type.field("u").type] == ["member0", "member1", "member2", "member3"]
    with pytest.warns(DeprecationWarning, match=r"column u\.member1 is called u\.C now"):
        assert AvroDecoder(registered(UNION), ("u.member1.x",)).type == pa.struct(
            [("u", pa.struct([("C", pa.struct([("x", pa.int64())]))]))]
        )
    raises(
        ArgumentError,
        r"column u\.strin is not a type of the union; there are int, C, array, D",
        AvroDecoder,
        registered(UNION),
        ("u.strin",),
    )


def test_names_of_types_in_unions() -> None:
    def names(*types: Any) -> list[str]:
        return [field.name for field in AvroDecoder(registered(list(types))).type]

    fixed = {"type": "fixed", "name": "x.F", "size": 1}
    assert names("string", fixed, {"type": "map", "values": "int"}) == ["string", "F", "map"]
    assert names(fixed, fixed | {"name": "y.F"}, "bytes") == ["x_F", "y_F", "bytes"]
    assert names("null", fixed | {"name": "x.y_F"}, fixed | {"name": "x_y.F"}, fixed | {"name": "F"}) == ["y_F", "x_y_F", "F"]
    assert names("int", "string", logical("long", "timestamp-millis")) == ["int", "string", "long"]


def test_time_units() -> None:
    types = {
        "ms": logical("long", "timestamp-millis"), "us": logical("long", "timestamp-micros"),
        "ns": logical("long", "local-timestamp-nanos"), "d": {"of": logical("long", "timestamp-micros"), "default": -1},
        "l": {"type": "array", "items": logical("long", "timestamp-nanos")},
    }  # fmt: skip
    writer = registered(record("R", **{name: kind for name, kind in types.items() if name != "d"}))
    numbers = [(0, 0, 0), (1, 1999, 1999), (-1, -1, -1), (-1, -1000, -1001), (2**62, 2**62, 2**63 - 1), (-(2**62), -(2**63), -(2**63))]
    lines = [b"".join(map(varint, (*one, 1, one[2], 0))) for one in numbers]
    for unit, (ms, us, ns) in {
        "s": (1000, 10**6, 10**9),
        "ms": (1, 1000, 10**6),
        "us": (-1000, 1, 1000),
        "ns": (-(10**6), -1000, 1),
    }.items():
        decoder = AvroDecoder(registered(record("R", **types)), shape=AvroShape(time_unit=unit))
        zoned, local = pa.timestamp(unit, "UTC"), pa.timestamp(unit)
        assert [field.type for field in decoder.type][:4] == [zoned, zoned, local, zoned]

        def cut(number: int, factor: int) -> int | None:
            made = number // factor if factor > 0 else number * -factor
            return made if -(2**63) <= made < 2**63 else None

        expected = []
        for one in numbers:
            row: dict[str, Any] = {
                "ms": cut(one[0], ms),
                "us": cut(one[1], us),
                "ns": cut(one[2], ns),
                "d": cut(-1, us),
                "l": [cut(one[2], ns)],
            }
            expected.append((row, tuple(name for name in ("ms", "us") if row[name] is None)))
        assert read(decoder, bodies(lines, [0] * len(lines), (writer,))) == expected


def test_uuids_in_their_own_type() -> None:
    """Of text and of 16 bytes, anywhere; what is no UUID for Python's module is lost."""
    of_text, fixed = logical("string", "uuid"), {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}
    types: dict[str, Any] = {
        "a": of_text, "b": ["null", of_text], "f": fixed, "l": {"type": "array", "items": of_text}, "m": {"type": "map", "values": "F"},
        "u": ["null", of_text, "long"], "r": record("Q", k=of_text, z="int"), "s": "string",
    }  # fmt: skip
    rng, lines, expected = random.Random(4), [], []

    for _ in range(60):
        ids = [UUID(int=rng.getrandbits(128)) for _ in range(6)]
        given: list[bytes] = []
        for one in ids:
            written = rng.choice((str(one), str(one).upper())).encode()
            bad = rng.choice((b"", written[1:], written + b"0", written.replace(b"-", b""), written.replace(b"-", b"g"), b"\n" + written))
            given.append(rng.choice((written, written, written, bad)))
        a, b, first, second, u, k = [UUID(one.decode()) if len(one) == 36 and b"g" not in one else None for one in given]
        parts = [text(given[0]), b"\2", text(given[1]), ids[0].bytes, b"\4", text(given[2]), text(given[3]), b"\0"]
        parts += [b"\2", text(b"x"), ids[1].bytes, b"\0", b"\2", text(given[4]), text(given[5]), b"\2", text(b"t")]
        lines.append(b"".join(parts))
        row = {"a": a, "b": b, "f": ids[0], "l": [first, second], "m": [("x", ids[1])], "u": {"string": u, "long": None}}
        lost = [("a", a), ("b", b), ("l", first and second), ("u.string", u), ("r.k", k)]
        expected.append((row | {"r": {"k": k, "z": 1}, "s": "t"}, tuple(path for path, found in lost if found is None)))
    decoder = AvroDecoder(registered(record("R", **types)), shape=AvroShape(uuids=True))
    array, lost_of = decoder.salvage(bodies(lines))
    array.validate(full=True)
    assert list(zip(array.to_pylist(), lost_of, strict=True)) == expected
    rows, valid = decoder.decode(bodies(lines))
    rows.validate(full=True)
    assert rows.to_pylist() == [None if lost else row for row, lost in expected]
    assert valid.tolist() == [not lost for _, lost in expected]
    assert 0 < valid.sum() < len(lines)
    # Alone, and only some types of a union.
    debezium = {"type": "string", "connect.version": 1, "connect.name": "io.debezium.data.Uuid"}
    assert AvroDecoder(registered(debezium), shape=AvroShape(uuids=True)).type == pa.uuid()
    alone = AvroDecoder(registered(of_text), shape=AvroShape(uuids=True))
    assert (alone.salvage(bodies([text(b"?")]))[1], alone.type) == ([("$",)], pa.uuid())
    some = AvroDecoder(registered(record("R", **types)), ("u.long", "s"), shape=AvroShape(uuids=True))
    assert some.type == pa.struct([("u", pa.struct([("long", pa.int64())])), ("s", pa.string())])


def test_decimals_of_more_digits_than_arrow_has() -> None:
    wide = logical("bytes", "decimal", precision=80, scale=3)
    schema = record("R", d=["null", wide], z="int")
    number = -(10**79) - 5
    lines = [varint(0) + varint(1), varint(1) + text(number.to_bytes(34, "big", signed=True)) + varint(2)]
    lines.append(varint(1) + text((10**80).to_bytes(35, "big")) + varint(3))
    rows = [({"d": None, "z": 1}, ()), ({"d": f"-1{75 * '0'}{'0'}.005", "z": 2}, ()), ({"d": None, "z": 3}, ("d",))]
    assert read(AvroDecoder(registered(schema)), bodies(lines)) == rows


def test_in_a_read(tmp_path: Path) -> None:
    """Through a call: flags, problems, and the three ways."""
    schema = record("R", a="string", b="int", c=["null", record("I", at=logical("long", "timestamp-millis"))])
    rows = [text(b"a") + varint(1) + varint(1) + varint(2**60), text(b"\xff") + varint(2) + varint(0), b"\1"]
    kolumn.write(pa.table({"value": pa.array([*rows, None], pa.binary())}), tmp_path / "t-0")
    how: dict[str, Any] = {"value_format": "avro", "value_schema": schema, "columns": ["value", "valueValid", "valueProblems"]}
    found = kolumn.read(tmp_path / "t-0", **how)
    found.validate(full=True)
    assert (found["valueValid"].to_pylist(), found["valueProblems"].to_pylist()) == (
        [True, False, False, False],
        [None, ["a"], ["$"], None],
    )
    column = found["value"].combine_chunks()
    assert of_column(column)[1:] == [{"a": None, "b": 2, "c": None}, None, None]
    assert column.field("c").field("at").cast(pa.int64())[0].as_py() == 2**60
    kept = kolumn.read(tmp_path / "t-0", value_errors="keep", **how)
    assert (kept["value"].null_count, kept["valueProblems"].to_pylist()) == (3, found["valueProblems"].to_pylist())
    with pytest.raises(kolumn.PayloadError, match="which a does not fit"):
        kolumn.read(tmp_path / "t-0", value_errors="raise", **how)
