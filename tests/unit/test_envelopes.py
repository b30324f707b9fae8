"""Do the decoders behind envelopes keep their promises: types from Connect's schemas, conversions, and what is lost of which field?"""

import base64
import json
import random
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kit import change_events
from kit.enveloped import VALUE, salvaged
from kit.outcome import raises
from kolumn.core.errors import ArgumentError
from kolumn.readers.types import inference
from kolumn.values.avro_schema import parse
from kolumn.values.avro_types import meant_type
from kolumn.values.base64_texts import from_base64
from kolumn.values.connect import of_avro, of_connect
from kolumn.values.decoder import with_unit
from kolumn.values.envelopes import json_envelope, opened
from kolumn.values.extensions import JSON_TEXT, in_type
from kolumn.values.json import JsonDecoder
from kolumn.values.retyped import TextDecimal, retyped
from kolumn.values.schemas.schema import Schema

SIGN = "[A-Za-z0-9+/]"
UTC_MS = pa.timestamp("ms", tz="UTC")


def named(kind: str, name: str, field: str, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "optional": True, "name": name, "version": 1, "field": field, "parameters": parameters}


def decimal(scale: int, precision: int | None = None, field: str = "d") -> dict[str, Any]:
    own = {} if precision is None else {"connect.decimal.precision": str(precision)}
    return named("bytes", "org.apache.kafka.connect.data.Decimal", field, scale=str(scale), **own)


def unscaled(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


@pytest.mark.parametrize(("schema", "read", "meant"), [
    ({"type": "int32"}, pa.int32(), pa.int32()),
    ({"type": "float"}, pa.float32(), pa.float32()),
    ({"type": "double"}, pa.float64(), pa.float64()),
    ({"type": "bytes"}, pa.binary(), pa.binary()),
    (decimal(2, 6), JSON_TEXT, pa.decimal128(6, 2)),
    (decimal(2), JSON_TEXT, pa.decimal128(38, 2)),
    (decimal(2, 64), JSON_TEXT, pa.decimal256(64, 2)),
    (decimal(2, 100), JSON_TEXT, TextDecimal(2)),
    (named("bytes", "org.apache.kafka.connect.data.Decimal", "d", scale="x"), pa.binary(), pa.binary()),
    (named("int32", "org.apache.kafka.connect.data.Date", "f"), pa.int32(), pa.date32()),
    (named("int32", "org.apache.kafka.connect.data.Time", "f"), pa.int32(), pa.time32("ms")),
    (named("int64", "org.apache.kafka.connect.data.Timestamp", "f"), pa.int64(), UTC_MS),
    (named("int64", "io.debezium.time.MicroTimestamp", "f"), pa.int64(), pa.timestamp("us")),
    (named("int64", "io.debezium.time.NanoTime", "f"), pa.int64(), pa.time64("ns")),
    (named("string", "io.debezium.time.ZonedTimestamp", "f"), pa.string(), pa.string()),
    (named("string", "io.debezium.data.Json", "f"), pa.string(), JSON_TEXT),
    # A name counts with its type alone.
    (named("string", "io.debezium.time.Timestamp", "f"), pa.string(), pa.string()),
    ({"type": "array", "items": decimal(0, 4)}, pa.list_(JSON_TEXT), pa.list_(pa.decimal128(4, 0))),
    ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int8"}}, *[pa.map_(pa.string(), pa.int8())] * 2),
    ({"type": "map", "keys": {"type": "int8"}, "values": {"type": "int8"}}, JSON_TEXT, JSON_TEXT),
    ({"type": "struct", "fields": []}, JSON_TEXT, JSON_TEXT),
    ({"type": "struct", "fields": [{"type": "int8", "field": name} for name in ("\ud800", "a")]}, *[pa.struct([("a", pa.int8())])] * 2),
    (
        {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": [
            {"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"},
        ]},
        pa.struct([("scale", pa.int32()), ("value", pa.binary())]), TextDecimal(0),
    ),
    (None, JSON_TEXT, JSON_TEXT),
])  # fmt: skip
def test_types_of_schemas_of_connect(schema: object, read: pa.DataType, meant: pa.DataType) -> None:
    assert of_connect(schema) == (read, meant)


def decoded(array: pa.Array, type: pa.DataType) -> list[Any]:
    made, failures = retyped(array, type)
    made.validate(full=True)
    assert (made.type, failures) == (type, [])
    return made.to_pylist()


@pytest.mark.parametrize("precision", [6, 38, 39, 76])
def test_decimals_are_those_that_python_makes(precision: int) -> None:
    rng = random.Random(precision)
    numbers = [rng.choice([1, -1]) * rng.randrange(10 ** rng.randint(0, precision)) for _ in range(300)] + [0, -1, 127, 128, -128, -129]
    numbers += [10**precision - 1, 1 - 10**precision]
    type = of_connect(decimal(2, precision))[1]
    expected = [Decimal(number).scaleb(-2) for number in numbers] if precision <= 28 else None
    values = [None, *map(unscaled, numbers), None]
    texts = pa.array([None if one is None else json.dumps(base64.b64encode(one).decode()) for one in values])
    for column in (pa.array(values, pa.binary()), in_type(texts, JSON_TEXT)):
        found = decoded(column, type)
        assert found[0] is found[-1] is None
        assert [int(one.scaleb(2, None)) if precision <= 26 else int("".join(str(one).split("."))) for one in found[1:-1]] == numbers
        assert expected is None or found[1:-1] == expected
        assert decoded(column[5:40], type) == found[5:40]


def json_texts(*values: Any) -> pa.Array:
    return in_type(pa.array([None if one is None else json.dumps(one) for one in values], pa.string()), JSON_TEXT)


def test_what_is_no_decimal_or_time_fails() -> None:
    for column, type, fine in (
        (json_texts("AQ==", "!!", "", "AQ", None), pa.decimal128(6, 2), [True, False, False, False, True]),
        (
            pa.array([unscaled(999), unscaled(1000), unscaled(-1000), bytes(17)], pa.binary()),
            pa.decimal128(3, 0),
            [True, False, False, False],
        ),
        (pa.array(["AQ==", "=", "é"]), pa.binary(), [True, False, False]),
        (pa.array([0, -1, 86_399_999, 86_400_000], pa.int32()), pa.time32("ms"), [True, False, True, False]),
    ):
        made, ((path, failed),) = retyped(column, type)
        made.validate(full=True)
        assert (path, (~failed).tolist()) == ("", fine)
        assert [one is None for one in made.to_pylist()] == [
            not good or one is None for good, one in zip(fine, column.to_pylist(), strict=True)
        ]


@pytest.mark.parametrize("turn", range(4))
def test_base64_is_what_python_reads(turn: int) -> None:
    rng = random.Random(turn)
    texts: list[str | None] = []
    for _ in range(400):
        text = base64.b64encode(rng.randbytes(rng.choice([0, 1, 2, 3, 4, 5, rng.randrange(90)]))).decode()
        if rng.random() < 0.2 * turn:
            place = rng.randrange(len(text) + 1)
            text = text[:place] + rng.choice(["", "=", "==", "-", "\n", "é", "A"]) + text[place + rng.randrange(2) :]
        texts.append(None if rng.random() < 0.1 * turn else text)
    for column in (pa.array(texts, pa.string()), pa.array(texts, pa.string())[7:300], pa.array([], pa.string())):
        made, failed = from_base64(column)
        made.validate(full=True)
        for text, found, wrong in zip(column.to_pylist(), made.to_pylist(), failed.tolist(), strict=True):
            right = text is None or re.fullmatch(f"({SIGN}{{4}})*({SIGN}{{2}}==|{SIGN}{{3}}=)?", text) is not None
            assert (found, wrong) == (None if text is None or not right else base64.b64decode(text, validate=True), not right), text


def test_numbers_become_times() -> None:
    ms = 1_700_000_000_123
    assert decoded(pa.array([0, 19_000, None], pa.int32()), pa.date32()) == [date(1970, 1, 1), date(2022, 1, 8), None]
    assert decoded(pa.array([ms]), UTC_MS) == [datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)]
    assert decoded(pa.array([ms * 1000 + 4]), pa.timestamp("us")) == [datetime(2023, 11, 14, 22, 13, 20, 123_004)]
    assert decoded(pa.array([1001]), pa.time64("us")) == [time(0, 0, 0, 1001)]
    # Integers of any width, and timestamps in another unit.
    assert decoded(pa.array([19_000], pa.int64()), pa.date32()) == [date(2022, 1, 8)]
    nested = pa.struct([("a", pa.list_(UTC_MS)), ("b", pa.map_(pa.string(), pa.timestamp("us")))])
    assert with_unit(nested, "ns") == pa.struct(
        [("a", pa.list_(pa.timestamp("ns", tz="UTC"))), ("b", pa.map_(pa.string(), pa.timestamp("ns")))]
    )


def test_decimals_with_a_scale_of_their_own_are_text() -> None:
    parts = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
    pairs = [(0, 5), (2, 5), (2, -12345), (3, -1), (-2, 7)]
    column = pa.array([None, *({"scale": scale, "value": unscaled(number)} for scale, number in pairs)], parts)
    assert decoded(column, pa.string()) == [None, "5", "0.05", "-123.45", "-0.001", "7E2"]


def test_failures_in_lists_and_maps_are_those_of_their_rows() -> None:
    read = pa.struct([("a", pa.list_(pa.struct([("d", pa.string())]))), ("m", pa.map_(pa.string(), pa.string()))])
    meant = pa.struct([("a", pa.list_(pa.struct([("d", pa.binary())]))), ("m", pa.map_(pa.string(), pa.binary()))])
    good, bad = {"d": "AQ=="}, {"d": "?"}
    rows: list[Any] = [
        {"a": [good, bad], "m": []}, None, {"a": [], "m": [("k", "AQ==")]}, {"a": None, "m": [("k", "?")]}, {"a": [good], "m": None},
    ]  # fmt: skip
    for begin in (0, 1, 3):
        made, failures = retyped(pa.array(rows, read)[begin:], meant)
        made.validate(full=True)
        found = {path: np.flatnonzero(failed).tolist() for path, failed in failures}
        assert found == {path: [row - begin] for path, row in (("a.d", 0), ("m", 3)) if row >= begin}
    assert made.to_pylist()[-1] == {"a": [{"d": b"\1"}], "m": None}


def test_types_of_avro_by_connects_names() -> None:
    def kind(type: str, name: str) -> dict[str, Any]:
        return {"type": type, "connect.version": 1, "connect.name": name}

    fields = [
        {"name": "born", "type": kind("int", "io.debezium.time.Date")},
        {"name": "at", "type": ["null", kind("long", "io.debezium.time.MicroTimestamp")]},
        {"name": "all", "type": {"type": "array", "items": kind("long", "io.debezium.time.Timestamp")}},
        {"name": "by", "type": {"type": "map", "values": kind("string", "io.debezium.data.Json")}},
        {"name": "other", "type": ["null", kind("int", "io.debezium.time.Date"), kind("string", "io.debezium.data.Json")]},
        {"name": "free", "type": {"type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data", "fields": [
            {"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"},
        ]}},
        {"name": "again", "type": "io.debezium.data.VariableScaleDecimal"},
        {"name": "year", "type": kind("int", "io.debezium.time.Year")},
    ]  # fmt: skip
    node = parse(Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields})))
    free = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
    read = pa.struct([
        ("born", pa.int32()), ("at", pa.int64()), ("all", pa.list_(pa.int64())), ("by", pa.map_(pa.string(), pa.string())),
        ("other", pa.struct([("a", pa.int32()), ("b", pa.string())])), ("free", free), ("again", free), ("year", pa.int32()),
    ])  # fmt: skip
    found = meant_type(node, read, of_avro)
    assert [field.type for field in found] == [
        pa.date32(), pa.timestamp("us"), pa.list_(pa.timestamp("ms")), pa.map_(pa.string(), JSON_TEXT),
        pa.struct([("a", pa.date32()), ("b", JSON_TEXT)]), pa.string(), pa.string(), pa.int32(),
    ]  # fmt: skip
    # Of some of the fields.
    assert meant_type(node, pa.struct([read.field("at"), read.field("free")]), of_avro) == pa.struct(
        [found.field("at"), found.field("free")]
    )


def make(reader: Any, columns: Any) -> JsonDecoder:
    assert columns is None
    return JsonDecoder(reader)


def event(op: Any, before: Any = None, after: Any = None, ts_ms: Any = 5) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": ts_ms}


def row(id: Any, name: Any, op: str, deleted: bool = False, ts_ms: Any = 5) -> dict[str, Any]:
    return {"id": id, "name": name, "__op": op, "__deleted": deleted, "__ts_ms": ts_ms}


def test_what_is_lost_of_an_event_is_that_of_its_row() -> None:
    one = {"id": 1, "name": "a"}
    sample = [event("c", None, one)]
    found = salvaged("debezium", [
        event("c", None, one), event("u", one, {"id": "x", "name": "b"}), event("u", {"id": "x", "name": "a"}, one), event("d", one),
        event("d", {"id": "x", "name": "a"}), event("t"), event("c", None, one, "late"), event(None, None, one), event(7, None, one),
        event("c", None, "row"), {"id": 1}, b"{", event("d", one, "row"),
    ], sample=sample)  # fmt: skip
    assert found == [
        (row(1, "a", "c"), ()), (row(None, "b", "u"), ("id",)), (row(1, "a", "u"), ()), (row(1, "a", "d", True), ()),
        (row(None, "a", "d", True), ("id",)), (row(None, None, "t"), ()), (row(1, "a", "c", ts_ms=None), ("__ts_ms",)),
        (None, ("$",)), (row(1, "a", "7"), ()), *[(None, ("$",))] * 3, (row(1, "a", "d", True), ()),
    ]  # fmt: skip
    some = salvaged("debezium", [event("u", one, {"id": "x", "name": "b"})], ["name", "__deleted"], sample)
    assert some == [({"name": "b", "__deleted": False}, ())]
    assert salvaged("debezium", [event("u", one, {"id": "x"})], ["__op"], sample) == [({"__op": "u"}, ())]


def test_payloads_beside_schemas() -> None:
    fields = [{"type": "int32", "field": "id"}, decimal(2, 4)]
    schema = {"type": "struct", "fields": fields}

    def beside(payload: Any, own: Any = schema) -> dict[str, Any]:
        return {"schema": own, "payload": payload}

    values = [
        beside({"id": 1, "d": "AQ=="}), beside({"id": 1, "d": "?"}), beside({"id": "x", "d": None}), beside(None, None), {"schema": schema},
        {"id": 1},
    ]  # fmt: skip
    assert salvaged("connect", values) == [
        ({"id": 1, "d": Decimal("0.01")}, ()), ({"id": 1, "d": None}, ("d",)), ({"id": None, "d": None}, ("id",)), (None, ()),
        (None, ("$",)), (None, ("$",)),
    ]  # fmt: skip
    assert salvaged("connect", values[:1], ["d"]) == [({"d": Decimal("0.01")}, ())]
    assert salvaged("connect", [beside(5, {"type": "int32"}), beside("x", {"type": "int32"})]) == [(5, ()), (None, ("$",))]
    # Without a schema the payloads say the type.
    assert salvaged("connect", [beside({"id": 1}, None), beside({"id": None}, None)]) == [({"id": 1}, ()), ({"id": None}, ())]


def test_elements_of_payloads_that_are_lists() -> None:
    schema = {"type": "array", "items": decimal(2, 5)}
    values = [{"schema": schema, "payload": payload} for payload in (["AQ=="], ["AQ==", "%"], ["AQ==", 1], {"a": 1}, None)]
    rows = salvaged("connect", values)
    assert rows == [
        ([Decimal("0.01")], ()),
        ([Decimal("0.01"), None], ("$[]",)),
        ([Decimal("0.01"), Decimal(1)], ()),
        (None, ("$",)),
        (None, ()),
    ]


def test_events_beside_schemas_and_alone() -> None:
    fields = [{"type": "int32", "field": "id"}, named("int32", "io.debezium.time.Date", "born")]
    after = {"id": 1, "born": 19_000}
    beside = {"schema": change_events.connect_schema(fields), "payload": event("c", None, after)}
    expected = {"id": 1, "born": date(2022, 1, 8), "__op": "c", "__deleted": False, "__ts_ms": 5}
    for kind in ("debezium", "auto"):
        assert salvaged(kind, [beside]) == [(expected, ())]
        assert salvaged(kind, [beside, event("c", None, after), {"schema": None, "payload": None}]) == [(expected, ())] * 2 + [(None, ())]


def test_documents_of_mongodb_are_json_text() -> None:
    text = {"type": "string", "optional": True, "name": "io.debezium.data.Json", "version": 1}
    schema = {"type": "struct", "fields": [{**text, "field": "before"}, {**text, "field": "after"}, {"type": "string", "field": "op"}]}
    values = [{"schema": schema, "payload": one} for one in (event("c", None, '{"_id": 1}'), event("d"), event("u", None, 5))]
    expected = [
        ({"document": document, "__op": op, "__deleted": op == "d", "__ts_ms": 5}, lost)
        for op, document, lost in (("c", '{"_id": 1}', ()), ("d", None, ()), ("u", "5", ()))
    ]
    assert salvaged("debezium", values) == expected
    some = salvaged("debezium", values, ["document", "__op"])
    assert some == [({"document": one["document"], "__op": one["__op"]}, lost) for one, lost in expected]


def test_nothing_is_taken_off_where_nothing_is() -> None:
    def kind_of(kind: str, *values: Any, named: pa.StructType | None = None) -> Any:
        return json_envelope(kind, named, [json.dumps(one).encode() for one in values], inference(VALUE), "value_envelope")

    assert kind_of("auto", {"payload": 1, "id": 2}) == pa.struct([("payload", pa.int64()), ("id", pa.int64())])
    assert kind_of("auto", {"op": "sum", "x": 1}) == pa.struct([("op", pa.string()), ("x", pa.int64())])
    assert kind_of("auto") is None
    own = pa.struct([("id", pa.int8())])
    assert kind_of("auto", {"id": 1}, named=own) == own
    assert kind_of("debezium", named=own).whole(own, own) == pa.struct([
        ("payload", whole := pa.struct([("before", own), ("after", own), ("op", pa.string()), ("ts_ms", pa.int64())])), *whole,
    ])  # fmt: skip
    # A caller's type may be that of the event; dates are numbers where they are in the values.
    dated = pa.struct([("at", pa.date32())])
    for given in (dated, pa.struct([("before", dated), ("after", dated), ("op", pa.string()), ("ts_ms", pa.int64())])):
        how = kind_of("debezium", event("c", None, {"at": 19_000}), named=given)
        assert (how.read, how.meant) == (pa.struct([("at", pa.int32())]), dated)
    for kind, why in (("connect", "an object with payload"), ("debezium", "a change event")):
        raises(ArgumentError, why, kind_of, kind, {"id": 1})
    twice = kind_of("debezium", event("c", None, {"id": 1, "__op": "c"}))
    raises(ArgumentError, "flattened before", opened, "debezium", twice, None, None, make, "value_envelope")
