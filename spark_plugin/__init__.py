"""Kolumn in Spark: after ``register(spark)``, ``spark.read.format("kolumn").load(path)`` is a DataFrame of records.

Columns and types are those of Spark's own Kafka source. ``spark.read.format("kolumn-damage")`` with the same options
is the table of what ``errors=skip`` leaves out. ``configure(builder)`` gives a session the columnar connector. ``read_segments(spark,
source)`` returns the same rows by a route that RAPIDS can accelerate, ``export(spark, source, target)`` makes the workers write Parquet,
``convert`` and ``compact`` are those of `kolumn` as Spark jobs. The driver and every worker need the package ``kolumn[spark]``.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from kolumn.core.errors import MissingPackageError

if find_spec("pyspark") is None:
    raise MissingPackageError("kolumn.spark_plugin needs pyspark: pip install 'kolumn[spark]'")

from kolumn.spark_plugin.read.batches import DamageSource
from kolumn.spark_plugin.read.frames import read_segments
from kolumn.spark_plugin.session.java import configure, connector_jar
from kolumn.spark_plugin.session.session import use_this_python, use_this_python_to_find_formats
from kolumn.spark_plugin.source import RecordSource
from kolumn.spark_plugin.write.export import export
from kolumn.spark_plugin.write.rewrite import compact, convert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DamageSource", "RecordSource", "compact", "configure", "connector_jar", "convert", "export", "read_segments", "register"]


def register(spark: "SparkSession") -> None:
    """Register ``format("kolumn")`` and ``format("kolumn-damage")`` in a session.

    Parameters
    ----------
    spark : SparkSession
        The formats stay registered until the session ends; a second call changes nothing. Workers of a local session run this
        Python, unless PYSPARK_PYTHON names another one.

    Raises
    ------
    MissingError
        PYSPARK_PYTHON names a Python without Kolumn.
    """
    use_this_python(spark)
    for source in (RecordSource, DamageSource):
        spark.dataSource.register(source)


use_this_python_to_find_formats()
