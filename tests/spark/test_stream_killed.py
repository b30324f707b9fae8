"""A streaming query that is killed at any point and started again, with the connector or without, loses no row and repeats none."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kit.encoder import Record, batch
from kit.fuzz import FIRST

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = Path(__file__).with_name("streaming_job.py")
KILLS = int(os.environ.get("KOLUMN_STREAM_KILLS", "3"))
PER_ROUND = 200


class Log:
    """A partition that gets a segment each round; the last batch of the newest segment is half written until the next round."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "t-0"
        self.folder.mkdir(parents=True)
        self.path, self.rest, self.end = self.folder / "none", b"", 0

    def grow(self) -> None:
        """Write the other half, and roll a segment."""
        if self.rest:
            with self.path.open("ab") as file:
                file.write(self.rest)
        first, self.end = self.end, self.end + PER_ROUND
        entries = [batch([Record(i, None, b"%d" % i, i) for i in range(at, at + 5)]) for at in range(first, self.end, 5)]
        self.path, half = self.folder / f"{first:020}.log", len(entries[-1]) // 2
        self.path.write_bytes(b"".join(entries[:-1]) + entries[-1][:half])
        self.rest = entries[-1][half:]


def commits(checkpoint: Path) -> int:
    return len([path for path in checkpoint.glob("commits/*") if path.name.isdigit()])


def start(root: Path, offsets: int, reader: str) -> "subprocess.Popen[bytes]":
    """Start the query, with at most ``offsets`` offsets in a micro-batch."""
    # It has a process group of its own, so that Java and the Python workers are killed with it.
    arguments = [sys.executable, str(JOB), *(str(root / name) for name in ("log", "out", "checkpoint")), str(offsets), reader]
    return subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


@pytest.mark.timeout(1800)
def test_killed_and_started_again(spark: SparkSession, tmp_path: Path) -> None:
    dice, killed, log = random.Random(FIRST), 0, Log(tmp_path / "log")
    while killed < KILLS:
        log.grow()
        before, wanted = commits(tmp_path / "checkpoint"), dice.randint(0, 8)
        job = start(tmp_path, PER_ROUND // 20, dice.choice(["columnar", "python"]))
        # It is killed after its first write, at any point of a micro-batch.
        while job.poll() is None and commits(tmp_path / "checkpoint") < before + wanted:
            time.sleep(0.02)
        time.sleep(dice.random() * 0.5)
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            killed += 1
        else:
            assert job.returncode == 0
        job.wait()
    # The last run reads the rest at once: some thousand offsets, for which small micro-batches would take minutes.
    assert start(tmp_path, KILLS * PER_ROUND, "columnar").wait(timeout=600) == 0
    found = sorted(row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert found == list(range(log.end - 5))
