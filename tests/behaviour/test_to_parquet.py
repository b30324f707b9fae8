"""Parquet files are written by several threads, and nobody can tell by the result."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kolumn
from kolumn.copies.ranges import log_ranges
from kolumn.damage.findings import Damage
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.tools import parquet
from kolumn.tools.parquet import write_parquet

SEGMENTS, ROWS = 5, 400


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = range(SEGMENTS * ROWS)
    table = pa.table({"key": [b"%d" % row for row in rows], "value": [b"v" * 100] * len(rows)})
    kolumn.write(table, tmp_path / "orders-0", segment_bytes=50_000, batch_bytes=5_000)
    return tmp_path / "orders-0"


def written(log: Path, target: Path, threads: int, **options: Any) -> tuple[list[int], list[int], list[Damage]]:
    chosen = Options.of(threads=threads, **options)
    damage: list[Damage] = []
    each = list(
        write_parquet(log_ranges(live_segments(log, chosen).segments, chosen), str(target), chosen, 1 << 20, "zstd", False, damage.append)
    )
    return [some[0].segment.base_offset or 0 for some, _ in each], [rows for _, rows in each], damage


def damaged(log: Path) -> list[Path]:
    """The second and the fourth segment get a wrong byte."""
    some = sorted(log.glob("*.log"))[1::2]
    for path in some:
        data = bytearray(path.read_bytes())
        data[9000] ^= 1
        path.write_bytes(data)
    return some


def test_threads_write_the_same_files(tmp_path: Path, log: Path) -> None:
    damaged(log)
    one, three = (written(log, tmp_path / f"{threads}", threads, errors="skip") for threads in (1, 3))
    assert one[:2] == three[:2]
    assert one[0] == sorted(one[0])
    assert [str(part.error) for part in one[2]] == [str(part.error) for part in three[2]]
    assert len(one[2]) == 2
    names = [sorted(path.relative_to(tmp_path / kind) for path in (tmp_path / kind).rglob("*.parquet")) for kind in "13"]
    assert names[0] == names[1]
    assert len(names[0]) == len(one[0]) >= SEGMENTS
    for name in names[0]:
        assert pq.read_table(tmp_path / "1" / name).equals(pq.read_table(tmp_path / "3" / name))


def test_several_files_are_written_at_a_time(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget: two threads meet, each in the first batch of its file."""
    met, scan = threading.Barrier(2, timeout=60), parquet.scan_ranges

    def meeting(ranges: Any, options: Options, *more: Any) -> Any:
        assert options.threads == 1
        if ranges[0].segment.base_offset in first:
            met.wait()
        yield from scan(ranges, options, *more)

    first = [int(path.stem) for path in sorted(log.glob("*.log"))[:2]]
    monkeypatch.setattr(parquet, "scan_ranges", meeting)
    assert sum(written(log, tmp_path / "out", 2)[1]) == SEGMENTS * ROWS


def test_the_first_error_ends_all(tmp_path: Path, log: Path) -> None:
    first, _ = damaged(log)
    with pytest.raises(kolumn.CorruptBatchError, match=first.name):
        written(log, tmp_path / "out", 4)
    assert not (tmp_path / "out").exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kolumn-parquet")]
