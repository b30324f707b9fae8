"""The type that JSON values have in common: what was seen, how it widens, and that no value loses anything."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import kolumn
from kit.asked import put
from kit.command_line import run
from kit.encoder import Record, batch
from kit.json_fit import lost
from kit.outcome import raises
from kolumn.core.errors import ArgumentError
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.json_inference import Inferred, inferred, spelled

INT, DOUBLE, TEXT, BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()
WIDE = pa.decimal128(38, 0)


def of(*values: Any) -> Inferred:
    return inferred(value if isinstance(value, bytes) else json.dumps(value).encode() for value in values)


CASES: list[tuple[list[Any], pa.DataType, str]] = [
    ([1, -5, None], INT, ""),
    ([1, 2.5], DOUBLE, "an integer in 1 value, a number in 1"),
    ([2**53, 2**60, 0.5, 0.25], DOUBLE, "an integer in 2 values, a number in 2"),
    ([2**53 + 1, 0.5], JSON_TEXT, "an integer in 1 value, a number in 1, one of more digits than a float64 has"),
    ([2**63 - 1, -(2**63)], INT, ""),
    ([2**63], WIDE, "integers of up to 19 digits"),
    ([-(10**38) + 1, 5], WIDE, "integers of up to 38 digits"),
    ([10**38], JSON_TEXT, "integers of up to 39 digits"),
    ([float("nan"), -math.inf], DOUBLE, ""),
    (["a", "b", None], TEXT, ""),
    ([None, None], TEXT, "null in 2 values"),
    ([True, None], BOOL, ""),
    ([True, 1], JSON_TEXT, "a boolean in 1 value, an integer in 1"),
    (["a", {"x": 1}, "b", "c", {}], JSON_TEXT, "text in 3 values, an object in 2"),
    ([[1], 1], JSON_TEXT, "a list in 1 value, an integer in 1"),
    ([{}, {}], JSON_TEXT, "objects without members"),
    ([{}, {"x": 1}], pa.struct([("x", INT)]), ""),
    ([{"x": 1}, {"y": "a", "x": 2.5}], pa.struct([("x", DOUBLE), ("y", TEXT)]), ""),
    ([[], None], pa.list_(TEXT), ""),
    ([[1], [2.5, None], []], pa.list_(DOUBLE), ""),
    ([[[]], [[True]]], pa.list_(pa.list_(BOOL)), ""),
    ([[1, "a"]], pa.list_(JSON_TEXT), ""),
    ([[{"x": 1}, {"x": "a"}]], pa.list_(pa.struct([("x", JSON_TEXT)])), ""),
]


@pytest.mark.parametrize(("members", "type", "why"), CASES, ids=[str(case[1]) + case[2] for case in CASES])
def test_types(members: list[Any], type: pa.DataType, why: str) -> None:
    found = of(*({"m": member} for member in members))
    assert found.type == pa.struct([("m", type)])
    assert [field.why for field in found.fields if field.path == "m"] == [why]
    assert not any(lost({"m": member}, found.type) for member in members)


@pytest.mark.parametrize("number", [b"1e400", b"-1e999999999", b"1" * 5000])
def test_numbers_that_no_column_of_numbers_holds(number: bytes) -> None:
    found = of(b'{"m": ' + number + b"}", {"m": 1})
    assert found.type == pa.struct([("m", JSON_TEXT)])
    assert "one of which no number holds" in found.fields[1].why


def test_maps() -> None:
    """Very many names, each of which is in few objects."""
    many = [{"m": {f"{k} {j}": k for j in range(3)}} for k in range(100)]
    assert of(*many).type == pa.struct([("m", pa.map_(TEXT, INT))])
    assert of(*many).fields[1].why == "300 names in 100 objects"
    assert of(*many, {"m": {"x": "a"}}).type == pa.struct([("m", pa.map_(TEXT, JSON_TEXT))])
    for name, type, text in (
        ("x", pa.struct([("x", pa.list_(INT))]), "map<string, struct<`x`: list<int64>>>"), ("x,", JSON_TEXT, "map<string, json>"),
    ):  # fmt: skip
        found = of(*({"m": {f"{k} {j}": {name: [k]} for j in range(3)}} for k in range(100))).type
        assert (found, spelled(found)) == (pa.struct([("m", pa.map_(TEXT, type))]), {"m": text})
    assert of(*(value["m"] for value in many)).type == JSON_TEXT
    # An object with many fields, of which each has some.
    wide = [{"m": {f"f{j}": k for j in range(300) if (j + k) % 3}} for k in range(100)]
    assert len(of(*wide).type.field("m").type) == 300
    assert len(of({"m": {f"f{j}": 1 for j in range(1000)}}).type.field("m").type) == 1000
    assert len(of(*many[:66]).type.field("m").type) == 198


def test_what_is_no_object_with_members() -> None:
    assert of([1], "a", 5).type == of({}, {}).type == of(None).type == of({}, None, True).type == JSON_TEXT
    assert str(of([1], "a", "b")) == "extension<arrow.json>; $: text in 2 values, a list in 1: json"
    found = of({"a": 1}, {"a": 2}, "ping", b"\xff", b"{", b"")
    assert (found.type, found.values) == (pa.struct([("a", INT)]), 6)
    assert found.fields[0].why == "an object in 2 values, text in 1, which are lost"
    assert of({"a": 1}, "ping", "ping").type == JSON_TEXT
    for values, message in (
        ([], "there are no values, so no type"),
        ([b"", None, b"\xff"], "none of the first 3 values is JSON, so no type"),
        ([b"[" * 102 + b"]" * 102, b"x"], "none of the first 2 values is JSON nested at most 100 deep; 1 is deeper, so no type"),
        ([b"[" * 9999 + b"]" * 9999] * 2, "none of the first 2 values is JSON nested at most 100 deep; 2 are deeper, so no type"),
    ):
        raises(ArgumentError, f"{message} can be inferred: say it in key_schema", inferred, values, "key_schema")


def test_names_that_no_column_has_are_left_out() -> None:
    assert of({"\ud800": 1, "": 2, "a.b": 3}).type == pa.struct([("", INT), ("a.b", INT)])
    assert of({"\ud800": 1}).type == JSON_TEXT
    assert of({"a": {"\ud800": 1}}).type == pa.struct([("a", JSON_TEXT)])


def test_what_was_seen() -> None:
    found = of({"a": [1, None, 2.5], "b": {"c": None}}, {"a": [], "b": None}, {"a": None}, {"b": {}})
    rows = [(field.path, str(field.type), dict(field.seen), field.why) for field in found.fields]
    assert rows == [
        ("$", str(found.type), {"object": 4}, ""),
        ("a", "list<item: double>", {"list": 2, "null": 1, "absent": 1}, ""),
        ("a[]", "double", {"integer": 1, "null": 1, "number": 1}, "an integer in 1 value, null in 1, a number in 1"),
        ("b", "struct<c: string>", {"object": 2, "null": 1, "absent": 1}, ""),
        ("b.c", "string", {"null": 1, "absent": 1}, "null in 1 value"),
    ]


_NAMES = st.sampled_from(["a", "b", "größe", "c d", ""])
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=3),
    st.sampled_from([2**53 + 1, 2**63, 10**38, -(10**38), 10**400, 1.0, {}, []]),
)  # fmt: skip
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3), max_leaves=15
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.dictionaries(_NAMES, _VALUES, max_size=4), min_size=1, max_size=6))
@example([{"a": [[], {}]}, {"a": [[None], {}]}])
def test_no_sampled_value_loses_anything(values: list[dict[str, Any]]) -> None:
    found = of(*values)
    assert [lost(value, found.type) for value in values if lost(value, found.type)] == []
    assert found.type == of(*reversed(values)).type or {field.name for field in found.type} == set().union(*values)
    # All that was seen is counted, and every field has a row.
    assert found.fields[0].seen == {"object": len(values)}
    paths = [field.path for field in found.fields]
    assert len(paths) == len(set(paths)) or "" in set().union(*values)
    assert json.loads(json.dumps(spelled(found.type))) == spelled(found.type)


def values_of(folder: Path, values: list[Any], keys: list[Any] | None = None) -> Path:
    texts = [value if isinstance(value, bytes) or value is None else json.dumps(value).encode() for value in values]
    named = [None] * len(texts) if keys is None else [json.dumps(key).encode() for key in keys]
    return put(folder, batch([Record(k, key, text) for k, (key, text) in enumerate(zip(named, texts, strict=True))]))


ROWS = [{"id": 1, "at": {"x": [1, 2]}, "ok": None}, {"id": 2, "at": {"x": [0.5], "y": "t"}, "tags": []}, None, {"id": 3, "ok": True}]


def test_a_printed_schema_reads_the_topic(tmp_path: Path) -> None:
    path = values_of(tmp_path / "t-0", [*ROWS, b"broken"], [{"k": "a"}] * 5)
    for option, column in (((), "value"), (("--key",), "key")):
        out = run("schemas", "--infer", *option, path)
        assert out.returncode == 0
        (tmp_path / "schema.json").write_text(out.stdout)
        asked: dict[str, Any] = {f"{column}_format": "json", f"{column}_schema": (tmp_path / "schema.json").read_text()}
        own = kolumn.read(path, columns=[column, f"{column}Valid"], **asked)
        assert own.equals(kolumn.read(path, columns=[column, f"{column}Valid"], **{f"{column}_format": "json"}))
        shown = run("cat", "--json", f"--{column}-format", "json", f"--{column}-schema", tmp_path / "schema.json", path)
        assert [json.loads(line)[column] for line in shown.stdout.splitlines()] == own[column].to_pylist()
    assert json.loads(run("schemas", "--infer", path).stdout) == {
        "id": "int64", "at": {"x": ["float64"], "y": "string"}, "ok": "bool", "tags": ["string"],
    }  # fmt: skip


def test_what_schemas_infer_prints(tmp_path: Path) -> None:
    path = values_of(tmp_path / "t-0", [{"id": 1, "p": "a"}, {"id": 2, "p": {}}, {"id": 2**65}])
    out = run("schemas", "--infer", path)
    assert out.stdout == '{\n  "id": "decimal(38, 0)",\n  "p": "json"\n}\n'
    lines = [re_spaced.split() for re_spaced in out.stderr.splitlines()]
    assert lines[:2] == [["Of", "3", "values:"], ["field", "type", "seen", "widened"]]
    assert " ".join(lines[4]) == "p json text 1, object 1, absent 1 text in 1 value, an object in 1"
    found = json.loads(run("schemas", "--infer", "--json", path).stdout)
    assert (found["schema"], found["values"]) == ({"id": "decimal(38, 0)", "p": "json"}, 3)
    why = "integers of up to 20 digits"
    assert found["fields"][1] == {"path": "id", "type": "decimal(38, 0)", "seen": {"integer": 3}, "why": why}
    assert json.loads(run("schemas", "--infer", "--value-sample", 1, path).stdout) == {"id": "int64", "p": "string"}
    assert json.loads(run("schemas", "--infer", "--start-offset", 1, "--end-offset", 2, path).stdout) == {"id": "int64", "p": "json"}


def test_framed_values_are_inferred_without_what_precedes_them(tmp_path: Path) -> None:
    path = values_of(tmp_path / "t-0", [b"\0\0\0\0\7" + b'{"a": 1}', b"\0\0\0\0\7" + b'{"a": 2}'])
    assert kolumn.read(path, columns=["value"], value_format="json")["value"].to_pylist() == [{"a": 1}, {"a": 2}]
    path = values_of(tmp_path / "u-0", [b'xx{"a": 1}', b"x"])
    assert kolumn.read(path, columns=["value"], value_format="json", value_skip=2)["value"].to_pylist() == [{"a": 1}, None]
    assert json.loads(run("schemas", "--infer", "--value-skip", 2, path).stdout) == {"a": "int64"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--infer", "--key"), "none of the first 1 values is JSON, so no type can be inferred: say it in --key-schema"),
        (("--infer", "--id", 7), "--infer finds a type by values, --id and --as-of are about registered schemas"),
        (("--key",), "--key goes with --infer"), (("--value-sample", 3), "--value-sample goes with --infer"),
        (("--infer", "--value-sample", 0), "expected an integer, at least 1"),
        (("--infer", "--topic", "x", "--start-offset", 9), "there are no values"),
    ],
)  # fmt: skip
def test_what_schemas_refuses(tmp_path: Path, arguments: tuple[object, ...], words: str) -> None:
    path = put(tmp_path / "t-0", batch([Record(0, b"no", b"{}")]))
    assert run("schemas", "--infer", path).stdout == "json\n"
    out = run("schemas", *arguments, path)
    assert (out.returncode, words in out.stderr, out.stdout) == (2, True, ""), out.stderr
