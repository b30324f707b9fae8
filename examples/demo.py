"""Records that real Kafka brokers wrote, as a Spark DataFrame. `make demo` runs this."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from kolumn.spark_plugin import register
from kolumn.spark_plugin.session.java import use_java

HERE = Path(__file__).resolve().parent
CORPUS = HERE.parent / "tests" / "data" / "corpus"
# One topic of a 4.3 broker; one that lived through formats 0, 1 and 2 on an older broker.
TOPICS = [str(CORPUS / "v2-java" / "java-zstd-0"), str(CORPUS / "upgraded" / "upgraded-gzip-0")]


def start_spark() -> SparkSession:
    """Start a small local session with few log messages."""
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kolumn demo")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={(HERE / 'log4j2.properties').as_uri()}")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    register(spark)
    return spark


def main() -> None:
    """Show the schema, some records, and a table over two topics."""
    print("Starting Spark ...", flush=True)
    spark = start_spark()

    print("\n1. Segments of a Kafka broker, with the schema of Spark's Kafka source:\n")
    records = spark.read.format("kolumn").option("includeHeaders", "true").load(TOPICS)
    records.printSchema()

    print("2. Records, wherever the value begins like JSON:\n")
    text = records.selectExpr(
        "topic", "offset", "timestamp", "cast(key as string) key", "cast(value as string) value", "size(headers) headers"
    )
    readable = text.where("value like '{%' and key like 'key-%'").orderBy("offset")
    for topic in ("java-zstd", "upgraded-gzip"):
        readable.where(f"topic = '{topic}'").show(4, truncate=32)

    print("3. The same bytes by format and codec; only these columns are decoded:\n")
    columns = "topic,magic,codec,offset,timestamp,value"
    spark.read.format("kolumn").option("columns", columns).load(TOPICS).createOrReplaceTempView("log")
    spark.sql(
        """SELECT topic, magic, codec, count(*) AS records, min(offset) AS first, max(offset) AS last, sum(length(value)) AS value_bytes
           FROM log GROUP BY topic, magic, codec ORDER BY topic, magic"""
    ).show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
