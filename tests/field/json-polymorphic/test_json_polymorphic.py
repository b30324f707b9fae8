"""A member that is a text here and an object there does not cost the other members."""

from pathlib import Path

import pytest

import kolumn

SCHEMA = {"id": "int64", "payload": "string"}


def test_texts_and_nulls(disk: Path) -> None:
    values = kolumn.read(disk, value_format="json", value_schema=SCHEMA)["value"].to_pylist()
    assert (len(values), values[0], values[4]) == (5, {"id": 1, "payload": "text"}, {"id": 5, "payload": None})


@pytest.mark.xfail(strict=True, reason="a member of another type makes the whole value null, and no type keeps JSON text")
def test_other_types_are_json_text(disk: Path) -> None:
    values = kolumn.read(disk, value_format="json", value_schema=SCHEMA)["value"].to_pylist()
    assert values == [
        {"id": 1, "payload": "text"}, {"id": 2, "payload": '{"x":1,"y":[1,2]}'}, {"id": 3, "payload": "[1,2]"},
        {"id": 4, "payload": "17"}, {"id": 5, "payload": None},
    ]  # fmt: skip
