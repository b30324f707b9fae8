"""One real Spark session for the tests of a process.

The JVM and its Python workers stay in the folder where they were started.
It is an empty one, so that a test can say what relative paths mean.
"""

import atexit
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kolumn.spark_plugin import configure, register
from kolumn.spark_plugin.session.java import use_java

# Every Java of the tests runs for seconds or minutes, in which the optimizing compiler costs more time than it saves.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

FOLDER = Path(tempfile.mkdtemp(prefix="kolumn-spark-"))
"""Where the JVM is."""
# Also where a process of the tests starts none.
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Functions of test modules are sent by name.
    paths = [str(_ROOT), str(_ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    with contextlib.chdir(FOLDER), pytest.MonkeyPatch.context() as patch:
        # For the JVM of this session alone: what other tests start has daemons as users have them.
        patch.setenv("PYTHONPATH", str(Path(__file__).with_name("preloaded")), prepend=os.pathsep)
        session = _session()
    register(session)
    yield session
    session.stop()


def _session() -> SparkSession:
    return (
        configure(SparkSession.builder)
        .master("local[2]")
        .appName("kolumn tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.log.level", "OFF")
        .config("spark.sql.execution.arrow.pyspark.validateSchema.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # Tests of the connector ask for it: option("reader", "columnar"). All others pass by either way.
        .config("spark.kolumn.reader", os.environ.get("KOLUMN_SPARK_READER", "python"))
        .getOrCreate()
    )


def connector_workers(spark: SparkSession) -> list[int]:
    """Live workers of the connector, by their process ids."""
    jvm = spark._jvm.ProcessHandle.current().pid()  # type: ignore[union-attr]
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, AttributeError):
            parent, state = re.search(r"\) (\S) (\d+)", (folder / "stat").read_text()).group(2, 1)  # type: ignore[union-attr]
            if int(parent) == jvm and state != "Z" and b"kolumn.spark_plugin.connector.worker" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def run_job(
    *arguments: object, script: str = "jobs.py", env: Mapping[str, str] | None = None, cwd: Path | None = None, timeout: int = 600
) -> Any:
    """What a Spark program of `tests/spark/` tells, in a process of its own."""
    command = [sys.executable, str(_ROOT / "tests" / "spark" / script), *map(str, arguments)]
    env = env or os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-10_000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


def streamed(spark: SparkSession, path: object, scratch: Path, *columns: str, **options: object) -> DataFrame:
    """The rows of a stream of what is there, by way of Parquet; a second call goes on."""
    frame = spark.readStream.format("kolumn").options(**{"startingOffsets": "earliest", **options}).load(str(path))
    writer = frame.select(*columns or ["*"]).writeStream.format("parquet").option("checkpointLocation", f"{scratch}/state")
    writer.trigger(availableNow=True).start(f"{scratch}/rows").awaitTermination()
    return spark.read.parquet(f"{scratch}/rows")


def scans(node: Any) -> Iterator[Any]:
    """The scans of a plan that was executed."""
    name = node.nodeName()
    if name.startswith("BatchScan"):
        yield node
    below = [node.executedPlan()] if name.startswith("AdaptiveSparkPlan") else [node.plan()] if "QueryStage" in name else []
    for child in [*below, *(node.children().apply(i) for i in range(node.children().size()))]:
        yield from scans(child)
