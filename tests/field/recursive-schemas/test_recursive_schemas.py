"""Schemas that contain themselves: a clear error, and the plain fields where they are named."""

from pathlib import Path
from typing import Any

import pytest

import kolumn
from kolumn.core.errors import ArgumentError


def values(disk: Path, topic: str, **options: Any) -> list[Any]:
    found: list[Any] = kolumn.read(disk / f"{topic}-0", value_format="registry", columns=["value"], **options)["value"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("topic", "options", "field"),
    [
        ("ll", {}, "next"), ("tree", {}, "left"), ("arr", {}, "kids"), ("wrap", {}, "tree.next"),
        ("node", {"value_message": "ex.Node"}, "children"), ("person", {"value_message": "ex.Person"}, "bff"),
        ("ev", {"value_message": "ex.Ev"}, "attrs.fields.value.struct_value"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)  # fmt: skip
def test_the_error_names_the_field(disk: Path, topic: str, options: dict[str, Any], field: str) -> None:
    with pytest.raises(ArgumentError, match=rf"{field}: .* contains itself"):
        values(disk, topic, **options)


def test_plain_fields_of_protobuf(disk: Path) -> None:
    found = values(disk, "ev", value_message="ex.Ev", value_columns=["id", "nick", "big"])
    assert found == [{"id": 5, "nick": "nn", "big": None}, {"id": 1, "nick": None, "big": None}]
    assert values(disk, "node", value_message="ex.Node", value_columns=["value"]) == [{"value": 1}]
    assert values(disk, "person", value_message="ex.Person", value_columns=["name"]) == [{"name": "a"}]
    plain = values(disk, "plain", value_message="ex.Plain", value_columns=["id", "any", "mask"])
    assert plain[0] == {"id": 5, "any": {"type_url": "type.googleapis.com/ex.Person", "value": b"\n\x01q"}, "mask": {"paths": ["a.b"]}}


@pytest.mark.xfail(strict=True, reason="value_columns of Avro does not get past a field that contains itself")
def test_plain_fields_of_avro(disk: Path) -> None:
    assert values(disk, "wrap", value_columns=["id", "after"]) == [{"id": 7, "after": "z"}, {"id": 8, "after": "y"}]
