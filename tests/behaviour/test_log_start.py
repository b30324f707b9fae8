"""Records below the log start offset: no consumer gets them, but they are in the files."""

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kolumn
from kit.corpus import HERE
from kit.replicas import copy
from kit.tiers import tier_of
from kolumn.cli import app

LOG = HERE / "delete-records" / "delete-records-0"
"""1500 records in segments from 0, 533 and 1115; its broker's log start offset was 777."""
NAME = "log-start-offset-checkpoint"
LINE = "0\n1\ndelete-records 0 "


def offsets(source: Any, **options: Any) -> list[Any]:
    return kolumn.read(source, columns=["offset"], **options)["offset"].to_pylist()


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A log directory, as the broker left it."""
    copy(LOG, tmp_path / "disk")
    (tmp_path / "disk" / NAME).write_text("0\n2\ndelete-records 0 777\nother 3 5\n")
    return tmp_path / "disk"


@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"errors": "skip"}, {"isolation_level": "read_committed"}, {"binary": "view"}])
def test_a_read_begins_there_if_asked_to(disk: Path, options: dict[str, Any]) -> None:
    for source in (disk, disk / LOG.name, f"{disk}/*-0", f"local://{disk}"):
        assert offsets(source, include_deleted_records=False, **options) == list(range(777, 1500))
        assert offsets(source, **options) == offsets(source, include_deleted_records=True, **options) == list(range(1500))
    options["include_deleted_records"] = False
    assert offsets(disk, start_offset=700, end_offset=800, **options) == list(range(777, 800))
    assert offsets(disk, end_offset=600, **options) == []
    assert offsets(disk, start_offset=1200, **options) == list(range(1200, 1500))


def test_everything_is_verified_listed_and_recovered(disk: Path, tmp_path: Path) -> None:
    assert kolumn.verify(disk).records == 1500
    assert sum(kolumn.batches(disk)["count"].to_pylist()) == 1500
    assert kolumn.recover(disk, tmp_path / "made").partitions["records"].to_pylist() == [1500]


def test_command(disk: Path) -> None:
    for more, count in (([], 1500), (["--no-include-deleted-records"], 723)):
        done = CliRunner().invoke(app, ["cat", str(disk), "--json", "--columns", "offset", *more])
        assert (done.exit_code, len(done.stdout.splitlines())) == (0, count)


@pytest.mark.parametrize(
    "text",
    [
        "", "0\n", "1\n1\ndelete-records 0 777\n", "0\n2\ndelete-records 0 777\n", f"{LINE}-1\n", f"{LINE}x\n", f"{LINE}777 1\n",
        "0\n1\ndelete-records 1 777\n", "0\n1\ndelete 0 777\n", f"{LINE}0\n", f"{LINE}1501\n", f"{LINE}9223372036854775807\n",
        "\xff\n1\ndelete-records 0 777\n",
    ],
)  # fmt: skip
def test_what_is_not_sure_leaves_nothing_out(disk: Path, text: str) -> None:
    """A line of another partition, a malformed file, and an offset after the end, with which a broker would delete the log."""
    (disk / NAME).write_text(text, encoding="latin-1")
    assert offsets(disk, include_deleted_records=False) == list(range(1500))


def test_all_was_deleted(disk: Path) -> None:
    (disk / NAME).write_text(f"{LINE}1500\n")
    assert offsets(disk, include_deleted_records=False) == []


def test_other_names_and_other_folders(disk: Path, tmp_path: Path) -> None:
    """The line is about a folder of its name beside it, not about files elsewhere."""
    (disk / LOG.name).rename(disk / "backup")
    assert offsets(disk / "backup", topic="delete-records", partition=0, include_deleted_records=False) == list(range(1500))
    (disk / "backup").rename(disk / LOG.name)
    copy(LOG, tmp_path / "other")
    both = [disk, tmp_path / "other"]
    for replicas in ("first", "merge"):
        assert len(offsets(both, replicas=replicas, include_deleted_records=False)) == 1500
    (tmp_path / "other" / NAME).write_text(f"{LINE}600\n")
    assert offsets(both, replicas="merge", include_deleted_records=False) == list(range(600, 1500))


def test_a_tier_begins_there_too(disk: Path, tmp_path: Path) -> None:
    """Copies whose deletion was not finished are orphans: the broker's log start offset is that of the whole log."""
    log, tier = disk / LOG.name, tier_of(LOG, tmp_path / "tier").parent
    for path in sorted(log.iterdir()):
        if path.stem.isdigit() and int(path.stem) < 1115:
            path.unlink()
    assert offsets(log) == list(range(1115, 1500))
    assert offsets([tier, log]) == offsets([tier, log], include_deleted_records=False) == list(range(777, 1500))
    assert offsets([tier, log], include_deleted_records=True) == list(range(1500))
    assert offsets(tier) == list(range(1115))


@pytest.mark.skipif("KOLUMN_CORPUS" not in os.environ, reason="needs KOLUMN_CORPUS")
def test_what_a_broker_noted() -> None:
    assert offsets(Path(os.environ["KOLUMN_CORPUS"]) / "delete-records", include_deleted_records=False) == list(range(777, 1500))
