"""Jobs in which tasks fail or take too long, or whose driver is killed during the commit: every row is there once, without leftovers."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

import kolumn
from kolumn.spark_plugin import export

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = Path(__file__).with_name("fault_job.py")
SEGMENTS, ROWS = 4, 60


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of a few segments, each of which becomes a task of an export."""
    records = pa.table({"value": pa.array([b"%06d" % i for i in range(400)], pa.binary())})
    assert len(kolumn.write(records, tmp_path / "source" / "orders-0", segment_bytes=1200, batch_bytes=300)) > SEGMENTS
    return tmp_path / "source"


def run(what: str, log: Path, target: Path, where: str = "") -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(JOB), what, str(log), str(target), *filter(None, [where])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, start_new_session=True, check=False)
    assert Path(f"{target}.done").exists() == (not where), done.stderr[-4000:]
    return done


def values(path: Path) -> list[int]:
    return sorted(int(value) for value in kolumn.read(path)["value"].to_pylist())


def exported(target: Path) -> list[bytes]:
    return ds.dataset(target, partitioning="hive").to_table().sort_by("offset")["value"].to_pylist()


def hidden(path: Path) -> list[Path]:
    """Paths that readers do not see: staging folders and their contents."""
    return [one for one in path.rglob("*") if one.name.startswith(".") or one.parent.name == "staging"]


@pytest.mark.parametrize("what", ["failing", "slow"])
def test_attempts_that_fail_or_take_long(what: str, log: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    marks = json.loads(run(what, log, target).stdout.splitlines()[-1])
    if what == "failing":
        assert len([mark for mark in marks if mark.startswith("rows-")]) == 3
        assert len([mark for mark in marks if mark.startswith("job-")]) > SEGMENTS
    else:
        assert marks == ["job-0", "rows-0"]
    assert values(target / "log") == list(range(ROWS))
    assert exported(target / "lake") == kolumn.read(log)["value"].to_pylist()
    assert hidden(target) == []


@pytest.mark.parametrize(("mode", "where"), [("overwrite", "journal"), ("append", "names"), ("overwrite", "end")])
def test_a_driver_that_is_killed_while_it_commits_segments(spark: SparkSession, log: Path, tmp_path: Path, mode: str, where: str) -> None:
    """`tests/faults/test_writers.py` kills both modes at every step, without Spark."""
    target = tmp_path / "target"
    frame = spark.range(ROWS, 2 * ROWS, 1, 3).selectExpr("cast(id as string) as value")
    frame.write.format("kolumn").mode("append").option("topic", "t").save(str(target))
    assert run(mode, log, target, where).returncode == -signal.SIGKILL
    assert hidden(target) != []
    again = spark.range(0, ROWS, 1, 3).selectExpr("cast(id as string) as value")
    again.write.format("kolumn").mode(mode).option("topic", "t").save(str(target))
    # The killed job is completed first, so that an append that is repeated appends again.
    assert values(target) == sorted([*range(2 * ROWS), *range(ROWS)] if mode == "append" else range(ROWS))
    assert hidden(target) == []


@pytest.mark.parametrize("where", ["journal", "names", "end"])
def test_a_driver_that_is_killed_while_it_publishes_an_export(spark: SparkSession, log: Path, tmp_path: Path, where: str) -> None:
    target = tmp_path / "lake"
    assert run("export", log, target, where).returncode == -signal.SIGKILL
    manifest = export(spark, log, str(target), split_bytes=1)
    assert exported(target) == kolumn.read(log)["value"].to_pylist()
    assert manifest.number == 1
    assert hidden(target) == []
    assert not list((target / "_kolumn").glob("*.intent.json"))
