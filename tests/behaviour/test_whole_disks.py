"""Typed reads of many topics: each by its own schema, or what it has in common, and one without stays bytes."""

import json
import runpy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kolumn
from kit.asked import invoked, put
from kit.outcome import raises
from kit.schemas_topic import RECORD, framed, version, write

pytest.importorskip("grpc_tools", reason="kolumn[protobuf] has it")
ROOT = Path(__file__).resolve().parents[2]
REGISTRY: dict[str, Any] = {"value_format": "registry"}
TYPED = ("--value-format", "registry", "--errors", "skip")
BYTES = ("_schemas", "clicks", "payments")
ROWS = {"_schemas": 4, "clicks": 19_753, "orders": 10_200, "payments": 866, "shipments": 1500}
SAID = "_schemas, clicks, payments: no schema; their values stay bytes"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample disk: Avro, Protobuf, and three topics without schemas."""
    folder = tmp_path_factory.mktemp("disk") / "dead-broker"
    runpy.run_path(str(ROOT / "examples" / "dead_broker.py"))["make"](folder)
    return folder


def lines(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    out = invoked(*arguments, "--json")
    assert out.exit_code == code, out.stderr
    return [json.loads(line) for line in out.stdout.splitlines()]


def test_parquet_has_a_schema_for_each_topic(disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = invoked("to-parquet", *TYPED, disk, "-o", tmp_path / "out")
    assert (out.exit_code, caplog.messages.count(SAID)) == (1, 1)
    found = {name: pa.concat_tables([pq.read_table(file) for file in sorted(tmp_path.glob(f"out/topic={name}/*/*"))]) for name in ROWS}
    assert {name: table.num_rows for name, table in found.items()} == ROWS
    for name, table in found.items():
        assert (table.schema.field("value").type == pa.binary()) == ("valueValid" not in table.schema.names) == (name in BYTES)
    assert found["orders"]["valueValid"].combine_chunks().false_count == found["orders"]["value"].null_count == 200
    assert found["shipments"]["value"][7].as_py()["order"] == 7
    # All topics appear together, or none does.
    strict = invoked("to-parquet", *TYPED[:2], disk, "-o", tmp_path / "strict")
    assert (strict.exit_code, (tmp_path / "strict").exists()) == (1, False)


def test_lines_and_counts_of_each_topic(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = lines("cat", *TYPED, disk, code=1)
    assert {name: sum(row["topic"] == name for row in found) for name in ROWS} == ROWS
    assert {row["topic"] for row in found if "valueValid" not in row} == {*BYTES}
    assert {row["topic"] for row in found if "valueEncoding" in row} == {*BYTES}
    assert caplog.messages == [SAID]
    caplog.clear()
    assert (lines("verify", *TYPED[:2], disk, code=1)[0]["values"], caplog.messages) == ([], [SAID])
    # Records are chosen by stored bytes, whatever becomes of them.
    chosen = lines("cat", *TYPED, "--grep", "/p/7|Rome", "--columns", "topic,valueRaw,valueValid", disk, code=1)
    assert {(row["topic"], *sorted(row)) for row in chosen} == {
        ("clicks", "topic", "value", "valueEncoding"), ("shipments", "topic", "valueRaw", "valueRawEncoding", "valueValid"),
    }  # fmt: skip
    assert len(lines("cat", *TYPED, "--key", "order-8", disk, code=1)) == 2


def test_tables_and_frames_of_each_topic(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("polars", reason="kolumn[polars] has it")
    frames = kolumn.topics(disk, **REGISTRY, errors="skip")
    assert (list(frames), len(frames), repr(frames)) == (sorted(ROWS), 5, f"kolumn.topics: {', '.join(sorted(ROWS))}")
    assert caplog.messages == []
    assert {name: frame.collect().height for name, frame in frames.items()} == ROWS
    assert frames["shipments"].head(1).collect()["value"].struct["order"].to_list() == [0]
    assert sorted(caplog.messages) == [f"{name}: no schema; its values stay bytes" for name in BYTES]
    raises(KeyError, "did you mean 'orders'", frames.__getitem__, "order")
    names: tuple[Any, ...] = (3, None, "order")
    for name in names:
        assert (name in frames, frames.get(name)) == (False, None)
    assert list(kolumn.topics((disk / "orders-0" / f"{0:020}.log").read_bytes())) == ["records"]
    pytest.importorskip("duckdb", reason="kolumn[sql] has it")
    query = "select count(value.customer) o, (select count(value.sent) from shipments) s, (select count(value) from payments) p from orders"
    assert lines("sql", *TYPED, disk, query) == [{"o": 10_000, "s": 1500, "p": 826}]


def test_a_table_has_one_type(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One sentence says so in the caller's terms; topics without a schema are read by that of the others, and named."""
    pytest.importorskip("polars", reason="kolumn[polars] has it")
    said = rf"values of the topics orders, shipments have .* a table has one: name one topic, e\.g\. '{disk}/orders-\*', or take "
    for read in (kolumn.read, kolumn.scan, kolumn.scan_polars):
        raises(kolumn.ArgumentError, rf"{said}kolumn\.topics\(source, …\) for a frame each$", read, disk, **REGISTRY)
    out = invoked("latest", *TYPED[:2], disk)
    assert (out.exit_code, out.stderr.split("or take ")[1]) == (2, "`kolumn cat`, `sql` or `to-parquet`, which type each topic by itself\n")
    some = kolumn.read([disk / "orders-0", disk / "payments-0"], **REGISTRY)
    valid = some.filter(pa.compute.equal(some["topic"], "payments"))["valueValid"]
    assert (valid.null_count, valid.combine_chunks().true_count) == (0, 0)
    assert caplog.messages[0] == "payments: no schema; its values are read by the schema of orders, and null where they do not fit it"
    assert "826 values could not be decoded" in caplog.messages[1]


def test_a_table_takes_no_topic_by_the_schema_of_another(disk: Path, tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="kolumn[delta] has it")
    target = tmp_path / "table"
    out = invoked("to-delta", *TYPED[:2], disk / "[cop]*-0", target)
    assert (out.exit_code, out.stderr, target.exists()) == (
        2, f"kolumn: clicks, payments: no schema of their values, and a table has one type: name one topic, e.g. '{disk}/orders-*', "
        "or leave out --value-format, so that values stay bytes\n", False,
    )  # fmt: skip
    assert invoked("to-delta", *TYPED[:2], disk / "orders-*", target).exit_code == 0


def test_without_any_schema(disk: Path) -> None:
    """The errors are those of a read of all of them."""
    for names, subjects in ((["clicks"], "clicks-value"), (["clicks", "payments"], "clicks-value or payments-value")):
        out = invoked("cat", *TYPED, *(disk / f"{name}-0" for name in names))
        assert (out.exit_code, f"kolumn: no subject {subjects} in --value-schemas, and none of the first values" in out.stderr) == (2, True)


def test_json_of_each_topic(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, values in {"a": [b'{"x": 1}'], "b": [b'{"y": "t"}', b'{"x": true}'], "none": [b"\0\1"], "empty": []}.items():
        if values:
            write(tmp_path / f"{name}-0", [(b"k", value) for value in values])
    how = ("cat", "--value-format", "json", "--columns", "topic,value", tmp_path)
    assert lines(*how) == [
        {"topic": "a", "value": {"x": 1}}, {"topic": "b", "value": {"y": "t", "x": None}}, {"topic": "b", "value": {"y": None, "x": True}},
        {"topic": "none", "value": "\0\1", "valueEncoding": "utf-8"},
    ]  # fmt: skip
    assert caplog.messages == ["none: no JSON; its values stay bytes"]
    # What has no values has no type, and is no error.
    put(tmp_path / "bare-0", b"")
    caplog.clear()
    for some, said in ((tmp_path, "no record matches; the source has 4 records"), (tmp_path / "bare-0", "the source has no records")):
        out = invoked(*how[:-1], "--start-offset", 9, some)
        assert (out.exit_code, out.stdout, said in out.stderr) == (0, "", True)
    polars = pytest.importorskip("polars", reason="kolumn[polars] has it")
    assert kolumn.topics(tmp_path, value_format="json")["bare"].collect().schema["value"] == polars.Binary()
    # One table has the fields of all of them, however few values are looked at.
    one = kolumn.scan([tmp_path / "a-0", tmp_path / "b-0"], value_format="json", value_sample=1).schema
    assert one.field("value").type == pa.struct([("x", pa.int64()), ("y", pa.string())])
    # A schema that is given is that of all topics.
    assert [row["value"] for row in lines(*how, "--value-schema", '{"x": "int64"}')] == [{"x": 1}, {"x": None}, {"x": None}, None]
    raises(kolumn.ArgumentError, "topic none: none of the first 1 values is JSON", kolumn.read, tmp_path / "none-0", value_format="json")


def test_keys_and_values_are_typed_apart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "_schemas-0", [version("a-key", 1, 1), version("b-value", 1, 2), version("c-value", 1, 3, "{")])
    record = framed(1, json.loads(RECORD), {"id": 5})
    for name in "abc":
        write(tmp_path / f"{name}-0", [(record, b"v") if name == "a" else (b"k", record[:4] + b"\2" + record[5:])])
    found = {row["topic"]: row for row in lines("cat", "--key-format", "registry", *TYPED[:2], tmp_path / "[abc]-0")}
    assert [found[name]["key"] for name in "abc"] == [{"id": 5}, "k", "k"]
    assert [found[name].get("valueEncoding") for name in "abc"] == ["utf-8", None, "utf-8"]
    # A schema that is given for one of them is that of all topics.
    given = lines("cat", "--key-format", "avro", "--key-schema", RECORD, *TYPED[:2], "--columns", "key,valueValid", tmp_path / "[ab]-0")
    assert given == [{"key": {"id": 5}}, {"key": {"id": -54}, "valueValid": True}]
    assert lines("cat", *TYPED[:2], "--columns", "valueValid", tmp_path / "[ab]-0") == [
        {"value": "v", "valueEncoding": "utf-8"},
        {"valueValid": True},
    ]
    assert caplog.messages[0] == "b, c: no schema; their keys stay bytes"
    assert "its text is not JSON" in caplog.messages[2]


PROTO = 'syntax = "proto3"; package p; message A { int64 a = 1; message In { int64 i = 1; } } message B { int64 b = 1; }'


@pytest.mark.parametrize(
    ("how", "values", "found"),
    [
        ({}, [b"\2\2\x08\5", None, b"\2\2\x08\6"], [{"b": 5}, None, {"b": 6}]),
        ({}, [b"\0\x08\5"], [{"a": 5}]),
        ({}, [b"\4\0\0\x08\5"], [{"i": 5}]),
        (
            {"value_framing": "confluent", "value_format": "protobuf", "value_schema": PROTO, "value_schemas": None},
            [b"\2\2\x08\5"],
            [{"b": 5}],
        ),
        ({}, [b"\2\2\x08\5", b"\0\x08\5"], "the first values are of p.B, p.A: give one, e.g. value_message='p.B'"),
        ({}, [None], "it has p.A, p.B: give one, e.g. value_message='p.A'"),
    ],
)
def test_values_say_which_message_they_are(tmp_path: Path, how: dict[str, Any], values: list[bytes | None], found: Any) -> None:
    write(tmp_path / "_schemas-0", [version("o-value", 1, 1, PROTO, schemaType="PROTOBUF")])
    write(tmp_path / "o-0", [(b"k", value and b"\0\0\0\0\1" + value) for value in values])
    if isinstance(found, list):
        assert kolumn.read(tmp_path / "o-0", **{**REGISTRY, **how})["value"].to_pylist() == found
        return
    error = raises(kolumn.ArgumentError, "name the message of the schema: it has p.A, p.B", kolumn.read, tmp_path / "o-0", **REGISTRY)
    assert found in str(error)
    out = invoked("cat", *TYPED[:2], tmp_path / "o-0")
    assert f"{found.partition('value_message')[0]}--value-message p." in out.stderr
