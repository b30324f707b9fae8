"""Only the user can read files that Spark's tasks and drivers stage, with any umask; files with final names have the umask's mode."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

import kolumn
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.spark_plugin.read.task import read_task
from kolumn.spark_plugin.session import java
from kolumn.spark_plugin.write import export as parquet_export
from kolumn.writers.commit.manifest import ExportTarget, Manifest

RECORDS = pa.RecordBatch.from_pydict({"value": pa.array([b"%d" % i for i in range(1000)], pa.binary())})


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path, folders: bool = False) -> set[str]:
    return {oct(path.stat().st_mode & 0o777) for path in folder.rglob("*") if path.is_dir() == folders}


def test_export(tmp_path: Path, mask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kolumn.write(RECORDS, tmp_path / "log" / "t-0")
    target = ExportTarget(fs.LocalFileSystem(), str(tmp_path / "lake"))
    run = "0a" * 16
    layout = parquet_export.ExportLayout(target.files, target.staging(run), Options.of(columns=("offset", "value")), False, 10, "none")
    folder, during = Path(layout.staging), list[set[str]]()

    def watched(*args: Any) -> Iterator[pa.RecordBatch]:
        yield from read_task(*args)
        during.append(modes(folder))

    monkeypatch.setattr(parquet_export, "read_task", watched)
    parquet_export.make_staging(target.files, layout.staging)

    def written(before: Manifest) -> list[dict[str, Any]]:
        jobs = parquet_export.plan_jobs(live_segments(tmp_path / "log", layout.options).segments, layout.options, before, 1 << 30)
        return [file for job in jobs for file in parquet_export.write_job(job, layout)]

    found = written(target.open())
    assert (during, {oct(one.stat().st_mode & 0o777) for one in (folder, folder.parent)}) == ([{"0o600"}], {"0o700"})
    parquet_export._publish(target, target.open(), run, found)
    assert modes(tmp_path / "lake") == {oct(0o666 & ~mask)}
    with pytest.raises(kolumn.KolumnError, match="cannot be written: No such file or directory"):
        # A late task of a run that has ended.
        written(Manifest())


def test_the_script_that_starts_java(tmp_path: Path, mask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script is run, so only the user may write to it and to the folders that are made for it."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    home = java._wrap(Path("/bin/true"))
    made = [home / "bin" / "java", home / "bin", home, home.parent, home.parent.parent]
    assert not any(path.stat().st_mode & 0o022 for path in made)
    assert os.access(home / "bin" / "java", os.X_OK)


def test_a_link_that_was_put_among_what_is_staged(tmp_path: Path) -> None:
    """Leftovers are removed: a link is removed, and its target stays."""
    victim, target = tmp_path / "victim" / "file", ExportTarget(fs.LocalFileSystem(), str(tmp_path / "lake"))
    victim.parent.mkdir()
    victim.write_text("mine")
    link = Path(target.staging("0a" * 16))
    link.parent.mkdir(parents=True)
    link.symlink_to(victim.parent)
    with target.alone():
        target.open()
    assert (link.is_symlink(), victim.read_text()) == (False, "mine")
