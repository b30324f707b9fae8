"""Damaged values of all framings, and damaged JSON: a value is valid exactly if what it names and its body are, for other readers.

No other row changes. KOLUMN_FUZZ_MUTANTS is the number of all.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from kit import json_values
from kit.avro_reader import NotAvroError, as_column, of_column
from kit.avro_reader import read as read_avro
from kit.framings import Headers, Message, NoBodyError, body_of
from kit.fuzz import FIRST, MUTANTS
from kit.guarded import bodies
from kit.json_oracle import expected as expected_json
from kit.protobuf_values import expected, message_class, mutants, plain
from kolumn.core.schema import HEADERS
from kolumn.values.avro import AvroDecoder
from kolumn.values.decoder import Bodies
from kolumn.values.framing import Framer
from kolumn.values.json import JsonDecoder
from kolumn.values.json_types import nested_type
from kolumn.values.protobuf import ProtobufDecoder
from kolumn.values.protobuf_schema import _compiled
from kolumn.values.schemas.collections import AskedSchemas
from kolumn.values.schemas.schema import Kind, Schema

DATA = Path(__file__).parents[1] / "data" / "serializers"
WRITTEN: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "values.jsonl").read_text().splitlines()]
AVRO, PROTO = (DATA / "o.avsc").read_text(), (DATA / "shop.proto").read_text()
JSON = pa.struct([("id", pa.int64()), ("c", pa.string())])
KINDS: dict[str, Kind] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
ONE = PROTO[: PROTO.index("message Refund")]
PATHS = [(0,), (0, 0), (1,), (1, 0), (2,)]
"""Of Order, Order.Line, Refund, Refund.Why, Line."""
MESSAGES = {
    "Order": Message((0,), 1, "Order", "shop.Order", PATHS),
    "Order alone": Message((0,), 0, "Order", "shop.Order", PATHS[:2]),
    "Order.Line": Message((0, 0), 2, "shop.Order.Line", "shop.Order.Line", PATHS),
    "Refund": Message((1,), 3, "Refund", "shop.Refund", PATHS),
}
OLD = {"Order": [b"\0"], "Order alone": [b"\0", b""], "Order.Line": [b"\2\0\0", b""], "Refund": [b"\1\1", b""]}
"""What serializers of old wrote before messages: indexes as plain varints, or none, which names the one message of a file."""


def known() -> set[int | UUID]:
    found: set[int | UUID] = {1, 7, 9}
    for one in WRITTEN:
        for data in (bytes.fromhex(one["value"]), *(bytes.fromhex(told) for _, told in one["headers"])):
            if data[:1] == b"\1" and len(data) >= 17:
                found.add(UUID(bytes=data[1:17]))
            elif data[:1] == b"\3":
                found.add(UUID(bytes=data[2:18]))
            elif data.startswith(b"avro/binary+"):
                found.add(UUID(data[12:].decode()))
    return found


KNOWN = known()


def changed(rng: random.Random, value: bytes, headers: Headers, others: list[tuple[bytes, Headers]]) -> tuple[bytes, Headers]:
    """A value or a header is damaged, a header is missing or comes again, or both are of different values."""
    other, told = rng.choice(others)
    way = rng.randrange(8)
    if way < 4 or (not headers and way < 6):
        return rng.choice(mutants(rng, value, other, 4)), headers
    if way == 4:
        at = rng.randrange(len(headers))
        name, data = headers[at]
        damaged = rng.choice(mutants(rng, data or b"", told[0][1] or b"" if told else b"", 4))
        return value, [*headers[:at], (name, damaged), *headers[at + 1 :]]
    if way == 5:
        return value, [one for one in headers if rng.random() < 0.6] + [one for one in told if rng.random() < 0.3]
    if way == 6:
        return value, headers + told + [(name, None) for name, _ in headers if rng.random() < 0.1]
    return value[:18] + other[rng.randrange(len(other)) :], headers


def cases(rng: random.Random, format: str, is_key: bool, count: int, old: Sequence[bytes] = ()) -> list[tuple[bytes, Headers]]:
    given: list[tuple[bytes, Headers]] = [
        (bytes.fromhex(one["value"]), [(name, bytes.fromhex(data)) for name, data in one["headers"]])
        for one in WRITTEN if one["format"] == format and one["key"] == is_key
    ]  # fmt: skip
    given += [(bytes(4) + b"\1" + one, []) for one in old]
    made: list[tuple[bytes, Headers]] = []
    for _ in range(count):
        one = rng.choice(given)
        for _ in range(rng.choice((1, 1, 1, 2))):
            one = changed(rng, *one, given)
        made += [one, rng.choice(given)]
    return made


def wanted(format: str, message: str, kind: Any, made: list[tuple[bytes, Headers]], is_key: bool) -> list[Any]:
    """The rows; None for a value that is not valid."""
    found: list[bytes | None] = []
    for value, headers in made:
        try:
            found.append(body_of(value, headers, is_key, KNOWN, MESSAGES.get(message)))
        except NoBodyError as error:
            found.append(next((body for body in error.bodies if kind and expected(kind, body) is not None), None))
    if format == "json":
        return [None if lost else row for row, lost in (expected_json(body, JSON) for body in found)]
    return [None if body is None else expected(kind, body) if kind else avro_row(body) for body in found]


def written_bodies(message: str, is_key: bool) -> list[bytes]:
    """Bodies of what serializers wrote of a message."""
    found = []
    for one in WRITTEN:
        if (one["format"], one["key"]) == ("protobuf", is_key):
            headers = [(name, bytes.fromhex(data)) for name, data in one["headers"]]
            try:
                found.append(body_of(bytes.fromhex(one["value"]), headers, is_key, KNOWN, MESSAGES[message]))
            except NoBodyError:
                continue
    return found


def salvaged(decoder: ProtobufDecoder, given: Bodies, column: pa.Array, fine: Any) -> tuple[pa.Array, Any]:
    """The column with what the plain reader reads of values that the loop does not return, and which are valid now."""
    left = np.flatnonzero(~fine & (given.length >= 0))
    others, lost = decoder.salvage(given.rows(left))
    order, fine = np.arange(len(column)), fine.copy()
    for number, paths in enumerate(lost):
        assert len(set(paths)) == len(paths)
        if not paths:
            order[left[number]], fine[left[number]] = len(column) + number, True
    return pa.concat_arrays([column, others]).take(pa.array(order)), fine


def avro_row(body: bytes) -> Any:
    schema = json.loads(AVRO)
    try:
        return as_column(schema, read_avro(schema, body))
    except NotAvroError:
        return None


def compare(seed: int, count: int, format: str, message: str, is_key: bool) -> int:
    """Compare as many mutants; returns how many are valid."""
    rng = random.Random(seed)
    name, _, alone = message.partition(" ")
    text = {"avro": AVRO, "protobuf": ONE if alone else PROTO, "json": "{}"}[format]
    schema = Schema(KINDS[format], text)
    decoder: Any = AvroDecoder(schema) if format == "avro" else JsonDecoder(JSON)
    kind = None
    if format == "protobuf":
        decoder, kind = ProtobufDecoder(schema, name), message_class(_compiled(text, {}, ""), f"shop.{name}")
    old = [head + body for head in OLD[message] for body in written_bodies(message, is_key)] if kind else []
    framer = Framer("auto", AskedSchemas(lambda key: schema if key in KNOWN else None), is_key=is_key)
    valid = 0
    for _ in range(-(-count // 1000)):
        made = cases(rng, format, is_key, min(count, 1000), old)
        values = pa.array([value for value, _ in made], pa.binary())
        headers = pa.array([[{"key": name, "value": data} for name, data in told] for _, told in made], HEADERS)
        given = framer.bodies(values, headers)[0]
        column, fine = decoder.decode(given)
        if kind:
            column, fine = salvaged(decoder, given, column, fine)
        column.validate(full=True)
        found = of_column(column) if format == "avro" else [plain(one) for one in column] if kind else column.to_pylist()
        assert [one is not None for one in found] == fine.tolist()
        for (value, told), row, should in zip(made, found, wanted(format, message, kind, made, is_key), strict=True):
            assert row == should, (value.hex(), told)
        valid += int(fine.sum())
    return valid


@pytest.mark.parametrize(
    ("format", "message", "is_key"),
    [
        ("avro", "O", False), ("avro", "O", True), ("json", "O", False), ("protobuf", "Order", False), ("protobuf", "Order", True),
        ("protobuf", "Order alone", False), ("protobuf", "Refund", False), ("protobuf", "Order.Line", False),
    ],
)  # fmt: skip
def test_mutants(format: str, message: str, is_key: bool) -> None:
    assert compare(FIRST, MUTANTS // 8, format, message, is_key) > MUTANTS // 100


ROWS, MANY = 40, 150
"""Values of one type; values of one type and producer."""


def test_mutants_of_which_few_members_are_wanted() -> None:
    valid = 0
    for seed in range(FIRST, FIRST - -MUTANTS // MANY):
        rng = random.Random(seed)
        whole = json_values.flat_type(rng)
        wanted = pa.struct(rng.sample([one for one in whole if not pa.types.is_nested(one.type)], rng.choice((1, 1, 2, 3))))
        values = json_values.alike(rng, whole, MANY, rng.choice((0, 0.05, 0.3)))
        valid += json_values.compared(wanted, values, bodies(values))
    assert valid > MUTANTS // 2


OBJECT = b'{"id":10,"name":"ab","x":-0.5,"none":null,"items":[{"a":"b","n":1},{"n":20}],"no":[],"more":[true],"last":7}'
SPACED = OBJECT.replace(b":", b": ").replace(b",", b", ")
FEW = nested_type({"id": "int64", "x": "float64", "last": "int16"})


SIGNS = [b"", *(bytes([one]) for one in b'"{}[],:0.e- n\\\x7f\xc3\x00')]
QUICK = [(OBJECT, b","), (SPACED, b"")]


@pytest.mark.parametrize(
    ("written", "sign"), [pytest.param(o, s, marks=[] if (o, s) in QUICK else pytest.mark.slow) for o in (OBJECT, SPACED) for s in SIGNS]
)
def test_a_sign_at_any_position_of_an_object_of_which_few_members_are_wanted(written: bytes, sign: bytes) -> None:
    """Every byte is replaced by a sign, and a sign is inserted in front of it; without a sign, the byte is removed, and the rest."""
    values = [written]
    for i in range(len(written)):
        values += [written[:i] + sign + written[i + 1 :], written[:i] + (sign + written[i:] if sign else b"")]
    assert json_values.compared(FEW, values, bodies(values))


def test_mutants_of_json() -> None:
    valid = 0
    for seed in range(FIRST, FIRST - -MUTANTS // ROWS):
        rng = random.Random(seed)
        type = json_values.random_type(rng)
        values = json_values.values_of(rng, type, ROWS, rng.choice((0.1, 0.5, 0.9)))
        valid += json_values.compared(type, values, bodies(values))
    assert valid > MUTANTS // 5
