"""Run by test_versions.py: ``versions_job.py <log> <scratch> <classic|connect> <columnar|python>``. Tells what each of the things that a
session can do gives, rows or an error."""

import io
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyspark
from jobs import QUIET, tell  # type: ignore[import-not-found]
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import kolumn.spark_plugin as plugin
from kolumn.spark_plugin.session.java import use_java


class Doings:
    """Each public method is a thing to do; it returns numbers that test_versions.py compares with `kolumn.read`."""

    def __init__(self, spark: SparkSession, log: str, scratch: Path, reader: str) -> None:
        self.spark, self.log, self.scratch, self.reader = spark, log, scratch, reader

    def _records(self, **options: str) -> Any:
        return self.spark.read.format("kolumn").options(reader=self.reader, **options).load(self.log)

    def register(self) -> list[int]:
        plugin.register(self.spark)
        return [self._records().count()]

    def columns_and_conditions(self) -> list[int]:
        found = self._records().where("offset >= 10 AND partition = 0").select("offset", "value")
        with redirect_stdout(io.StringIO()) as plan:
            found.explain()
        assert self.reader == "python" or "offset >= 10" in plan.getvalue().partition("where: ")[2], plan.getvalue()
        return [int(total) for total in found.agg(sql.count("*"), sql.sum("offset"), sql.sum(sql.octet_length("value"))).collect()[0]]

    def group(self) -> list[int]:
        return [row[2] for row in self._records().groupBy("topic", "partition").count().collect()]

    def headers(self) -> list[int]:
        return [self._records(includeHeaders="true").where("headers IS NULL OR size(headers) >= 0").count()]

    def batches(self) -> list[int]:
        return [self._records(table="batches").select(sql.sum("count")).collect()[0][0]]

    def write(self) -> list[int]:
        self._records().coalesce(1).write.format("kolumn").mode("append").option("codec", "zstd").save(f"{self.scratch}/written")
        return [self.spark.read.format("kolumn").options(reader=self.reader).load(f"{self.scratch}/written").count()]

    def stream(self) -> list[int]:
        options = {"reader": self.reader, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4000"}
        frame = self.spark.readStream.format("kolumn").options(**options).load(self.log).select("offset")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{self.scratch}/state")
        query = writer.trigger(availableNow=True).start(f"{self.scratch}/rows")
        query.awaitTermination()
        rows = self.spark.read.parquet(f"{self.scratch}/rows")
        return [rows.count(), rows.distinct().count()]

    def create_table(self) -> list[int]:
        self.spark.sql(f"CREATE TABLE records USING kolumn OPTIONS (path '{self.log}')")
        return [self.spark.sql("SELECT count(*) FROM records").collect()[0][0]]

    def catalog(self) -> list[int]:
        topic = Path(self.log).name.rpartition("-")[0]
        found = [row.tableName for row in self.spark.sql("SHOW TABLES IN logs").collect()]
        assert topic in found, found
        return [self.spark.sql(f"SELECT count(*) FROM logs.`{topic}`").collect()[0][0]]


def main(log: str, scratch: str, how: str, reader: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    use_java()
    builder = SparkSession.builder
    builder = builder.remote("local[2]") if how == "connect" else builder.master("local[2]")
    settings = {**QUIET, "spark.sql.warehouse.dir": f"{scratch}/warehouse", "spark.sql.shuffle.partitions": "2"}
    if reader == "columnar":
        builder = plugin.configure(builder)
        settings |= {"spark.sql.catalog.logs": "kolumn.Catalog", "spark.sql.catalog.logs.root": str(Path(log).parent)}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    doings, found = Doings(spark, log, Path(scratch), reader), dict[str, object]()
    for name, do in vars(Doings).items():
        if not name.startswith("_"):
            try:
                found[name] = do(doings)
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"
    java = None if how == "connect" else spark._jvm.System.getProperty("java.version")  # type: ignore[union-attr]
    tell([pyspark.__version__, java, found])
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
