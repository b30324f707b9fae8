"""Spark reads and streams from a server of S3 that fails every tenth request and is killed once: each row is there once."""

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

import kolumn
from kit.corpus import HERE as CORPUS
from kit.s3 import CREDENTIALS, Proxy, server

pytestmark = [pytest.mark.spark, pytest.mark.slow]
CASE = CORPUS / "transactional" / "txn-zstd-0"


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with server() as address, Proxy(address, fails=10) as found:
        store = fs.S3FileSystem(
            endpoint_override=address,
            scheme="http",
            allow_bucket_creation=True,
            access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )
        store.create_dir("bucket")
        fs.copy_files(str(CASE), "bucket/logs/txn-zstd-0", destination_filesystem=store)
        yield found


def url(proxy: Proxy) -> str:
    secrets = f"{CREDENTIALS['AWS_ACCESS_KEY_ID']}:{CREDENTIALS['AWS_SECRET_ACCESS_KEY']}"
    return f"s3://{secrets}@bucket/logs?endpoint_override={proxy.address}&scheme=http&region=us-east-1"


def killed_in_between(proxy: Proxy) -> None:
    """Kill the server for some seconds after the first requests."""

    def run() -> None:
        while len(proxy.requests) < 12:
            time.sleep(0.01)
        proxy.kill(3)

    Thread(target=run, daemon=True).start()


def expected() -> list[tuple[str, int]]:
    rows = kolumn.read(CASE, columns=["topic", "offset"]).to_pylist()
    return sorted((row["topic"], row["offset"]) for row in rows)


def test_batch(spark: SparkSession, proxy: Proxy) -> None:
    killed_in_between(proxy)
    rows = spark.read.format("kolumn").option("splitBytes", "50000").load(url(proxy)).select("topic", "offset").collect()
    assert sorted((row.topic, row.offset) for row in rows) == expected()
    assert proxy.down_until
    assert proxy.failed > 1


def test_stream(spark: SparkSession, proxy: Proxy, tmp_path: Path) -> None:
    killed_in_between(proxy)
    stream = spark.readStream.format("kolumn").option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "400").load(url(proxy))
    query = stream.select("topic", "offset").writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state"))
    query.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    assert sorted((row.topic, row.offset) for row in spark.read.parquet(str(tmp_path / "out")).collect()) == expected()
    assert proxy.down_until
    assert proxy.failed > 1


def test_a_catalog_over_a_bucket(spark: SparkSession, proxy: Proxy) -> None:
    spark.conf.set("spark.sql.catalog.bucket", "kolumn.Catalog")
    spark.conf.set("spark.sql.catalog.bucket.root", url(proxy))
    assert [row.tableName for row in spark.sql("SHOW TABLES IN bucket").collect()] == ["txn-zstd"]
    rows = spark.sql("SELECT topic, offset FROM bucket.`txn-zstd`")
    assert sorted((row.topic, row.offset) for row in rows.collect()) == expected()
    assert spark.sql("SELECT count(*) FROM bucket.`txn-zstd`").collect()[0][0] == len(expected())
    # Plans are in logs and in the UI.
    told = str(rows._jdf.queryExecution().toString()) + str(spark.sql("DESCRIBE EXTENDED bucket.`txn-zstd`").collect())
    assert "s3://***@bucket/logs" in told
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in told
