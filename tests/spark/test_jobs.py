"""Programs as users run them, with sessions of their own: clusters that lose executors, `make demo`."""

import hashlib
import os
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kolumn
from kit.corpus import HERE as CORPUS
from kit.fuzz import SECONDS
from kit.spark_session import run_job
from kolumn.spark_plugin import connector_jar
from kolumn.spark_plugin.session.maven import COORDINATES, write_repository

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOPICS = [CORPUS / "v2-java" / "java-zstd-0", CORPUS / "v2-many-segments" / "many-segments-0", CORPUS / "v1" / "v1-lz4-0"]
PARTITIONS, ROWS = 3, 20_000


def test_every_row_once_though_an_executor_dies(tmp_path: Path) -> None:
    """The package is sent to separate executors, as a zip of the tree with its linked folders."""
    source, target, package, root = tmp_path / "log", tmp_path / "target", tmp_path / "shipped.zip", Path(kolumn.__file__).parent
    with zipfile.ZipFile(package, "w") as archive:
        for folder in (root, *(link for link in root.iterdir() if link.is_symlink())):
            for module in folder.resolve().rglob("*.py"):
                archive.write(module, Path("kolumn") / folder.relative_to(root) / module.relative_to(folder.resolve()))
    source.mkdir()
    for topic in TOPICS:
        (source / topic.name).symlink_to(topic)
    result = run_job("cluster", source, target, package)
    assert result["killed"] == ["read"]
    expected = {topic.name.rpartition("-")[0]: kolumn.read(topic) for topic in TOPICS}
    assert {name: rows for name, rows, _, _ in result["topics"]} == {name: table.num_rows for name, table in expected.items()}
    for name, _, size, file in result["topics"]:
        assert size == (pc.sum(pc.binary_length(expected[name]["value"])).as_py() or 0)
        assert f"/{package.name}/kolumn/" in file
    rows = pq.read_table(f"{target}.rows.parquet")
    for name, table in expected.items():
        found = rows.filter(pc.equal(rows["topic"], name)).sort_by("offset")
        assert found.select(["offset", "key", "value"]).equals(table.select(["offset", "key", "value"]))


@pytest.mark.nightly
def test_executors_run_a_packed_environment(tmp_path: Path) -> None:
    """Its Python is a path in an archive that only executors have; the driver plans with its own."""
    packed = tmp_path / "environment" / "bin" / "python"
    packed.parent.mkdir(parents=True)
    packed.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    packed.chmod(0o755)
    archive = shutil.make_archive(str(tmp_path / "environment"), "gztar", tmp_path / "environment")
    assert run_job("packed", TOPICS[0], archive, cwd=packed.parent) == [kolumn.read(TOPICS[0]).num_rows] * 3


def test_rows_once_each_and_nothing_left_though_all_is_killed(tmp_path: Path) -> None:
    noise = random.Random(3)
    for partition in range(PARTITIONS):
        values = pa.array([noise.randbytes(60) + b"text" * 10 if i % 7 else None for i in range(ROWS)], pa.binary())
        table = pa.table({"key": [str(i % 5).encode() for i in range(ROWS)], "value": values})
        kolumn.write(table, tmp_path / "log" / f"t-{partition}", codec="lz4", batch_bytes=8000, segment_bytes=600_000)
    (tmp_path / "scratch").mkdir()
    result = run_job(tmp_path / "log", tmp_path / "scratch", SECONDS, script="kill_loop_job.py", timeout=SECONDS * 3 + 600)
    offsets = kolumn.read(tmp_path / "log", columns=["offset"])["offset"]
    assert sum(row[4] for row in result["rows"]) == pc.sum(offsets).as_py()
    assert [row[:4] for row in result["rows"]] == [["t", partition, ROWS, ROWS] for partition in range(PARTITIONS)]
    assert result["files"] < 60
    assert [result[name] for name in ("orphans", "workers", "mapped", "left")] == [0, 0, 0, 0]


def test_a_format_that_nobody_registered(tmp_path: Path) -> None:
    assert run_job("smoke", TOPICS[0], tmp_path) == 4 * [kolumn.read(TOPICS[0]).num_rows]


def test_spark_takes_the_jar_from_a_maven_repository(tmp_path: Path) -> None:
    """The one that `make release` writes; Ivy compares its checksums."""
    version = write_repository(tmp_path / "maven")
    (jar,) = version.glob("kolumn-spark_2.13-*[0-9].jar")
    assert jar.read_bytes() == connector_jar().read_bytes()
    with zipfile.ZipFile(jar.with_name(f"{jar.stem}-sources.jar")) as sources:
        assert "kolumn/LogScan.java" in sources.namelist()
    for path in version.glob("*.sha512"):
        assert path.read_text() == hashlib.sha512(path.with_suffix("").read_bytes()).hexdigest()
    found = run_job("by_packages", TOPICS[0], tmp_path / "maven", COORDINATES, tmp_path / "ivy")
    assert found == [kolumn.read(TOPICS[0]).num_rows, f"io.github.kolumn_{jar.name}"]
    assert (tmp_path / "ivy" / "jars" / found[1]).read_bytes() == jar.read_bytes()


def test_demo() -> None:
    # A Spark session of the tests must not lend its gateway to the demo's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_GATEWAY", "SPARK_"))}
    demo = Path(__file__).resolve().parents[2] / "examples" / "demo.py"
    shown = subprocess.run([sys.executable, demo], capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert shown.returncode == 0, shown.stderr
    for part in ("|clicks   |19753  |", "1 damaged stretch", "|barbara |", "java-zstd", "upgraded-gzip", "report.html in a browser"):
        assert part in shown.stdout


JOB = Path(__file__).with_name("fault_job.py")
SEGMENTS, WRITTEN = 4, 60


@pytest.mark.parametrize("what", ["failing", "slow"])
def test_attempts_that_fail_or_take_long(what: str, tmp_path: Path) -> None:
    """Their rows are there once. What is killed at any step of a commit is asked of `tests/faults/test_writers.py`, without Spark."""
    target = tmp_path / "target"
    target.mkdir()
    marks = run_job(what, target)
    assert len(marks) == 3 if what == "failing" else marks == ["rows-0"]
    assert sorted(int(value) for value in kolumn.read(target / "log")["value"].to_pylist()) == list(range(60))
    assert not [one for one in target.rglob("*") if one.name.startswith(".")]
