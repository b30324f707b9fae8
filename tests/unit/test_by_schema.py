"""Is each value of JSON read by the Connect schema that it carries, and exactly what that says in the type of all values?"""

import base64
import json
import pickle
import random
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kolumn.core.times import time_numbers
from kolumn.readers.types import inference
from kolumn.values.by_schema import BySchema, JsonEnvelope
from kolumn.values.common_types import common_type, exact
from kolumn.values.connect import of_connect
from kolumn.values.envelopes import json_envelope, opened
from kolumn.values.extensions import JSON_TEXT, in_type
from kolumn.values.framing import BareFramer
from kolumn.values.json import JsonDecoder
from kolumn.values.retyped import TextDecimal
from kolumn.values.typed import Typed

Schema = dict[str, Any]
DECIMAL = "org.apache.kafka.connect.data.Decimal"
MS, US, NS = (f"io.debezium.time.{name}Timestamp" for name in ("", "Micro", "Nano"))
UNITS = {MS: 10**6, US: 10**3, NS: 1, "io.debezium.time.Date": 86_400 * 10**9}
"""Nanoseconds of a number."""


def field(name: str, type: str, logical: str | None = None, **parameters: str) -> Schema:
    return {"field": name, "type": type, "optional": True, **({"name": logical} if logical else {}), "parameters": parameters}


def decimal(name: str, scale: int, precision: int) -> Schema:
    return field(name, "bytes", DECIMAL, **{"scale": str(scale), "connect.decimal.precision": str(precision)})


def coded(number: int) -> str:
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def beside(payload: Any, *fields: Schema) -> Schema:
    return {"schema": {"type": "struct", "fields": list(fields)}, "payload": payload}


def changed(payload: Any, *fields: Schema, is_deleted: bool = False) -> dict[str, Any]:
    """A change event about a row, beside its schema."""
    rows = [{"type": "struct", "field": name, "optional": True, "fields": list(fields)} for name in ("before", "after")]
    images = {"before": payload, "after": None} if is_deleted else {"before": {}, "after": payload}
    return beside({**images, "op": "d" if is_deleted else "u", "ts_ms": 1}, *rows, field("op", "string"), field("ts_ms", "int64"))


Found = list[tuple[Any, tuple[str, ...]]]


def read(values: list[Any], sample: list[Any] | None = None, kind: str = "connect", **options: Any) -> tuple[pa.DataType, Found]:
    """The type, and each row with what it lost; that `decode` says the same is checked."""
    payloads, first = ([json.dumps(one).encode() for one in some] for some in (values, values if sample is None else sample))
    how = json_envelope(kind, options.get("named"), first, inference(Typed("value", "json")), "value_envelope")
    how = pickle.loads(pickle.dumps(how))
    unit = options.get("unit")
    decoder = opened(kind, how, options.get("columns"), unit, lambda reader, _: JsonDecoder(reader, unit), "value_envelope")
    bodies, _ = BareFramer().bodies(pa.array(payloads, pa.binary()))
    for _ in range(2):  # The second time schemas are known.
        rows, valid = decoder.decode(bodies)
        array, lost = decoder.salvage(bodies)
        for column in (rows, array):
            column.validate(full=True)
            assert column.type == decoder.type
        for row, good in enumerate(valid.tolist()):
            assert rows.slice(row, 1).equals(array.slice(row, 1)) if good else rows[row].as_py() is None
            assert not (good and lost[row])
    return decoder.type, list(zip(_plain(array), lost, strict=True))


def _plain(array: pa.Array) -> list[Any]:
    """Rows with numbers in place of times, which Python does not all have."""
    if not pa.types.is_struct(array.type):
        return (time_numbers(array) if pa.types.is_temporal(array.type) else array).to_pylist()
    columns = {part.name: _plain(column) for part, column in zip(array.type, array.flatten(), strict=True)}
    there = array.is_valid().to_pylist()
    return [{name: column[row] for name, column in columns.items()} if there[row] else None for row in range(len(array))]


@pytest.mark.parametrize(("types", "expected"), [
    ([pa.decimal128(6, 2), pa.decimal128(10, 4)], pa.decimal128(10, 4)),
    ([pa.decimal128(38, 0), pa.decimal128(38, 10)], pa.decimal256(48, 10)),
    ([pa.decimal256(76, 0), pa.decimal128(4, 2)], pa.string()),
    ([pa.decimal128(4, -2)], pa.decimal128(6, 0)),
    ([TextDecimal(2)], pa.string()),
    ([pa.list_(TextDecimal(2)), pa.list_(pa.int8())], pa.list_(pa.string())),
    ([pa.int32(), pa.decimal128(4, 2)], pa.decimal128(12, 2)),
    ([pa.int32(), pa.int8()], pa.int32()),
    ([pa.int32(), pa.float32()], pa.float64()),
    ([pa.float32(), pa.float32()], pa.float32()),
    ([pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("s")], pa.timestamp("us")),
    ([pa.time32("ms"), pa.time64("ns")], pa.time64("ns")),
    ([pa.timestamp("ms"), pa.timestamp("ms", "UTC")], JSON_TEXT),
    ([pa.date32(), pa.timestamp("ms")], JSON_TEXT),
    ([pa.string(), pa.int8()], JSON_TEXT),
    ([pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8()), ("a", pa.int16())])], pa.struct([("a", pa.int16()), ("b", pa.int8())])),
    ([pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.bool_())], pa.map_(pa.string(), JSON_TEXT)),
    ([pa.struct([("a", pa.int8())]), pa.list_(pa.int8())], JSON_TEXT),
])  # fmt: skip
def test_types_that_several_types_have_in_common(types: list[pa.DataType], expected: pa.DataType) -> None:
    assert common_type(types) == expected
    assert common_type([*types, *types]) == expected


D = Decimal
LOST = object()


@pytest.mark.parametrize(("own", "values", "type", "expected"), [
    (pa.decimal128(4, 2), [D("1.25"), None, D("-99.99")], pa.decimal128(6, 3), [D("1.250"), None, D("-99.990")]),
    (pa.decimal128(6, 3), [D("1.250"), D("1.255"), D("100.000")], pa.decimal128(4, 2), [D("1.25"), LOST, LOST]),
    (pa.decimal256(70, 2), [D("1.25"), D(10) ** 60], pa.decimal128(4, 2), [D("1.25"), LOST]),
    (pa.decimal128(4, 2), [D("5.00"), D("5.50"), D("-1.00")], pa.int8(), [5, LOST, -1]),
    (pa.decimal128(4, 2), [D("0.50"), D("0.10")], pa.float64(), [0.5, LOST]),
    (pa.int64(), [5, -(10**9)], pa.decimal128(6, 2), [D("5.00"), LOST]),
    (pa.int64(), [2**53 + 1, 2**60, 2**63 - 1], pa.float64(), [LOST, 2.0**60, LOST]),
    (pa.int64(), [127, 128], pa.int8(), [127, LOST]),
    (pa.float64(), [1.0, 1.5, float("inf"), float("nan"), 1e300], pa.int64(), [1, LOST, LOST, LOST, LOST]),
    (pa.float64(), [0.5, 0.1, float("-inf"), 1e300], pa.float32(), [0.5, LOST, float("-inf"), LOST]),
    (pa.float64(), [0.5, 0.1, float("nan")], pa.decimal128(4, 2), [D("0.50"), LOST, LOST]),
    (pa.int32(), [5], pa.string(), ["5"]),
    (pa.decimal128(9, 9), [D("1E-9")], pa.string(), ["0.000000001"]),
    (pa.string(), ["5"], pa.decimal128(4, 2), [LOST]),
    (pa.bool_(), [True, None], pa.int8(), [LOST, None]),
    (pa.date32(), [0], pa.timestamp("ms"), [LOST]),
])  # fmt: skip
def test_conversions_are_exact_or_fail(own: pa.DataType, values: list[Any], type: pa.DataType, expected: list[Any]) -> None:
    made, failed = exact(pa.array(values, own), type)
    made.validate(full=True)
    assert made.type == type
    assert made.to_pylist() == [None if one is LOST else one for one in expected]
    assert failed.tolist() == [one is LOST for one in expected]


@pytest.mark.parametrize("turn", range(3))
def test_times_are_in_another_unit_or_out_of_its_range(turn: int) -> None:
    rng, per = random.Random(turn), {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    for own in per:
        numbers = [rng.choice([1, -1]) * rng.randrange(2 ** rng.randint(1, 63)) for _ in range(200)] + [0, -1, 2**63 - 1, -(2**63)]
        numbers += [number // 10**9 * 10**9 for number in numbers[:50]]
        column = pa.array([*numbers, None], pa.int64()).cast(pa.timestamp(own))
        for unit in per:
            for is_cut in (False, True):
                made, failed = exact(column[1:], pa.timestamp(unit), is_cut)
                for number, found, wrong in zip(numbers[1:], made.cast(pa.int64()).to_pylist(), failed.tolist(), strict=False):
                    whole, rest = divmod(number * per[unit], per[own])
                    fits = (is_cut or not rest) and -(2**63) < whole < 2**63
                    assert (found, wrong) == ((whole, False) if fits else (None, True)) or whole == number == -(2**63)
                assert (made[-1].as_py(), failed[-1]) == (None, False)


def test_json_text_says_what_is_meant() -> None:
    type = pa.struct([
        ("d", pa.decimal128(4, 2)), ("t", pa.timestamp("ms", "UTC")), ("day", pa.date32()), ("clock", pa.time64("us")), ("b", pa.binary()),
        ("f", pa.list_(pa.float64())), ("m", pa.map_(pa.string(), pa.float32())), ("big", TextDecimal(2)), ("j", JSON_TEXT),
        ("é", pa.string()),        ("yes", pa.bool_()),
    ])  # fmt: skip
    columns = [
        pa.array([D("-0.05"), None], pa.decimal128(4, 2)),
        pa.array([1500, None], pa.timestamp("ms", "UTC")), pa.array([0, None], pa.date32()),
        pa.array([1, None], pa.time64("us")), pa.array([b"\0\xff", None]), pa.array([[0.1, float("nan"), None, float("-inf")], None]),
        pa.array([[('"', 1.5)], None], pa.map_(pa.string(), pa.float32())), in_type(pa.array(["123.45", None]), TextDecimal(2)),
        in_type(pa.array(['{"a": 1}', None]), JSON_TEXT), pa.array(['"ü\n', None]), pa.array([True, None]),
    ]  # fmt: skip
    rows = pa.StructArray.from_arrays(columns, fields=list(type), mask=pa.array([False, False]))
    made, failed = exact(rows, JSON_TEXT)
    assert not failed.any()
    assert made.to_pylist() == [
        '{"d": -0.05, "t": "1970-01-01T00:00:01.500Z", "day": "1970-01-01", "clock": "00:00:00.000001", "b": "AP8=", '
        '"f": [0.1, "NaN", null, "-Infinity"], "m": {"\\"": 1.5}, "big": 123.45, "j": {"a": 1}, "é": "\\"ü\\n", "yes": true}',
        "{" + ", ".join(f'"{part.name}": null' for part in type) + "}",
    ]
    assert exact(rows[1:], JSON_TEXT)[0].to_pylist() == made.to_pylist()[1:]
    assert exact(pa.nulls(2, type), JSON_TEXT)[0].null_count == 2
    far = exact(pa.array([10**15], pa.timestamp("ms")), JSON_TEXT)[0].to_pylist()
    assert far == ['"+33658-09-27T01:46:40.000"']


def test_each_value_is_read_by_its_own_schema() -> None:
    two, four = decimal("p", 2, 6), decimal("p", 4, 8)
    later = [beside({"p": coded(12345)}, two), beside({"p": coded(1234500)}, four), beside({"p": coded(1234501)}, four)]
    type, found = read(later, later[:1])
    assert type.field("p").type == pa.decimal128(6, 2)
    assert found == [({"p": D("123.45")}, ()), ({"p": D("123.45")}, ()), ({"p": None}, ("p",))]
    type, found = read(later)
    assert type.field("p").type == pa.decimal128(8, 4)
    assert found == [({"p": D(text)}, ()) for text in ("123.4500", "123.4500", "123.4501")]
    # A field that a schema has not is null, what it has of a field with another type is what it means, or lost.
    others = [
        beside({"q": 1}, field("q", "int32"), two), beside({"p": 5}, field("p", "int64")), beside({"p": "x"}, field("p", "string")),
        beside({"p": None}, field("p", "string")), beside({"p": 1.5}, field("p", "double")),
        beside({"p": coded(5), "q": 1}, field("q", "int32")),
    ]  # fmt: skip
    assert read(others, later[:1])[1] == [
        ({"p": None}, ()), ({"p": D("5.00")}, ()), ({"p": None}, ("p",)), ({"p": None}, ()), ({"p": D("1.50")}, ()), (None, ("$",)),
    ]  # fmt: skip
    assert read(others[:1], [later[0], others[0]])[1] == [({"p": None, "q": 1}, ())]


def test_lists_and_maps_of_what_schemas_say() -> None:
    def both(scale: int) -> list[Schema]:
        inner = decimal("", scale, 6)
        row = {"type": "struct", "fields": [decimal("d", scale, 6), field("s", "string")]}
        return [
            {"field": "l", "type": "array", "items": row}, {"field": "m", "type": "map", "keys": {"type": "string"}, "values": inner},
        ]  # fmt: skip

    parts = [
        ({"l": [{"d": coded(5), "s": "a"}, None, {"d": None, "s": "b"}], "m": {"x": coded(5), "y": coded(50)}}, both(scale))
        for scale in (3, 1)
    ]
    values = [beside(payload, *fields) for payload, fields in parts] + [beside({"l": None, "m": {}}, *parts[0][1])]
    found = read(values)[1]
    for scale, (value, lost) in zip((3, 1), found[:2], strict=True):
        first, ten = D(5).scaleb(-scale), D(50).scaleb(-scale)
        assert (value, lost) == ({"l": [{"d": first, "s": "a"}, None, {"d": None, "s": "b"}], "m": [("x", first), ("y", ten)]}, ())
    assert found[2] == ({"l": None, "m": []}, ())
    later = read(values, values[1:2])[1]
    assert later[0] == ({"l": [{"d": None, "s": "a"}, None, {"d": None, "s": "b"}], "m": [("x", None), ("y", None)]}, ("l.d", "m"))
    assert later[1:] == [(found[1][0], ()), ({"l": None, "m": []}, ())]


def test_what_schemas_say_differently_is_lost_without_one() -> None:
    fields = (
        [decimal("p", 2, 6), field("n", "int32"), field("t", "int64", MS)],
        [decimal("p", 4, 8), field("n", "int64"), field("t", "int64", MS)],
    )
    sample = [beside({"p": coded(12345), "n": 1, "t": 5}, *own) for own in fields]
    bare = {"p": coded(12345), "n": 1, "t": 5}
    for schema, t in ((None, 5), ("public", None), ({"type": "struct"}, None), ({"type": "odd"}, None)):
        lost = ("p",) if t else ("p", "t")
        assert read([{"schema": schema, "payload": bare}], sample)[1] == [({"p": None, "n": 1, "t": t}, lost)], schema
        assert read([{"schema": schema, "payload": bare}], sample, columns=["n"])[1] == [({"n": 1}, ())]
    # A schema that is there twice says nothing.
    text = json.dumps(sample[0]).encode()
    twice = text[:-1] + b', "schema": null}'
    how = json_envelope("connect", None, [text], inference(Typed("value", "json")), "value_envelope")
    assert isinstance(how, JsonEnvelope)
    decoder = BySchema(how, None, lambda reader, _: JsonDecoder(reader))
    bodies, _ = BareFramer().bodies(pa.array([text, twice, None, b"{"], pa.binary()))
    assert decoder.decode(bodies)[1].tolist() == [True, False, False, False]
    assert decoder.salvage(bodies.rows(np.array([0, 1, 3])))[1] == [(), ("$",), ("$",)]


def test_numbers_that_json_has_not_and_decimals_that_are_numbers() -> None:
    fields = [field("f", "double"), field("g", "float"), decimal("d", 2, 6), {"field": "l", "type": "array", "items": decimal("", 2, 4)}]
    rows: list[Any] = [
        {"f": "NaN", "g": "-Infinity", "d": 0.05, "l": [0.05, coded(5), 7]}, {"f": 1.5, "g": "Infinity", "d": coded(-1), "l": []},
        {"f": "1.5", "g": 0.1, "d": '"BQ=="', "l": [0.055, 1]}, {"f": "nan", "g": None, "d": 12345678, "l": ["\ud800", coded(5)]},
    ]  # fmt: skip
    _, found = read([beside(row, *fields) for row in rows])
    assert str(found[0]) == str((
        {"f": float("nan"), "g": float("-inf"), "d": D("0.05"), "l": [D("0.05"), D("0.05"), D("7.00")]}, (),
    ))  # fmt: skip
    assert found[1:] == [
        ({"f": 1.5, "g": float("inf"), "d": D("-0.01"), "l": []}, ()),
        ({"f": None, "g": float(np.float32(0.1)), "d": None, "l": [None, D("1.00")]}, ("f", "d", "l")),
        ({"f": None, "g": None, "d": None, "l": [None, D("0.05")]}, ("f", "d", "l")),
    ]


def test_decimals_that_no_type_holds_are_text() -> None:
    numbers = [0, 5, -12345, 10**90 + 7]
    values = [beside({"d": coded(number)}, decimal("d", 2, 100)) for number in numbers]
    values += [beside({"d": number}, decimal("d", 2, 100)) for number in (1.5, 7, 1.555)]
    type, found = read(values)
    assert type.field("d").type == pa.string()
    text = ["0.00", "0.05", "-123.45", f"1{'0' * 88}.07", "1.50", "7.00"]
    assert found == [*(({"d": one}, ()) for one in text), ({"d": None}, ("d",))]
    # So are those that have each a scale, among others.
    free = {"field": "d", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": [
        {"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"},
    ]}  # fmt: skip
    others = [beside({"d": {"scale": 3, "value": coded(-1500)}}, free), beside({"d": coded(150)}, decimal("d", 2, 6)), values[3]]
    assert read(others)[1] == [({"d": one}, ()) for one in ("-1.500", "1.50", text[3])]
    assert read(others, others[1:2])[1] == [({"d": D("-1.50")}, ()), ({"d": D("1.50")}, ()), ({"d": None}, ("d",))]
    lists = beside({"d": [coded(5), None, 1.5, "?"]}, {"field": "d", "type": "array", "items": decimal("", 2, 100)})
    assert read([lists])[1] == [({"d": ["0.05", None, "1.50", None]}, ("d",))]


def test_a_caller_names_the_type_of_what_has_a_schema() -> None:
    fields = [decimal("p", 2, 6), field("t", "int64", MS), field("n", "int32"), field("day", "int32")]
    values = [beside({"p": coded(12345), "t": 1500, "n": 5, "day": 3}, *fields)]
    named = pa.struct([("p", pa.decimal128(10, 3)), ("t", pa.timestamp("us", "UTC")), ("n", pa.int64()), ("day", pa.date32())])
    type, found = read(values, named=named)
    assert (type, found) == (named, [({"p": D("123.450"), "t": 1_500_000, "n": 5, "day": 3}, ())])
    type, found = read(values, named=JSON_TEXT)
    assert found == [('{"p": 123.45, "t": "1970-01-01T00:00:01.500", "n": 5, "day": 3}', ())]
    assert read(values, named=named, unit="ms")[1][0][0]["t"] == 1500
    # Whoever names a number or bytes gets what is written.
    raw = pa.struct([("p", pa.binary()), ("t", pa.int64()), ("day", pa.float64())])
    assert read(values, named=raw)[1] == [({"p": b"09", "t": 1500, "day": 3.0}, ())]


def test_schemas_that_are_nested_deeply_are_joined_at_once() -> None:
    def nested(inner: Schema, value: Any) -> tuple[Schema, Any]:
        for _ in range(30):
            inner, value = {"type": "struct", "field": "a", "fields": [inner]}, {"a": value}
        return inner, value

    parts = [nested(decimal("a", scale, 6), coded(500)) for scale in (2, 3)]
    values = [{"schema": schema, "payload": value} for schema, value in parts]
    found = read(values)[1]
    for text, (value, lost) in zip(("5.000", "0.500"), found, strict=True):
        for _ in range(30):
            value = value["a"]
        assert (str(value), lost) == (text, ())


def _value(rng: random.Random, name: str) -> tuple[Schema, Any, Any, Any]:
    """A field's schema, a value as JSON has it, what it means (a number, or (ns since 1970,)), and that as JSON text has it."""
    kind = rng.choice(["decimal", "decimal", "int", "double", "time", "text"]) if rng.random() < 0.3 else name[1:]
    if kind == "decimal":
        scale, precision = rng.choice([0, 1, 2, 5]), rng.choice([6, 10, 40])
        number = rng.randrange(-(10**precision), 10**precision) // 10 ** rng.randint(0, precision)
        meant = D(f"{number}E-{scale}")
        return decimal(name, scale, precision), coded(number), meant, meant
    if kind == "int":
        bits = rng.choice([8, 16, 32, 64])
        number = rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))
        return field(name, f"int{bits}"), number, D(number), D(number)
    if kind == "double":
        number = rng.choice([0.5, -3.0, 0.1, 2.0**70])
        return field(name, "double"), number, D(number), D(repr(number))
    if kind == "time":
        logical = rng.choice(list(UNITS))
        number = (
            rng.choice([0, -1, 1500, 10**6, rng.randrange(10**14), 10**18]) if logical != "io.debezium.time.Date" else rng.randrange(20_000)
        )
        return field(name, "int32" if logical.endswith("Date") else "int64", logical), number, (number * UNITS[logical],), None
    text = rng.choice(["", "5", "x"])
    return field(name, "string"), text, text, text


def _same(type: pa.DataType, found: Any, meant: Any, text: Any) -> bool:
    """Whether a value of a column is what was meant."""
    if type == JSON_TEXT:
        return text is None or json.loads(found, parse_float=D, parse_int=D) == text
    if pa.types.is_timestamp(type) or pa.types.is_date(type):
        ns = {"ms": 10**6, "us": 10**3, "ns": 1}[type.unit] if pa.types.is_timestamp(type) else 86_400 * 10**9
        return meant == (found * ns,)
    if pa.types.is_string(type) and not isinstance(meant, str):
        return text is None or bool(D(found) == text)
    return bool((D(found) if isinstance(found, int | float) else found) == meant)


def _fits(type: pa.DataType, meant: Any, schema: Schema) -> bool:
    """Whether a column can hold what is meant."""
    own = of_connect(schema)[1]
    if type in (JSON_TEXT, pa.string(), own):
        return True
    if pa.types.is_timestamp(type):
        per = {"ms": 10**6, "us": 10**3, "ns": 1}[type.unit]
        return pa.types.is_timestamp(own) and meant[0] % per == 0 and abs(meant[0] // per) < 2**63
    if not isinstance(meant, Decimal):
        return False
    if pa.types.is_decimal(type):
        with localcontext(prec=200):
            digits = meant.scaleb(type.scale)
            return digits == int(digits) and abs(int(digits)) < 10**type.precision
    if pa.types.is_integer(type):
        return meant == int(meant) and -(2 ** (type.bit_width - 1)) <= meant < 2 ** (type.bit_width - 1)
    return pa.types.is_floating(type) and D(float(meant)) == meant


@pytest.mark.parametrize("turn", range(12))
def test_rows_of_random_schemas_are_what_each_schema_says(turn: int) -> None:
    rng, names = random.Random(turn), ["_decimal", "_int", "_double", "_time", "_text"]
    rows = [[_value(rng, name) for name in names if rng.random() < 0.9] for _ in range(60)]
    # Few schemas, many rows.
    rows += [
        [(schema, None, None, None) if rng.random() < 0.3 else (schema, *rest) for schema, *rest in rng.choice(rows)] for _ in range(60)
    ]
    made: list[Callable[..., Any]] = [beside, changed, partial(changed, is_deleted=True)]
    make = rng.choice(made)
    values = [make({one[0]["field"]: one[1] for one in row}, *(one[0] for one in row)) for row in rows]
    type, found = read(values, values[: rng.choice([1, 3, 20])], "connect" if make is beside else "debezium")
    type = pa.struct([part for part in type if not part.name.startswith("__")])
    for number, (row, (value, lost)) in enumerate(zip(rows, found, strict=True)):
        own = {schema["field"]: (schema, given, meant, text) for schema, given, meant, text in row}
        if not own.keys() & {part.name for part in type}:
            assert value is None or not own
            continue
        for part in type:
            schema, given, meant, text = own.get(part.name, (None, None, None, None))
            if given is None:
                assert (value[part.name], part.name in lost) == (None, False)
            elif part.name in lost:
                assert value[part.name] is None
                assert not _fits(part.type, meant, schema), (number, part, given, schema)
            else:
                assert _same(part.type, value[part.name], meant, text), (number, part, given, schema, value)
                assert _fits(part.type, meant, schema), (number, part, given, schema)
