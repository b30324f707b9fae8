"""Spark reads tiers as `kolumn.read` does, in splits of any size, and streams them."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kolumn
from kit.plain_spark import load
from kit.tiers import Aiven, tier_of

pytestmark = pytest.mark.spark
COLUMNS = ["topic", "partition", "offset", "key", "value"]


def test_a_tier_and_its_broker_are_one_log(small_segments: Path, tmp_path: Path) -> None:
    tier = tier_of(small_segments, tmp_path / "tier")
    expected = kolumn.read(small_segments, columns=COLUMNS)
    found = load([tier.parent, small_segments], columns=",".join(COLUMNS), splitBytes=3000)
    assert len(found.splits) > 3
    assert found.toArrow().equals(expected)


def test_encrypted_chunks(small_segments: Path, tmp_path: Path) -> None:
    made = Aiven(tmp_path, 3000, zstd=True, key="key1")
    logs = sorted(small_segments.glob("*.log"))
    rows = kolumn.read(small_segments, columns=COLUMNS)
    last = rows["offset"][-1].as_py()
    topic = rows["topic"][0].as_py()
    for log, following in zip(logs, [*(int(one.stem) for one in logs[1:]), last + 1], strict=True):
        made.put(log.read_bytes(), topic, 0, int(log.stem), following - 1)
    found = load(tmp_path, columns=",".join(COLUMNS), keys=f"key1={made.key_file()}", splitBytes=3000)
    assert found.toArrow().equals(rows)


def test_a_stream_reads_a_tier_and_its_broker_once(spark: SparkSession, small_segments: Path, tmp_path: Path) -> None:
    tier = tier_of(small_segments, tmp_path / "tier")
    stream = (
        spark.readStream.format("kolumn")
        .option("paths", json.dumps([str(tier.parent), str(small_segments)]))
        .option("columns", "offset")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "300")
        .load()
    )
    query = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state")).outputMode("append")
    query.trigger(availableNow=True).start(str(tmp_path / "found")).awaitTermination()
    found = spark.read.parquet(str(tmp_path / "found")).toArrow()["offset"].to_pylist()
    assert sorted(found) == kolumn.read(small_segments, columns=["offset"])["offset"].to_pylist()
