"""`kolumn.append` is killed at each step, or meets others that commit: rows are in the table once, and no file of a dead run stays."""

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.fuzz import tried
from kit.lakes import ENGINES, Lake
from kolumn.tools import append as module
from kolumn.tools.append import _Run
from kolumn.tools.tables import OvertakenError

ROWS = 120


def grow(log: Path, first: int) -> Path:
    for name in ("orders-0", "orders-1"):
        table = pa.table({"value": [b"v%d" % i for i in range(ROWS)], "offset": pa.array(range(first, first + ROWS), pa.int64())})
        kolumn.write(table, log / name / f"{first:020}.log", batch_bytes=800)
    return log


def expected(rows: int) -> list[tuple[str, int, int]]:
    return [("orders", partition, offset) for partition in (0, 1) for offset in range(rows)]


@pytest.fixture(params=ENGINES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path / "lake")


def run(lake: Lake, log: Path, at: int = 0) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(Path(__file__).with_name("append_job.py")), lake.engine, str(log), str(lake.root), str(at)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["new table", "old table"])
def test_killed(lake: Lake, tmp_path: Path, first: bool) -> None:
    log = grow(tmp_path / "log", 0)
    kept = tmp_path / "kept"
    lake.root.mkdir(exist_ok=True)
    if not first:
        kolumn.append(log, lake.target())
        grow(log, ROWS)
    shutil.copytree(lake.root, kept)
    total = ROWS if first else 2 * ROWS
    steps = int(run(lake, log).stdout)
    assert steps >= 14
    for number, at in enumerate(tried(range(1, steps + 1), 6)):
        shutil.rmtree(lake.root)
        shutil.copytree(kept, lake.root)
        assert run(lake, log, at).returncode == -9, at
        if number % 2:
            # So is the run that finds it.
            assert run(lake, log, 1 + at % 7).returncode == -9
        done = kolumn.append(log, lake.target())
        assert (done.left, lake.rows()) == ([], expected(total)), at
        assert lake.data_files() == lake.committed_files(), at
        grown = grow(tmp_path / f"more-{at}", total)
        assert kolumn.append([log, grown], lake.target(), replicas="merge").rows == 2 * ROWS
        assert lake.rows() == expected(total + ROWS)


def before_commits(monkeypatch: pytest.MonkeyPatch, lake: Lake, action: Callable[[], object]) -> None:
    """Let something happen before the first commit of each run, in its thread: when it has written its files."""
    target: Any = type(lake.target()) if lake.engine == "iceberg" else importlib.import_module("kolumn.tools.delta").DeltaTarget
    met, commit = set[int](), target.commit

    def late(self: Any, *arguments: Any) -> None:
        if threading.get_ident() not in met:
            met.add(threading.get_ident())
            action()
        commit(self, *arguments)

    monkeypatch.setattr(target, "commit", late)


@pytest.mark.parametrize("is_new", [True, False], ids=["new table", "old table"])
def test_two_runs_at_once(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool) -> None:
    """Both have seen the same state and written the same rows. pyiceberg by itself would add both files."""
    log = grow(tmp_path / "log", 0)
    if not is_new:
        kolumn.append(log, lake.target())
        grow(log, ROWS)
    barrier = threading.Barrier(2)
    before_commits(monkeypatch, lake, lambda: barrier.wait(60))
    with ThreadPoolExecutor(2) as pool:
        done = [one.result() for one in [pool.submit(kolumn.append, log, lake.target()) for _ in range(2)]]
    assert sorted(one.rows for one in done) == [0, 2 * ROWS]
    assert lake.rows() == expected(ROWS if is_new else 2 * ROWS)
    assert lake.data_files() == lake.committed_files()


def test_others_commit_meanwhile(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that does not touch the state: this one is repeated with the files that are written."""
    log = grow(tmp_path / "log", 0)
    kolumn.append(log, lake.target())
    grow(log, ROWS)
    row = pa.Table.from_pylist([{"topic": "zz", "partition": 0, "offset": 1}], schema=lake.read().schema)
    before_commits(monkeypatch, lake, lambda: lake.add_by_others(row))
    assert kolumn.append(log, lake.target()).rows == 2 * ROWS
    assert lake.rows() == [*expected(2 * ROWS), ("zz", 0, 1)]
    assert kolumn.append(log, lake.target()).rows == 0


def test_a_commit_whose_answer_is_lost(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine says that another commit was in the way, and it was this one."""
    target: Any = type(lake.target()) if lake.engine == "iceberg" else importlib.import_module("kolumn.tools.delta").DeltaTarget
    log, commit = grow(tmp_path / "log", 0), target.commit

    def arrives(self: Any, *arguments: Any) -> None:
        commit(self, *arguments)
        raise OvertakenError("a commit was in the way")

    monkeypatch.setattr(target, "commit", arrives)
    assert kolumn.append(log, lake.target()).rows == 2 * ROWS
    assert lake.rows() == expected(ROWS)


def test_a_run_that_ends_after_another_has_looked(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed after its commit: the other one has the table of before, and finds its note."""
    log = grow(tmp_path / "log", 0)
    kolumn.append(log, lake.target())
    grow(log, ROWS)
    tidied, met = _Run._tidied, list[str]()

    def late(self: Any, top: str) -> Any:
        if not met:
            met.append("the first")
            with monkeypatch.context() as patch:
                patch.setattr(module, "_remove", lambda *_: None)
                kolumn.append(log, lake.target())
        return tidied(self, top)

    monkeypatch.setattr(_Run, "_tidied", late)
    monkeypatch.setattr(module, "locked", lambda folder, text, wait=0.0: contextlib.nullcontext(True))
    assert kolumn.append(log, lake.target()).rows == 0
    assert lake.rows() == expected(2 * ROWS)
    assert lake.data_files() == lake.committed_files()


def test_a_run_that_lives_is_left_alone(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one finds its folder, and the files in it stay."""
    log = grow(tmp_path / "log", 0)
    kolumn.append(log, lake.target())
    grow(log, ROWS)
    root = lake.path if lake.engine == "delta" else next(lake.root.glob("warehouse/db*/*"))
    seen: list[kolumn.Appended | None] = []
    write = _Run._write

    def interrupted(self: Any, parts: Any) -> Any:
        files = write(self, parts)
        if not seen:
            seen.append(None)
            seen[0] = kolumn.append(log, lake.target())
            assert [Path(path).name for path in seen[0].left] == [f"kolumn-{self.number}"]
            assert list((root / "data" / f"kolumn-{self.number}").iterdir()) != []
        return files

    monkeypatch.setattr(_Run, "_write", interrupted)
    assert (kolumn.append(log, lake.target()).rows, seen[0].rows) == (0, 2 * ROWS)
    assert lake.rows() == expected(2 * ROWS)
    assert lake.data_files() == lake.committed_files()


def test_notes_that_no_run_wrote(lake: Lake, tmp_path: Path) -> None:
    """Who may write to a table's folder must not choose what else is removed."""
    log, victim, number = grow(tmp_path / "log", 0), tmp_path / "victim", "0a" * 16
    kolumn.append(log, lake.target())
    root = lake.path if lake.engine == "delta" else next(lake.root.glob("warehouse/db*/*"))
    victim.mkdir()
    (victim / "file").write_text("mine")
    for name in (number, "1b" * 16, "..", "mine"):
        (root / "_kolumn" / name).mkdir(exist_ok=True)
    (root / "data" / f"kolumn-{number}").symlink_to(victim)
    (root / "data" / "kolumn-mine").mkdir()
    grow(log, ROWS)
    assert kolumn.append(log, lake.target()).rows == 2 * ROWS
    assert (victim / "file").read_text() == "mine"
    assert {path.name for path in (root / "_kolumn").iterdir()} == {"mine"}
    assert (root / "data" / "kolumn-mine").is_dir()
    assert lake.rows() == expected(2 * ROWS)
