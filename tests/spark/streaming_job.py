"""A streaming query in a process that is killed: ``streaming_job.py <log> <output> <checkpoint> <offsets in a micro-batch> <reader>``."""

import sys

from pyspark.sql import SparkSession

from kolumn.spark_plugin import configure, register
from kolumn.spark_plugin.session.java import use_java


def main(log: str, out: str, checkpoint: str, offsets: str, reader: str) -> None:
    """Read all available records, with at most ``offsets`` of them in a micro-batch."""
    use_java()
    builder = configure(SparkSession.builder.master("local[1]")).config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "OFF").getOrCreate()
    register(spark)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": offsets, "reader": reader}
    source = spark.readStream.format("kolumn").options(**options).load(log)
    writer = source.select("partition", "offset").writeStream.format("parquet").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(out).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
