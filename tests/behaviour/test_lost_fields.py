"""What is lost of a value is one field where it can be, is told beside the row, and is counted."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn

VALUES: list[bytes | None] = [b'{"id":1,"at":{"x":2}}', None, b'{"id":"?","at":{"x":2.5}}', b"{", b'{"id":4,"at":{"x":[]}}', b'{"id":5}']
JSON: dict[str, Any] = {"value_format": "json", "value_schema": {"id": "int64", "at": {"x": "int32"}}}
COLUMNS = ["value", "valueValid", "valueProblems"]
VALID = [True, False, False, False, False, True]
WHOLE = [None, None, ["$"], ["$"], ["$"], None]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "t-0"
    kolumn.write(pa.table({"value": pa.array(VALUES, pa.binary()), "key": pa.array([b"1", b"x"] * 3, pa.binary())}), path)
    return path


@pytest.mark.parametrize("threads", [1, 4])
def test_a_field_is_lost_alone(log: Path, threads: int, caplog: pytest.LogCaptureFixture) -> None:
    skipped = kolumn.Skipped()
    found = kolumn.read(log, columns=COLUMNS, threads=threads, on_damage=skipped, **JSON)
    assert found["valueValid"].to_pylist() == VALID
    assert found["valueProblems"].to_pylist() == [None, None, ["id", "at.x"], ["$"], ["at.x"], None]
    rows = found["value"].to_pylist()
    assert rows[:3] == [{"id": 1, "at": {"x": 2}}, None, {"id": None, "at": {"x": None}}]
    assert rows[3:] == [None, {"id": 4, "at": {"x": None}}, {"id": 5, "at": None}]
    assert (skipped.values.values, skipped.damage) == ({"value": 3}, [])
    assert skipped.values.fields == {("value", "id"): 1, ("value", "at.x"): 2, ("value", "$"): 1}
    assert str(skipped) == "1 value could not be decoded; 2 values lost at.x (2), id (1)"
    # Who counts is told nothing.
    assert caplog.messages == []
    kolumn.read(log, columns=COLUMNS, threads=threads, **JSON)
    assert caplog.messages == [f"{skipped}: see the column valueProblems"]


def test_fields_as_columns(log: Path) -> None:
    found = kolumn.read(log, columns=["value", "valueProblems"], value_as="columns", value_columns=["id"], **JSON)
    assert found.schema.names == ["id", "valueProblems"]
    assert found.column("id").to_pylist() == [1, None, None, None, 4, 5]
    assert found["valueProblems"].to_pylist() == [None, None, ["id"], ["$"], None, None]


def test_whole_values_are_lost_on_request(log: Path) -> None:
    found = kolumn.read(log, columns=COLUMNS, value_errors="keep", **JSON)
    assert [value is not None for value in found["value"].to_pylist()] == VALID
    assert (found["valueValid"].to_pylist(), [bool(one) for one in found["valueProblems"].to_pylist()]) == (
        VALID,
        [bool(one) for one in WHOLE],
    )


def test_separated_values_are_lost_likewise(log: Path) -> None:
    csv: dict[str, Any] = {"key_format": "csv", "key_schema": {"n": "int8"}, "columns": ["key", "keyValid"]}
    for errors, lost in (("null-field", {"n": None}), ("keep", None)):
        assert (
            kolumn.read(log, key_errors=errors, **csv).to_pylist()
            == [{"key": {"n": 1}, "keyValid": True}, {"key": lost, "keyValid": False}] * 3
        )


def test_an_error_names_the_field(log: Path) -> None:
    with pytest.raises(kolumn.PayloadError, match=r"offset 2: value: .*not json of the type .*, of which id, at\.x do not fit"):
        kolumn.read(log, value_errors="raise", **JSON)


def test_keys_too_and_only_what_is_asked_for(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys: dict[str, Any] = {"key_format": "csv", "key_schema": {"n": "int8"}}
    found = kolumn.read(log, columns=["key", "keyProblems", "value"], **keys)
    assert (found["key"].to_pylist(), found["keyProblems"].to_pylist()) == ([{"n": 1}, {"n": None}] * 3, [None, ["n"]] * 3)
    assert "3 keys lost n (3)" in caplog.text
    caplog.clear()
    kolumn.read(log, columns=["offset", "keyRaw"], **keys)
    assert caplog.text == ""
    with pytest.raises(kolumn.ArgumentError, match="column valueProblems: it goes with value_format"):
        kolumn.read(log, columns=["valueProblems"])


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/X", "$defs": {"X": {"type": "object", "properties": {"id": {"type": "integer"}}}}},
        {"oneOf": [{"type": "null"}, {"properties": {"id": {"type": "integer"}}}]},
        {"allOf": [{"$ref": "#/definitions/X"}], "definitions": {"X": {"properties": {"id": {"type": "integer"}}}}},
    ],
)
def test_json_schemas_without_properties_of_their_own(log: Path, schema: dict[str, Any]) -> None:
    found = kolumn.read(log, columns=["value"], value_format="json", value_schema=schema)
    assert found["value"].to_pylist() == [{"id": 1}, None, {"id": None}, None, {"id": 4}, {"id": 5}]


def test_json_schemas_of_maps_and_lists(tmp_path: Path) -> None:
    kolumn.write(pa.table({"value": ['{"a": 1, "b": "?"}', "[5]", "7"]}), tmp_path / "t-0")
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    for schema, expected in (
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [([("a", 1), ("b", None)], ["$[]"]), (None, ["$"])]),
        ({**draft, "type": "array", "items": {"type": "integer"}}, [(None, ["$"]), ([5], None)]),
    ):
        columns = ["value", "valueProblems"]
        rows = kolumn.read(tmp_path / "t-0", columns=columns, value_format="json", value_schema=schema).to_pylist()
        assert [(row["value"], row["valueProblems"]) for row in rows] == [*expected, (None, ["$"])]


def test_a_mapping_of_names_is_no_json_schema(log: Path) -> None:
    for schema in (
        {"$ref": "int64", "type": "string"},
        {"oneOf": [{"a": "int64"}], "id": "int64"},
        {"properties": {"x": "int8"}, "type": "string"},
    ):
        assert kolumn.read(log, columns=["value"], value_format="json", value_schema=schema)["value"].type.names == list(schema)


def test_conditions_on_fields_of_which_some_are_lost(log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody knows whether a record is meant if what is asked for is lost, not if another field is, or there is no value."""
    for condition, offsets, undecided in (("value.id=4", [4], 2), ("value.id=1", [0], 2), ("value.at.x=2", [0], 3)):
        caplog.clear()
        assert kolumn.history(log, where=condition, **JSON)["offset"].to_pylist() == offsets
        assert f"of {undecided} records" in caplog.text
        done = kolumn.erase(log, tmp_path / condition, where=condition, **JSON)
        assert (done.records, done.undecided) == (1, undecided)
    text = JSON | {"value_schema": {"id": "json"}}
    for condition, offsets in (("value.id=?", [2]), ('value.id="?"', [2]), ("value.id=4", [4]), ("value.id=x", [])):
        assert kolumn.history(log, where=condition, **text)["offset"].to_pylist() == offsets
