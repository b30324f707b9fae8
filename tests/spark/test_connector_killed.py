"""Executors, workers, queries and streams that are killed or stopped again and again: rows are there once each, and nothing is left."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kit.fuzz import SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PARTITIONS, ROWS = 3, 20_000


def test_rows_once_each_and_nothing_left(tmp_path: Path) -> None:
    noise = random.Random(3)
    for partition in range(PARTITIONS):
        values = pa.array([noise.randbytes(60) + b"text" * 10 if i % 7 else None for i in range(ROWS)], pa.binary())
        table = pa.table({"key": [str(i % 5).encode() for i in range(ROWS)], "value": values})
        kolumn.write(table, tmp_path / "log" / f"t-{partition}", codec="lz4", batch_bytes=8000, segment_bytes=600_000)
    (tmp_path / "scratch").mkdir()
    job = [
        sys.executable,
        str(Path(__file__).with_name("kill_loop_job.py")),
        str(tmp_path / "log"),
        str(tmp_path / "scratch"),
        str(SECONDS),
    ]
    with (tmp_path / "job.log").open("w") as told:
        done = subprocess.run(job, stdout=subprocess.PIPE, stderr=told, text=True, timeout=SECONDS * 3 + 600, check=False)
    assert done.returncode == 0, (tmp_path / "job.log").read_text()[-20_000:]
    result = json.loads(done.stdout.splitlines()[-1])
    offsets = kolumn.read(tmp_path / "log", columns=["offset"])["offset"]
    assert sum(row[4] for row in result["rows"]) == pc.sum(offsets).as_py()
    assert [row[:4] for row in result["rows"]] == [["t", partition, ROWS, ROWS] for partition in range(PARTITIONS)]
    assert result["files"] < 60
    assert {name: result[name] for name in ("orphans", "workers", "mapped", "left")} == dict.fromkeys(
        ["orphans", "workers", "mapped", "left"], 0
    )
