"""A session that registers nothing reads, streams and writes by ``format("kolumn")``, which Spark finds from 4.1 on. Or it has the jar."""

import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from kolumn.spark_plugin import configure, read_segments
from kolumn.spark_plugin.session.java import use_java


def columnar(spark: SparkSession, path: str) -> list[int]:
    """Counts by the connector: of rows with headers, of a range, and of headers of batches."""
    frame = spark.read.format("kolumn").options(includeHeaders="true", reader="columnar", chunkBytes="5000").load(path)
    ranged = frame.where("offset >= 6000")
    plans = [str(one._jdf.queryExecution().executedPlan().toString()) for one in (frame, ranged)]
    assert all("BatchScan kolumn" in plan for plan in plans), plans
    assert "offset >= 6000" in plans[1].partition("where: ")[2], plans
    rows = frame.filter(sql.size("headers") >= 0).count()
    return [rows, 6000 + ranged.select("value", "headers").toArrow().num_rows, frame.count()]


def main(path: str, scratch: str, reader: str) -> None:
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = configure(SparkSession.builder) if reader == "columnar" else SparkSession.builder
    builder = builder.master("local[2]").config("spark.driver.host", "127.0.0.1").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    frame = spark.read.format("kolumn").option("includeHeaders", "true").load(path)
    found = [frame.count(), read_segments(spark, path, include_headers=True).filter(sql.size("headers") >= 0).count()]
    stream = spark.readStream.format("kolumn").options(startingOffsets="earliest", maxOffsetsPerTrigger="3000").load(path)
    writer = stream.writeStream.format("memory").queryName("streamed").option("checkpointLocation", f"{scratch}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    found.append(spark.table("streamed").count())
    frame.coalesce(1).write.format("kolumn").mode("append").option("codec", "zstd").save(f"{scratch}/log")
    found.append(spark.read.format("kolumn").load(f"{scratch}/log").count())
    if reader == "columnar":
        found += columnar(spark, path)
    spark.stop()
    print("RESULT", Path(pyspark.__file__).parent, pyspark.__version__, *found)


if __name__ == "__main__":
    main(*sys.argv[1:])
