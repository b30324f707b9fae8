"""One real Spark session for the tests of a process."""

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kolumn.spark_plugin import configure, register
from kolumn.spark_plugin.session.java import use_java

# Every Java of the tests runs for seconds or minutes, in which the optimizing compiler costs more time than it saves.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
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
    register(session)
    yield session
    session.stop()
