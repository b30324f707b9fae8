"""`kolumn.append` is killed at each step, or meets others that commit: rows are in the table once, and no file of a dead run stays."""

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
    assert steps >= 12
    for number, at in enumerate(tried(range(1, steps + 1), 6)):
        shutil.rmtree(lake.root)
        shutil.copytree(kept, lake.root)
        assert run(lake, log, at).returncode == -9, at
        if number % 2:
            # So is the run that finds it.
            assert run(lake, log, 1 + at % 4).returncode == -9
        kolumn.append(log, lake.target())
        assert lake.rows() == expected(total), at
        # The engines have tools for what a killed run has left.
        assert lake.data_files() >= lake.committed_files(), at
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
