"""Separate executors, to which the package is sent, and of which one is lost during a job: every row is there once."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import kolumn

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"
TOPICS = [CORPUS / "v2-java" / "java-zstd-0", CORPUS / "v2-many-segments" / "many-segments-0", CORPUS / "v1" / "v1-lz4-0"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A zip of the package as it is in the tree, including linked folders."""
    root = Path(kolumn.__file__).parent
    file = tmp_path / "shipped.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for folder in (root, *(link for link in root.iterdir() if link.is_symlink())):
            for module in folder.resolve().rglob("*.py"):
                archive.write(module, Path("kolumn") / folder.relative_to(root) / module.relative_to(folder.resolve()))
    return file


def test_every_row_once_though_an_executor_dies(package: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "log", tmp_path / "target"
    source.mkdir()
    for topic in TOPICS:
        (source / topic.name).symlink_to(topic)
    job = [sys.executable, str(Path(__file__).with_name("cluster_job.py")), str(source), str(target), str(package)]
    done = subprocess.run(job, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["killed"] == ["export", "read"]
    assert result["files"] > len(TOPICS)
    expected = {topic.name.rpartition("-")[0]: kolumn.read(topic) for topic in TOPICS}
    assert {name: rows for name, rows, _, _ in result["topics"]} == {name: table.num_rows for name, table in expected.items()}
    for name, _, size, file in result["topics"]:
        assert size == (pc.sum(pc.binary_length(expected[name]["value"])).as_py() or 0)
        assert f"/{package.name}/kolumn/" in file
    rows = pq.read_table(f"{target}.rows.parquet")
    for name, table in expected.items():
        found = rows.filter(pc.equal(rows["topic"], name)).sort_by("offset")
        assert found.select(["offset", "key", "value"]).equals(table.select(["offset", "key", "value"]))
    dataset = ds.dataset(target, partitioning="hive")
    for name, table in expected.items():
        found = dataset.to_table(filter=ds.field("topic") == name).sort_by("offset")
        assert found.select(["offset", "key", "value", "timestamp"]).equals(table.select(["offset", "key", "value", "timestamp"]))


@pytest.mark.nightly
def test_executors_run_a_packed_environment(tmp_path: Path) -> None:
    """Its Python is a path in an archive that only executors have; the driver plans with its own."""
    packed = tmp_path / "environment" / "bin" / "python"
    packed.parent.mkdir(parents=True)
    packed.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    packed.chmod(0o755)
    archive = shutil.make_archive(str(tmp_path / "environment"), "gztar", tmp_path / "environment")
    job = [sys.executable, str(Path(__file__).with_name("packed_job.py")), str(TOPICS[0]), archive]
    done = subprocess.run(job, cwd=tmp_path / "environment" / "bin", capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = kolumn.read(TOPICS[0]).num_rows
    assert json.loads(done.stdout.splitlines()[-1]) == [rows, rows, rows]
