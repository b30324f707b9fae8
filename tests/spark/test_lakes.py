"""Streams into Iceberg and Delta tables, killed at any point: rows equal the log, once each. And what the page on tables shows of them."""

import os
import random
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

import kolumn
from kit.faults import killed_after
from kit.fuzz import FIRST
from kolumn.core.errors import MissingError
from kolumn.spark_plugin.session.java import Artifact

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("KOLUMN_STREAM_KILLS", "1"))
ROOT = Path(__file__).resolve().parents[2]
ICEBERG = "4.1"
"""The newest Spark that Iceberg has a runtime for."""


def jars(sink: str, line: str) -> str:
    delta = ("delta-storage", "delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog")
    wanted = {
        "iceberg": [Artifact("org.apache.iceberg", f"iceberg-spark-runtime-{line}_2.13", "1.12.0")],
        "delta": [Artifact("io.delta", name, "4.4.0") for name in (f"delta-spark_{line}_2.13", *delta)],
    }
    try:
        return ",".join(str(jar.fetch()) for jar in wanted[sink])
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=["delta", pytest.param("iceberg", marks=pytest.mark.nightly)])
def sink(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, dict[str, str]]:
    """Its name, its jars, and the environment of a process with a Spark that it knows."""
    paths = [*filter(None, sys.path)]
    line = ".".join(pyspark.__version__.split(".")[:2])
    if request.param == "iceberg" and line != ICEBERG:
        line, other = ICEBERG, tmp_path_factory.mktemp("spark")
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(other)]
        wanted = [f"pyspark=={line}.*", "py4j>=0.10.9.7,<0.10.9.10"]
        done = subprocess.run([*install, *wanted], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"pyspark {line} could not be installed: {done.stderr[-500:]}")
        paths.insert(0, str(other))
    return request.param, jars(request.param, line), os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def grow(log: Path, turn: int) -> None:
    """A new segment in each of three topic-partitions, of another day."""
    for number, name in enumerate(("orders-0", "orders-1", "clicks-0")):
        offsets = range(turn * 300, turn * 300 + 300)
        time = 1_700_000_000_000 + 86_400_000 * (turn % 3) + number
        table = pa.table(
            {
                "key": [b"%d" % (offset % 7) for offset in offsets],
                "value": [b"%s %d" % (name.encode(), offset) if offset % 9 else None for offset in offsets],
                "offset": pa.array(offsets, pa.int64()),
                "timestamp": pa.array([time + offset for offset in offsets], pa.timestamp("ms", "UTC")),
            }
        )
        kolumn.write(table, log / name / f"{offsets[0]:020}.log", batch_bytes=2000, codec="zstd")


def test_rows_once_each_though_it_is_killed(sink: tuple[str, str, dict[str, str]], tmp_path: Path) -> None:
    name, own_jars, environment = sink
    dice, killed, turn = random.Random(FIRST), 0, 0

    def numbers(folder: str) -> set[str]:
        return {path.name for path in (tmp_path / "state" / folder).glob("*") if path.name.isdigit()}

    def within() -> int:
        """The number of micro-batches before the one that is planned and not committed; -1 between two."""
        return len(numbers("commits")) if numbers("offsets") - numbers("commits") else -1

    def start(reader: str) -> "subprocess.Popen[bytes]":
        # It has a process group of its own, so that Java and the Python workers are killed with it.
        program = [sys.executable, str(Path(__file__).with_name("tables_job.py")), "stream", name, str(tmp_path), own_jars, reader, "200"]
        with (tmp_path / "output").open("ab") as output:
            return subprocess.Popen(
                program, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    while killed < KILLS:
        grow(tmp_path / "log", turn)
        turn += 1
        before, wanted = len(numbers("commits")), dice.randint(0, 3)
        job = start(dice.choice(["columnar", "python"]))
        # It is killed within a micro-batch.
        killed += killed_after(job, within, before + wanted, dice.random() * 0.9, tmp_path / "output")
    for reader in ("python", "columnar"):
        assert start(reader).wait(timeout=600) == 0, (tmp_path / "output").read_text()[-5000:]
        compare(tmp_path)
        # A micro-batch whose rows the table has, killed before the checkpoint says so.
        last = max(numbers("commits"), key=int)
        for path in (tmp_path / "state" / "commits").glob(f"*{last}*"):
            path.unlink()
        grow(tmp_path / "log", turn)
        turn += 1
    assert start("columnar").wait(timeout=600) == 0, (tmp_path / "output").read_text()[-5000:]
    compare(tmp_path)


def test_the_page_on_tables(sink: tuple[str, str, dict[str, str]], tmp_path: Path) -> None:
    """Its blocks run in the order of the page, and print what it shows."""
    name, own_jars, environment = sink
    runpy.run_path(str(ROOT / "examples" / "dead_broker.py"))["make"](tmp_path / "dead-broker")
    fences = re.findall(r"^```(.*)\n((?:.*\n)*?)```$", (ROOT / "docs" / "howto" / "tables.md").read_text(), re.MULTILINE)
    chosen = [
        number for number, (info, _) in enumerate(fences) if re.search(rf"no-test: needs.* {name.title()}( or |$)|or {name.title()}", info)
    ]
    for number in chosen:
        (tmp_path / f"{number:02}.py").write_text(fences[number][1])
    shown = [fences[number + 1][1] for number in chosen if fences[number + 1][0] == "text"]
    program = [sys.executable, str(Path(__file__).with_name("tables_job.py")), "page", name, str(tmp_path), own_jars]
    done = subprocess.run(
        [*program, *(f"{number:02}.py" for number in chosen)], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout == "".join(shown)
    assert len(chosen) == {"iceberg": 5, "delta": 2}[name]


def compare(root: Path) -> None:
    order = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    expected = kolumn.read(root / "log", isolation_level="read_committed").sort_by(order)
    found = pq.read_table(root / "rows.parquet").sort_by(order)
    assert [found[name].to_pylist() for name, _ in order] == [expected[name].to_pylist() for name, _ in order]
    assert found.select(expected.schema.names).cast(expected.schema).equals(expected)
