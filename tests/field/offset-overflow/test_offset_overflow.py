"""What `verify` calls intact is in what `recover` writes, in segments whose offsets fit into an index."""

from pathlib import Path

import pytest

import kolumn

RIGHT = {"v2": 11, "v1": 11, "v0": 10, "one-segment": 10, "top": 10, "thousand": 2000}


@pytest.mark.parametrize("name", RIGHT)
def test_recovered_whole(name: str, disk: Path, tmp_path: Path) -> None:
    source = disk / f"{name}-0"
    columns = ["offset", "timestampMs", "key", "value"]
    expected = kolumn.read(source, columns=columns)
    assert (expected.num_rows, kolumn.verify(source).ok) == (RIGHT[name], True)
    done = kolumn.recover(source, tmp_path / "out")
    assert (done.ok, done.lost.num_rows) == (True, 0)
    assert kolumn.read(tmp_path / "out", columns=columns).equals(expected)
    for log in (tmp_path / "out" / source.name).glob("*.log"):
        assert max(kolumn.read(log, columns=["offset"])["offset"].to_pylist()) - int(log.stem) < 2**31
