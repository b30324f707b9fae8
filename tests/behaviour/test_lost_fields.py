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
    assert str(skipped) == "3 values lost at.x (2), id (1), all (1)"
    # Who counts is told nothing.
    assert caplog.messages == []
    kolumn.read(log, columns=COLUMNS, threads=threads, **JSON)
    assert caplog.messages == [f"{skipped}; column valueProblems tells which"]


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
