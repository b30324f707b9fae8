"""Registered JSON Schemas: a keyword without a column does not cost the other members."""

from pathlib import Path
from typing import Any

import pytest

import kolumn


def values(disk: Path, topic: str, **options: Any) -> list[Any]:
    found: list[Any] = kolumn.read(disk / f"{topic}-0", value_format="registry", columns=["value"], **options)["value"].to_pylist()
    return found


def test_as_connect_writes_them(disk: Path) -> None:
    right = {"id": 1, "name": None, "amt": 12.34, "created": 1_700_000_000_000, "addr": {"street": "q"}}
    assert values(disk, "jax") == [right]


@pytest.mark.xfail(strict=True, reason="a member without a column refuses the topic, also if it is not asked for")
def test_plain_members_of_a_pydantic_model(disk: Path) -> None:
    right = [{"id": 1, "price": 1.5, "flag": True}, {"id": 2, "price": 3.0, "flag": None}]
    assert values(disk, "pyd", value_columns=["id", "price", "flag"]) == right


@pytest.mark.xfail(strict=True, reason="there are no maps of JSON")
def test_a_map(disk: Path) -> None:
    assert [value["tags"] for value in values(disk, "pyd")] == [[("k", "v")], None]


@pytest.mark.xfail(strict=True, reason="allOf is refused")
def test_all_of(disk: Path) -> None:
    assert values(disk, "allof") == [{"a": 1, "b": "x"}]


@pytest.mark.xfail(strict=True, reason="oneOf of objects is refused")
def test_one_of_two_objects(disk: Path) -> None:
    first, second = values(disk, "multi")
    assert (first["a"], second["b"]) == (1, "x")


@pytest.mark.xfail(strict=True, reason="references to other schemas of the topic are not followed")
def test_a_reference(disk: Path) -> None:
    assert values(disk, "refd") == [{"id": 1, "addr": {"street": "x"}}]
