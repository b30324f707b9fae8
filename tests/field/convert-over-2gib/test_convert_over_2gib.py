"""A segment that grows past what a segment can hold goes on in others, when it is converted or compacted."""

from pathlib import Path

import pyarrow.compute as pc
import pytest

import kolumn
from kolumn.core.errors import ArgumentError
from kolumn.writers import segments

LIMIT = 32 << 20
BATCHES, RECORDS = 8, 80
"""A batch has 10 MiB without its codec, so three of them fit."""


@pytest.fixture
def source(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Its end is where a copy was cut, so no segment follows it.
    (disk / "big-0" / f"{2200:020}.log").unlink()
    first = disk / "big-0" / f"{0:020}.log"
    ends = kolumn.batches(first).select(["position", "size"]).slice(BATCHES - 1, 1).to_pylist()[0]
    first.write_bytes(first.read_bytes()[: ends["position"] + ends["size"]])
    monkeypatch.setattr(segments, "_LARGEST_RELATIVE", LIMIT)
    return disk / "big-0"


def test_convert(source: Path, tmp_path: Path) -> None:
    done = kolumn.convert(source, tmp_path / "new", codec="none")
    folder = tmp_path / "new" / "big-0"
    written = sorted(folder.glob("*.log"))
    assert (done.records, sorted(done.segments)) == (RECORDS, [str(one) for one in written])
    assert len(written) == 3
    assert max(one.stat().st_size for one in written) <= LIMIT
    batches = kolumn.batches(folder)
    for one in written:
        assert pc.min(batches.filter(pc.equal(batches["segment"], str(one)))["baseOffset"]).as_py() == int(one.stem)
        assert (one.with_suffix(".index").exists(), one.with_suffix(".timeindex").exists()) == (True, True)
    columns = ["offset", "key", "value", "timestampMs"]
    assert kolumn.read(folder, columns=columns).equals(kolumn.read(source, columns=columns))
    assert kolumn.verify(folder).ok


def test_one_file_says_what_helps(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="more than a segment can hold: name a folder, in which segments are rolled"):
        kolumn.convert(source / f"{0:020}.log", tmp_path / "one.log", codec="none")
    assert not (tmp_path / "one.log").exists()
    assert len(kolumn.convert(source / f"{0:020}.log", tmp_path / "folder", codec="none").segments) == 3


def test_compact(source: Path, tmp_path: Path) -> None:
    # Format 2 without a codec, more of it than a segment may have now.
    kolumn.convert(source / f"{0:020}.log", tmp_path / "plain", codec="none")
    whole = tmp_path / "whole" / "big-0"
    whole.mkdir(parents=True)
    data = b"".join(one.read_bytes() for one in sorted((tmp_path / "plain" / "big-0").glob("*.log")))
    (whole / f"{0:020}.log").write_bytes(data)
    done = kolumn.compact(whole, tmp_path / "new", include_active=True)
    written = sorted((tmp_path / "new" / "big-0").glob("*.log"))
    assert (done.retained, sorted(done.segments)) == (RECORDS, [str(one) for one in written])
    assert len(written) == 3
    assert max(one.stat().st_size for one in written) <= LIMIT
    assert b"".join(one.read_bytes() for one in written) == data
    assert kolumn.verify(tmp_path / "new" / "big-0").ok
