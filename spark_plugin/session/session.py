"""Planning with the help of a session. Data sources are planned without a session."""

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kolumn.threads import PLAN, workers

MANY = 2000
"""Number of segments from which on their headers are read by a Spark job."""

Run = Callable[[Callable[[Any], Any], list[Any]], Iterable[Any]]
"""Applies a function to all items of a list; the results are in the list's order."""


def slots(spark: SparkSession) -> int | None:
    """How many tasks run at a time; None on Spark Connect, which does not report it."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return None


def by_threads(function: Callable[[Any], Any], items: list[Any]) -> Iterable[Any]:
    """Apply the function in this process, with threads."""
    with workers(PLAN) as pool:
        return list(pool.map(function, items))


def by_job(spark: SparkSession) -> Run:
    """Apply functions by a Spark job if there are many items and the session allows it; otherwise in this process."""

    def run(function: Callable[[Any], Any], items: list[Any]) -> Iterable[Any]:
        parallel = slots(spark)
        if len(items) < MANY or parallel is None:
            return by_threads(function, items)
        return spark.sparkContext.parallelize(items, min(len(items), 4 * parallel)).map(function).collect()

    return run
