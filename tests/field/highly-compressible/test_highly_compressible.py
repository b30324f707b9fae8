"""A batch that decompresses to more than the limit is no damage, and what is said of it leads to its records."""

from pathlib import Path

import kolumn


def test_verify_says_how_it_is_read(disk: Path) -> None:
    report = kolumn.verify(disk / "zstd-0")
    assert (report.damage.num_rows, report.limits["recordsLost"].to_pylist()) == (0, [200])
    assert kolumn.read(disk / "zstd-0", columns="offset", **report.suffices).num_rows == 200


def test_within_the_limit(disk: Path) -> None:
    report = kolumn.verify(disk / "gzip-0")
    assert (report.ok, report.records) == (True, 200)


def test_recover_keeps_it(disk: Path, tmp_path: Path) -> None:
    done = kolumn.recover(disk / "zstd-0", tmp_path / "out")
    assert (done.ok, done.lost["kind"].to_pylist(), done.partitions["records"].to_pylist()) == (True, ["limit"], [200])
    name = f"{0:020d}.log"
    assert (tmp_path / "out" / "zstd-0" / name).read_bytes() == (disk / "zstd-0" / name).read_bytes()
