"""The columnar connector: the rows of `kolumn.read`, what it passes on of a query, workers that die, and SQL."""

import json
import os
import random
import re
import signal
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

import kolumn
from kit.corpus import HERE as CORPUS
from kit.encoder import Record, batch
from kit.plain_spark import soon
from kit.spark_session import connector_workers, scans
from kolumn.core.schema import HEADERS, RECORD_COLUMNS
from kolumn.readers.types import with_types
from kolumn.spark_plugin.connector.conditions import only_asked
from kolumn.spark_plugin.read.options import LoadOptions

pytestmark = pytest.mark.spark
ORDERED = ["topic", "partition", "offset"]
ORDER = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
PARTITIONS, ROWS = 3, 4000


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, noise = tmp_path_factory.mktemp("logs"), random.Random(7)
    times = pa.array([1_700_000_000_000_000 + 1000 * i for i in range(ROWS)], pa.timestamp("us", "UTC"))
    for topic, partition in product(("orders", "notes"), range(PARTITIONS)):
        values = pa.array([noise.randbytes(40) + b"text " * 10 if i % 7 else None for i in range(ROWS)], pa.binary())
        table = pa.table({"value": values, "key": [str(i % 5).encode() for i in range(ROWS)], "timestamp": times})
        kolumn.write(table, root / f"{topic}-{partition}", codec="zstd", batch_bytes=4000, segment_bytes=30_000)
    return root


@pytest.fixture
def columnar(spark: SparkSession) -> Iterator[Any]:
    yield lambda path, **options: spark.read.format("kolumn").options(reader="columnar", **options).load(str(path))
    spark.conf.unset("spark.kolumn.handOver")


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("how", ["memory", "socket"])
def test_rows_are_those_of_a_read(spark: SparkSession, columnar: Any, logs: Path, how: str) -> None:
    spark.conf.set("spark.kolumn.handOver", how)
    columns = ",".join(RECORD_COLUMNS)
    frame = columnar(logs, columns=columns, splitBytes=200_000)
    assert "BatchScan kolumn" in plan(frame)
    assert frame.rdd.getNumPartitions() > 3
    assert frame.toArrow().sort_by(ORDER).equals(kolumn.read(logs, columns=columns.split(",")).sort_by(ORDER))


def test_structs_of_several_chunks(columnar: Any, tmp_path: Path) -> None:
    """Spark closes the columns of each batch, and a vector of structs that is closed has no fields."""
    rows = [{"customer": f"c{i % 3}", "id": i, "items": [{"sku": str(i), "text": "x" * 100}] * (i % 3)} for i in range(ROWS)]
    values: list[bytes | None] = [json.dumps(row).encode() for row in rows]
    values[3], values[400], values[5] = None, b"{", b'{"customer": "c0", "id": 5, "items": 5}'
    headers = pa.array([[{"key": f"h{i % 4}", "value": b"v" * 50}] for i in range(ROWS)], HEADERS)
    kolumn.write(pa.table({"value": pa.array(values, pa.binary()), "headers": headers}), tmp_path / "orders-0", batch_bytes=4000)
    schema = json.dumps({"customer": "string", "id": "int64", "items": [{"sku": "string", "text": "string"}]})
    frame = columnar(tmp_path, columns="offset,value,headers", valueFormat="json", valueSchema=schema, chunkBytes=5000)
    assert frame.rdd.getNumPartitions() == 1
    table = kolumn.read(tmp_path, columns=["offset", "value", "headers"], value_format="json", value_schema=schema)
    assert [row.asDict(recursive=True) for row in frame.collect()] == table.to_pylist()
    nested = frame.groupBy("value.customer").agg(sql.sum("value.id"), sql.sum(sql.size("value.items"))).collect()
    # Of row 5 the list is lost alone.
    kept = [row if i != 5 else {"customer": "c0", "id": 5, "items": []} for i, row in enumerate(rows) if i not in (3, 400)]
    expected: dict[str | None, Any] = {None: (None, None)}
    for customer in ("c0", "c1", "c2"):
        own = [row for row in kept if row["customer"] == customer]
        expected[customer] = sum(row["id"] for row in own), sum(len(row["items"]) for row in own)
    assert {customer: (total, items) for customer, total, items in nested} == expected
    # What nobody asked for is not handed over.
    few = frame.agg(sql.sum("value.id"), sql.sum(sql.size("headers.key")), sql.max(sql.expr("get(value.items, 0).sku")))
    assert few.collect() == [(sum(row["id"] for row in kept), ROWS, "998")]
    whole = frame.agg(sql.max("value"), sql.max("headers"))
    whole.collect()
    assert metrics(few)["arrowBytes"] < metrics(whole)["arrowBytes"] / 3


def test_only_what_a_query_needs_is_read(spark: SparkSession, columnar: Any, logs: Path) -> None:
    frame = columnar(logs).where("offset >= 3990 AND topic = 'orders' AND partition IN (0, 2)").select("value")
    assert frame.count() == 20
    # Topic and partition are the same for all records of a partition, so they are not compared again.
    for part in ("columns: value, offset, where: ", "offset >= 3990", "topic = 'orders'"):
        assert part in plan(frame)
    # The ranges of one query stay with it.
    whole = columnar(logs)
    assert (whole.where("offset >= 3000").select("value").count(), whole.select("value").count()) == (6000, 24000)
    assert whole.where("offset >= 3999").union(whole.where("offset < 1")).select("key").count() == 12


def test_filters_leave_the_same_rows(spark: SparkSession, columnar: Any, logs: Path) -> None:
    conditions = [
        "offset > 9223372036854775806", "offset < 0", "5 > offset", "offset = 7 OR offset = 3999", "offset >= 10 AND offset < 5",
        "timestamp >= timestamp'2023-11-14 22:13:20.0005' AND timestamp <= timestamp'2023-11-14 22:13:21'", "topic IS NULL",
        "timestamp < timestamp'2023-11-14 22:13:20.001'", "topic IN ('notes', 'none') AND offset IN (1, 3998)", "NOT offset > 5",
        "(topic = 'orders' AND offset < 3) OR (topic LIKE 'not%' AND partition <> 1 AND offset > 3996)", "partition NOT IN (0, NULL)",
        "NOT (topic <=> 'orders') AND NOT (offset >= 2 OR partition = 1)",
    ]  # fmt: skip
    columns = ["topic", "partition", "offset", "timestamp"]
    every = spark.createDataFrame(kolumn.read(logs, columns=columns))
    wanted = every.selectExpr(*columns[:3], *(f"({condition}) AS `{i}`" for i, condition in enumerate(conditions))).toArrow().sort_by(ORDER)
    for i, condition in enumerate(conditions):
        found = columnar(logs).where(condition).select(*columns[:3]).toArrow().sort_by(ORDER)
        assert found.to_pylist() == wanted.filter(wanted[str(i)]).select(columns[:3]).to_pylist(), condition


def test_counts_come_from_headers(spark: SparkSession, columnar: Any, logs: Path) -> None:
    frame = columnar(logs)
    totals = [sql.count("*"), sql.min("offset"), sql.max("offset"), sql.max("timestamp")]
    whole = frame.agg(*totals)
    assert "from headers: [count, min offset, max offset, max timestamp]" in plan(whole)
    newest = pc.max(kolumn.read(logs, columns=["timestamp"])["timestamp"]).as_py().replace(tzinfo=None)
    assert whole.collect() == [(2 * PARTITIONS * ROWS, 0, ROWS - 1, newest)]
    grouped = frame.groupBy("topic", "partition").count().orderBy("topic", "partition")
    assert "from headers" in plan(grouped)
    assert grouped.collect() == [(topic, p, ROWS) for topic in ("notes", "orders") for p in range(PARTITIONS)]
    some = frame.where("topic LIKE 'ord%' AND partition <> 1").agg(sql.count("offset"), sql.max("offset"))
    assert "from headers: [count, max offset]" in plan(some)
    assert some.collect() == [(2 * ROWS, ROWS - 1)]
    for other in (frame.where("offset > 5"), columnar(logs, checkCrcs="true"), columnar(logs, startOffset=5)):
        assert "from headers" not in plan(other.agg(*totals))
    assert frame.agg(sql.min("timestamp"), sql.count("value")).collect()[0][1] == 2 * PARTITIONS * (ROWS - -(-ROWS // 7))


def test_nothing_is_counted_as_none_and_a_limit_reads_little(columnar: Any, logs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty-0").mkdir()
    (tmp_path / "empty-0" / f"{0:020d}.log").touch()
    frame = columnar(tmp_path)
    assert frame.agg(sql.count("*"), sql.max("offset")).collect() == [(0, None)]
    assert frame.groupBy("partition").count().collect() == frame.collect() == []
    frame = columnar(logs).limit(7)
    assert (len(frame.collect()), "limit: 7" in plan(frame)) == (7, True)
    assert columnar(logs).limit(ROWS * 2 + 1).select("offset").count() == ROWS * 2 + 1
    assert columnar(logs, startOffset=3998).limit(7).count() == 7


def test_first_rows_come_from_headers(spark: SparkSession, columnar: Any, logs: Path) -> None:
    python = spark.read.format("kolumn").option("reader", "python").load(str(logs))
    for order, text in (
        ([sql.desc("offset"), sql.col("partition")], "10 by offset DESC, partition"),
        ([sql.desc("timestamp")], "10 by timestamp DESC"),
        ([sql.col("topic"), sql.col("partition"), sql.col("offset")], "10 by topic, partition, offset"),
    ):
        asked = [frame.orderBy(*order).limit(10).select("topic", "partition", "offset", "timestamp") for frame in (columnar(logs), python)]
        assert f"top by headers: {text}" in plan(asked[0])
        found, wanted = (frame.collect() for frame in asked)
        if len(order) > 1:
            assert [row.offset for row in found] == [row.offset for row in wanted]
        assert [row.timestamp for row in found] == [row.timestamp for row in wanted]
        if "offset" in text:
            assert 0 < metrics(asked[0])["logBytes"] < sum(path.stat().st_size for path in logs.rglob("*.log")) / 5
    newest = columnar(logs).orderBy(sql.desc("offset"))
    assert [row.offset for row in newest.where("topic = 'orders'").offset(3).limit(5).collect()] == [3998] * 3 + [3997] * 2
    # These leave the choice to Spark, which compares rows or decodes.
    for other in (newest.where("offset < 90"), columnar(logs).orderBy("timestamp"), columnar(logs).orderBy(sql.expr("-offset"))):
        assert "top by headers" not in plan(other.limit(3))
    # A join with the first rows cannot take others for them.
    few = spark.createDataFrame([(3999, 1), (5, 2)], "offset long, note int").where("note > 0")
    assert newest.limit(10).join(sql.broadcast(few), "offset").count() == 6


def test_record_columns_that_a_table_does_not_have(spark: SparkSession, columnar: Any, logs: Path, tmp_path: Path) -> None:
    frame, names = columnar(logs), [name for name in RECORD_COLUMNS if name not in columnar(logs).columns]
    expected = kolumn.read(logs, columns=[*ORDERED, *names])
    asked = frame.select(*ORDERED, *names)
    assert asked.toArrow().sort_by(ORDER).equals(expected.sort_by(ORDER))
    assert asked.dtypes == columnar(logs, columns=",".join([*ORDERED, *names])).select(*ORDERED, *names).dtypes
    assert frame.select("*").columns == frame.columns
    assert frame.selectExpr("size(headers.key)").distinct().collect() == [(0,)]
    first = frame.where("position = 0 AND segment LIKE '%notes-1%' AND offset < 3").select("offset", "codec")
    assert "columns: topic" not in plan(first)
    assert "columns: offset, codec, segment, position, where: offset IS NOT NULL AND offset < 3" in plan(first)
    assert sorted(first.collect()) == [(0, "zstd"), (1, "zstd"), (2, "zstd")]
    # A table of one column: the others narrow it, and are counted by headers, all the same.
    narrow = columnar(logs, columns="value")
    assert narrow.where("topic = 'orders' AND offset >= 3999").select("partition").count() == PARTITIONS
    counted = narrow.groupBy("topic").agg(sql.max("offset"))
    assert "from headers" in plan(counted)
    assert sorted(counted.collect()) == [("notes", ROWS - 1), ("orders", ROWS - 1)]
    assert [row[0] for row in narrow.orderBy(sql.desc("offset")).limit(2).select("offset").collect()] == [ROWS - 1] * 2
    values = pa.table({"value": [b'{"offset": 7, "Codec": "x"}'] * 3})
    kolumn.write(values, tmp_path / "typed-0")
    typed = {"valueFormat": "json", "valueSchema": '{"offset": "int64", "Codec": "string"}'}
    flat = columnar(tmp_path, columns="value", valueAs="columns", **typed)
    # A field of the value is what its name means, in any case of its letters.
    assert flat.where("offset = 7 AND codec = 'x'").select("valueValid", "magic").collect() == [(True, 2)] * 3
    assert (
        columnar(tmp_path, columns="offset", **typed).where("value.offset = 7").select("valueRaw", "value.Codec").collect()
        == [(b'{"offset": 7, "Codec": "x"}', "x")] * 3
    )


@pytest.fixture
def joins(spark: SparkSession) -> Iterator[None]:
    """Spark asks for an exchange by all columns of a join unless it is told otherwise."""
    names = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.requireAllClusterKeysForCoPartition": "false"}
    for name, value in names.items():
        spark.conf.set(name, value)
    yield
    for name in names:
        spark.conf.unset(name)


@pytest.mark.usefixtures("joins")
def test_groups_windows_and_joins_over_partitions_need_no_exchange(columnar: Any, logs: Path) -> None:
    frame = columnar(logs, splitBytes=200_000).groupBy("topic", "partition").agg(sql.sum("offset"))
    assert "Exchange" not in plan(frame)
    assert {row[2] for row in frame.collect()} == {ROWS * (ROWS - 1) // 2}
    step = "offset - lag(offset) OVER (PARTITION BY topic, partition ORDER BY offset) AS step"
    asked = columnar(logs / "orders-*").selectExpr("topic", "partition", step)
    assert not re.findall(r"Exchange|Sort ", plan(asked))
    assert asked.groupBy("step").count().orderBy("step").collect() == [(None, PARTITIONS), (1, PARTITIONS * (ROWS - 1))]
    few, all_rows = columnar(logs / "orders-*").where("offset < 50"), columnar(logs / "orders-*")
    by_partition = few.join(all_rows.where("offset < 20"), ["topic", "partition"]).select("topic")
    by_offset = few.join(all_rows, ["topic", "partition", "offset"]).select("offset")
    assert not re.findall(r"Exchange|Sort ", plan(by_offset))
    assert "Exchange" not in plan(by_partition)
    assert (by_partition.count(), by_offset.count()) == (PARTITIONS * 50 * 20, PARTITIONS * 50)


def test_what_a_join_finds_out_while_it_runs_narrows_the_scan(spark: SparkSession, columnar: Any, logs: Path) -> None:
    small = spark.createDataFrame([("orders", 1, "wanted"), ("notes", 2, "not")], "topic string, partition int, note string")
    joined = columnar(logs).join(sql.broadcast(small.where("note = 'wanted'")), ["topic", "partition"]).agg(sql.sum("offset"))
    assert "dynamicpruning" in plan(joined)
    assert joined.collect() == [(ROWS * (ROWS - 1) // 2,)]
    assert metrics(joined)["logBytes"] == sum(path.stat().st_size for path in (logs / "orders-1").glob("*.log"))


def test_payloads_as_strings(spark: SparkSession, columnar: Any, logs: Path) -> None:
    binary = kolumn.read(logs / "orders-0", columns=["offset", "value"]).sort_by("offset")["value"].to_pylist()
    for frame in (
        columnar(logs / "orders-0", payload="string"),
        spark.read.format("kolumn").options(payload="string").load(str(logs / "orders-0")),
    ):
        assert dict(frame.dtypes)["key"] == dict(frame.dtypes)["value"] == "string"
        assert [row[0] for row in frame.orderBy("offset").selectExpr("cast(value as binary)").collect()] == binary
        assert sorted(frame.groupBy("key").count().collect()) == [(str(i), ROWS // 5) for i in range(5)]
    with pytest.raises(PySparkException, match="option payload: expected binary or string"):
        columnar(logs, payload="text")
    # The planner knows the size.
    assert 0.7 < columnar(logs)._jdf.queryExecution().optimizedPlan().stats().rowCount().get() / (2 * PARTITIONS * ROWS) < 1.4


def metrics(frame: DataFrame) -> dict[str, int]:
    """The scan's metrics after the query has run, as the UI shows them."""
    losses = ("damaged", "lost", "valuesLost", "fieldsLost", "afterOpen")
    names = ("logBytes", "logBatches", *losses, "arrowBytes", "sharedBytes", "memoryBytes")
    (scan,) = scans(frame._jdf.queryExecution().executedPlan())
    return {name: scan.metrics().apply(name).value() for name in names}


def test_metrics_count_what_was_read_and_what_was_left_out(columnar: Any, logs: Path, tmp_path: Path) -> None:
    frame = columnar(logs / "orders-0").agg(sql.sum(sql.length("value")))
    frame.collect()
    size = sum(path.stat().st_size for path in (logs / "orders-0").glob("*.log"))
    found = metrics(frame)
    assert (found["logBytes"], found["logBatches"], found["damaged"]) == (size, kolumn.batches(logs / "orders-0").num_rows, 0)
    assert found["arrowBytes"] > size
    data = bytearray(sorted((logs / "orders-0").glob("*.log"))[0].read_bytes())
    data[2000] ^= 255
    (tmp_path / "bad-0").mkdir()
    (tmp_path / "bad-0" / f"{0:020d}.log").write_bytes(data)
    frame = columnar(tmp_path, errors="skip").agg(sql.sum("offset"))
    frame.collect()
    found = metrics(frame)
    assert (found["damaged"], found["lost"] > 0) == (1, True)
    kolumn.write(pa.table({"value": [b'{"id": 1}', b"no", b"7", None]}), tmp_path / "values-0")
    for wanted in ("value.id", "valueValid"):
        frame = columnar(tmp_path / "values-0", valueFormat="json", valueSchema='{"id": "int64"}').select(wanted)
        frame.collect()
        found = metrics(frame)
        assert (found["valuesLost"], found["fieldsLost"], found["afterOpen"]) == (2, 0, 0)
    folder, skipped = CORPUS / "transactional" / "txn-zstd-0", kolumn.Skipped()
    rows = kolumn.read(folder, isolation_level="read_committed", on_damage=skipped).num_rows
    frame = columnar(folder, isolationLevel="read_committed", splitBytes="5000")
    assert len(frame.collect()) == rows
    assert metrics(frame)["afterOpen"] == (skipped.stopped[0].records or 0) > 0
    for fails in (
        columnar(tmp_path, subscribe="bad").select("value"),
        columnar(tmp_path, subscribe="bad", checkCrcs="true").groupBy().count(),
    ):
        with pytest.raises(PySparkException, match=r"CorruptBatchError: .*bad-0"):
            fails.collect()


def input_of(spark: SparkSession, frame: DataFrame) -> tuple[int, int]:
    """Bytes and records that Spark's UI shows as the input of a query's stages."""
    spark.sparkContext.setJobGroup(group := f"input of {id(frame)}", "input")
    try:
        frame.collect()
        tracker = spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        assert soon(lambda: all(tracker.getJobInfo(job.jobId).status == "SUCCEEDED" for job in jobs))
        store = spark._jsc.sc().statusStore()  # type: ignore[attr-defined]
        stages = [store.lastStageAttempt(stage) for job in jobs for stage in job.stageIds]
        return sum(stage.inputBytes() for stage in stages), sum(stage.inputRecords() for stage in stages)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def test_a_task_that_a_limit_ends_has_counted_what_it_read(spark: SparkSession, columnar: Any, logs: Path) -> None:
    size = sum(path.stat().st_size for path in (logs / "orders-0").glob("*.log"))
    # A condition that rows decide: the limit is Spark's, and ends the task after the first batch.
    frame = columnar(logs / "orders-0", chunkBytes=5000).where("octet_length(value) > 0").limit(3)
    (read, rows), found = input_of(spark, frame), metrics(frame)
    assert 0 < found["logBytes"] == read < size / 2
    assert 0 < rows < ROWS / 2
    assert found["memoryBytes"] > found["sharedBytes"] > 0
    whole = columnar(logs / "orders-0").select(sql.sum(sql.length("value")))
    assert input_of(spark, whole) == (size, ROWS)


def test_the_headers_of_many_segments_are_read_by_a_job(spark: SparkSession, columnar: Any, tmp_path: Path) -> None:
    one = batch([Record(0, None, b"x", 0)])
    (tmp_path / "t-0").mkdir()
    for base in range(2000):
        (tmp_path / "t-0" / f"{base:020}.log").write_bytes(struct.pack(">q", base) + one[8:])
    frame = columnar(tmp_path, maxRecordsPerPartition=1500).select("offset")
    spark.sparkContext.setJobGroup("many", "many segments")
    try:
        assert frame.rdd.getNumPartitions() == 2
        assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("many")) == 1
        assert frame.agg(sql.sum("offset"), sql.count("*")).collect() == [(1999 * 1000, 2000)]
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def test_the_other_tables_and_the_way_out_are_pythons(spark: SparkSession, logs: Path, columnar: Any) -> None:
    with pytest.raises(AnalysisException, match="option reader: expected columnar or python, found 'colunmar'"):
        spark.read.format("kolumn").option("reader", "colunmar").load(str(logs))
    python = spark.read.format("kolumn").option("reader", "python").load(str(logs / "notes-0"))
    assert "columns:" not in plan(python)
    assert python.toArrow().equals(columnar(logs / "notes-0").toArrow())
    assert columnar(logs / "notes-0", table="batches").agg(sql.sum("count")).collect()[0][0] == ROWS


def slow(frame: DataFrame) -> Any:
    return frame.select(sql.sum(sql.expr("aggregate(sequence(1, 8000), 0L, (a, x) -> a + hash(value, x))"))).collect()


def while_it_runs(spark: SparkSession, act: Any) -> threading.Thread:
    """Do something a moment after the next job has begun, and has a worker: the first one of a session takes its time."""

    def wait() -> None:
        if soon(spark.sparkContext.statusTracker().getActiveJobsIds) and soon(lambda: connector_workers(spark)):
            time.sleep(0.5)
            act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_idle_workers_are_replaced_if_they_die_and_end(spark: SparkSession, columnar: Any, logs: Path) -> None:
    assert columnar(logs).select("offset").count() == 2 * PARTITIONS * ROWS
    before = connector_workers(spark)
    assert before
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert columnar(logs).select("key").distinct().count() == 5
    assert not set(before) & set(connector_workers(spark))
    conf = spark._jvm.org.apache.spark.SparkEnv.get().conf()  # type: ignore[union-attr]
    conf.set("spark.kolumn.worker.idleSeconds", "1")
    try:
        assert soon(lambda: not connector_workers(spark))
    finally:
        conf.remove("spark.kolumn.worker.idleSeconds")
    assert columnar(logs).select("key").distinct().count() == 5


@pytest.mark.parametrize("how", ["memory", pytest.param("socket", marks=pytest.mark.slow)])
def test_a_worker_killed_in_a_task_fails_it(spark: SparkSession, columnar: Any, logs: Path, how: str) -> None:
    spark.conf.set("spark.kolumn.handOver", how)
    # The chunks are small, so that the worker is asked again after it was killed.
    frame = columnar(logs / "orders-0", chunkBytes=5000)

    thread = while_it_runs(spark, lambda: [os.kill(pid, signal.SIGKILL) for pid in connector_workers(spark)])
    with pytest.raises(Exception, match=r"Kolumn's Python worker \d+ ended with exit code 137"):
        slow(frame)
    thread.join()
    assert frame.select("key").distinct().count() == 5


def test_tables(spark: SparkSession, logs: Path) -> None:
    """The connector is what a session reads by, as it is unless tests say otherwise."""
    before = spark.conf.get("spark.kolumn.reader")
    for how in (f"OPTIONS (path '{logs}/orders-*', includeHeaders 'true', subscribe 'orders')", f"LOCATION '{logs}/orders-*'"):
        spark.conf.set("spark.kolumn.reader", "columnar")
        try:
            spark.sql(f"CREATE TABLE connector_table USING kolumn {how}")
            assert spark.sql("SELECT count(*), max(offset) FROM connector_table WHERE offset >= 10").collect()[0][0] == 3 * (ROWS - 10)
            assert ("headers" in spark.table("connector_table").columns) == ("OPTIONS" in how)
            # Properties of the table are no options.
            spark.sql("ALTER TABLE connector_table SET TBLPROPERTIES ('team' = 'data')")
            assert spark.table("connector_table").where("offset < 2").count() == 6
            assert spark.sql("SELECT DISTINCT magic, codec FROM connector_table WHERE position = 0").collect() == [(2, "zstd")]
            told = {row.col_name: row.data_type for row in spark.sql("DESCRIBE EXTENDED connector_table").collect()}
            assert (told["Type"], told["Provider"], told["Location"]) == ("EXTERNAL", "kolumn", f"file:{logs}/orders-*")
            made = spark.sql("SHOW CREATE TABLE connector_table").collect()[0][0]
            assert "USING kolumn" in made
            assert ("'includeHeaders' = 'true'" in made) == ("OPTIONS" in how)
            with pytest.raises(PySparkException, match=r"its path .* does not say where new records go"):
                spark.sql("INSERT INTO connector_table SELECT * FROM connector_table LIMIT 1")
        finally:
            spark.sql("DROP TABLE IF EXISTS connector_table")
            spark.conf.set("spark.kolumn.reader", before)


def test_a_catalog_of_topics(spark: SparkSession, logs: Path) -> None:
    spark.conf.set("spark.sql.catalog.disk", "kolumn.Catalog")
    spark.conf.set("spark.sql.catalog.disk.root", str(logs))
    hidden = spark.sql("SELECT segment, position, codec FROM disk.orders WHERE partition = 2 ORDER BY `offset` DESC LIMIT 1").collect()
    assert [(Path(row.segment).parent.name, row.position > 0, row.codec) for row in hidden] == [("orders-2", True, "zstd")]
    assert "segment" not in spark.table("disk.orders").columns
    assert sorted(row.tableName for row in spark.sql("SHOW TABLES IN disk").collect()) == ["notes", "orders"]
    assert spark.sql("SELECT count(*), count(DISTINCT partition) FROM disk.orders").collect()[0] == (3 * ROWS, 3)
    joined = spark.sql("SELECT count(*) FROM disk.orders o JOIN disk.notes n USING (partition, offset) WHERE o.offset >= 3990")
    assert joined.collect()[0][0] == 30
    assert spark.sql(f"SELECT max(offset) FROM disk.`{logs}/notes-1`").collect()[0][0] == ROWS - 1
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM disk.none")


@pytest.mark.parametrize(
    "options", [{"startingOffsets": "latest"}, {"startingOffsets": '{"a": {"0": 5}}', "maxOffsetsPerTrigger": "4"}], ids=str
)
def test_micro_batches_can_be_aggregated(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    """Spark's planner asks for the size of a stream, whose options a batch may refuse."""
    rows = pa.table({"value": pa.array([b"x"] * 10, pa.binary())})
    kolumn.write(rows, tmp_path / "log" / "a-0")
    frame = spark.readStream.format("kolumn").options(reader="columnar", **options).load(str(tmp_path / "log"))
    found: list[Any] = []

    def add(batch: DataFrame, _: int) -> None:
        found.extend(batch.join(batch.groupBy("topic").agg(sql.count("*").alias("n")), "topic").select("offset", "n").collect())

    for more in (False, True):
        if more:
            # What retention deletes must not fail a stream that has gone on.
            kolumn.write(rows, tmp_path / "log" / "a-0" / f"{10:020d}.log", base_offset=10)
            (tmp_path / "log" / "a-0" / f"{0:020d}.log").unlink()
        query = frame.writeStream.foreachBatch(add).option("checkpointLocation", f"{tmp_path}/state").trigger(availableNow=True).start()
        query.awaitTermination()
    starts = {"latest": range(10, 20)}.get(options["startingOffsets"], range(5, 20))
    assert sorted(row[0] for row in found) == list(starts)


def test_a_stream_may_name_columns_that_its_table_does_not_have(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    frame = spark.readStream.format("kolumn").options(reader="columnar", startingOffsets="earliest").load(str(logs / "notes-1"))
    chosen = frame.where("position = 0").selectExpr("offset", "codec", "segment", "transaction")
    query = chosen.writeStream.format("memory").queryName("hidden_columns").trigger(availableNow=True).start()
    query.awaitTermination()
    read = kolumn.read(logs / "notes-1", columns=["offset", "codec", "segment", "transaction", "position"])
    expected = read.filter(pc.equal(read["position"], 0)).drop("position").sort_by("offset")
    assert spark.table("hidden_columns").orderBy("offset").toArrow().equals(expected)


ORDERS = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"]},
    {"name": "at", "type": {"type": "record", "name": "At", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}},
    {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
        {"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]}}},
]}  # fmt: skip


def given(**options: str) -> LoadOptions:
    """Options of a read with the types of its values, as the connector has them when it plans."""
    found = LoadOptions.of({"path": "nowhere", **options})
    return replace(found, decode=with_types(found.decode, (), ()))


def test_fields_that_are_asked_for_are_decoded(spark: SparkSession) -> None:
    avro = {"valueFormat": "avro", "valueSchema": json.dumps(ORDERS)}
    for asked, decoded in (
        ("value struct<id: long>", ("id",)),
        ("offset long, value struct<at: struct<y: int>, items: array<struct<n: int>>>", ("at.y", "items.n")),
        ("value struct<id: long, note: string, at: struct<x: int, y: int>, items: array<struct<sku: string, n: int>>>", None),
        ("value struct<note: string, at: struct<x: int, y: int>>", ("note", "at.x", "at.y")),
        ("valueValid boolean", None),
    ):
        wanted = cast(StructType, StructType.fromDDL(asked))
        found = only_asked(given(**avro, columns="offset,value,valueValid"), wanted).decode
        assert found.typed[0].columns == decoded
        assert set(found.columns) == set(wanted.fieldNames())
    flat = only_asked(given(**avro, valueAs="columns", columns="offset,value"), StructType.fromDDL("id long, at struct<x: int>")).decode
    assert flat.schema == pa.schema([("id", pa.int64()), ("at", pa.struct([("x", pa.int32())]))])
    # Which members of JSON are wanted decides whether a value is valid.
    options = given(valueFormat="json", valueSchema='{"id": "int64", "n": "int64"}')
    assert only_asked(options, StructType.fromDDL("value struct<id: long>")).decode.typed[0].columns is None
