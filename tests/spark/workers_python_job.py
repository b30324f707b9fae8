"""A job that imports Kolumn and sets no Python for Spark, which would use a wrong one: the job has to work, or to explain the error."""

import sys

from pyspark.sql import SparkSession

from kolumn.core.errors import MissingError
from kolumn.spark_plugin import read_segments, register
from kolumn.spark_plugin.session.java import use_java


def main(path: str) -> None:
    use_java()
    builder = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    found: list[object] = [spark.sparkContext.pythonExec]
    for step in (
        lambda: read_segments(spark, path).count(),
        lambda: register(spark),
        lambda: spark.sparkContext.pythonExec,
        lambda: spark.read.format("kolumn").load(path).count(),
        lambda: spark.read.format("kolumn-damage").load(path).count(),
    ):
        try:
            found.append(step())
        except MissingError as error:
            found.append(error)
            break
    spark.stop()
    print("RESULT", *found, sep="\n")


def by_name(path: str) -> None:
    """Read by the format's name, without registering it and without calling Kolumn."""
    use_java()
    builder = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    print("RESULT", spark.read.format("kolumn").load(path).count(), sep="\n")
    spark.stop()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
