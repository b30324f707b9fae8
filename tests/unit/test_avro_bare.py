"""Avro values without a prefix whose first bytes look like one, and values with one, where no schemas say whether its id is one."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.avro_values import encoded
from kit.outcome import raises

LINKED: Any = {"type": "record", "name": "L", "fields": [{"name": "v", "type": "double"}, {"name": "next", "type": ["null", "L"]}]}
COLUMNS = ["value", "valueValid", "valueSchemaId"]
GUID = bytes(range(1, 17))


def double(number: float) -> bytes:
    return struct.pack("<d", number)


def read(tmp_path: Path, schema: Any, values: list[bytes | None], **how: Any) -> list[tuple[Any, bool, int | None]]:
    path = tmp_path / f"t-{len(list(tmp_path.iterdir()))}"
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), path)
    found = kolumn.read(path, value_format="avro", value_schema=json.dumps(schema), columns=COLUMNS, **how)
    return list(zip(*(found[name].to_pylist() for name in COLUMNS), strict=True))


# Nine bytes of a value are a double and a branch, as long as Apicurio's prefix of eight bytes: the rest is a value, too.
@pytest.mark.parametrize("number", [1.5, 2.0])
@pytest.mark.parametrize("wanted", [None, "v"])
def test_values_that_are_whole_with_and_without_a_prefix(
    number: float, wanted: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bare, last = double(number) + b"\2" + double(3) + b"\0", double(number) + b"\0"
    values = [bare, b"\0\0\0\0\7" + last, None, bytes(8) + b"\7" + last, last, b"\0\0\0\0\7" + bare]
    rest = {} if wanted else {"next": None}
    whole = {"v": number} if wanted else {"v": number, "next": '{"v":3.0,"next":null}'}
    one = {"v": number, **rest}
    expected = [(whole, True, None), (one, True, 7), (None, False, None), (one, True, 7), (one, True, None), (whole, True, 7)]
    assert read(tmp_path, LINKED, values, value_columns=wanted) == expected
    said = [text for one in caplog.records if "prefix" in (text := one.getMessage())]
    assert said == [
        "value_framing='auto': some values fit the schema with a prefix and without, and are read without one: "
        "name the framing that they have, 'none' for none"
    ]
    named = read(tmp_path, LINKED, values[:1], value_columns=wanted, value_framing="none")
    assert named == expected[:1]


FRONTS = {b"\1" + GUID: None, b"\3\0" + GUID: None, b"\3\5" + GUID: None, b"\xc3\1" + bytes(8): None, b"\0\x10\0\0\7": 0x10000007,
          b"\0" + bytes(7) + b"\7": 7, b"\0\0\0\0\7": 7}  # fmt: skip


@pytest.mark.parametrize("front", FRONTS, ids=repr)
def test_prefixes_are_believed_where_all_bytes_are_no_value(front: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
    value = encoded(schema, {"a": 3, "b": "some text"})
    body = zlib.compress(value) if front[:2] == b"\3\5" else value
    found = read(tmp_path, schema, [front + body, value, None, front + b"\7"])
    row = {"a": 3, "b": "some text"}
    assert found[:3] == [(row, True, FRONTS[front]), (row, True, None), (None, False, None)]
    assert not found[3][1]
    assert not any("prefix" in one.getMessage() for one in caplog.records)


PAIR = {"type": "record", "name": "P", "fields": [{"name": "a", "type": "bytes"}, {"name": "b", "type": "bytes"}]}


def test_an_id_that_no_registry_has_is_a_part_of_the_value(tmp_path: Path) -> None:
    """The bytes of the second field are a value themselves."""
    values = [b"\0\x10" + b"\1\2\3" + b"\2x\4yz", b"\0\x80" + b"\2\2\3" + b"\2x\4yz"]
    assert read(tmp_path, PAIR, values) == [({"a": b"", "b": values[0][2:]}, True, None), ({"a": b"x", "b": b"yz"}, True, None)]


def test_a_value_that_was_compressed_has_a_prefix(tmp_path: Path) -> None:
    """Its prefix and what is decompressed would be one value, too."""
    types = {"n": "long", "m": "long", "r": "bytes"}
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in types.items()]}
    value = b"\3\5" + bytes([36, *bytes(15)]) + zlib.compress(bytes(3))
    assert read(tmp_path, schema, [value]) == [({"n": 0, "m": 0, "r": b""}, True, None)]


@pytest.mark.parametrize("number", [0, 300])
def test_the_log_tells_that_a_value_with_a_small_id_fits_without_it(number: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If it is among the first values of a read."""
    texts = {"type": "record", "name": "S", "fields": [{"name": name, "type": "string"} for name in "abcde"]}
    values: list[bytes | None] = [b"\0\0\0\0\x10" + encoded(texts, dict.fromkeys("abcde", "text"))] * 300
    values.insert(number, b"\0\0\0\0\x10\0\0\0\0\6abc")
    found = read(tmp_path, texts, values)
    assert found[number] == ({"a": "", "b": "", "c": "", "d": "", "e": "abc"}, True, 16)
    said = [text for one in caplog.records if "prefix" in (text := one.getMessage())]
    assert ["and are read after it" in one for one in said] == ([] if number else [True])


def test_schemas_of_which_only_some_fields_can_be_read(tmp_path: Path) -> None:
    nested: Any = "int"
    for number in range(13):
        fields = [{"name": "a", "type": nested}, {"name": "b", "type": f"R{number - 1}" if number else "int"}]
        nested = {"type": "record", "name": f"R{number}", "fields": fields}
    fields = [{"name": name, "type": ["null", "R12"]} for name in "xy"]
    fields = [{"name": "v", "type": "double"}, {"name": "w", "type": ["null", nested]}, *fields]
    large = {"type": "record", "name": "L", "fields": fields}
    raises(kolumn.ArgumentError, "more than 20000 types", read, tmp_path, large, [None])
    values = [double(1.5) + bytes(3), b"\0\0\0\0\7" + double(1.5) + bytes(3), b"\1" + GUID + double(2) + bytes(3)]
    assert read(tmp_path, large, values, value_columns="v") == [({"v": 1.5}, True, None), ({"v": 1.5}, True, 7), ({"v": 2.0}, True, None)]


OTHERS: list[tuple[Any, Any]] = [
    ("double", 2.0), (["null", "string"], "text"), ({"type": "enum", "name": "E", "symbols": ["A"]}, "A"),
    ({"type": "array", "items": LINKED}, [{"v": 2.0, "next": None}]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "given"), OTHERS)
def test_values_that_are_no_records(schema: Any, given: Any, tmp_path: Path) -> None:
    value = encoded(schema, given)
    values = [value, b"\0\0\0\0\7" + value, b"\1" + GUID + value]
    assert read(tmp_path, schema, values) == [(given, True, None), (given, True, 7), (given, True, None)]


def test_keys_and_envelopes(tmp_path: Path) -> None:
    row = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "double"}]}
    fields = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]}, {"name": "op", "type": "string"}]
    event = {"type": "record", "name": "Event", "fields": fields}
    value = encoded(event, {"before": None, "after": {"id": 2.0}, "op": "c"})
    key = double(2.0) + b"\2" + double(3.0) + b"\0"
    kolumn.write(pa.table({"key": [key], "value": [value]}), tmp_path / "t-0")
    how: dict[str, Any] = {"value_format": "avro", "value_schema": event, "value_envelope": "debezium", "value_columns": "id"}
    columns = ["key", "keySchemaId", "value", "valueSchemaId"]
    found = kolumn.read(tmp_path / "t-0", **how, key_format="avro", key_schema=LINKED, columns=columns)
    linked = {"v": 2.0, "next": '{"v":3.0,"next":null}'}
    assert found.to_pylist() == [{"key": linked, "keySchemaId": None, "value": {"id": 2.0}, "valueSchemaId": None}]
