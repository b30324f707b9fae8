"""Offsets that go back within a file: each is kept once, that which was written later, and what is left out is reported."""

from pathlib import Path

import pytest

import kolumn

RIGHT = {
    "dup": (range(30), 0),
    "overlap": (range(45), 15),
    "back": (range(30), 0),
    "jumpback": ([*range(50, 60), *range(100, 130)], 0),
    "seg": (range(35), 5),
}


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("name", RIGHT)
def test_recovered(name: str, version: str, disk: Path, tmp_path: Path) -> None:
    source = disk / f"{version}_{name}-0"
    offsets, superseded = RIGHT[name]
    done = kolumn.recover(source, tmp_path / "out")
    found = kolumn.read(tmp_path / "out", columns=["offset", "value"])
    assert found["offset"].to_pylist() == list(offsets)
    assert sum(done.lost["recordsLost"].to_pylist()) == superseded
    assert (done.ok, {row["kind"] for row in done.lost.to_pylist()}) == (True, {"superseded"} if superseded else set())
    if superseded:
        assert found["value"][15].as_py() == b"b15"
