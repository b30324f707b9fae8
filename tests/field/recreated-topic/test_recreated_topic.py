"""Folders of two topics of the same name are no copies, whatever their leader epochs say."""

from pathlib import Path

import pytest

import kolumn


@pytest.mark.parametrize(("one", "other"), [("disk1", "disk2"), ("disk1", "disk3"), ("disk4", "disk5"), ("disk6", "disk4")])
def test_topics_with_other_ids_are_no_copies(one: str, other: str, disk: Path, tmp_path: Path) -> None:
    sources = [disk / one, disk / other]
    for call in (
        lambda: kolumn.read(sources, replicas="merge"),
        lambda: kolumn.read(sources),
        lambda: kolumn.recover(sources, tmp_path / "out"),
    ):
        with pytest.raises(
            kolumn.ArgumentError, match=r"two topics of the same name, with the ids A{21}[Qg] and A{21}[Qg] in partition\.metadata"
        ):
            call()
    assert not (tmp_path / "out").exists()


def test_copies_of_the_new_topic(disk: Path, tmp_path: Path) -> None:
    values = [b"new%d" % i for i in range(30)]
    assert kolumn.read([disk / "disk6", disk / "disk5"], replicas="merge", columns=["value"])["value"].to_pylist() == values
    assert kolumn.recover([disk / "disk5", disk / "disk6"], tmp_path / "out").ok
    assert kolumn.read(tmp_path / "out", columns=["value"])["value"].to_pylist() == values
