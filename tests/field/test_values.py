"""Values of strangers' topics: schemas, and types that some tools do not have."""

import json
import logging
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import kolumn
from kolumn.cli import app
from kolumn.values.narrowing import Narrowed

Disk = Callable[[str], Path]
AMOUNTS = ["12.34", "-0.01", None, "99999999999999999999999999999999999999.99"]
PAYLOADS: list[dict[str, Any]] = [{"id": 1, "payload": "text"}, {"id": 2, "payload": '{"x":1,"y":[1,2]}'}, {"id": 3, "payload": "[1,2]"},
            {"id": 4, "payload": "17"}, {"id": 5, "payload": None}]  # fmt: skip
MESSAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "first": ("ex.First", {"a": 5, "s": "x"}),
    "second": ("ex.Second", {"name": "nn", "n": 7, "inner": {"ok": True, "t": "q"}}),
    "third": ("ex.Third", {"d": 1.5, "tags": ["a", "b"]}),
    "inner": ("ex.Second.Inner", {"ok": True, "t": "zz"}),
}


def values(folder: Path, topic: str, **options: Any) -> list[Any]:
    found: list[Any] = kolumn.read(folder / f"{topic}-0", columns=["value"], **{"value_format": "registry", **options})["value"].to_pylist()
    return found


def message(name: str, form: str, count: int) -> tuple[Any, ...]:
    of, value = MESSAGES[name]
    return "protobuf-deprecated-index", f"{name}-{form}", {"value_message": of}, [value] * count


EV, SELF = {"value_message": "ex.Ev", "value_columns": ["id", "nick", "big"]}, "recursive-schemas"
JAX = {"id": 1, "name": None, "amt": 12.34, "created": 1_700_000_000_000, "addr": {"street": "q"}}
PYD = [{"id": 1, "price": 1.5, "flag": True}, {"id": 2, "price": 3.0, "flag": None}]


@pytest.mark.parametrize(
    ("case", "topic", "options", "right"),
    [
        # A keyword without a column does not cost the other members.
        ("json-schema-registry", "jax", {}, [JAX]),
        ("json-schema-registry", "pyd", {"value_columns": ["id", "price", "flag"]}, PYD),
        ("json-schema-registry", "pyd", {}, [{"tags": [("k", "v")]}, {"tags": None}]),
        ("json-schema-registry", "allof", {}, [{"a": 1, "b": "x"}]),
        ("json-schema-registry", "multi", {}, [{"a": 1}, {"b": "x"}]),
        ("json-schema-registry", "refd", {}, [{"id": 1, "addr": {"street": "x"}}]),
        # Keys of an old registry, deleted schemas and contexts: what is in the log is decoded.
        ("schemas-legacy-keys", "live", {}, [{"a": 1}, {"a": 2}]),
        ("schemas-legacy-keys", "soft", {}, [{"a": 1, "b": "q"}]),
        ("schemas-legacy-keys", "cl", {}, [{"a": 1}]),
        ("schemas-legacy-keys", "ds", {}, [{"a": 1, "b": "q"}]),
        ("schemas-legacy-keys", "gone", {}, [{"a": 1}]),
        ("schemas-legacy-keys", "ctx", {}, [{"a": 1, "b": "q"}]),
        # Message indexes as old Python clients wrote them name the same messages.
        *(message(name, "new", 3) for name in MESSAGES),
        *(message(name, "old", 3) for name in MESSAGES),
        message("second", "mixed", 4),
        # Of schemas that contain themselves, the plain fields.
        (SELF, "ev", EV, [{"id": 5, "nick": "nn", "big": None}, {"id": 1, "nick": None, "big": None}]),
        (SELF, "node", {"value_message": "ex.Node", "value_columns": ["value"]}, [{"value": 1}]),
        (SELF, "person", {"value_message": "ex.Person", "value_columns": ["name"]}, [{"name": "a"}]),
        (SELF, "wrap", {"value_columns": ["id", "after"]}, [{"id": 7, "after": "z"}, {"id": 8, "after": "y"}]),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)  # fmt: skip
def test_registered_schemas(disk: Disk, case: str, topic: str, options: dict[str, Any], right: list[dict[str, Any]]) -> None:
    found = values(disk(case), topic, **options)
    if topic in ("pyd", "multi"):
        found = [{name: row[name] for name in wanted} for row, wanted in zip(found, right, strict=True)]
    assert found == right


LONG_LIST = reduce(lambda rest, number: {"value": number, "next": rest}, range(499, -1, -1), None)
AVRO_TREES: dict[str, list[Any]] = {
    "ll": [{"value": 1, "next": {"value": 2, "next": {"value": 3, "next": None}}}, {"value": 9, "next": None}],
    "tree": [{"value": "a", "left": {"value": "b", "left": None, "right": None}, "right": None}],
    "arr": [{"v": 1, "kids": [{"v": 2, "kids": [], "m": {}}], "m": {"x": {"v": 3, "kids": [], "m": {}}}}],
    "wrap": [
        {"id": 7, "tree": reduce(lambda rest, number: {"value": number, "next": rest}, range(4, 0, -1), None), "after": "z"},
        {"id": 8, "tree": LONG_LIST, "after": "y"},
    ],
}


def unfolded(value: Any) -> Any:
    """A value with what is JSON text in it as what the text means."""
    if isinstance(value, dict):
        return {name: unfolded(one) for name, one in value.items()}
    if isinstance(value, list):
        pairs = bool(value) and isinstance(value[0], tuple)
        return {key: unfolded(one) for key, one in value} if pairs else [unfolded(one) for one in value]
    return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


@pytest.mark.parametrize("depth", range(1, 4))
@pytest.mark.parametrize("topic", AVRO_TREES)
def test_schemas_that_contain_themselves(disk: Disk, topic: str, depth: int) -> None:
    """All is there, as columns or as JSON text below the depth."""
    folder, columns = disk(SELF) / f"{topic}-0", ["value", "valueValid"]
    found = kolumn.read(folder, value_format="registry", value_max_depth=depth, columns=columns)
    # An empty map is an empty list to Python.
    expected = json.loads(json.dumps(AVRO_TREES[topic]).replace('"m": {}', '"m": []')) if depth > 1 else AVRO_TREES[topic]
    assert [unfolded(one) for one in found["value"].to_pylist()] == expected
    assert all(found["valueValid"].to_pylist())
    if topic == "ll":
        json_text, struct = pa.json_(pa.string()), found.schema.field("value").type
        for _ in range(depth):
            struct = struct.field("next").type
        assert struct == json_text


@pytest.mark.parametrize(
    ("message", "depth", "right"),
    [
        ("Node", 1, {"value": 1, "children": ['{"children": [{"value": 3}], "value": 2}']}),
        ("Node", 3, {"value": 1, "children": [{"value": 2, "children": [{"value": 3, "children": []}]}]}),
        ("Person", 1, {"name": "a", "bff": '{"bff": {"name": "c"}, "name": "b"}'}),
        ("Ev", 1, {"id": 5, "nick": "nn", "attrs": '{"a": 1.0, "b": [true, null, {"c": "d"}]}', "v": '"s"', "nothing": {}}),
        ("Plain", 1, {"id": 5, "any": {"type_url": "type.googleapis.com/ex.Person", "value": b"\n\x01q"}, "mask": {"paths": ["a.b"]}}),
    ],
)  # fmt: skip
def test_messages_that_contain_themselves(disk: Disk, message: str, depth: int, right: dict[str, Any]) -> None:
    found = values(disk(SELF), message.lower(), value_message=f"ex.{message}", value_max_depth=depth)[0]
    assert {name: found[name] for name in right} == right


def test_times_that_nanoseconds_do_not_hold(disk: Disk) -> None:
    """They are lost and said so; in another unit they are there."""
    how = {"value_format": "registry", "value_message": "ex.Plain", "columns": ["value", "valueProblems"]}
    found = kolumn.read(disk(SELF) / "plain-0", **how)
    assert found["valueProblems"].to_pylist() == [None, None, ["at", "took"]]
    found = kolumn.read(disk(SELF) / "plain-0", value_time_unit="ms", **how)
    times = [found["value"].combine_chunks().field(name).cast(pa.int64()).to_pylist()[2] for name in ("at", "took")]
    assert (found["valueProblems"].null_count, times) == (3, [253402300800000, 315576000001000])


@pytest.mark.parametrize(("topic", "ids"), [("jempty", [None, None]), ("jempty2", [1, 2]), ("jempty5", [1, 2]), ("jempty9", [1])])
def test_a_member_that_is_always_an_empty_object(disk: Disk, topic: str, ids: list[int | None]) -> None:
    found = kolumn.read(disk("json-empty-object") / f"{topic}-0", value_format="json", columns=["value", "valueValid"])
    assert (found["valueValid"].to_pylist(), [value.get("id") for value in found["value"].to_pylist()]) == ([True] * len(ids), ids)


@pytest.mark.parametrize(
    ("type", "payloads"),
    [
        ("string", [one["payload"] for one in PAYLOADS]),
        ("json", ['"text"', *(one["payload"] for one in PAYLOADS[1:])]),
        ("map<string, json>", [None, [("x", "1"), ("y", "[1,2]")], None, None, None]),
        (["int64"], [None, None, [1, 2], None, None]),
    ],
)
def test_a_member_that_is_a_text_here_and_an_object_there(disk: Disk, type: Any, payloads: list[Any]) -> None:
    schema = {"id": "int64", "payload": type}
    columns = ["value", "valueValid", "valueProblems"]
    found = kolumn.read(disk("json-polymorphic"), value_format="json", value_schema=schema, columns=columns)
    assert found["value"].to_pylist() == [{"id": row + 1, "payload": payload} for row, payload in enumerate(payloads)]
    lost = [payload is None and row < 4 for row, payload in enumerate(payloads)]
    assert found["valueValid"].to_pylist() == [not one for one in lost]
    assert found["valueProblems"].to_pylist() == [["payload"] if one else None for one in lost]


def test_values_that_stay_json_text(disk: Disk) -> None:
    found = kolumn.read(disk("json-polymorphic"), value_format="json", value_schema="json", columns=["value", "valueRaw"])
    assert found.schema.field("value").type == pa.json_(pa.string())
    assert found["value"].to_pylist() == [raw.decode() for raw in found["valueRaw"].to_pylist()]


def test_values_that_are_no_text(disk: Disk) -> None:
    folder = disk("string-payload-binary") / "bin-0"
    whole = kolumn.read(folder)
    with kolumn.scan(folder, payload="string") as reader:
        good = reader.read_next_batch()
        with pytest.raises(kolumn.PayloadError, match=r"0\.log: offset 1: key: not UTF-8"):
            reader.read_next_batch()
    good.validate(full=True)
    assert (good.num_rows, whole.num_rows, good["value"].to_pylist(), whole["value"][1].as_py()) == (1, 9, ["text"], b"\x80binary")


def test_decimals_of_more_than_38_digits(disk: Disk) -> None:
    """All digits, as text where a tool has no such type."""
    folder = disk("decimal-precision-64") / "n-0"
    found = kolumn.read(folder, value_format="registry")["value"]
    assert found.type.field("amount").type == pa.decimal256(64, 2)
    assert [one["amount"] for one in found.to_pylist()] == [None if one is None else Decimal(one) for one in AMOUNTS]
    pytest.importorskip("polars", reason="kolumn[polars] has it")
    frame = kolumn.scan_polars(folder, value_format="registry")
    assert ([one["amount"] for one in frame.collect()["value"]], frame.select("offset").collect().height) == (AMOUNTS, 4)
    pytest.importorskip("duckdb", reason="kolumn[sql] has it")
    query = 'select value.amount amount from n order by "offset"'
    for form in ("text", "json"):
        out = CliRunner().invoke(app, ["sql", f"--{form}", "--value-format", "registry", str(folder), query])
        assert out.exit_code == 0, out.output
        lines = out.stdout.splitlines()
        said = lines[1:] if form == "text" else [json.loads(line)["amount"] for line in lines]
        assert said == [one or "null" if form == "text" else one for one in AMOUNTS]


def test_decimals_are_text_in_spark(disk: Disk) -> None:
    pytest.importorskip("pyspark", reason="kolumn[spark] has it")
    from kolumn.spark_plugin.read.schema import spark_type

    found = kolumn.read(disk("decimal-precision-64") / "n-0", value_format="registry")["value"].combine_chunks()
    kind = spark_type(found.type)
    narrowed = Narrowed(pa.schema([])).column(found, kind, "value")
    assert (kind.field("amount").type, [one["amount"] for one in narrowed.to_pylist()]) == (pa.string(), AMOUNTS)


@pytest.mark.parametrize(
    ("topic", "right", "path"),
    [("heartbeat", [{}, {}, None], "value"), ("topunionempty", [None, {"First": {}, "Second": {}}], "value.First")],
)
def test_records_without_fields(
    disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture, topic: str, right: list[object], path: str
) -> None:
    """Objects without members in JSON, and the text of such an object in Parquet, which has no such type; the log says so."""
    folder, lake = disk("empty-record-parquet"), tmp_path / "lake"

    def run(command: str, *args: object) -> Any:
        schema = ("--value-format", "avro", "--value-schema", folder / f"{topic}.avsc")
        return CliRunner().invoke(app, [command, *map(str, (*schema, folder / f"{topic}-0", *args))])

    assert [json.loads(line)["value"] for line in run("cat", "--json").stdout.splitlines()] == right
    with caplog.at_level(logging.WARNING, "kolumn.values"):
        assert run("to-parquet", "-o", lake).exit_code == 0
    (said,) = caplog.messages
    assert f'{path} of a record without fields is the text "{{}}"' in said
    (file,) = lake.rglob("*.parquet")
    found = pq.ParquetFile(file).read().column("value").to_pylist()
    assert found == json.loads(json.dumps(right).replace("{}", '"{}"'))
