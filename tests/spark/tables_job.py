"""Streams into Iceberg and Delta tables, in a process that may be killed: ``tables_job.py <function> <sink> <argument>...``."""

import os
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from jobs import session  # type: ignore[import-not-found]

import kolumn.spark_plugin as plugin

TABLE = "lake.db.records"
SETTINGS = {
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
}


def start(sink: str, root: str, jars: str) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    own = {"spark.sql.catalog.lake.warehouse": f"{root}/lake"} if sink == "iceberg" else {}
    common = {"spark.jars": jars, "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    spark = session("local[2]", common | SETTINGS[sink] | own, lambda builder: plugin.configure(builder.config("spark.jars", jars)))
    plugin.register(spark)
    return spark


def stream(sink: str, root: str, jars: str, reader: str, offsets: str) -> None:
    """Read all available records into a table, with at most ``offsets`` of them in a micro-batch, and tell the table's rows at the end."""
    spark = start(sink, root, jars)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": offsets, "reader": reader, "isolationLevel": "read_committed"}
    source = spark.readStream.format("kolumn").options(**options).load(f"{root}/log")
    if sink == "iceberg":
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in source.schema)
        spark.sql(f"CREATE TABLE IF NOT EXISTS {TABLE} ({columns}) USING iceberg PARTITIONED BY (topic, partition, days(timestamp))")
    writer = source.writeStream.format(sink).option("checkpointLocation", f"{root}/state").trigger(availableNow=True)
    # Spark 4.1 ends a run of the source in Python after the micro-batch that a killed one had begun.
    for _ in range(2):
        started = writer.toTable(TABLE) if sink == "iceberg" else writer.partitionBy("topic", "partition").start(f"{root}/lake")
        started.awaitTermination()
    rows = spark.table(TABLE) if sink == "iceberg" else spark.read.format("delta").load(f"{root}/lake")
    pq.write_table(rows.toArrow(), f"{root}/rows.parquet")
    spark.stop()


def page(sink: str, root: str, jars: str, *names: str) -> None:
    """Run blocks of a page, which are files."""
    with chdir(root):
        known: dict[str, Any] = {"__name__": "__page__", "spark": start(sink, root, jars)}
        for name in names:
            exec(compile(Path(name).read_text(), name, "exec"), known)
        known["spark"].stop()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
