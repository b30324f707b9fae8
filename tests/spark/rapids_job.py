"""One session with the real jar of the RAPIDS Accelerator, in which it plans and does not run: ``rapids_job.py ask FILE``.

The file names what is asked, as `ask` reads it.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from jobs import session, tell  # type: ignore[import-not-found]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import kolumn.spark_plugin as plugin
from kolumn.core.schema import RECORD_COLUMNS
from kolumn.spark_plugin import rapids

SPLIT = 50_000
"""Size for several splits: with a single one, Spark plans no exchange."""
KEEP_PLAN = "spark.kolumn.rapids.keepPlan"
"""Whether plans stay as the accelerator has seen them; by default they do in such a session."""


def ask(file: str) -> None:
    """Plans and verdicts of the jar; rows of reads, which go to Parquet; rows of queries; counts of what was left out."""
    asked = json.loads(Path(file).read_text())
    spark = session("local[2]", {"spark.driver.memory": "2g"}, lambda builder: rapids.configure(builder, explain_only=True))
    plugin.register(spark)
    plans = {name: told(rapids.explain(frame)) for name, frame in queries(spark, asked["topic"])}
    plans |= {name: told(rapids.explain(frame)) for name, frame in of_the_connector(spark, asked["topic"], asked["orders"])}
    plans["written"] = told(rapids.parse(of_a_write(spark, asked["topic"], asked["scratch"])))
    total = transformed(spark, asked["topic"]).first()
    found = {"plans": plans, "rows": total[0] if total else None, "columns": columns(spark, asked["orders"])}
    found["types"] = types(spark, asked["avro"])
    for name, path, options in asked["reads"]:
        pq.write_table(load(spark, path, **options).toArrow(), f"{asked['scratch']}/{name}.parquet")
    found["pruned"] = repr(load(spark, *asked["pruned"][:1], **asked["pruned"][1]).select(*asked["pruned"][2]).collect())
    found["answers"] = [answers(spark, *one) for one in asked["queries"]]
    found["counted"] = counted(spark, *asked["damaged"])
    found["error"] = failure(load(spark, asked["damaged"][0]))
    with left_on_cpu(spark):
        found["answers left"] = [answers(spark, *one) for one in asked["queries"]]
        found["left"] = final_plan(load(spark, asked["orders"]).groupBy("partition").agg(sql.sum("offset")))
    found["reused"] = reused(spark, asked["orders"])
    found["no share"] = failure(load(spark, asked["orders"], backend="gpu"))
    found["splits"] = splits(spark, asked["topic"])
    found["joined"] = joined(spark, asked["orders"])
    found["off"] = off(spark, asked["orders"])
    tell(found)
    spark.stop()


def load(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.read.format("kolumn").options(**options).load(path)


@contextmanager
def left_on_cpu(spark: SparkSession) -> Iterator[None]:
    """As in a session that runs on a GPU, if the accelerator has left the operators on the CPU."""
    spark.conf.set(KEEP_PLAN, "false")
    yield
    spark.conf.unset(KEEP_PLAN)


def told(found: rapids.Explanation) -> dict[str, Any]:
    return {"gpu": found.on_gpu, "cpu": found.on_cpu, "text": str(found), "scans": [(scan.text, scan.reason) for scan in found.scans]}


def queries(spark: SparkSession, path: str) -> Iterator[tuple[str, DataFrame]]:
    source = load(spark, path, splitBytes=str(SPLIT))
    yield "source", source
    yield "source in Python", load(spark, path, reader="python")
    yield "source, by the CPU", load(spark, path, splitBytes=str(SPLIT), backend="cpu")
    yield "source, aggregated", source.filter("offset > 5").groupBy("partition").agg(sql.max("timestamp"))
    strings = load(spark, path, splitBytes=str(SPLIT), payload="string")
    yield "source, strings grouped by key", strings.groupBy("key").agg(sql.sum("offset"))
    yield "source, counted from headers", source.groupBy("partition").count()
    records = plugin.read_segments(spark, path, split_bytes=SPLIT)
    yield "segments", records
    yield "segments, aggregated", records.groupBy("topic", "partition").agg(sql.max("timestamp"), sql.sum("offset"))
    yield "segments, length of a binary value", records.agg(sql.sum(sql.octet_length("value")))
    yield "segments, grouped by a binary key", records.groupBy("key").count()
    yield "segments with headers", plugin.read_segments(spark, path, split_bytes=SPLIT, include_headers=True)
    text = plugin.read_segments(spark, path, split_bytes=SPLIT, payload="string")
    yield "strings, grouped by key", text.groupBy("key").agg(sql.sum(sql.octet_length("value")))
    yield "strings, parsed", text.select(sql.get_json_object("value", "$.name"))
    yield "transformed", transformed(spark, path)


def transformed(spark: SparkSession, path: str) -> DataFrame:
    def count(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"n": [batch.num_rows]})

    counted = plugin.read_segments(spark, path, split_bytes=SPLIT, columns=["value"], transform=count, schema="n long")
    return counted.agg(sql.sum("n"))


def of_the_connector(spark: SparkSession, path: str, orders: str) -> Iterator[tuple[str, DataFrame]]:
    """Queries whose every operator can run on the GPU."""
    columns = "key,value,topic,partition,offset,timestamp,headers"
    load(spark, path, splitBytes=str(SPLIT), payload="string", columns=columns).createOrReplaceTempView("log")
    load(spark, orders, splitBytes="3000", payload="string", columns=columns).createOrReplaceTempView("other")
    spark.range(100).selectExpr("id", "cast(id AS string) AS name").createOrReplaceTempView("names")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    for query in (
        "SELECT key, count(*), sum(octet_length(value)) FROM log GROUP BY key",
        "SELECT /*+ BROADCAST(names) */ name, count(*) FROM log JOIN names ON log.`offset` % 100 = id GROUP BY name",
        "SELECT log.key, count(*) FROM log JOIN other ON log.key = other.key GROUP BY log.key",
        "SELECT partition, `offset`, lag(`offset`) OVER (PARTITION BY partition ORDER BY `offset`) AS last FROM log",
        "SELECT h.key, count(*) FROM (SELECT explode(headers) AS h FROM log) GROUP BY h.key",
        "SELECT headers.key, get(headers, 0).key AS first FROM log",
        "SELECT value FROM log WHERE `offset` BETWEEN 100 AND 5000 AND timestamp > timestamp'2020-01-01'",
        "SELECT topic, partition, max(`offset`), min(timestamp), sum(length(key)) FROM log GROUP BY topic, partition",
        "SELECT key, `offset` FROM log ORDER BY key, `offset`",
        "SELECT key FROM log UNION ALL SELECT key FROM other",
        "SELECT count(DISTINCT key), count(DISTINCT partition) FROM log",
        "SELECT count(*) FROM log WHERE `offset` > (SELECT max(`offset`) / 2 FROM other WHERE key IS NOT NULL)",
    ):
        yield query, spark.sql(query)
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    spark.catalog.dropTempView("log")
    spark.catalog.dropTempView("other")


def of_a_write(spark: SparkSession, path: str, scratch: str) -> str:
    """The verdict on a command that writes binary columns, which is planned and not run."""
    load(spark, path, splitBytes=str(SPLIT)).createOrReplaceTempView("log")
    jvm: Any = spark._jvm
    state = spark._jsparkSession.sessionState()
    skip = getattr(getattr(jvm.org.apache.spark.sql.execution, "CommandExecutionMode$"), "MODULE$").SKIP()
    spark.sql(f"CREATE TABLE written (key BINARY, value BINARY, timestamp TIMESTAMP) USING parquet LOCATION '{scratch}/written'")
    text = "INSERT INTO written SELECT key, value, timestamp FROM log WHERE `offset` > 5"
    query = state.executePlan(state.sqlParser().parsePlan(text), skip)
    frame = jvm.org.apache.spark.sql.classic.Dataset(query, spark.range(1)._jdf.encoder())
    return str(jvm.com.nvidia.spark.rapids.ExplainPlan.explainPotentialGpuPlan(frame, "ALL"))


def columns(spark: SparkSession, path: str) -> dict[str, Any]:
    """Of each record column, where it would be decoded."""
    frame = load(spark, path, columns=",".join(RECORD_COLUMNS))
    return {name: told(rapids.explain(frame.select(name))) for name in RECORD_COLUMNS}


def types(spark: SparkSession, asked: list[Any]) -> dict[str, Any]:
    """Of each field of typed values its type, where it would be decoded, and what the jar says of operators over such structs."""
    path, options = asked
    frame = load(spark, path, **options)
    found = {}
    for field in frame.schema["value"].dataType.fields:  # type: ignore[attr-defined]
        name = field.dataType.simpleString()
        same = spark.createDataFrame([], f"a array<struct<x:{name}>>").selectExpr("explode(a) AS r").selectExpr("r.x")
        places = rapids.explain(same)
        found[field.name] = {
            "type": name, "taken": "Generate" in places.on_gpu and "Project" not in places.on_cpu,
            **told(rapids.explain(frame.select(f"value.{field.name}"))),
        }  # fmt: skip
    return found


def answers(spark: SparkSession, path: str, options: dict[str, str], query: str) -> list[str]:
    load(spark, path, **options).createOrReplaceTempView("log")
    return sorted(map(repr, map(tuple, spark.sql(query).collect())))


def counted(spark: SparkSession, path: str, options: dict[str, str]) -> dict[str, int]:
    """The counters of the stages of a read, as Spark's UI has them."""
    context = spark.sparkContext
    context.setJobGroup("counted", "")
    load(spark, path, **options).selectExpr("sum(length(value))").collect()
    jvm = context._jsc.sc()
    jvm.listenerBus().waitUntilEmpty()
    tracker, found = context.statusTracker(), {}
    for stage in [stage for job in tracker.getJobIdsForGroup("counted") for stage in tracker.getJobInfo(job).stageIds]:  # type: ignore[union-attr]
        updates = jvm.statusStore().lastStageAttempt(stage).accumulatorUpdates()
        found |= {one.name(): int(one.value()) for one in map(updates.apply, range(updates.size()))}
    return {name.removeprefix("kolumn: "): value for name, value in found.items() if name.startswith("kolumn: ")}


def failure(frame: DataFrame) -> str:
    try:
        frame.collect()
    except Exception as error:
        return str(error)
    return ""


def final_plan(frame: DataFrame) -> str:
    frame.collect()
    return str(frame._jdf.queryExecution().executedPlan().toString())


def reused(spark: SparkSession, path: str) -> str:
    one, other = (load(spark, path, splitBytes="3000").groupBy("partition").agg(sql.sum("offset")) for _ in range(2))
    return final_plan(one.union(other))


def splits(spark: SparkSession, path: str) -> list[int]:
    """How many, as batches of the accelerator get smaller; the last read is one of the CPU."""
    found = []
    for size, options in (("1g", {}), ("200k", {}), ("50k", {}), ("50k", {"backend": "cpu"})):
        spark.conf.set("spark.rapids.sql.batchSizeBytes", size)
        found.append(load(spark, path, minPartitions="1", **options).rdd.getNumPartitions())
    spark.conf.unset("spark.rapids.sql.batchSizeBytes")
    return found


def joined(spark: SparkSession, path: str) -> list[Any]:
    """A join by which Spark would find out which splits a scan can leave out, and whether it plans that."""
    small = spark.createDataFrame([("orders", 1, "wanted"), ("orders", 2, "not")], "topic string, partition int, note string")
    found = []
    for backend in ("auto", "cpu"):
        frame = load(spark, path, backend=backend).join(sql.broadcast(small.where("note = 'wanted'")), ["topic", "partition"])
        frame = frame.filter("offset > 3").agg(sql.count("value"), sql.sum("offset"))
        plan = str(frame._jdf.queryExecution().sparkPlan().toString())
        found.append(["dynamicpruning" in plan, "kolumn_decode" in plan, *frame.collect()[0]])
    return found


def off(spark: SparkSession, path: str) -> str:
    spark.conf.set("spark.rapids.sql.enabled", "false")
    frame = load(spark, path).select("offset")
    plan = str(frame._jdf.queryExecution().sparkPlan().toString())
    spark.conf.unset("spark.rapids.sql.enabled")
    return plan


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
