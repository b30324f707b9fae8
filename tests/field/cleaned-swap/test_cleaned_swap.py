"""A `.cleaned` file of any kind says that a swap file is not finished."""

from pathlib import Path

import pytest

import kolumn


@pytest.mark.parametrize(("name", "first"), [("a", 0), ("b", 0), ("c", 0), ("d", 0), ("e", 9)])
def test_the_records_are_those_of_a_broker(disk: Path, name: str, first: int) -> None:
    assert kolumn.read(disk / name / "t-0", columns=["offset"])["offset"].to_pylist() == list(range(first, 13))
