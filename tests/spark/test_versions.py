"""The installed Spark finds the source by itself, and so do the newest versions of other release lines, which run the connector too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kolumn

pytestmark = pytest.mark.spark

TOPIC = Path(__file__).resolve().parents[1] / "data" / "corpus" / "v2-java" / "java-zstd-0"


def smoke(scratch: Path, *folders: Path, reader: str = "python") -> list[str]:
    scratch.mkdir()
    job = [sys.executable, str(Path(__file__).with_name("smoke_job.py")), str(TOPIC), str(scratch), reader]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    done = subprocess.run(job, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return line.split()[2:]


@pytest.mark.slow
def test_without_being_registered(tmp_path: Path) -> None:
    assert smoke(tmp_path / "python")[1:] == 4 * [str(kolumn.read(TOPIC).num_rows)]


@pytest.mark.nightly
@pytest.mark.parametrize("line", ["4.1", "4.3"])
def test_other_lines_of_spark(tmp_path: Path, line: str) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "spark")]
    done = subprocess.run([*install, f"pyspark=={line}.*", "py4j>=0.10.9.7,<0.10.9.10"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pyspark {line} could not be installed: {done.stderr[-500:]}")
    for reader, counts in {"python": 4, "columnar": 7}.items():
        version, *found = smoke(tmp_path / reader, tmp_path / "spark", reader=reader)
        assert version.startswith(line)
        assert found == counts * [str(kolumn.read(TOPIC).num_rows)], reader
