"""A tier has segments of a leader that lost an election: the headers of batches tell which, where no file does."""

from pathlib import Path

import pytest

import kolumn

RIGHT = [*((offset, 0) for offset in range(51)), *((offset, 2) for offset in range(51, 123))]


@pytest.mark.parametrize(("name", "superseded"), [("u3", 51), ("u6", 81), ("u7", 51)])
def test_the_newest_leaders_log(name: str, superseded: int, disk: Path, tmp_path: Path) -> None:
    (source,) = disk.glob(f"{name}-*")

    def rows(where: Path, **options: object) -> list[tuple[int, int]]:
        found = kolumn.read(where, columns=["offset", "leaderEpoch"], **options)
        return list(zip(found["offset"].to_pylist(), found["leaderEpoch"].to_pylist(), strict=True))

    assert rows(source) == rows(source, replicas="merge") == RIGHT
    done = kolumn.recover(source, tmp_path / "out")
    assert rows(tmp_path / "out") == RIGHT
    assert {row["kind"] for row in done.lost.to_pylist()} == {"superseded"}
    assert sum(done.lost["recordsLost"].to_pylist()) == superseded
