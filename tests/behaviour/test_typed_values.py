"""What do `read` and `scan` return for values and keys with a format?"""

import json
import logging
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2

import kolumn
from kit.asked import skipping
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kit.outcome import raises
from kit.protobuf_values import message_class
from kit.replicas import copy, flip, write_log
from kolumn.formats.v2 import ABORT
from kolumn.values.decoder import Bodies
from kolumn.values.framing import BareFramer
from kolumn.values.schemas.schema import Schema
from kolumn.values.typed import Typed

SCHEMA = {"id": "int64", "customer": "string", "items": [{"sku": "string", "price": "float64"}], "at": "timestamp"}
JSON: dict[str, Any] = {"value_format": "json", "value_schema": SCHEMA}
ITEMS = pa.list_(pa.struct([("sku", pa.string()), ("price", pa.float64())]))
TYPE = pa.struct([("id", pa.int64()), ("customer", pa.string()), ("items", ITEMS), ("at", pa.timestamp("us", tz="UTC"))])
ROWS = 600


def row(i: int) -> dict[str, Any]:
    items = [{"sku": f"s{i}", "price": i / 4}] * (i % 3)
    return {"id": i, "customer": None if i % 7 == 0 else f"çustomer {i}", "items": items, "other": [i, {}]}


def payloads() -> list[bytes | None]:
    rng = random.Random(5)
    values = [json.dumps(row(i), indent=rng.choice([None, 1])).encode() for i in range(ROWS)]
    return [None if i in ABSENT else BROKEN.get(i, value) for i, value in enumerate(values)]


UNFIT = 40
BROKEN = {5: b"", UNFIT: b'{"id": 1.5}', 41: b"{", 300: b'{"id": 1}{"id": 2}', 301: b"[1]", 599: b'{"customer": "\xff"}'}
ABSENT = {3, 302}
INVALID = {*BROKEN, *ABSENT}


def write(path: Path, values: list[bytes | None], keys: list[bytes | None] | None = None, **how: Any) -> Path:
    table = pa.table({"key": pa.array(keys or [b"k"] * len(values), pa.binary()), "value": pa.array(values, pa.binary())})
    kolumn.write(table, path, batch_bytes=2000, **how)
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keys: list[bytes | None] = [json.dumps({"k": i}).encode() for i in range(ROWS)]
    return write(tmp_path_factory.mktemp("log") / "orders-3", payloads(), keys, codec="lz4")


def expected(i: int) -> dict[str, Any] | None:
    if i == UNFIT:
        return {"id": None, "customer": None, "items": None, "at": None}
    if i in INVALID:
        return None
    return {name: value for name, value in row(i).items() if name != "other"} | {"at": None}


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("chunk_bytes", [3000, 1 << 20])
def test_values_are_a_struct_in_place_of_the_payloads(log: Path, threads: int, chunk_bytes: int) -> None:
    found = kolumn.read(log, **JSON, threads=threads, chunk_bytes=chunk_bytes)
    plain = kolumn.read(log)
    assert found.schema.names == [*plain.schema.names, "valueValid", "valueSchemaId", "valueProblems"]
    assert [found.schema.field(name).type for name in ("value", "valueValid", "valueSchemaId")] == [TYPE, pa.bool_(), pa.int64()]
    assert found["value"].to_pylist() == [expected(i) for i in range(ROWS)]
    assert [i for i, valid in enumerate(found["valueValid"].to_pylist()) if not valid] == sorted(INVALID)
    assert found["valueSchemaId"].null_count == ROWS
    assert found.drop_columns(["value", "valueValid", "valueSchemaId", "valueProblems"]).equals(plain.drop_columns(["value"]))
    found.validate(full=True)
    some = kolumn.read(log, **JSON, start_offset=299, end_offset=304, columns=["offset", "value"], threads=threads, chunk_bytes=chunk_bytes)
    assert some.to_pylist() == [{"offset": i, "value": expected(i)} for i in range(299, 304)]


def test_a_stream_has_its_schema_before_anything_is_read(log: Path) -> None:
    reader = kolumn.scan(log, **JSON, chunk_bytes=3000)
    assert reader.schema.field("value").type == TYPE
    assert reader.read_all().equals(kolumn.read(log, **JSON, threads=1))
    # So has a range without records.
    assert kolumn.read(log, **JSON, start_offset=ROWS).schema.field("value").type == TYPE


def test_keys(log: Path) -> None:
    how: dict[str, Any] = {"key_format": "json", "key_schema": {"k": "int32"}}
    found = kolumn.read(log, **how)
    assert found.schema.names[-3:] == ["keyValid", "keySchemaId", "keyProblems"]
    assert found["key"].to_pylist() == [{"k": i} for i in range(ROWS)]
    assert found["value"].to_pylist() == payloads()
    both = kolumn.read(log, **how, **JSON)
    assert both.schema.names[-6:] == [*("keyValid", "keySchemaId", "keyProblems"), *("valueValid", "valueSchemaId", "valueProblems")]
    assert both["key"].equals(found["key"])
    with pytest.raises(kolumn.PayloadError, match=r"offset 0: key: .*Read with key_errors='null-field'"):
        kolumn.read(log, key_format="json", key_schema={"k": "bool"}, key_errors="raise")


def test_columns_and_fields_that_are_named(log: Path) -> None:
    assert kolumn.read(log, columns=["offset", "value"], **JSON).schema.names == ["offset", "value"]
    found = kolumn.read(log, columns=["valueRaw", "valueValid", "offset"], **JSON)
    assert found.schema.names == ["valueRaw", "valueValid", "offset"]
    assert found["valueRaw"].to_pylist() == payloads()
    assert kolumn.read(log, columns=["offset"], **JSON).equals(kolumn.read(log, columns=["offset"]))
    assert kolumn.read(log, include_headers=True, **JSON).schema.names[-4:] == ["headers", "valueValid", "valueSchemaId", "valueProblems"]
    found = kolumn.read(log, value_columns=["items.price", "id"], columns=["value"], **JSON)["value"]
    assert found.type == pa.struct([("id", pa.int64()), ("items", pa.list_(pa.struct([("price", pa.float64())])))])
    assert found[1].as_py() == {"id": 1, "items": [{"price": 0.25}]}
    how: dict[str, Any] = {"value_format": "json", "value_schema": {"offset": "int64"}, "value_as": "columns"}
    raises(kolumn.ArgumentError, "two columns would be called offset", kolumn.read, log, **how)
    assert kolumn.read(log, columns=["value", "key"], **how).schema.names == ["offset", "key"]


@pytest.mark.parametrize("binary", ["contiguous", "view"])
def test_fields_as_columns(log: Path, binary: Any) -> None:
    found = kolumn.read(log, columns=["offset", "value", "valueRaw"], value_as="columns", binary=binary, **JSON)
    assert found.schema.names == ["offset", "id", "customer", "items", "at", "valueRaw"]
    whole = kolumn.read(log, columns=["value"], binary=binary, **JSON)["value"].to_pylist()
    for name in ("id", "customer", "items", "at"):
        assert found[name].to_pylist() == [None if value is None else value[name] for value in whole]
    assert found.schema.field("valueRaw").type == (pa.binary() if binary == "contiguous" else pa.binary_view())
    assert found["valueRaw"].to_pylist() == payloads()


def test_fields_as_columns_are_null_where_the_value_is_invalid(tmp_path: Path) -> None:
    """Fields that the schema never makes null too: Parquet refuses nulls in a column that is declared to have none."""
    schema = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}'
    write(tmp_path / "a-0", [b"\2", b"\2\2", None])
    found = kolumn.read(tmp_path / "a-0", columns=["value"], value_format="avro", value_schema=schema, value_as="columns")
    found.validate(full=True)
    assert found.schema.field("a").nullable
    pq.write_table(found, tmp_path / "a.parquet")
    assert found["a"].to_pylist() == pq.read_table(tmp_path / "a.parquet")["a"].to_pylist() == [1, None, None]


def test_payloads_as_strings(log: Path) -> None:
    how: dict[str, Any] = {**JSON, "payload": "string", "columns": ["key", "value", "valueRaw"]}
    found = kolumn.read(log, end_offset=ROWS - 1, **how)
    assert found.schema.types == [pa.string(), TYPE, pa.string()]
    assert found["value"].to_pylist() == [expected(i) for i in range(ROWS - 1)]
    raises(kolumn.PayloadError, "offset 599: valueRaw: not UTF-8", kolumn.read, log, **how)


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_names_the_record(log: Path, threads: int) -> None:
    seen = []
    reader = kolumn.scan(log, value_errors="raise", threads=threads, chunk_bytes=3000, **JSON)
    with pytest.raises(kolumn.PayloadError, match=r"orders-3/0+\.log: offset 5: value: 0 bytes.*not json of the type struct") as caught:
        seen.extend(offset for some in reader for offset in some["offset"].to_pylist())
    assert seen == [0, 1, 2, 3, 4]
    error = caught.value
    assert (error.offset, error.column, Path(error.segment).parent.name) == (5, "value", "orders-3")
    # Records outside of the range are not looked at, and a value that is absent is no error.
    kolumn.read(log, value_errors="raise", start_offset=6, end_offset=40, **JSON)
    with pytest.raises(kolumn.PayloadError, match=r"offset 40: value: 11 bytes, b'\{\"id\": 1\.5\}'"):
        kolumn.read(log, value_errors="raise", start_offset=6, columns=["value"], **JSON)


def test_aborted_records_are_no_errors(tmp_path: Path) -> None:
    """A record that a committed reader does not get may have any value."""
    aborted = batch([Record(0, value=b"{")], producer_id=7, producer_epoch=3, base_sequence=0, flags=TRANSACTIONAL)
    folder = write_log(tmp_path, (0, [aborted, control_batch(1, ABORT), batch([Record(2, value=b'{"id": 4}')])]))
    how: dict[str, Any] = {"value_format": "json", "value_schema": {"id": "int8"}, "value_errors": "raise"}
    found = kolumn.read(folder, isolation_level="read_committed", columns=["value", "transaction"], **how)
    assert found.to_pylist() == [{"value": {"id": 4}, "transaction": "none"}]
    raises(kolumn.PayloadError, "offset 0", kolumn.read, folder, columns=["value", "transaction"], **how)


def test_damage_is_left_out_as_without_types(log: Path, tmp_path: Path) -> None:
    folder = copy(log, tmp_path)
    (segment,) = folder.glob("*.log")
    flip(segment, segment.stat().st_size // 2)
    plain = kolumn.read(folder, errors="skip")
    assert 0 < plain.num_rows < ROWS
    found, skipped = skipping(folder, **JSON)
    assert found["offset"].equals(plain["offset"])
    assert found["value"].to_pylist() == [expected(i) for i in plain["offset"].to_pylist()]
    assert len(skipped.damage) == 1


def test_an_inferred_type(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = [b'{"a": 1, "b": [{"c": null}]}', None, b"broken", b'{"a": 2.5, "b": [{"c": true}], "d": null}', b'{"e": 1}']
    path = write(tmp_path / "t-0", values)
    with caplog.at_level(logging.INFO, "kolumn.values"):
        found = kolumn.read(path, value_format="json")
    type = pa.struct([("a", pa.float64()), ("b", pa.list_(pa.struct([("c", pa.bool_())]))), ("d", pa.string()), ("e", pa.int64())])
    assert found.schema.field("value").type == type
    assert f"inferred from the first 4 values is {type}" in caplog.text
    assert found["value"][0].as_py() == {"a": 1.0, "b": [{"c": None}], "d": None, "e": None}
    # The first two values that are there: the second is broken.
    assert kolumn.read(path, value_format="json", value_sample=2).schema.field("value").type.get_field_index("d") < 0
    with pytest.raises(
        kolumn.ArgumentError, match="none of the first 1 values is JSON, so no type can be inferred: say it in value_schema"
    ):
        kolumn.read(path, value_format="json", start_offset=1, end_offset=3)
    # Nothing but tombstones is JSON of any kind, and no record is no type.
    nothing = kolumn.read(path, value_format="json", start_offset=1, end_offset=2, columns=["value", "valueProblems"])
    assert nothing.schema.field("value").type == pa.json_(pa.string())
    assert nothing.to_pylist() == [{"value": None, "valueProblems": None}]
    with pytest.raises(kolumn.ArgumentError, match="topic t: there are no values, so no type can be inferred: say it in value_schema"):
        kolumn.read(path, value_format="json", start_offset=9)
    path = write(tmp_path / "u-0", [b'{"a": 1}', b'{"a": 0.5}', b'{"a": 2}'])
    with caplog.at_level(logging.INFO, "kolumn.values"):
        assert kolumn.read(path, value_format="json")["value"].to_pylist() == [{"a": 1.0}, {"a": 0.5}, {"a": 2.0}]
    assert "first 3 values is struct<a: double>; a: an integer in 2 values, a number in 1: float64" in caplog.text
    # A topic is named whose values are no JSON. Beside others, of which each has its part in the type, they are lost.
    write(tmp_path / "s-0", [b"\0", b"\1"])
    assert kolumn.read(tmp_path, value_format="json", value_sample=1)["valueValid"].to_pylist()[:2] == [False, False]
    assert "3 values could not be decoded" in caplog.text
    for read in (kolumn.read, kolumn.scan_polars, kolumn.explain):
        with pytest.raises(kolumn.ArgumentError, match=r"^topic s: none of the first 2 values is JSON"):
            read(tmp_path / "s-0", value_format="json", value_sample=2)
        with pytest.raises(kolumn.ArgumentError, match=r"^topic s: no type of what is in the envelope"):
            read(tmp_path / "s-0", value_format="json", value_envelope="debezium", value_sample=2)


@pytest.mark.parametrize("levels", [101, 150, 900, 5000, 100_000])
def test_values_nested_too_deeply_say_nothing_of_the_type(tmp_path: Path, levels: int) -> None:
    for number, (begin, end) in enumerate([(b'{"a":', b"}"), (b"[", b"]")]):
        deep = begin * levels + b"1" + end * levels
        path = write(tmp_path / f"t-{number}", [deep, b'{"a":1}', b'{"b":' + deep + b',"a":2}'])
        found = kolumn.read(path, value_format="json")["value"]
        assert found.type == pa.struct([("a", pa.int64())])
        assert found.to_pylist() == [None if number else {"a": None}, {"a": 1}, {"a": 2}]


NESTED: dict[str, tuple[str, str]] = {
    "json": ('{"a": %(inner)s}', '"int64"'),
    "avro": ('{"type": "record", "name": "R%(level)d", "fields": [{"name": "a", "type": %(inner)s}]}', '"long"'),
}


@pytest.mark.parametrize("name", NESTED)
def test_types_nested_too_deeply_are_refused(tmp_path: Path, name: str) -> None:
    """As messages of Protobuf are: `tests/unit/test_protobuf_wire.py`. Those of a JSON Schema end in JSON text."""
    path = write(tmp_path / "t-0", [b""])
    for levels in (100, 101, 400, 900, 5000):
        inner, text = NESTED[name]
        for level in range(levels):
            text = inner % {"level": level, "inner": text}
        how: dict[str, Any] = {"value_format": name, "value_schema": text}
        if levels == 100:
            assert kolumn.read(path, **how).num_rows == 1
        else:
            raises(kolumn.ArgumentError, r"nested (too deeply|more than 100 deep)", kolumn.read, path, **how)


def test_separated_and_fixed_fields(tmp_path: Path) -> None:
    path = write(tmp_path / "t-0", [b'1;"a;b"', b"x;y", b"3", None])
    how: dict[str, Any] = {"value_format": "csv", "value_schema": {"n": "int32", "t": "string"}, "value_separator": ";"}
    found = kolumn.read(path, columns=["value", "valueValid"], **how)
    assert found["value"].to_pylist() == [{"n": 1, "t": "a;b"}, {"n": None, "t": "y"}, None, None]
    assert found["valueValid"].to_pylist() == [True, False, False, False]
    assert kolumn.read(path, columns=["value"], value_columns="t", **how)["value"].to_pylist()[0] == {"t": "a;b"}
    path = write(tmp_path / "u-0", [b"\0\0\0\7\1", b"\0\0\0\7", None])
    found = kolumn.read(path, columns=["value", "valueValid"], value_format="fixed", value_schema={"a": ">i4", "b": "bool"})
    assert found["value"].to_pylist() == [{"a": 7, "b": True}, None, None]
    assert found["valueValid"].to_pylist() == [True, False, False]


def collection(subjects: dict[str, str], alone: str | None = None, first: str | None = None) -> Any:
    """Schemas by subject, as `kolumn.values.schemas.schema.Schemas`; ``first`` has the id 1."""

    def schema(text: str | None) -> Schema | None:
        return None if text is None else Schema("JSON", text, id=1)

    return SimpleNamespace(
        newest=lambda subject: schema(subjects.get(subject)),
        only=lambda: schema(alone),
        by_id=lambda id: schema(first or of_schema()) if id == 1 else None,
        **dict.fromkeys(("by_guid", "by_fingerprint", "version"), lambda *_: None),
    )


def of_schema(**types: str) -> str:
    return json.dumps({"type": "object", "properties": {name: {"type": type} for name, type in types.items()}})


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    write(tmp_path / "a-0", [b'\0\0\0\0\1{"x": 1}'])
    write(tmp_path / "b-0", [b'\0\0\0\0\1{"x": 2, "y": "t"}'])
    return tmp_path


def test_the_newest_schema_of_the_topic(topics: Path) -> None:
    schemas = collection({"a-value": of_schema(x="integer"), "b-value": of_schema(y="string")})
    how: dict[str, Any] = {"value_format": "registry", "value_schemas": schemas}
    for topic, type, value in (("a", pa.struct([("x", pa.int64())]), {"x": 1}), ("b", pa.struct([("y", pa.string())]), {"y": "t"})):
        found = kolumn.read(topics / f"{topic}-0", **how)
        assert (found.schema.field("value").type, found["value"].to_pylist()) == (type, [value])
        assert kolumn.scan(topics / f"{topic}-0", value_format="json", value_schemas=schemas).schema.field("value").type == type
    raises(kolumn.ArgumentError, r"values of the topics a, b have different types, .* e\.g\. '.*/a-\*', or", kolumn.read, topics, **how)
    assert kolumn.read(topics, **how, value_schema=of_schema(x="number"))["value"].to_pylist() == [{"x": 1.0}, {"x": 2.0}]


def test_a_collection_without_subjects(topics: Path) -> None:
    found = kolumn.read(topics, value_format="registry", value_schemas=collection({}, of_schema(x="integer")))
    assert found["value"].to_pylist() == [{"x": 1}, {"x": 2}]
    found = kolumn.read(topics, value_format="registry", value_schemas=collection({}, first=of_schema(y="string")))
    assert found["value"].to_pylist() == [{"y": None}, {"y": "t"}]
    write(topics / "c-0", [b"\0\0\0\0\2{}"])
    words = "no subject c-value in value_schemas"
    raises(kolumn.ArgumentError, words, kolumn.read, topics / "c-0", value_format="registry", value_schemas=collection({}))
    with pytest.raises(kolumn.ArgumentError, match="the newest schema is of JSON; take 'registry'"):
        kolumn.read(topics, value_format="avro", value_schemas=collection({}, of_schema(x="integer")))


SELF = json.dumps({"type": "record", "name": "L", "fields": [{"name": "v", "type": "double"}, {"name": "next", "type": ["null", "L"]}]})
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"value_format": "jsn"}, "value_format='jsn': expected one of avro, .*; did you mean 'json'"),
    ({"value_format": "json", "value_as": "colums"}, "value_as='colums': .*did you mean 'columns'"),
    ({"value_format": "json", "value_errors": "rise"}, "value_errors='rise': .*did you mean 'raise'"),
    ({"key_format": "json", "key_framing": "nnone"}, "unknown key_framing 'nnone', did you mean 'none'"),
    ({"value_format": "json", "value_schema": {"a": "int46"}}, "field 'a': unknown type 'int46', did you mean 'int64'"),
    ({"value_format": "json", "value_schema": {}}, "expected a mapping of names to types"),
    ({"value_format": "json", "value_schema": "{"}, "value_schema: not the JSON text"),
    ({"value_format": "json", "value_schema": {"a": ["int8", "int8"]}}, "expected a list of one type"),
    ({"value_format": "json", "value_schema": {"a": pa.large_binary()}}, "JSON has no values of large_binary"),
    ({"value_format": "json", "value_sample": 0}, "value_sample=0: expected an integer, at least 1"),
    ({"value_format": "avro", "value_schema": '"int"', "value_max_depth": 0}, "value_max_depth=0: expected an integer, at least 1"),
    ({"value_format": "avro", "value_schema": SELF, "value_max_depth": 200}, "more than 100 deep: value_max_depth=200 is too much for it"),
    ({"value_format": "csv"}, "value_format='csv' needs value_schema"),
    ({"value_format": "csv", "value_schema": {"a": "uint64"}}, "take int64 or string"),
    ({"value_format": "csv", "value_schema": {"a": "int8"}, "value_separator": "ab"}, "expected one ASCII character"),
    ({"value_format": "json", "value_separator": ";"}, "value_separator=';': for value_format='csv' only"),
    ({"value_format": "json", "value_message": "M"}, "for value_format='protobuf' or 'registry' only"),
    ({"value_format": "fixed", "value_schema": {"a": "f2"}}, "no column for float16"),
    ({"value_format": "avro"}, "value_format='avro' needs value_schema, or value_schemas"),
    ({"value_schema": {"a": "int8"}}, "options of values, here value_schema, go with value_format"),
    ({"key_errors": "raise", "value_format": "json"}, "options of keys, here key_errors, go with key_format"),
    ({"columns": ["valueValid"]}, "column valueValid: it goes with value_format"),
    ({"columns": ["keyRaw"], "value_format": "json"}, "column keyRaw: it goes with key_format"),
    ({"columns": ["valueValidd"], "value_format": "json"}, "unknown column 'valueValidd', did you mean 'valueValid'"),
    ({"value_format": "json", "value_columns": [1]}, "expected names of fields"),
    ({**JSON, "value_columns": "custmer"}, "value_columns: unknown field 'custmer', did you mean 'customer'"),
    ({**JSON, "value_columns": "items.prize"}, "unknown field 'prize', did you mean 'price'"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[text for _, text in WRONG])
def test_what_makes_no_sense(log: Path, options: dict[str, Any], message: str) -> None:
    raises(kolumn.ArgumentError, message, kolumn.scan, log, **options)


def test_copies_that_cut_records_differently(tmp_path: Path) -> None:
    """The merge compares records of such entries, as they were stored."""
    folders = [tmp_path / name / "orders-3" for name in ("one", "other")]
    for folder, size in zip(folders, (500, 3000), strict=True):
        kolumn.write(pa.table({"value": pa.array(payloads(), pa.binary())}), folder, batch_bytes=size)
    found = kolumn.read(folders, replicas="merge", columns=["value"], **JSON)
    assert found["value"].to_pylist() == [expected(i) for i in range(ROWS)]


class InHeaders:
    """A framer whose bodies are the values of headers."""

    needs_headers = True

    def bodies(self, payload: pa.BinaryArray, headers: pa.ListArray | None = None) -> tuple[Bodies, pa.Array]:
        assert headers is not None
        bodies, _ = BareFramer().bodies(headers.flatten().field("value"))
        return bodies, pa.array(map(len, payload.to_pylist()), pa.int64())


@pytest.mark.parametrize("columns", [["value", "valueSchemaId"], ["valueSchemaId", "headers", "value"]])
def test_a_framing_in_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: list[str]) -> None:
    """Headers are read for it, and are a column only if they are asked for."""
    monkeypatch.setattr(Typed, "framer", InHeaders())
    type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "h", "value": b'{"id": %d}' % i}] for i in range(50)], type)
    kolumn.write(pa.table({"value": [b"x" * i for i in range(50)], "headers": headers}), tmp_path / "t-0")
    found = kolumn.read(tmp_path / "t-0", value_format="json", value_schema={"id": "int64"}, columns=columns, threads=1)
    assert found.schema.names == columns
    assert found["value"].to_pylist() == [{"id": i} for i in range(50)]
    assert found["valueSchemaId"].to_pylist() == list(range(50))


def test_a_type_that_is_no_struct_is_the_column(tmp_path: Path) -> None:
    keys: list[bytes | None] = [bytes([2 * len(name)]) + name for name in (b"ada", b"", b"grace")]
    write(tmp_path / "t-0", [None] * 4, [*keys, b"\2"])
    for schema, key_as in (('"string"', "struct"), ({"type": "string"}, "columns")):
        found = kolumn.read(tmp_path / "t-0", key_format="avro", key_schema=schema, key_as=key_as, columns=["key", "keyValid"])
        assert found.schema.types == [pa.string(), pa.bool_()]
        assert found["key"].to_pylist() == ["ada", "", "grace", None]


PROTO = 'syntax = "proto3"; package a; message A { bool no = 1; } message B { int32 x = 1; string y = 2; }'
FIELDS = [{"name": name, "number": number, "type": type, "label": 1} for number, name, type in ((1, "x", 5), (2, "y", 9))]
FILE = {"name": "b.proto", "package": "a", "syntax": "proto3", "message_type": [{"name": "A"}, {"name": "B", "field": FIELDS}]}
SET = descriptor_pb2.FileDescriptorSet(file=[FILE]).SerializeToString()


@pytest.mark.parametrize("schema", [PROTO, SET, message_class(SET, "a.B")], ids=["text", "set", "class"])
def test_what_may_describe_protobuf(tmp_path: Path, schema: Any) -> None:
    write(tmp_path / "t-0", [b"\x08\5\x12\1t", b"", b"\x08"])
    how: dict[str, Any] = {"value_format": "protobuf", "value_schema": schema, "value_message": "a.B"}
    assert kolumn.read(tmp_path / "t-0", **how)["value"].to_pylist() == [{"x": 5, "y": "t"}, {"x": 0, "y": ""}, None]
    for errors, null in (("null-field", True), ("keep", False)):
        # Every field can be lost alone by default.
        found = kolumn.read(tmp_path / "t-0", value_columns="x", value_errors=errors, **how)
        assert found.schema.field("value").type == pa.struct([pa.field("x", pa.int32(), nullable=null)])
