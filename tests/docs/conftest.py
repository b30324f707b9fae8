"""Pages on Spark share a session."""

from kit.spark_session import spark

__all__ = ["spark"]
