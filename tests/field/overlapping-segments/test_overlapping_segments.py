"""Two segments of one folder overlap: leader epochs decide, a batch across the border is cut, and what is left out is reported."""

from pathlib import Path

import pytest

import kolumn

RIGHT = {
    # What is in the result, and how many records of the other leader are reported.
    "epoch-aligned": (range(30), 10), "epoch-straddle": (range(35), 5), "epoch-straddle-long": (range(25), 15),
    "epoch-lower": (range(20), 20), "one-past": (range(29), 1), "single-batches": (range(35), 5), "same": (range(30), 0),
    "same-straddle": (range(35), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_recovered(name: str, disk: Path, tmp_path: Path) -> None:
    offsets, superseded = RIGHT[name]
    done = kolumn.recover(disk / f"{name}-0", tmp_path / "out")
    found = kolumn.read(tmp_path / "out", columns=["offset", "leaderEpoch"])
    assert found["offset"].to_pylist() == list(offsets)
    epochs = found["leaderEpoch"].to_pylist()
    assert epochs == sorted(epochs)
    assert [row["kind"] for row in done.lost.to_pylist()] == ["superseded"] * (superseded > 0)
    assert sum(done.lost["recordsLost"].to_pylist()) == superseded
    assert kolumn.verify(tmp_path / "out").ok
