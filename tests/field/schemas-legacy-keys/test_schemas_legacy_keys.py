"""Keys of an old registry, deleted schemas and contexts: what is in the log is decoded."""

from pathlib import Path
from typing import Any

import pytest

import kolumn


@pytest.mark.parametrize(
    ("topic", "right"),
    [
        ("live", [{"a": 1}, {"a": 2}]),
        ("soft", [{"a": 1, "b": "q"}]),
        ("cl", [{"a": 1}]),
        pytest.param("ds", [{"a": 1, "b": "q"}], marks=pytest.mark.xfail(strict=True, reason="a deleted subject has no type of a column")),
        pytest.param("gone", [{"a": 1}], marks=pytest.mark.xfail(strict=True, reason="a schema that was deleted for good is not kept")),
        pytest.param("ctx", [{"a": 1, "b": "q"}], marks=pytest.mark.xfail(strict=True, reason="ids of contexts are not known")),
    ],
)
def test_values(disk: Path, topic: str, right: list[dict[str, Any]]) -> None:
    assert kolumn.read(disk / f"{topic}-0", value_format="registry", columns=["value"])["value"].to_pylist() == right
