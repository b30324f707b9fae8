"""A dead broker's disk: looked at, read in Spark, typed, drawn. `make demo` runs this."""

import os
import subprocess
import sys
from pathlib import Path

import dead_broker
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from kolumn.spark_plugin import configure
from kolumn.spark_plugin.session.java import use_java

HERE = Path(__file__).resolve().parent
PLACE = HERE.parent / "build" / "demo"
CORPUS = HERE.parent / "tests" / "data" / "corpus"
# One topic of a 4.3 broker; one that lived through formats 0, 1 and 2 on an older broker.
TOPICS = [str(CORPUS / "v2-java" / "java-zstd-0"), str(CORPUS / "upgraded" / "upgraded-gzip-0")]


def start_spark() -> SparkSession:
    """Start a small local session with few log messages."""
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("kolumn demo")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={(HERE / 'log4j2.properties').as_uri()}")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    return configure(builder).getOrCreate()


def show(*command: str) -> None:
    """Run a command of Kolumn, and print it as it would be typed."""
    print(f"$ kolumn {' '.join(command)}\n", flush=True)
    command = (sys.executable, "-c", "from kolumn.cli import main; main()", *command)
    subprocess.run(command, cwd=PLACE, env=os.environ | {"KOLUMN_OUTPUT": "text"}, check=False)
    print(flush=True)


def main() -> None:
    """Look at a damaged disk, read it in Spark, type its values, and draw it."""
    PLACE.mkdir(parents=True, exist_ok=True)
    dead_broker.make(PLACE / "dead-broker")

    print("\n1. The disk of a broker that died. What is there, and what is damaged?\n")
    show("dead-broker")
    show("verify", "dead-broker")

    print("2. The same in Spark: all records that are intact, with the schema of Spark's Kafka source\n", flush=True)
    spark = start_spark()
    disk = str(PLACE / "dead-broker")
    records = spark.read.format("kolumn").option("errors", "skip").load(disk)
    records.where("not startswith(topic, '_')").groupBy("topic").agg(
        expr("count(*) AS records"), expr("min(timestamp) AS first"), expr("sum(length(value)) AS bytes")
    ).orderBy("topic").show(truncate=False)

    print("3. Avro values by the schemas that are on the same disk; no registry runs:\n")
    orders = spark.read.format("kolumn").option("valueFormat", "registry").load(f"{disk}/orders-*")
    orders.where("valueValid").selectExpr("value.*").orderBy("id").show(3, truncate=False)

    print("4. Segments of real brokers, one of which lived through formats 0, 1 and 2:\n")
    columns = "topic,magic,codec,offset,timestamp,value"
    spark.read.format("kolumn").option("columns", columns).load(TOPICS).createOrReplaceTempView("log")
    spark.sql(
        """SELECT topic, magic, codec, count(*) AS records, min(offset) AS first, max(offset) AS last, sum(length(value)) AS value_bytes
           FROM log GROUP BY topic, magic, codec ORDER BY topic, magic"""
    ).show(truncate=False)
    spark.stop()

    print("5. A picture of it all:\n")
    show("report", "dead-broker", "-o", "report.html")
    print(f"""Look at {PLACE / "report.html"} in a browser. Then try, in {PLACE}:

  source {Path(sys.prefix) / "bin" / "activate"}
  kolumn sql dead-broker "SELECT key::varchar AS session, count(*) FROM clicks GROUP BY 1 ORDER BY 2 DESC LIMIT 3"
  kolumn cat -n 3 --value-format registry dead-broker/orders-0
  kolumn YOUR-LOG-DIRECTORY

docs/tutorial.md goes on from here.""")


if __name__ == "__main__":
    main()
