"""Cleaning by age removes whole segments from the head of the log, and the head of the first segment that stays."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kolumn.core.errors import ArgumentError
from kolumn.log.seek import ENRICHED_INDEX, read_index
from kolumn.source.segments import find_segments

TIME = 1_700_000_000_000
HOUR = 3_600_000


def _log(folder: Path, format: str, times: list[int], **options: Any) -> Path:
    rows = len(times)
    table = pa.table({"offset": range(rows), "timestampMs": times, "value": [b"v%d" % i for i in range(rows)]})
    kolumn.write(table, folder / "t-0", format=format, segment_bytes=2000, index_interval_bytes=200, batch_bytes=300, **options)
    return folder / "t-0"


def _offsets(folder: Path, format: str) -> list[int]:
    return list(kolumn.read(folder, format=format, columns=["offset"])["offset"].to_pylist())


@pytest.mark.parametrize("format", ["enriched", "kafka", "kip98-draft"])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_head_goes(tmp_path: Path, format: str, codec: str) -> None:
    times = [TIME + i * HOUR for i in range(200)]
    source = _log(tmp_path, format, times, codec=codec)
    segments = len(find_segments(source))
    done = kolumn.clean(source, tmp_path / "out", format=format, retention_ms=100 * HOUR, now=TIME + 200 * HOUR)
    kept = _offsets(tmp_path / "out", format)
    first = kept[0]
    # The log is cut between entries, never inside one, so the first entry may begin with older records.
    sizes = kolumn.batches(source, format=format).to_pylist()
    [own] = [row for row in sizes if row["baseOffset"] == first]
    assert own["maxTimestampMs"] >= TIME + 100 * HOUR
    assert kept == list(range(first, 200))
    assert first <= 100
    assert len(done.dropped) + len(done.segments) == segments
    assert len(done.cut) <= 1
    assert kolumn.verify(tmp_path / "out", format=format).ok
    again = kolumn.clean(tmp_path / "out", tmp_path / "again", format=format, retention_ms=100 * HOUR, now=TIME + 200 * HOUR)
    assert (again.dropped, again.cut) == ([], {})
    assert _offsets(tmp_path / "again", format) == kept


def test_old_records_after_young_ones_stay(tmp_path: Path) -> None:
    source = _log(tmp_path, "enriched", [TIME, TIME + 9 * HOUR, TIME, TIME])
    kolumn.clean(source, tmp_path / "out", retention_ms=HOUR, now=TIME + 9 * HOUR)
    assert _offsets(tmp_path / "out", "enriched") == [1, 2, 3]


def test_all_may_be_old_or_young(tmp_path: Path) -> None:
    source = _log(tmp_path, "enriched", [TIME] * 50)
    assert kolumn.clean(source, tmp_path / "none", retention_ms=0, now=TIME + 1).segments == []
    done = kolumn.clean(source, tmp_path / "all", retention_ms=HOUR, now=TIME + 1)
    assert (done.dropped, done.cut) == ([], {})
    assert (tmp_path / "all" / "t-0" / f"{0:020}.log").read_bytes() == (source / f"{0:020}.log").read_bytes()


def test_the_index_of_enriched_logs(tmp_path: Path) -> None:
    """An index entry is relative offset i32, largest timestamp so far i64, position i32. The last message always has an index entry."""
    source = _log(tmp_path, "enriched", [TIME, TIME + 5, TIME + 2] + [TIME] * 30)
    [segment, *_] = find_segments(source)
    index = read_index(segment, ".index", ENRICHED_INDEX)
    rows = kolumn.batches(segment.path, format="enriched").to_pylist()
    assert index["offset"][-1] == rows[-1]["baseOffset"]
    assert index["position"][-1] == rows[-1]["position"]
    assert set(index["timestamp"]) == {TIME + 5}
    assert not list(source.glob("*.timeindex"))
    for offset in range(len(rows)):
        found = kolumn.read(source, format="enriched", columns=["offset"], start_offset=offset)
        assert found["offset"][0].as_py() == offset


@pytest.mark.parametrize("change", ["times", "positions", "gone"])
def test_a_wrong_index_changes_nothing(tmp_path: Path, change: str) -> None:
    source = _log(tmp_path, "enriched", [TIME + i * HOUR for i in range(60)])
    for path in source.glob("*.index"):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 16):
            if change == "times":
                data[at + 4 : at + 12] = (TIME - HOUR).to_bytes(8, "big")
            elif change == "positions":
                data[at + 15] ^= 1
        path.unlink() if change == "gone" else path.write_bytes(data)
    kolumn.clean(source, tmp_path / "out", retention_ms=30 * HOUR, now=TIME + 60 * HOUR)
    assert _offsets(tmp_path / "out", "enriched") == list(range(30, 60))


def test_what_makes_no_sense(tmp_path: Path) -> None:
    source = _log(tmp_path, "enriched", [TIME])
    with pytest.raises(ArgumentError, match="retention_ms=-1"):
        kolumn.clean(source, tmp_path / "out", retention_ms=-1)
    kolumn.clean(source, tmp_path / "out", retention_ms=HOUR, now=TIME)
    with pytest.raises(ArgumentError, match="already exists"):
        kolumn.clean(source, tmp_path / "out", retention_ms=HOUR, now=TIME)


@pytest.mark.parametrize("damaged", [0, 1, 3])
def test_young_records_after_damage_stay(tmp_path: Path, damaged: int) -> None:
    """A damaged length ends the walk along the headers, not the log. Damaged entries stay too, because their age is not known."""
    times = [TIME] * 30 + [TIME + 9 * HOUR] * 30
    table = pa.table({"offset": range(60), "timestampMs": times, "value": [b"v%d" % i for i in range(60)]})
    kolumn.write(table, tmp_path / "t-0", batch_bytes=100)
    path = tmp_path / "t-0" / f"{0:020}.log"
    rows = kolumn.batches(path).to_pylist()
    data = bytearray(path.read_bytes())
    start = rows[damaged]["position"]
    data[start + 8 : start + 12] = (1 << 28).to_bytes(4, "big")
    path.write_bytes(data)
    kept = kolumn.read(path, errors="skip")["offset"].to_pylist()
    done = kolumn.clean(tmp_path / "t-0", tmp_path / "out", format="kafka", retention_ms=HOUR, now=TIME + 9 * HOUR)
    after = max(0, damaged - 1)
    assert done.cut == ({str(path): rows[after]["position"]} if after else {})
    found = kolumn.read(tmp_path / "out", errors="skip")["offset"].to_pylist()
    assert found == [offset for offset in kept if offset >= rows[after]["baseOffset"]]
    assert found[-30:] == list(range(30, 60))
