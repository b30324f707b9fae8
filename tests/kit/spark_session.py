"""One real Spark session for the tests of a process.

The JVM and its Python workers stay in the folder where they were started.
It is an empty one, so that a test can say what relative paths mean.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kolumn.spark_plugin import configure, register
from kolumn.spark_plugin.session.java import use_java

# Every Java of the tests runs for seconds or minutes, in which the optimizing compiler costs more time than it saves.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

FOLDER = Path(tempfile.mkdtemp(prefix="kolumn-spark-"))
"""Where the JVM is."""
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
    shutil.rmtree(FOLDER, ignore_errors=True)


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
