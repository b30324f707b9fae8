"""What a session can do for planning, where there is one: a data source is planned without."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

THREADS = 8
"""Segments whose headers are read at a time: the threads wait for storage most of the time."""
MANY = 2000
"""Segments from which on a Spark job reads their headers."""

Run = Callable[[Callable[[Any], Any], list[Any]], Iterable[Any]]
"""Applies a function to all of a list, results in its order."""


def slots(spark: SparkSession) -> int | None:
    """How many tasks run at a time; None on Spark Connect, which does not tell."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return None


def by_threads(function: Callable[[Any], Any], items: list[Any]) -> Iterable[Any]:
    """In this process."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="kolumn-plan") as pool:
        return list(pool.map(function, items))


def by_job(spark: SparkSession) -> Run:
    """As a Spark job where there are many, and the session can; else in this process."""

    def run(function: Callable[[Any], Any], items: list[Any]) -> Iterable[Any]:
        parallel = slots(spark)
        if len(items) < MANY or parallel is None:
            return by_threads(function, items)
        return spark.sparkContext.parallelize(items, min(len(items), 4 * parallel)).map(function).collect()

    return run
