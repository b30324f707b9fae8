"""`make demo` is the first command that users run: it works, and prints the expected text."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def test_demo() -> None:
    # A Spark session of the tests must not lend its gateway to the demo's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_GATEWAY", "SPARK_"))}
    shown = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert shown.returncode == 0, shown.stderr
    for part in ("|clicks  |19753  |", "1 damaged stretch", "|barbara |", "java-zstd", "upgraded-gzip", "report.html in a browser"):
        assert part in shown.stdout
