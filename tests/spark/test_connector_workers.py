"""The connector's workers: what stands between them and the JVM, which programs they are, and what a session may set."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

import kolumn
from kit.corpus import HERE as CORPUS
from kit.plain_spark import Builder
from kit.spark_session import run_job
from kolumn.core.errors import ArgumentError
from kolumn.spark_plugin import configure, register
from kolumn.spark_plugin.session import settings
from kolumn.spark_plugin.session.build import JVM

pytestmark = pytest.mark.spark
LOG = CORPUS / "v2-java" / "java-zstd-0"


@pytest.mark.slow
def test_a_session_whose_workers_print_hang_and_lose_their_jvm(tmp_path: Path) -> None:
    """Its folder for temporary files has a longer name than a Unix socket may have."""
    result = run_job(LOG, tmp_path, script="worker_job.py")
    place, expected = result["place"]
    assert place == expected
    assert len(place) > 140
    table = kolumn.read(LOG, columns=["value"])
    rows = [table.num_rows, len(table["value"].unique())]
    assert (result["rows"], result["printing"], result["after"]) == ([rows, rows], rows, rows[1])
    assert result["doors"] == {"pipes": 2, "have them": True, "standard": ["/dev/null", True], "added files": True}
    late = r"Kolumn's Python worker \d+ did not answer within 3 s, so it was killed: .*spark.kolumn.worker.timeoutSeconds"
    for name in ("question", "task"):
        told, seconds = result[name]
        assert re.search(late, told), told
        assert seconds < 30
    for told, seconds, is_gone in result["cancelled"]:
        assert "cancelled" in told
        assert seconds < 15
        assert is_gone
    seconds, told = result["stream"]
    assert seconds < 15
    assert not told
    assert result["orphans"] == [True] * 3
    assert result["left"] == []


@pytest.fixture
def session(spark: SparkSession) -> Iterator[Callable[[str, object], None]]:
    """Sets settings of the session, as SQL does, for one test."""
    given: list[str] = []

    def give(name: str, value: object) -> None:
        given.append(name)
        spark.sql(f"SET {name}={value}")

    before = spark.conf.get("spark.kolumn.reader")
    yield give
    for name in reversed(given):
        spark.sql(f"RESET `{name}`")
    spark.conf.set("spark.kolumn.reader", before)


@pytest.fixture
def program(tmp_path: Path) -> tuple[Path, Path]:
    """A program, and the file that it makes when it runs."""
    made, path = tmp_path / "it-ran", tmp_path / "program"
    path.write_text(f'#!/bin/sh\ntouch {made}\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path, made


def count(spark: SparkSession, reader: str = "columnar", **options: str) -> int:
    return spark.read.format("kolumn").options(reader=reader, **options).load(str(LOG)).count()


def test_sql_does_not_choose_the_program_that_is_run(spark: SparkSession, session: Any, program: tuple[Path, Path]) -> None:
    path, made = program
    session("spark.kolumn.driver.python", path)
    belongs = "spark.kolumn.driver.python: it belongs to the configuration that the SparkContext is started with"
    for reader in ("columnar", "python"):
        with pytest.raises(AnalysisException, match=belongs):
            count(spark, reader)
    with pytest.raises(ArgumentError, match=belongs):
        register(spark)
    spark.sql("RESET spark.kolumn.driver.python")
    # Spark's own names, for which it has a way out; the connector's python is that of the context.
    session("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    for name in ("spark.pyspark.python", "spark.pyspark.driver.python", "spark.executorEnv.PYSPARK_PYTHON"):
        session(name, path)
    assert count(spark) == kolumn.read(LOG).num_rows
    assert not made.exists()


def test_neither_options_nor_properties_nor_catalogs_choose_a_program(
    spark: SparkSession, session: Any, program: tuple[Path, Path]
) -> None:
    path, made = program
    for name in ("spark.kolumn.driver.python", "driver.python", "python", "pythonExec"):
        with pytest.raises(PySparkException, match="unknown option"):
            count(spark, **{name: str(path)})
        with pytest.raises(PySparkException, match="unknown option"):
            spark.sql(f"CREATE TABLE chosen USING kolumn OPTIONS (path '{LOG}', '{name}' '{path}', reader 'columnar')")
    session("spark.sql.catalog.chosen", "kolumn.Catalog")
    session("spark.sql.catalog.chosen.root", LOG.parent)
    session("spark.sql.catalog.chosen.spark.kolumn.driver.python", path)
    with pytest.raises(PySparkException, match="unknown option"):
        spark.sql("SHOW TABLES IN chosen").collect()
    assert not made.exists()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("spark.kolumn.handover", "pipe", "no such setting, the nearest is spark.kolumn.handOver"),
        ("spark.kolumn.readers", "python", "no such setting, the nearest is spark.kolumn.reader"),
        ("spark.Kolumn.worker.idleSecond", "5", "no such setting, the nearest is spark.kolumn.worker.idleSeconds"),
        ("spark.kolumn.handOver", "bogus", "expected memory or pipe, found 'bogus'"),
        ("spark.kolumn.reader", "columns", "expected columnar or python, found 'columns'"),
        ("spark.kolumn.reportPartitioning", "maybe", "expected true or false, found 'maybe'"),
        ("spark.kolumn.worker.idleSeconds", "soon", "expected a number of seconds, found 'soon'"),
        ("spark.kolumn.worker.timeoutSeconds", "-1", "expected a number of seconds, found '-1'"),
        ("spark.kolumn.worker.timeoutSeconds", "5", "it belongs to the configuration that the SparkContext is started with"),
    ],
)
def test_settings_that_mean_nothing_are_refused(spark: SparkSession, session: Any, name: str, value: str, told: str) -> None:
    """By the connector, by the source in Python, and before a session is started where that can be known."""
    session(name, value)
    for reader in ("columnar", "python"):
        with pytest.raises(AnalysisException, match=f"ArgumentError: setting {name}: {told}"):
            count(spark, reader)
    with pytest.raises(ArgumentError, match=f"setting {name}: {told}"):
        register(spark)
    if "belongs" not in told:
        with pytest.raises(ArgumentError, match=f"setting {name}: {told}"):
            configure(Builder({name: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["pipe", "socket", "MEMORY"])
def test_settings_of_a_session(spark: SparkSession, session: Any, how: str) -> None:
    """By its old name the pipe is taken for a version more."""
    session("spark.kolumn.handOver", how)
    session("spark.kolumn.reportPartitioning", "TRUE")
    assert spark.read.format("kolumn").option("reader", "columnar").load(str(LOG)).select("value").count() == kolumn.read(LOG).num_rows


def test_java_python_and_the_docs_know_the_same_settings() -> None:
    java = (JVM / "kolumn" / "Settings.java").read_text() + (JVM / "kolumn" / "Workers.java").read_text()
    names = set(re.findall(r'PREFIX \+ "([\w.]+)"', java)) | {name for name in re.findall(r'"spark\.kolumn\.([\w.]+)"', java) if name}
    assert {f"spark.kolumn.{name}" for name in names} == set(settings.KNOWN)
    page = (Path(__file__).parents[2] / "docs" / "howto" / "connector.md").read_text()
    rows = {row[0]: row[1] for row in re.findall(r"^\| `(spark\.kolumn\.[\w.]+)` \| (session|context)", page, re.MULTILINE)}
    # One is between `rapids.explain` and the jar.
    del (known := dict(settings.KNOWN))["spark.kolumn.rapids.keepPlan"]
    assert rows == {name: "session" if one.of_session else "context" for name, one in known.items()}
