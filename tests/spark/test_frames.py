"""`read_segments` returns the rows of `kolumn.read`, in types that RAPIDS supports up to the last step."""

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kolumn
from kolumn.core.schema import RECORD_COLUMNS, record_schema
from kolumn.spark_plugin import read_segments
from kolumn.spark_plugin.read.frames import crossing, crossing_schema
from kolumn.spark_plugin.read.schema import spark_schema

pytestmark = pytest.mark.spark

EVERY = [name for name in RECORD_COLUMNS if name != "transaction"]


def test_every_column_has_the_bytes_and_the_type_of_kolumn_read(spark: SparkSession, segment: Path) -> None:
    frame = read_segments(spark, segment, columns=EVERY, split_bytes=50_000)
    table = kolumn.read(segment, columns=EVERY)
    assert frame.rdd.getNumPartitions() > 1
    assert frame.schema.toNullable() == spark_schema(table.schema)
    assert frame.toArrow().cast(table.schema).equals(table)
    assert len(table["headers"].combine_chunks().flatten()) > 0


def test_ranges_and_strings(spark: SparkSession, segment: Path) -> None:
    """Strings hold the bytes whatever they are."""
    asked: Any = {"columns": ["value", "offset"], "start_offset": 500, "end_offset": 777}
    frame = read_segments(spark, segment, payload="string", **asked)
    assert frame.schema.simpleString() == "struct<value:string,offset:bigint>"
    assert frame.withColumn("value", frame.value.cast("binary")).toArrow().equals(kolumn.read(segment, **asked))


def test_a_transform_runs_in_the_worker(spark: SparkSession, segment: Path) -> None:
    def sizes(batch: pa.RecordBatch) -> pa.RecordBatch:
        total = pc.sum(pc.binary_length(batch.column("value"))).as_py()
        return pa.RecordBatch.from_pydict({"n": pa.array([batch.num_rows], pa.int32()), "bytes": [total]})

    frame = read_segments(spark, segment, columns=["value"], split_bytes=50_000, transform=sizes, schema="bytes bigint, n bigint")
    assert frame.columns == ["bytes", "n"]
    (row,) = frame.groupBy().sum("n", "bytes").collect()
    values = kolumn.read(segment, columns=["value"])["value"]
    assert tuple(row) == (len(values), pc.sum(pc.binary_length(values)).as_py())
    # One that keeps no promise is named.
    for wrong, message in (
        (lambda batch: batch.select(["offset"]), r"transform returned the columns \['offset'\], the schema has \['n'\]"),
        (lambda batch: pa.Table.from_batches([batch]), "it returned Table"),
    ):
        with pytest.raises(PySparkException, match=message):
            read_segments(spark, segment, transform=wrong, schema="n bigint").count()


def test_what_workers_have_loaded_is_left_alone_after_their_first_task(
    spark: SparkSession, segment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's daemon collects garbage after every task, which must not walk all objects of Numba and Arrow each time."""
    # Workers of their own: one that other tests have used may have loaded more since it settled in.
    monkeypatch.setitem(spark.sparkContext.environment, "KOLUMN_TEST", "settle in")

    def tracked(_: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()], "others": [len(gc.get_objects())]})

    for _ in range(4):
        rows = read_segments(spark, segment, split_bytes=50_000, transform=tracked, schema="frozen bigint, others bigint").collect()
    frozen, others = max(tuple(row) for row in rows)
    assert frozen > 50_000
    assert others < frozen // 10


def test_what_makes_no_sense_is_refused_on_the_driver(spark: SparkSession, segment: Path) -> None:
    for given, message in (
        ({"payload": "text"}, "payload='text': expected one of binary, string"),
        ({"schema": "n bigint"}, "transform and schema go together"),
        ({"binary": "view"}, "leave it out"),
        ({"split_bytes": 0}, "expected at least 1, found 0"),
        ({"colums": ["key"]}, "did you mean 'columns'"),
    ):
        with pytest.raises(kolumn.ArgumentError, match=message):
            read_segments(spark, segment, **given)


def test_payloads_cross_without_a_copy_from_any_slice(segment: Path) -> None:
    batch = kolumn.read(segment, columns=["value", "headers"]).combine_chunks().to_batches()[0].slice(7, 100)
    crossed = crossing(batch)
    assert crossed.schema.names == crossing_schema(record_schema(("value", "headers"))).fieldNames()
    assert [one.address for one in crossed["value"].buffers()[1:]] == [one.address for one in batch["value"].buffers()[1:]]
    headers = batch["headers"].to_pylist()
    assert crossed["headerKeys"].to_pylist() == [[header["key"] for header in one] for one in headers]
    assert crossed["headerValues"].cast(pa.list_(pa.binary())).to_pylist() == [[header["value"] for header in one] for one in headers]


def test_many_segments_are_planned_by_a_job(
    spark: SparkSession, segment: Path, small_segments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(segment), str(small_segments)]
    by_threads = read_segments(spark, paths, columns=["offset"], split_bytes=30_000)
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    monkeypatch.setattr("kolumn.spark_plugin.session.session.MANY", 1)
    monkeypatch.setattr("kolumn.spark_plugin.session.session.workers", None)
    frame = read_segments(spark, paths, columns=["offset"], split_bytes=30_000)
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == jobs + 1
    assert frame.collect() == by_threads.collect()
    assert frame.rdd.getNumPartitions() == by_threads.rdd.getNumPartitions() > 5


def in_threads(*functions: Callable[[], None]) -> list[BaseException | None]:
    """Run functions at the same time, each in a thread of its own; returns the error of each, or None."""
    with ThreadPoolExecutor(len(functions)) as pool:
        return [running.exception(120) for running in [pool.submit(function) for function in functions]]


def writer(spark: SparkSession, path: Path, first: int, active: bool, topic: str) -> Callable[[], None]:
    frame = spark.range(first, first + 20, 1, 1).selectExpr("cast(id as string) as value")

    def write() -> None:
        if active:
            # This call of Spark's public interface makes the session active in this thread.
            spark.createDataFrame([], "nothing int")
        frame.write.format("kolumn").mode("append").option("topic", topic).save(str(path))

    return write


def test_writes_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """To one folder: of a topic of its own, and of one topic, where a write is refused as a whole if the log has grown since it began."""
    firsts = (0, 100, 200)
    writers = [writer(spark, tmp_path, first, active=True, topic="t") for first in firsts]
    own, *failed = in_threads(writer(spark, tmp_path, 300, active=True, topic="own"), *writers)
    assert own is None
    for error in failed:
        assert error is None or "were to be appended" in str(error) or "already exists" in str(error)
    expected = [first + i for first, error in zip(firsts, failed, strict=True) if error is None for i in range(20)]
    assert expected
    assert sorted(int(value) for value in kolumn.read(tmp_path)["value"].to_pylist()) == [*expected, *range(300, 320)]
    assert kolumn.read(tmp_path / "t-0")["offset"].to_pylist() == list(range(len(expected)))
    assert kolumn.verify(tmp_path).ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own-0", "t-0"]


def test_spark_finds_the_format_in_any_thread_by_the_connector(spark: SparkSession, tmp_path: Path) -> None:
    """Without the connector's jar Spark does not, as README says."""
    assert in_threads(writer(spark, tmp_path, 0, active=False, topic="t")) == [None]
    (failed,) = in_threads(lambda: spark.read.format("kolumn").option("path", "/nowhere").load().collect())
    assert "DATA_SOURCE_NOT_FOUND" not in str(failed)
