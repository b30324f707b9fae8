"""The columnar connector: the rows of `kolumn.read`, what it passes on of a query, tables of SQL, and workers that die."""

import json
import os
import random
import re
import signal
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import kolumn
from kit.encoder import Record, batch
from kolumn.core.schema import HEADERS, RECORD_COLUMNS

pytestmark = pytest.mark.spark
ORDER = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
PARTITIONS, ROWS = 3, 4000


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory of two topics, compressed, with several segments."""
    root, noise = tmp_path_factory.mktemp("logs"), random.Random(7)
    for topic in ("orders", "notes"):
        for partition in range(PARTITIONS):
            values = [noise.randbytes(40) + b"text " * 10 if i % 7 else None for i in range(ROWS)]
            table = pa.table({
                "value": pa.array(values, pa.binary()),
                "key": [str(i % 5).encode() for i in range(ROWS)],
                "timestamp": pa.array([1_700_000_000_000_000 + 1000 * i for i in range(ROWS)], pa.timestamp("us", "UTC")),
            })  # fmt: skip
            kolumn.write(table, root / f"{topic}-{partition}", codec="zstd", batch_bytes=4000, segment_bytes=30_000)
    return root


@pytest.fixture
def columnar(spark: SparkSession) -> Iterator[Any]:
    """Loads by the connector; every plan has to show it."""

    def load(path: Path | str, **options: Any) -> DataFrame:
        return spark.read.format("kolumn").options(reader="columnar", **options).load(str(path))

    yield load
    spark.conf.unset("spark.kolumn.handOver")


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("how", ["memory", "socket"])
def test_rows_are_those_of_a_read(spark: SparkSession, columnar: Any, logs: Path, how: str) -> None:
    spark.conf.set("spark.kolumn.handOver", how)
    columns = ",".join(name for name in RECORD_COLUMNS if name != "transaction")
    frame = columnar(logs, columns=columns, splitBytes=200_000)
    assert "BatchScan kolumn" in plan(frame)
    assert frame.rdd.getNumPartitions() > 3
    table = kolumn.read(logs, columns=columns.split(","))
    expected = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", table["timestamp"])
    assert frame.toArrow().sort_by(ORDER).equals(expected.sort_by(ORDER))


def test_structs_of_several_chunks(columnar: Any, tmp_path: Path) -> None:
    """Spark closes the columns of each batch, and a vector of structs that is closed has no fields."""
    rows = [{"customer": f"c{i % 3}", "id": i, "items": [{"sku": str(i)}] * (i % 3)} for i in range(ROWS)]
    values: list[bytes | None] = [json.dumps(row).encode() for row in rows]
    values[3], values[400] = None, b"{"
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "orders-0", batch_bytes=4000)
    schema = json.dumps({"customer": "string", "id": "int64", "items": [{"sku": "string"}]})
    frame = columnar(tmp_path, columns="offset,value,headers", valueFormat="json", valueSchema=schema, chunkBytes=5000)
    assert frame.rdd.getNumPartitions() == 1
    table = kolumn.read(tmp_path, columns=["offset", "value", "headers"], value_format="json", value_schema=schema)
    assert [row.asDict(recursive=True) for row in frame.collect()] == table.to_pylist()
    nested = frame.groupBy("value.customer").agg(sql.sum("value.id"), sql.sum(sql.size("value.items"))).collect()
    kept = [row for i, row in enumerate(rows) if i not in (3, 400)]
    for customer, total, items in nested:
        own = [row for row in kept if row["customer"] == customer]
        assert (total, items) == ((sum(row["id"] for row in own), sum(len(row["items"]) for row in own)) if own else (None, None)), customer
    assert len(nested) == 4


def test_only_what_a_query_needs_is_read(spark: SparkSession, columnar: Any, logs: Path) -> None:
    frame = columnar(logs).where("offset >= 3990 AND topic = 'orders' AND partition IN (0, 2)").select("value")
    assert frame.count() == 20
    found = plan(frame)
    # Topic and partition are the same for all records of a partition, so they are not compared again.
    assert "columns: value, offset, where: " in found
    assert "offset >= 3990" in found
    assert "topic = 'orders'" in found
    # The ranges of one query stay with it.
    whole = columnar(logs)
    assert (whole.where("offset >= 3000").select("value").count(), whole.select("value").count()) == (6000, 24000)
    assert whole.where("offset >= 3999").union(whole.where("offset < 1")).select("key").count() == 12


@pytest.mark.parametrize(
    "condition",
    [
        "offset > 9223372036854775806", "offset < 0", "5 > offset", "offset = 7 OR offset = 3999", "offset >= 10 AND offset < 5",
        "timestamp >= timestamp'2023-11-14 22:13:20.0005' AND timestamp <= timestamp'2023-11-14 22:13:21'", "topic IS NULL",
        "timestamp < timestamp'2023-11-14 22:13:20.001'", "topic IN ('notes', 'none') AND offset IN (1, 3998)", "NOT offset > 5",
        "(topic = 'orders' AND offset < 3) OR (topic LIKE 'not%' AND partition <> 1 AND offset > 3996)", "partition NOT IN (0, NULL)",
        "NOT (topic <=> 'orders') AND NOT (offset >= 2 OR partition = 1)",
    ],
)  # fmt: skip
def test_filters_leave_the_same_rows(spark: SparkSession, columnar: Any, logs: Path, condition: str) -> None:
    frame = columnar(logs)
    every = spark.createDataFrame(kolumn.read(logs, columns=["topic", "partition", "offset", "timestamp"]))
    wanted = sorted(map(tuple, every.where(condition).select("topic", "partition", "offset").collect()))
    assert sorted(map(tuple, frame.where(condition).select("topic", "partition", "offset").collect())) == wanted


def test_counts_come_from_headers(spark: SparkSession, columnar: Any, logs: Path) -> None:
    frame = columnar(logs)
    totals = [sql.count("*"), sql.min("offset"), sql.max("offset"), sql.max("timestamp")]
    whole = frame.agg(*totals)
    assert "from headers: [count, min offset, max offset, max timestamp]" in plan(whole)
    newest = pc.max(kolumn.read(logs, columns=["timestamp"])["timestamp"]).as_py().replace(tzinfo=None)
    assert [tuple(row) for row in whole.collect()] == [(2 * PARTITIONS * ROWS, 0, ROWS - 1, newest)]
    grouped = frame.groupBy("topic", "partition").count().orderBy("topic", "partition")
    assert "from headers" in plan(grouped)
    assert [tuple(row) for row in grouped.collect()] == [(topic, p, ROWS) for topic in ("notes", "orders") for p in range(PARTITIONS)]
    some = frame.where("topic LIKE 'ord%' AND partition <> 1").agg(sql.count("offset"), sql.max("offset"))
    assert "from headers: [count, max offset]" in plan(some)
    assert tuple(some.collect()[0]) == (2 * ROWS, ROWS - 1)
    for other in (frame.where("offset > 5"), columnar(logs, checkCrcs="true"), columnar(logs, startOffset=5)):
        assert "from headers" not in plan(other.agg(*totals))
    assert frame.agg(sql.min("timestamp"), sql.count("value")).collect()[0][1] == 2 * PARTITIONS * (ROWS - -(-ROWS // 7))


def test_nothing_is_counted_as_none(columnar: Any, tmp_path: Path) -> None:
    (tmp_path / "empty-0").mkdir()
    (tmp_path / "empty-0" / f"{0:020d}.log").touch()
    frame = columnar(tmp_path)
    assert [tuple(row) for row in frame.agg(sql.count("*"), sql.max("offset")).collect()] == [(0, None)]
    assert frame.groupBy("partition").count().collect() == []
    assert frame.collect() == []


def test_a_limit_reads_little(columnar: Any, logs: Path) -> None:
    frame = columnar(logs).limit(7)
    assert len(frame.collect()) == 7
    assert "limit: 7" in plan(frame)
    assert columnar(logs).limit(ROWS * 2 + 1).select("offset").count() == ROWS * 2 + 1
    assert columnar(logs, startOffset=3998).limit(7).count() == 7


def test_a_group_by_partition_needs_no_exchange(spark: SparkSession, columnar: Any, logs: Path) -> None:
    frame = columnar(logs, splitBytes=200_000).groupBy("topic", "partition").agg(sql.sum("offset"))
    assert "Exchange" not in plan(frame)
    assert {row[2] for row in frame.collect()} == {ROWS * (ROWS - 1) // 2}


def test_a_window_over_whole_partitions_needs_neither_exchange_nor_sort(columnar: Any, logs: Path) -> None:
    asked = columnar(logs / "orders-*").selectExpr(
        "topic", "partition", "offset - lag(offset) OVER (PARTITION BY topic, partition ORDER BY offset) AS step"
    )
    assert not {"Exchange", "Sort "} & set(re.findall(r"Exchange|Sort ", plan(asked)))
    assert asked.groupBy("step").count().orderBy("step").collect() == [(None, PARTITIONS), (1, PARTITIONS * (ROWS - 1))]


def test_joins_by_topic_partition_need_no_exchange(spark: SparkSession, columnar: Any, logs: Path) -> None:
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    # Spark asks for an exchange by all columns of a join unless it is told otherwise.
    spark.conf.set("spark.sql.requireAllClusterKeysForCoPartition", "false")
    try:
        few, all_rows = columnar(logs / "orders-*").where("offset < 50"), columnar(logs / "orders-*")
        by_partition = few.join(all_rows.where("offset < 20"), ["topic", "partition"]).select("topic")
        by_offset = few.join(all_rows, ["topic", "partition", "offset"]).select("offset")
        assert not {"Exchange", "Sort "} & set(re.findall(r"Exchange|Sort ", plan(by_offset)))
        assert "Exchange" not in plan(by_partition)
        assert (by_partition.count(), by_offset.count()) == (PARTITIONS * 50 * 20, PARTITIONS * 50)
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
        spark.conf.unset("spark.sql.requireAllClusterKeysForCoPartition")


def test_what_a_join_finds_out_while_it_runs_narrows_the_scan(spark: SparkSession, columnar: Any, logs: Path) -> None:
    small = spark.createDataFrame([("orders", 1, "wanted"), ("notes", 2, "not")], "topic string, partition int, note string")
    joined = columnar(logs).join(sql.broadcast(small.where("note = 'wanted'")), ["topic", "partition"]).agg(sql.sum("offset"))
    assert "dynamicpruning" in plan(joined)
    assert joined.collect() == [(ROWS * (ROWS - 1) // 2,)]
    assert metrics(joined)["logBytes"] == sum(path.stat().st_size for path in (logs / "orders-1").glob("*.log"))


def test_fields_that_nobody_asked_for_are_not_handed_over(columnar: Any, tmp_path: Path) -> None:
    rows = [{"customer": f"c{i % 3}", "id": i, "items": [{"sku": str(i), "text": "x" * 100}]} for i in range(ROWS)]
    values: list[bytes | None] = [json.dumps(row).encode() for row in rows]
    values[3] = b'{"customer": "c0", "id": 3, "items": 5}'
    headers = pa.array([[{"key": f"h{i % 4}", "value": b"v" * 50}] for i in range(ROWS)], HEADERS)
    kolumn.write(pa.table({"value": pa.array(values, pa.binary()), "headers": headers}), tmp_path / "orders-0")
    schema = json.dumps({"customer": "string", "id": "int64", "items": [{"sku": "string", "text": "string"}]})
    frame = columnar(tmp_path, includeHeaders="true", valueFormat="json", valueSchema=schema)
    # A value is valid if all of its fields are, also those that nobody asked for.
    few = frame.agg(sql.sum("value.id"), sql.sum(sql.size("headers.key")), sql.max(sql.expr("value.items[0].sku")))
    assert few.collect() == [(sum(range(ROWS)) - 3, ROWS, "999")]
    whole = frame.agg(sql.max("value"), sql.max("headers"))
    whole.collect()
    assert metrics(few)["arrowBytes"] < metrics(whole)["arrowBytes"] / 3


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


def test_the_planner_knows_the_size(columnar: Any, logs: Path) -> None:
    table = kolumn.read(logs)
    found = columnar(logs)._jdf.queryExecution().optimizedPlan().stats()
    assert 0.7 < found.rowCount().get() / table.num_rows < 1.4
    assert 0.4 < int(str(found.sizeInBytes())) / table.nbytes < 2.5


def metrics(frame: DataFrame) -> dict[str, int]:
    """The scan's metrics after the query has run, as the UI shows them."""

    def scans(node: Any) -> Iterator[Any]:
        if node.nodeName().startswith("AdaptiveSparkPlan"):
            yield from scans(node.executedPlan())
        elif "QueryStage" in node.nodeName():
            yield from scans(node.plan())
        elif node.nodeName().startswith("BatchScan"):
            yield node
        for i in range(node.children().size()):
            yield from scans(node.children().apply(i))

    (scan,) = scans(frame._jdf.queryExecution().executedPlan())
    return {name: scan.metrics().apply(name).value() for name in ("logBytes", "logBatches", "damaged", "lost", "arrowBytes")}


def test_metrics_count_what_was_read_and_what_was_left_out(columnar: Any, logs: Path, tmp_path: Path) -> None:
    frame = columnar(logs / "orders-0").agg(sql.sum(sql.length("value")))
    frame.collect()
    size = sum(path.stat().st_size for path in (logs / "orders-0").glob("*.log"))
    found = metrics(frame)
    assert (found["logBytes"], found["logBatches"]) == (size, kolumn.batches(logs / "orders-0").num_rows)
    assert found["arrowBytes"] > size
    assert found["damaged"] == 0
    data = bytearray(sorted((logs / "orders-0").glob("*.log"))[0].read_bytes())
    data[2000] ^= 255
    (tmp_path / "bad-0").mkdir()
    (tmp_path / "bad-0" / f"{0:020d}.log").write_bytes(data)
    frame = columnar(tmp_path, errors="skip").agg(sql.sum("offset"))
    frame.collect()
    assert metrics(frame)["damaged"] == 1
    assert metrics(frame)["lost"] > 0
    with pytest.raises(PySparkException, match=r"CorruptBatchError: .*bad-0"):
        columnar(tmp_path).select("value").collect()
    with pytest.raises(PySparkException, match=r"CorruptBatchError: .*bad-0"):
        columnar(tmp_path, checkCrcs="true").count()


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


def workers(spark: SparkSession) -> list[int]:
    """Live workers of the connector, by their process ids."""
    jvm = spark._jvm.ProcessHandle.current().pid()  # type: ignore[union-attr]
    found = []
    for folder in Path("/proc").iterdir():
        try:
            parent, state = re.search(r"\) (\S) (\d+)", (folder / "stat").read_text()).group(2, 1)  # type: ignore[union-attr]
            if int(parent) == jvm and state != "Z" and b"kolumn.spark_plugin.connector.worker" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (OSError, AttributeError):
            continue
    return found


def soon(ask: Any, seconds: float = 20) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if ask():
            return True
        time.sleep(0.1)
    return False


def slow(frame: DataFrame) -> Any:
    """A query that takes long for each row."""
    return frame.select(sql.sum(sql.expr("aggregate(sequence(1, 8000), 0L, (a, x) -> a + hash(value, x))"))).collect()


def while_it_runs(spark: SparkSession, act: Any) -> threading.Thread:
    """Do something a moment after the next job has begun, and has a worker: the first one of a session takes its time."""

    def wait() -> None:
        if soon(spark.sparkContext.statusTracker().getActiveJobsIds) and soon(lambda: workers(spark)):
            time.sleep(0.5)
            act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_an_idle_worker_that_died_is_replaced(spark: SparkSession, columnar: Any, logs: Path) -> None:
    assert columnar(logs).select("offset").count() == 2 * PARTITIONS * ROWS
    before = workers(spark)
    assert before
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert columnar(logs).select("key").distinct().count() == 5
    assert not set(before) & set(workers(spark))


@pytest.mark.parametrize("how", ["memory", pytest.param("socket", marks=pytest.mark.slow)])
def test_a_worker_killed_in_a_task_fails_it(spark: SparkSession, columnar: Any, logs: Path, how: str) -> None:
    spark.conf.set("spark.kolumn.handOver", how)
    # The chunks are small, so that the worker is asked again after it was killed.
    frame = columnar(logs / "orders-0", chunkBytes=5000)

    def kill() -> None:
        for pid in workers(spark):
            os.kill(pid, signal.SIGKILL)

    thread = while_it_runs(spark, kill)
    with pytest.raises(Exception, match=r"Kolumn's Python worker \d+ ended with exit code 137"):
        slow(frame)
    thread.join()
    assert frame.select("key").distinct().count() == 5


def test_a_cancelled_task_leaves_no_worker_busy(spark: SparkSession, columnar: Any, logs: Path) -> None:
    context = spark.sparkContext
    context.setJobGroup("cancelled", "a query that is cancelled", interruptOnCancel=True)
    thread = while_it_runs(spark, lambda: context.cancelJobGroup("cancelled"))
    try:
        with pytest.raises(Exception, match="cancelled"):
            slow(columnar(logs / "orders-0", chunkBytes=5000))
    finally:
        thread.join()
        context.setLocalProperty("spark.jobGroup.id", None)
    assert columnar(logs).select("key").distinct().count() == 5


def test_idle_workers_end(spark: SparkSession, columnar: Any, logs: Path) -> None:
    columnar(logs).select("key").distinct().count()
    assert workers(spark)
    conf = spark._jvm.org.apache.spark.SparkEnv.get().conf()  # type: ignore[union-attr]
    conf.set("spark.kolumn.worker.idleSeconds", "1")
    try:
        assert soon(lambda: not workers(spark))
    finally:
        conf.remove("spark.kolumn.worker.idleSeconds")
    assert columnar(logs).select("key").distinct().count() == 5


def test_many_queries_leave_no_descriptors_open(spark: SparkSession, columnar: Any, logs: Path) -> None:
    for i in range(12):
        columnar(logs, splitBytes=200_000 * (i % 4 + 1), includeHeaders="true").agg(sql.sum(sql.length("value")), sql.max("key")).collect()
    for pid in workers(spark):
        assert len(os.listdir(f"/proc/{pid}/fd")) < 60
