"""Submitted to YARN by test_yarn.py: ``yarn_job.py <log> <scratch> <reader>``. Its driver may be in a container, which has no tests."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql


def main(log: str, scratch: str, reader: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    records = spark.read.format("kolumn").options(reader=reader, splitBytes="100000").load(log)
    once = (sql.count("*"), sql.count_distinct("offset"), sql.sum("offset"), sql.sum(sql.octet_length("value")))
    found: dict[str, Any] = {"rows": sorted(map(list, records.where("offset >= 5").groupBy("topic", "partition").agg(*once).collect()))}
    found["count"] = records.count()
    stream = spark.readStream.format("kolumn").options(reader=reader, startingOffsets="earliest", maxOffsetsPerTrigger="4000").load(log)
    writer = stream.writeStream.format("parquet").option("checkpointLocation", f"file://{scratch}/state").trigger(availableNow=True)
    writer.start(f"file://{scratch}/rows").awaitTermination()
    found["streamed"] = spark.read.parquet(f"file://{scratch}/rows").select("partition", "offset").distinct().count()
    records.write.format("kolumn").mode("append").save(f"{scratch}/log")
    found["written"] = spark.read.format("kolumn").options(reader=reader).load(f"{scratch}/log").count()
    tasks = spark.sparkContext.parallelize(range(2), 2).map(lambda _: (sys.executable, os.environ["CONTAINER_ID"]))
    found["pythons"], found["containers"] = (sorted(set(one)) for one in zip(*tasks.collect(), strict=True))
    system = spark._jvm.System  # type: ignore[union-attr]
    found["driver"] = [sys.executable, system.getProperty("java.io.tmpdir"), os.environ.get("CONTAINER_ID")]
    spark.stop()
    Path(scratch, "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
