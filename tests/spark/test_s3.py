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
from kit.spark_session import streamed

pytestmark = [pytest.mark.spark, pytest.mark.slow]
CASE = CORPUS / "transactional" / "txn-zstd-0"
KEYS = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
ROWS = sorted((row["topic"], row["offset"]) for row in kolumn.read(CASE, columns=["topic", "offset"]).to_pylist())


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A server that is killed for some seconds after the first requests."""
    with server() as address, Proxy(address, fails=10) as found:
        access = dict(zip(("access_key", "secret_key"), KEYS, strict=True))
        store = fs.S3FileSystem(endpoint_override=address, scheme="http", allow_bucket_creation=True, **access)
        store.create_dir("bucket")
        fs.copy_files(str(CASE), "bucket/logs/txn-zstd-0", destination_filesystem=store)

        def kill() -> None:
            while len(found.requests) < 12:
                time.sleep(0.01)
            found.kill(3)

        Thread(target=kill, daemon=True).start()
        yield found
        assert found.down_until
        assert found.failed > 1


def url(proxy: Proxy) -> str:
    return f"s3://{':'.join(KEYS)}@bucket/logs?endpoint_override={proxy.address}&scheme=http&region=us-east-1"


def test_batch_and_catalog(spark: SparkSession, proxy: Proxy) -> None:
    rows = spark.read.format("kolumn").option("splitBytes", "50000").load(url(proxy)).select("topic", "offset")
    assert sorted(rows.collect()) == ROWS
    spark.conf.set("spark.sql.catalog.bucket", "kolumn.Catalog")
    spark.conf.set("spark.sql.catalog.bucket.root", url(proxy))
    assert [row.tableName for row in spark.sql("SHOW TABLES IN bucket").collect()] == ["txn-zstd"]
    rows = spark.sql("SELECT topic, offset FROM bucket.`txn-zstd`")
    assert sorted(rows.collect()) == ROWS
    assert spark.sql("SELECT count(*) FROM bucket.`txn-zstd`").collect()[0][0] == len(ROWS)
    # Plans are in logs and in the UI.
    told = str(rows._jdf.queryExecution().toString()) + str(spark.sql("DESCRIBE EXTENDED bucket.`txn-zstd`").collect())
    assert "s3://***@bucket/logs" in told
    assert KEYS[1] not in told


def test_stream(spark: SparkSession, proxy: Proxy, tmp_path: Path) -> None:
    rows = streamed(spark, url(proxy), tmp_path, "topic", "offset", maxOffsetsPerTrigger="400")
    assert sorted(map(tuple, rows.collect())) == ROWS
