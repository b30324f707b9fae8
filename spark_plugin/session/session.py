"""What the driver asks of a session: how many tasks run at a time, planning by a job, and which Python the workers run.

Spark uses PYSPARK_PYTHON, or else ``python3`` of the PATH, which is not this Python if its environment was not activated:

    a class that was registered, functions    driver's ``pythonExec``, with every task
    ``format("kolumn")``, nothing registered  PYSPARK_DRIVER_PYTHON, PYSPARK_PYTHON or python3, as the JVM found them when it was started
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kolumn.core.errors import MissingError
from kolumn.core.threads import PLAN, workers
from kolumn.spark_plugin.session.settings import refuse_wrong_in

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


_ASK = "import importlib.util, sys; sys.exit(0 if all(map(importlib.util.find_spec, ('kolumn', 'pyarrow', 'pyspark'))) else 3)"


def use_this_python(spark: SparkSession) -> None:
    """Make a local session's workers run the Python of this process, or the one of ``spark.pyspark.python``; PYSPARK_PYTHON stays.

    PySpark itself reads that setting under spark-submit alone. Workers on other machines are not changed: what is installed there is not
    known here. Raises `MissingError` if another Python was configured for a local session, and Kolumn is not installed there, and
    `ArgumentError` if the session has settings of Kolumn that mean nothing.
    """
    refuse_wrong_in(spark)
    try:
        context = spark.sparkContext
    except PySparkException:
        # Spark Connect: the server chooses its Python.
        return
    if not str(context.master).startswith("local"):
        return
    named = context.getConf().get("spark.pyspark.python")
    if "PYSPARK_PYTHON" not in os.environ and named is None:
        context.pythonExec = sys.executable
        return
    context.pythonExec = named or context.pythonExec
    if context.getConf().get("spark.submit.pyFiles") or context._python_includes:
        # Kolumn may come with the job.
        return
    wrong = lacks_kolumn(context.pythonExec)
    if wrong is not None:
        how = "PYSPARK_PYTHON" if named is None else "spark.pyspark.python"
        raise MissingError(f"Spark's workers would run {wrong}. Set {how}={sys.executable} before the session is started")


def use_this_python_to_find_formats() -> None:
    """Point the JVM that will be started to this Python, if ``python3`` of the PATH would not find ``format("kolumn")``.

    Called on import; does nothing if the environment names a Python.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and str(main.name).startswith("pyspark."):
        # This process is a worker.
        return
    if (
        any(name in os.environ for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"))
        or SparkContext._active_spark_context is not None
    ):
        return
    if lacks_kolumn("python3") is not None:
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


@cache
def lacks_kolumn(python: str) -> str | None:
    """Why Kolumn cannot be used with a Python, given by its name or path; None if Kolumn is installed there."""
    path = shutil.which(python)
    if path is None:
        return f"{python}, which is not there"
    if _is_this(path):
        return None
    try:
        done = subprocess.run([path, "-c", _ASK], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path}, which does not run: {error}"
    return None if done.returncode == 0 else f"{path}, where Kolumn is not installed"


def _is_this(python: str) -> bool:
    """Whether a path is this Python. The Pythons of virtual environments may link to the same file, so folders are compared too."""
    here, there = Path(sys.executable), Path(os.path.abspath(python))
    return here.parent == there.parent and here.resolve() == there.resolve()


def of_workers() -> str:
    """The Python that a session would send to its workers if it was started now."""
    return os.environ.get("PYSPARK_PYTHON", "python3")
