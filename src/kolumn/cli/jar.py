"""``kolumn jar``: where the connector for Spark is."""

from kolumn.cli.common import command


@command
def jar() -> None:
    """Print the path of the jar that makes Spark read columns: ``spark-submit --jars $(kolumn jar)``."""
    from kolumn.spark_plugin.session.connector_jar import connector_jar

    print(connector_jar())
