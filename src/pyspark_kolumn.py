"""Spark looks for data sources in packages whose name begins with ``pyspark_``: ``format("kolumn")`` is there without being registered."""

from kolumn.spark_plugin.source import RecordSource as DefaultSource

__all__ = ["DefaultSource"]
