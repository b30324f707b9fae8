"""A job that imports Kolumn and tells Spark nothing about Pythons. Spark would take a wrong one: the job has to work, or to say why not."""

import sys

from pyspark.sql import SparkSession

from kolumn.errors import MissingError
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
    """What `main` does before anything is registered, and without calling Kolumn."""
    use_java()
    builder = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    print("RESULT", spark.read.format("kolumn").load(path).count(), sep="\n")
    spark.stop()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
