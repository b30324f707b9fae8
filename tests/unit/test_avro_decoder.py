"""The Avro decoder: row by row and block by block, plain Python and machine code, memory that grows, prefixes, columns, several schemas."""

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
from kolumn.core.errors import ArgumentError
from kolumn.cpu_fallback.values.avro import decode_rows
from kolumn.values.avro import decoder as module
from kolumn.values.avro.decoder import AvroDecoder
from kolumn.values.decoder import Bodies
from kolumn.values.memory import ColumnMemory
from kolumn.values.schemas.schema import Schema
from kolumn.values.wire import json_numbers
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
    with pytest.raises(ArgumentError, match=message.replace("?", r"\?")):
        AvroDecoder(registered(ORDER, 7), (column,))


def test_rows_are_valid_or_not_whatever_columns_are_wanted() -> None:
    """But for text, decimals and times that no column gets, and blocks that are skipped by their size."""
    given = [line for line in lines(3, 400) if b"\xc3" not in line]
    everything = AvroDecoder(registered(EVERYTHING)).decode(bodies(given))[1]
    some = AvroDecoder(registered(EVERYTHING), ("id",)).decode(bodies(given))[1]
    assert (some >= everything).all()
    assert (some != everything).sum() < 25


def test_rows_without_a_value_and_with_unknown_schemas() -> None:
    line = written(ORDER, ROWS[0])
    broken = Schema("AVRO", '{"type": "nothing"}', id=9)
    found = rows_of(AvroDecoder(registered(ORDER)), bodies([line, None, line, b"", line], [0, 0, 1, 0, -1], (registered(ORDER), broken)))
    assert [valid for _, valid in found] == [True, False, False, False, True]
    assert found[0] == found[4] == (as_column(ORDER, read(ORDER, line)), True)
    assert ([row for row, valid in found if not valid], rows_of(AvroDecoder(registered(ORDER)), bodies([]))) == ([None, None, None], [])


def test_values_that_only_look_as_if_they_had_a_prefix() -> None:
    """The first is one with a prefix, the second begins with the bytes of a prefix, the third is neither."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
    framed = b"\0\0\0\0\1" + written(schema, {"a": 3, "b": "x"})
    bare = written(schema, {"a": 0, "b": ""}) + b""
    assert bare == b"\0\0"
    long_bare = written(schema, {"a": -1, "b": "prefixed"})
    given = bodies([framed, long_bare, b"\0\0\0\0\1\7"], [0, 0, 0], (registered(schema),), prefix=5, bare=True)
    found = rows_of(AvroDecoder(registered(schema)), given)
    assert found == [({"a": 3, "b": "x"}, True), ({"a": -1, "b": "prefixed"}, True), (None, False)]
    strict = bodies([framed, long_bare], [0, 0], (registered(schema),), prefix=5)
    assert [valid for _, valid in rows_of(AvroDecoder(registered(schema)), strict)] == [True, False]


def test_a_writers_schema_that_does_not_fit_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    other = registered({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}, 12)
    line = written(ORDER, ROWS[0])
    decoder = AvroDecoder(registered(ORDER, 3))
    with caplog.at_level(logging.WARNING, "kolumn"):
        for _ in range(2):
            found = rows_of(decoder, bodies([b"\2a", line], [1, 0], (registered(ORDER, 3), other)))
            assert [valid for _, valid in found] == [False, True]
    text = "values are null, because Avro schema 12: field id: string is not read as long (read as Avro schema 3)"
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


def test_integers_and_floats_become_the_nearest_floats() -> None:
    for number in numbers():
        assert json_numbers.double_of(number) == struct.unpack("<q", struct.pack("<d", float(number)))[0], number
        assert json_numbers.float_of(number) == int(np.int64(number).astype(np.float32).view(np.uint32)), number
    rng = random.Random(5)
    given = [0, 1 << 31, 1, 0x7FFFFF, 0x800000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, *(rng.getrandbits(32) for _ in range(2000))]
    for bits in (one for one in given if one & 0x7F800000 != 0x7F800000 or not one & 0x7FFFFF):
        value = struct.unpack("<f", struct.pack("<I", bits))[0]
        assert json_numbers.double_of_float(bits) == struct.unpack("<q", struct.pack("<d", value))[0], bits


@pytest.mark.parametrize("loop", [decode_rows, plain_rows], ids=["compiled", "plain"])
def test_promotions(loop: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "decode_rows", loop)
    for number in list(numbers())[:200]:
        for kind, own in (("float", np.float32), ("double", np.float64)):
            decoder = AvroDecoder(Schema("AVRO", json.dumps(kind)))
            column, valid = decoder.decode(bodies([varint(number)] * 2, [0, 1], (Schema("AVRO", '"long"'), Schema("AVRO", '"int"'))))
            assert (column[0].as_py(), valid.tolist()) == (float(np.int64(number).astype(own)), [True, -(2**31) <= number < 2**31])
        column, valid = AvroDecoder(Schema("AVRO", '"long"')).decode(bodies([varint(number)], [0], (Schema("AVRO", '"int"'),)))
        assert column.to_pylist() == [number if valid[0] else None]


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


@pytest.mark.parametrize("wanted", [(), *((name,) for name in FIELDS), ("a", "h"), ("i", "j", "k"), ("b.c", "b.e"), ("a", "b.e", "i")])
def test_some_fields_are_those_of_the_whole(wanted: tuple[str, ...]) -> None:
    rng = random.Random(7)
    given = side_by_side([value(rng, 20_000) for _ in range(300)])
    found, valid = AvroDecoder(registered(NESTED), wanted).decode(given)
    whole, _ = AvroDecoder(registered(NESTED)).decode(given)
    found.validate(full=True)
    assert valid.all()
    for name in wanted:
        for part in name.split("."):
            found, whole = found.field(part), whole.field(part)
        assert found.equals(whole)
        found, whole = (AvroDecoder(registered(NESTED), *asked).decode(given)[0] for asked in ((wanted,), ()))


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


def test_a_long_list_in_few_rows_and_more_items_than_bytes() -> None:
    """The bytes after a count of 63 items, of which there is none, are those of a row whose list ends there."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}, {"name": "b", "type": "int"}],
    }
    values = [written(schema, {"a": ["x"] * (5000 if k % 100 == 0 else 0), "b": k}) for k in range(600)]
    found, valid = AvroDecoder(registered(schema), ("b",)).decode(side_by_side(values))
    assert valid.all()
    assert pa.compute.struct_field(found, "b").to_pylist() == list(range(600))
    fixed = {"type": "fixed", "name": "F", "size": 16}
    fields = [{"name": "a", "type": {"type": "array", "items": "long"}}, {"name": "b", "type": "int"}, {"name": "c", "type": fixed}]
    rest = b"\x06" + bytes(16)
    rows = [b"\x00" + rest, b"\x7e" + rest, b"\x02\x02\x00" + rest, b"\x02\x02\x7e" + rest] * 100
    decoder = AvroDecoder(registered({"type": "record", "name": "R", "fields": fields}), ("b",))
    assert decoder.decode(side_by_side(rows))[1].tolist() == [True, False, True, False] * 100
