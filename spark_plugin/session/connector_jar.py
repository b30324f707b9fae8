"""The connector's jar, which comes with the package, and the settings of a session that make Spark take it."""

import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from kolumn.errors import MissingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAR = "kolumn-spark.jar"
DRIVERS_PYTHON = "spark.kolumn.driver.python"
"""The Python that plans, on the driver's machine."""
_JARS = "spark.jars"


def connector_jar() -> Path:
    """The jar on this machine; also printed by ``kolumn jar``, for ``spark-submit --jars``.

    Raises
    ------
    MissingError
        The package was installed without it.
    """
    jar = Path(str(files("kolumn.spark_plugin") / "jars" / JAR))
    if not jar.is_file():
        raise MissingError(f'{jar}: no jar; `make jar` builds it. Without it format("kolumn") is the source written in Python')
    return jar


def configure(builder: "SparkSession.Builder") -> "SparkSession.Builder":
    """Let a session read ``format("kolumn")`` by the columnar connector.

    Columns, ranges, limits and counts of a query are passed on to Kolumn then, and tables can be created; rows are the same as without.

    Parameters
    ----------
    builder : SparkSession.Builder
        Before ``getOrCreate``: a session that already exists does not change. The jar is added to the ``spark.jars`` that the
        builder has. Spark ships it to all executors.

    Returns
    -------
    SparkSession.Builder
        The same.

    Raises
    ------
    MissingError
        The package was installed without the jar.
    """
    return builder.config(map=dict(connector_settings(builder)))


def connector_settings(builder: "SparkSession.Builder", *jars: str) -> dict[str, str]:
    """The settings of `configure`, with other jars after those that the builder has."""
    given = getattr(builder, "_options", {}).get(_JARS, "").split(",")
    # Each once, in the order of their first mention.
    return {_JARS: ",".join(dict.fromkeys(jar for jar in (*given, *jars, str(connector_jar())) if jar)), DRIVERS_PYTHON: sys.executable}
