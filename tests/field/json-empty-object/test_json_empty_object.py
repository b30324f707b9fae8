"""A member that is always an object without members does not make the value null."""

from pathlib import Path

import pytest

import kolumn


@pytest.mark.xfail(strict=True, reason="a struct without fields, as the type of such a member is inferred, makes every value null")
@pytest.mark.parametrize(("topic", "ids"), [("jempty", [None, None]), ("jempty2", [1, 2]), ("jempty5", [1, 2]), ("jempty9", [1])])
def test_other_members_are_there(disk: Path, topic: str, ids: list[int | None]) -> None:
    found = kolumn.read(disk / f"{topic}-0", value_format="json", columns=["value", "valueValid"])
    assert found["valueValid"].to_pylist() == [True] * len(ids)
    assert [value.get("id") for value in found["value"].to_pylist()] == ids
