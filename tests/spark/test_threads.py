"""Spark looks up the format of a write in the session that is active in the thread: see `docs/howto/spark-issue-threads.md`."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kolumn

pytestmark = pytest.mark.spark


def in_threads(*functions: Callable[[], None]) -> list[BaseException | None]:
    """Run functions at the same time, each in a thread of its own; returns the error of each, or None."""
    failed: list[BaseException | None] = [None] * len(functions)

    def call(number: int) -> None:
        try:
            functions[number]()
        except BaseException as error:
            failed[number] = error

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return failed


def writer(spark: SparkSession, path: Path, first: int, active: bool, topic: str = "") -> Callable[[], None]:
    frame = spark.range(first, first + 20, 1, 1).selectExpr("cast(id as string) as value")

    def write() -> None:
        if active:
            # This call of Spark's public interface makes the session active in this thread.
            spark.createDataFrame([], "nothing int")
        frame.write.format("kolumn").mode("append").option("topic", topic or f"t{first}").save(str(path))

    return write


def test_writes_from_threads(spark: SparkSession, tmp_path: Path) -> None:
    """Parallel writes to one folder, each of a topic of its own."""
    assert in_threads(*(writer(spark, tmp_path, first, active=True) for first in (0, 100, 200))) == [None] * 3
    found = sorted(int(value) for value in kolumn.read(tmp_path)["value"].to_pylist())
    assert found == [first + i for first in (0, 100, 200) for i in range(20)]
    assert {path.name for path in tmp_path.iterdir()} == {"t0-0", "t100-0", "t200-0"}


def test_writes_to_one_partition_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """A write is refused as a whole if the log has grown since it began."""
    firsts = (0, 100, 200)
    failed = in_threads(*(writer(spark, tmp_path, first, active=True, topic="t") for first in firsts))
    for error in failed:
        assert error is None or "were to be appended" in str(error) or "already exists" in str(error)
    expected = [first + i for first, error in zip(firsts, failed, strict=True) if error is None for i in range(20)]
    assert expected
    found = kolumn.read(tmp_path)
    assert sorted(int(value) for value in found["value"].to_pylist()) == expected
    assert found["offset"].to_pylist() == list(range(len(expected)))
    assert kolumn.verify(tmp_path).ok
    assert [path.name for path in tmp_path.iterdir()] == ["t-0"]


def test_spark_finds_the_format_in_any_thread_by_the_connector(spark: SparkSession, tmp_path: Path) -> None:
    """Without the connector's jar Spark does not, as README says."""
    (failed,) = in_threads(writer(spark, tmp_path, 0, active=False))
    assert failed is None
    (failed,) = in_threads(lambda: spark.read.format("kolumn").option("path", "/nowhere").load().collect())
    assert "DATA_SOURCE_NOT_FOUND" not in str(failed)
