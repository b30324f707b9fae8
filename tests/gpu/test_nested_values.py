"""Avro values with records, lists, maps and unions in them, on the device: the columns that the CPU decodes."""

import json
import random
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import kolumn
from kit.avro_values import encoded
from kit.device_columns import compared, parsed_between
from kit.emulated import Emulated
from kit.encoder import varint
from kolumn.core.errors import ArgumentError
from kolumn.kernels.machine.device import runtime
from kolumn.kernels.values.columns import Values
from kolumn.values.schemas.schema import Schema
from kolumn.values.typed import Typed

ITEM = {"type": "record", "name": "Item", "fields": [
    {"name": "sku", "type": "string"}, {"name": "qty", "type": ["int", "null"]},
    {"name": "parts", "type": {"type": "array", "items": "bytes"}},
]}  # fmt: skip
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"}, {"name": "customer", "type": ["null", "string"]}, {"name": "paid", "type": "boolean"},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 5}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "items", "type": {"type": "array", "items": ITEM}}, {"name": "first", "type": ["null", "Item"]},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "what", "type": ["int", "string", {"type": "array", "items": "int"}]},
    ],
}  # fmt: skip
ROWS = 300


def order(rng: random.Random) -> dict[str, Any]:
    def item() -> dict[str, Any]:
        parts = [rng.randbytes(rng.randrange(4)) for _ in range(rng.randrange(3))]
        return {"sku": rng.choice(["", "s1", "naïve"]), "qty": rng.choice([None, 7, -1]), "parts": parts}

    return {
        "id": rng.choice([0, -1, 2**63 - 1, -(2**63), rng.getrandbits(40)]),
        "customer": rng.choice([None, "", "a customer with a long name"]), "paid": rng.random() < 0.5,
        "color": rng.choice(["RED", "GREEN"]), "hash": rng.randbytes(5), "day": rng.randrange(20_000), "at": rng.getrandbits(40),
        "price": Decimal(rng.randrange(-(10**9) + 1, 10**9)).scaleb(-2), "items": [item() for _ in range(rng.choice([0, 0, 1, 2, 5]))],
        "first": rng.choice([None, item()]), "tags": {f"t{k}": rng.random() for k in range(rng.randrange(3))},
        "what": rng.choice([3, "text", [1, 2, 3]]),
    }  # fmt: skip


def values(rng: random.Random, skipped: int) -> list[bytes | None]:
    parsed, made = fastavro.parse_schema(json.loads(json.dumps(SCHEMA))), []
    for row in range(ROWS):
        value: bytes | None = bytes(skipped) + encoded(parsed, order(rng))
        assert value is not None
        if not skipped:
            value = rng.choice([b"", b"\0\0\0\0\7", b"\1" + bytes(range(16)), b"\xc3\1" + bytes(8)]) + value
        if row % 5 == 1:
            at = rng.randrange(len(value))
            value = rng.choice([None, b"", value[:at], value + b"\0", value[:at] + rng.randbytes(1) + value[at + 1 :]])
        made.append(value)
    return made


FIELDS = ("tags", "items.qty", "paid", "first.parts")


@pytest.mark.parametrize(("skipped", "columns", "shape"), [(0, None, "columns"), (5, None, "struct"), (0, FIELDS, "columns")], ids=str)
def test_the_same_columns_as_on_the_cpu(emulated: Emulated, skipped: int, columns: Any, shape: str, tmp_path: Path) -> None:
    given = pa.array(values(random.Random(skipped), skipped), pa.binary())
    kolumn.write(pa.table({"key": [b"k"] * ROWS, "value": given}), tmp_path / "a.log", codec="lz4")
    how = {"value_format": "avro", "value_schema": SCHEMA, "value_skip": skipped, "value_columns": columns, "value_as": shape}
    found = compared(tmp_path / "a.log", **how)
    assert {*found["valueValid"].to_pylist()} == {True, False}
    assert "measure_values" in emulated.launched


@pytest.mark.parametrize(("wanted", "shape"), [(None, "columns"), (("b", "c"), "columns"), (None, "struct")], ids=str)
def test_flat_values_with_prefixes(emulated: Emulated, wanted: Any, shape: str, tmp_path: Path) -> None:
    types = {"a": "long", "b": ["null", "string"], "c": "boolean"}
    flat = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in types.items()]}
    rng, given = random.Random(4), [None]
    for _ in range(ROWS):
        value = encoded(flat, {"a": rng.choice([0, 0, 7]), "b": rng.choice([None, "", "text"]), "c": rng.choice([False, True])})
        given.append(rng.choice([b"", b"\0\0\0\0\7", b"\3\0" + bytes(range(16))]) + value + rng.choice([b"", b"", b"\0"]))
    kolumn.write(pa.table({"value": pa.array(given, pa.binary())}), tmp_path / "a.log")
    columns = ["valueSchemaId", "value", "offset", "valueRaw", "valueProblems", "valueValid"]
    how = {"columns": columns, "value_format": "avro", "value_schema": flat, "value_columns": wanted, "value_as": shape}
    found = compared(tmp_path / "a.log", **how)
    assert {*found["valueValid"].to_pylist()} == {True, False}
    assert {None, 7} <= {*found["valueSchemaId"].to_pylist()}


@pytest.mark.parametrize("tail", [b"", b"\0"])
def test_values_that_may_have_a_prefix(emulated: Emulated, tail: bytes, tmp_path: Path) -> None:
    """The host decides, where the id is no small one; nine bytes of each value look like Apicurio's prefix of eight."""
    inner = {"type": "record", "name": "Q", "fields": [{"name": "w", "type": "double"}, {"name": "o", "type": ["null", "int"]}]}
    types = {"v": "double", "next": ["null", inner], "l": {"type": "array", "items": "int"}}
    schema = {"type": "record", "name": "P", "fields": [{"name": name, "type": kind} for name, kind in types.items()]}
    last = encoded(schema, {"v": 1.5, "next": None, "l": []})
    both = encoded(schema, {"v": 2.0, "next": {"w": 3.0, "o": None}, "l": [0]})
    values = [both, last, b"\0\0\0\0\7" + both, bytes(8) + b"\7" + last, None, b"\1" + bytes(range(16)) + both + tail] * 5
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "a.log")
    columns = ["value", "valueValid", "valueSchemaId"]
    found = compared(tmp_path / "a.log", columns=columns, value_format="avro", value_schema=schema)
    assert found["valueValid"].to_pylist() == [True, True, True, True, False, not tail] * 5
    assert found["valueSchemaId"].to_pylist() == [None, None, 7, 7, None, None] * 5
    assert "measure_values" in emulated.launched


FLAT = {
    "null": [b""], "boolean": [b"\0", b"\1", b"\2", b"\xff"],
    "int": [varint(edge + step) for edge in (-(2**31), 0, 2**31) for step in (-1, 0, 1)],
    "long": [varint(-(2**63)), varint(2**63 - 1), b"\x80" * 10 + b"\0"], "float": [struct.pack("<f", 1.5)],
    "double": [struct.pack("<d", 1.5)], "bytes": [varint(length) + b"abc" for length in (-1, 0, 2, 3, 4, 2**40)],
    "string": [varint(length) + b"abc" for length in (-1, 0, 2, 3, 4, 2**40)],
}  # fmt: skip
"""Values of each type, and bytes that are none."""


@pytest.mark.parametrize("emulated", ["ptx"], indirect=True)
@pytest.mark.parametrize("skipped", [0, 5])
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_values_at_their_limits(emulated: Emulated, nested: bool, skipped: int) -> None:
    """Values of each type, cut anywhere, or longer; in a union behind any branch. What follows in memory would complete them."""
    for kind, datums in FLAT.items():
        for union in (None, [kind, "null"], ["null", kind])[: 1 if kind == "null" else 3]:
            # After bytes of a negative length another field could begin before them.
            fields: list[Any] = [{"name": "a", "type": union or kind}, *([{"name": "b", "type": "long"}] if kind == "bytes" else [])]
            if nested:
                fields = [{"name": "i", "type": {"type": "record", "name": "q", "fields": fields}}]
            schema = {"type": "record", "name": "r", "fields": fields}
            whole = [branch + one for one in datums for branch in (map(varint, range(-1, 3)) if union else [b""])]
            some = sorted({one[:at] for one in whole for at in range(len(one) + 1)} | {one + b"\0" for one in whole})
            given = [None, b"", *(b"\1" * skipped + one for one in some), b"\1" * (skipped - 1)]
            typed = Typed("value", "avro", flat=True, skip=skipped, reader=Schema("AVRO", json.dumps(schema)))
            parsed_between(runtime(), typed, given, bytes(16))


@pytest.mark.parametrize("emulated", ["ptx"], indirect=True)
def test_one_value(emulated: Emulated, tmp_path: Path) -> None:
    """Its thread is the last one, and the only one that can write where the first value begins."""
    parsed, one = fastavro.parse_schema(json.loads(json.dumps(SCHEMA))), order(random.Random(6))
    kolumn.write(pa.table({"value": pa.array([encoded(parsed, one)], pa.binary())}), tmp_path / "a.log")
    assert compared(tmp_path / "a.log", value_format="avro", value_schema=SCHEMA)["valueValid"].to_pylist() == [True]


@pytest.mark.parametrize("emulated", ["ptx"], indirect=True)
@pytest.mark.parametrize("errors", ["null-field", "keep"])
def test_what_is_lost_is_said(emulated: Emulated, errors: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The host decodes a chunk in which a body is not valid; where no schema is known for one, nothing is left to look for."""
    fields: list[Any] = [{"name": "a", "type": "string"}, {"name": "b", "type": "null"}, {"name": "c", "type": ["null", "long"]}]
    schema = {"type": "record", "name": "r", "fields": fields}
    good, unknown, bad = b"\0\0\0\0\1\2x\0", b"\0\0\0\0\x09\2x\0", b"\0\0\0\0\1\2\xff\2\x08"
    columns = ["value", "valueValid", "valueProblems"]
    how = {"value_format": "avro", "value_schema": schema, "value_schemas": {1: schema}, "value_errors": errors, "columns": columns}
    for number, (one, problems) in enumerate([(good, None), (unknown, ["$"]), (bad, ["a"])]):
        path = tmp_path / f"{number}.log"
        kolumn.write(pa.table({"value": pa.array([good, one, None], pa.binary())}), path)
        assert compared(path, **how)["valueProblems"].to_pylist() == [None, problems, None]
        compared(path, **how | {"columns": ["value"]})
        # The read by the CPU and the one by the device, twice.
        assert (len(caplog.messages), len({*caplog.messages})) == ((4, 1) if problems else (0, 0))
        caplog.clear()
    assert emulated.launched["measure_values"] == 6


@pytest.mark.parametrize("emulated", ["ptx"], indirect=True)
@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_units_of_time(emulated: Emulated, unit: str, tmp_path: Path) -> None:
    """Times before 1970 are cut off downwards, as later ones are."""
    fields = [{"name": name, "type": {"type": "long", "logicalType": f"timestamp-{name}"}} for name in ("millis", "micros", "nanos")]
    numbers = [0, 1, -1, 999, 1000, 1001, -999, -1000, -1001, 10**9, -(10**9) - 1, 2**40, -(2**40)]
    given = [varint(one) * 3 for one in numbers]
    kolumn.write(pa.table({"value": pa.array(given, pa.binary())}), tmp_path / "a.log")
    how = {"value_format": "avro", "value_schema": {"type": "record", "name": "r", "fields": fields}, "value_time_unit": unit}
    found = compared(tmp_path / "a.log", **how, columns=["value", "valueValid"])
    assert all(found["valueValid"].to_pylist())
    assert found["micros"].cast(pa.int64()).to_pylist() == [
        one * 1000 if unit == "ns" else one // {"s": 10**6, "ms": 1000}[unit] for one in numbers
    ]
    assert emulated.launched["measure_values"] == 1


def test_types_that_cudf_has_not() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2}
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "d", "type": decimal}]})
    with pytest.raises(ArgumentError, match="cuDF has no such type"):
        Values.of(Typed("value", "avro", reader=Schema("AVRO", schema)))
