"""Avro values of which few fields are wanted are read block by block: the same columns and the same rows as one by one."""

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kit.avro_values import registered, side_by_side, written
from kit.avro_writer import EVERYTHING, Writer, damaged, random_value
from kolumn.values.avro.decoder import AvroDecoder

NESTED: Any = {
    "type": "record", "name": "R", "fields": [
        {"name": "a", "type": "string"},
        {"name": "b", "type": {"type": "record", "name": "B", "fields": [
            {"name": "c", "type": ["int", "null"]},
            {"name": "d", "type": {"type": "map", "values": "boolean"}},
            {"name": "e", "type": ["null", "double"]},
        ]}},
        {"name": "f", "type": {"type": "array", "items": {"type": "array", "items": ["null", "string"]}}},
        {"name": "g", "type": ["null", {"type": "array", "items": "long"}]},
        {"name": "h", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y", "Z"]}},
        {"name": "i", "type": "float"},
        {"name": "j", "type": "boolean"},
        {"name": "k", "type": {"type": "int", "logicalType": "date"}},
        {"name": "l", "type": {"type": "array", "items": {"type": "fixed", "name": "F", "size": 3}}},
    ],
}  # fmt: skip
FIELDS = [*(one["name"] for one in NESTED["fields"] if one["name"] != "b"), "b.c", "b.d", "b.e"]


def one_by_one(decoder: AvroDecoder) -> AvroDecoder:
    """The same decoder without plans."""
    decoder._own = replace(decoder._own, walk=None)
    return decoder


def value(rng: random.Random, size: int) -> bytes:
    text = "".join(rng.choice("ab\u00e9") for _ in range(rng.choice((0, 5, 63, 64, size))))
    row = {
        "a": text,
        "b": {"c": rng.choice((None, 0, -1, 2**31 - 1, -(2**31))), "d": {"x" * k: k % 2 == 0 for k in range(rng.randrange(3))},
              "e": rng.choice((None, 0.5))},
        "f": [[rng.choice((None, "s")) for _ in range(rng.randrange(3))] for _ in range(rng.randrange(3))],
        "g": rng.choice((None, [], [1, 2**62, -(2**63)], list(range(rng.randrange(200))))),
        "h": rng.choice("XYZ"), "i": 1.5, "j": rng.random() < 0.5, "k": rng.randrange(-(2**28), 2**28),
        "l": [b"abc"] * rng.randrange(4),
    }  # fmt: skip
    return written(NESTED, row)


@pytest.mark.parametrize("damage", [False, True], ids=["sound", "damaged"])
def test_blocks_and_rows_agree(damage: bool) -> None:
    rng = random.Random(7)
    values = [value(rng, 20_000) for _ in range(700)]
    if damage:
        values = [damaged(rng, one, rng.choice(values)) if rng.random() < 0.7 else one for one in values]
    given, walked = side_by_side(values), 0
    for wanted in [(), *((one,) for one in FIELDS), ("a", "h"), ("i", "j", "k"), ("b.c", "b.e"), ("a", "b.e", "i")]:
        decoder = AvroDecoder(registered(NESTED), wanted)
        walked += decoder._own.walk is not None
        found, valid = decoder.decode(given)
        expected, fine = one_by_one(AvroDecoder(registered(NESTED), wanted)).decode(given)
        found.validate(full=True)
        assert found.equals(expected), wanted
        assert valid.tolist() == fine.tolist()
        assert valid.any()
        assert valid.all() != damage
    assert walked >= len(FIELDS) - 3


def test_every_kind_of_field_is_passed_over() -> None:
    rng = random.Random(8)
    values = [Writer(rng).write(EVERYTHING, random_value(rng, EVERYTHING)) for _ in range(300)]
    values += [damaged(rng, rng.choice(values), rng.choice(values)) for _ in range(600)]
    rng.shuffle(values)
    given = side_by_side(values)
    for wanted in ("id", "note", "span", "empty"):
        found, valid = AvroDecoder(registered(EVERYTHING), (wanted,)).decode(given)
        expected, fine = one_by_one(AvroDecoder(registered(EVERYTHING), (wanted,))).decode(given)
        assert found.equals(expected), wanted
        assert valid.tolist() == fine.tolist(), wanted


def test_schemas_take_turns() -> None:
    """Runs of rows of one schema, long and short, and defaults for a field that a writer does not have."""
    rng = random.Random(9)
    newer = {**NESTED, "fields": [{"name": "z", "type": "long", "default": 9}, *NESTED["fields"]]}
    old, values, schema = registered(NESTED, 1), [], []
    for run in (1, 300, 2, 20, 1, 257, 3):
        number = len(schema) % 2
        for _ in range(run):
            line = value(rng, 100)
            values.append(b"\x04" + line if number else line)
            schema.append(number)
    decoder = AvroDecoder(registered(newer, 2), ("z", "i"))
    found, valid = decoder.decode(side_by_side(values, schema, (old, registered(newer, 2))))
    assert valid.all()
    assert found.to_pylist() == [{"z": 2 if number else 9, "i": 1.5} for number in schema]


def test_a_long_list_in_few_rows() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}, {"name": "b", "type": "int"}],
    }
    values = [written(schema, {"a": ["x"] * (5000 if k % 100 == 0 else 0), "b": k}) for k in range(600)]
    found, valid = AvroDecoder(registered(schema), ("b",)).decode(side_by_side(values))
    assert valid.all()
    assert pa.compute.struct_field(found, "b").to_pylist() == list(range(600))


def test_more_items_than_bytes() -> None:
    """The bytes after a count of 63 items, of which there is none, are those of a row whose list ends there."""
    fixed = {"type": "fixed", "name": "F", "size": 16}
    fields = [{"name": "a", "type": {"type": "array", "items": "long"}}, {"name": "b", "type": "int"}, {"name": "c", "type": fixed}]
    rest = b"\x06" + bytes(16)
    rows = [b"\x00" + rest, b"\x7e" + rest, b"\x02\x02\x00" + rest, b"\x02\x02\x7e" + rest] * 100
    decoder = AvroDecoder(registered({"type": "record", "name": "R", "fields": fields}), ("b",))
    assert decoder.decode(side_by_side(rows))[1].tolist() == [True, False, True, False] * 100
