"""Plans queries with the real RAPIDS jar, in a session of its own, since its settings count only at the start; prints JSON."""

import json
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from kolumn.spark_plugin import rapids, read_segments, register
from kolumn.spark_plugin.session.java import use_java

SPLIT = 50_000
"""Size for several splits: with a single one, Spark plans no exchange."""


def queries(spark: SparkSession, path: str) -> Iterator[tuple[str, DataFrame]]:
    source = spark.read.format("kolumn").option("splitBytes", str(SPLIT)).load(path)
    yield "source", source
    yield "source in Python", spark.read.format("kolumn").option("reader", "python").load(path)
    yield "source, aggregated", source.filter("offset > 5").groupBy("partition").agg(sql.max("timestamp"))
    strings = spark.read.format("kolumn").options(splitBytes=SPLIT, payload="string").load(path)
    yield "source, strings grouped by key", strings.groupBy("key").agg(sql.sum("offset"))
    yield "source, counted from headers", source.groupBy("partition").count()
    records = read_segments(spark, path, split_bytes=SPLIT)
    yield "segments", records
    yield "segments, aggregated", records.groupBy("topic", "partition").agg(sql.max("timestamp"), sql.sum("offset"))
    yield "segments, length of a binary value", records.agg(sql.sum(sql.octet_length("value")))
    yield "segments, grouped by a binary key", records.groupBy("key").count()
    yield "segments with headers", read_segments(spark, path, split_bytes=SPLIT, include_headers=True)
    text = read_segments(spark, path, split_bytes=SPLIT, payload="string")
    yield "strings, grouped by key", text.groupBy("key").agg(sql.sum(sql.octet_length("value")))
    yield "strings, parsed", text.select(sql.get_json_object("value", "$.name"))
    counted = read_segments(spark, path, split_bytes=SPLIT, columns=["value"], transform=count, schema="n long")
    yield "transformed", counted.agg(sql.sum("n"))


def count(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [batch.num_rows]})


def main(path: str) -> None:
    use_java()
    builder = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1").config("spark.ui.enabled", "false")
    spark = rapids.configure(builder, explain_only=True).getOrCreate()
    register(spark)
    verdicts = {name: rapids.explain(frame) for name, frame in queries(spark, path)}
    found = {name: {"gpu": one.on_gpu, "cpu": one.on_cpu, "text": str(one)} for name, one in verdicts.items()}
    total = read_segments(spark, path, split_bytes=SPLIT, columns=["value"], transform=count, schema="n long").agg(sql.sum("n")).first()
    print("RESULT " + json.dumps({"plans": found, "rows": total[0] if total else None}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
