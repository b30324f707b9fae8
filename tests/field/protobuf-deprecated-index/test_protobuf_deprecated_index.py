"""Message indexes as old Python clients wrote them name the same messages."""

from pathlib import Path
from typing import Any

import pytest

import kolumn

RIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "first": ("ex.First", {"a": 5, "s": "x"}),
    "second": ("ex.Second", {"name": "nn", "n": 7, "inner": {"ok": True, "t": "q"}}),
    "third": ("ex.Third", {"d": 1.5, "tags": ["a", "b"]}),
    "inner": ("ex.Second.Inner", {"ok": True, "t": "zz"}),
}
OLD = pytest.mark.xfail(strict=True, reason="plain varints are read as zig-zag ones, so they name another message")


@pytest.mark.parametrize(
    ("message", "form", "count"),
    [
        *((message, "new", 3) for message in RIGHT),
        ("first", "old", 3),
        *(pytest.param(message, "old", 3, marks=OLD) for message in ("second", "third", "inner")),
        pytest.param("second", "mixed", 4, marks=OLD),
    ],
)
def test_values(disk: Path, message: str, form: str, count: int) -> None:
    name, value = RIGHT[message]
    found = kolumn.read(disk / f"{message}-{form}-0", value_format="registry", value_message=name, columns=["value"])
    assert found["value"].to_pylist() == [value] * count
