"""Offsets that span more than 2^31 in one segment: what rewrites it goes on in other segments."""

from pathlib import Path

import pyarrow.compute as pc
import pytest

import kolumn

RECORDS = {"v2": 11, "v1": 11, "v0": 10, "one-segment": 10, "top": 10}
COLUMNS = ["offset", "key", "value"]


def check(folder: Path, segments: list[str]) -> None:
    assert sorted(segments) == sorted(str(one) for one in folder.glob("*.log"))
    batches = kolumn.batches(folder)
    for one in folder.glob("*.log"):
        own = batches.filter(pc.equal(batches["segment"], str(one)))
        assert own.num_rows
        assert int(one.stem) <= pc.min(own["baseOffset"]).as_py()
        assert pc.max(own["lastOffset"]).as_py() - int(one.stem) < 2**31
    assert kolumn.verify(folder).ok


@pytest.mark.parametrize("topic", RECORDS)
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_convert(disk: Path, tmp_path: Path, topic: str, codec: str) -> None:
    done = kolumn.convert(disk / f"{topic}-0", tmp_path / "new", codec=codec)
    found = kolumn.read(tmp_path / "new", columns=COLUMNS)
    assert done.records == found.num_rows == RECORDS[topic]
    assert found.equals(kolumn.read(disk / f"{topic}-0", columns=COLUMNS))
    check(tmp_path / "new" / f"{topic}-0", done.segments)
    assert (len(done.segments) == 1) == (topic == "top")


@pytest.mark.parametrize("topic", RECORDS)
@pytest.mark.parametrize("include_active", [False, True])
def test_compact(disk: Path, tmp_path: Path, topic: str, include_active: bool) -> None:
    source = kolumn.read(disk / f"{topic}-0", columns=COLUMNS)
    last = dict(zip(source["key"].to_pylist(), source["offset"].to_pylist(), strict=True))
    done = kolumn.compact(disk / f"{topic}-0", tmp_path / "new", include_active=include_active)
    found = kolumn.read(tmp_path / "new", columns=COLUMNS)
    assert {*last.values()} <= {*found["offset"].to_pylist()}
    if include_active:
        assert sorted(last.values()) == found["offset"].to_pylist()
        check(tmp_path / "new" / f"{topic}-0", done.segments)


def test_clean_cuts_inside_of_one(disk: Path, tmp_path: Path) -> None:
    source = kolumn.read(disk / "v2-0", columns=["offset", "timestampMs"])
    times = source["timestampMs"].to_pylist()
    done = kolumn.clean(disk / "v2-0", tmp_path / "new", format="kafka", retention_ms=0, now=times[2])
    assert len(done.cut) == 1
    assert kolumn.read(tmp_path / "new", columns=["offset"])["offset"].to_pylist() == source["offset"].to_pylist()[2:]
    check(tmp_path / "new" / "v2-0", done.segments)
