"""Damage near an unclean election: no record of the leader that lost it comes back, and each that is intact is reported."""

import itertools
from pathlib import Path

import pytest

import kolumn

FIRST = {"s255": (8, 15), "s101": (17, 20), "s272": (35, 46)}
"""The offset with which the successor began, and the one after its last record."""


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("order", [1, -1])
def test_the_successors_log(name: str, order: int, disk: Path, tmp_path: Path) -> None:
    copies = [disk / name / "b1" / "t-0", disk / name / "b2" / "t-0"][::order]
    first, end = FIRST[name]
    columns = ["offset", "leaderEpoch", "value"]
    found = kolumn.read(copies, replicas="merge", errors="skip", columns=columns).to_pylist()
    values = [(row["offset"], row["value"]) for row in found]
    assert not [row for row in values if row[1].startswith(b"lost")]
    assert {offset for offset, value in values if value.startswith(b"new")} <= set(range(first, end))
    assert all(one["leaderEpoch"] <= other["leaderEpoch"] for one, other in itertools.pairwise(found))
    alone = [row for copy in copies for row in kolumn.read(copy, errors="skip", columns=["offset", "value"]).to_pylist()]
    intact = {(row["offset"], row["value"]) for row in alone}
    # What the log has and any copy has intact is there; what no copy may add is reported, record by record.
    log = {row for row in intact if not row[1].startswith(b"lost")}
    assert set(values) == log
    done = kolumn.recover(copies, tmp_path / "out")
    superseded = [row["recordsLost"] for row in done.lost.to_pylist() if row["kind"] == "superseded"]
    assert sum(superseded) == len(intact) - len(log) > 0
    assert kolumn.read(tmp_path / "out", columns=columns).to_pylist() == found
