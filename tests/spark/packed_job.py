"""Run by test_cluster.py in a process of its own: ``packed_job.py <log> <archive>``. Only executors have the Python of the archive."""

import json
import os
import sys
import tempfile
from pathlib import Path

from cluster_job import session

from kolumn.spark_plugin import connector_jar


def main(log: str, archive: str) -> None:
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        # As spark-submit --jars "$(kolumn jar)" --archives ... does, without a call of `configure`.
        settings = {"spark.jars": str(connector_jar()), "spark.archives": f"{archive}#environment"}
        spark = session("local-cluster[1,1,1024]", Path(folder) / "home", settings, python="./environment/bin/python")
        records = spark.read.format("kolumn").option("reader", "columnar").load(log)
        print(json.dumps([records.count(), records.select("value").count(), len(records.select("key").collect())]))
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
