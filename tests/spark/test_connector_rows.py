"""A long random run in one session: the connector returns the rows of the source written in Python, and its workers do not grow."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from kit.corpus import cases
from kit.fuzz import FIRST, SECONDS
from kolumn.schema import RECORD_COLUMNS

pytestmark = [pytest.mark.spark, pytest.mark.slow]
COLUMNS = ",".join(name for name in RECORD_COLUMNS if name not in ("transaction", "timestampSeconds", "brokerTimestampMs"))
ORDER = ("topic", "partition", "offset", "position")


def totals(frame: DataFrame, *by: str) -> list[tuple[Any, ...]]:
    found = frame.groupBy(*by).agg(sql.count("*"), sql.min("offset"), sql.max("offset"), sql.max("timestamp"))
    return sorted(map(tuple, found.collect()))


def table(frame: DataFrame) -> pa.Table:
    return frame.toArrow().sort_by([(name, "ascending") for name in ORDER if name in frame.columns])


def conditions(rows: pa.Table, chance: random.Random) -> Iterator[str]:
    low, high = sorted(chance.choices(rows["offset"].to_pylist(), k=2))
    yield f"offset >= {low} AND offset < {high}"
    yield f"offset IN ({low}, {high})"
    yield f"{high} > offset"
    yield f"offset <= {low} AND partition = {rows['partition'][0].as_py()}"
    yield f"(partition = {rows['partition'][-1].as_py()} AND offset > {low}) OR NOT (offset >= {low} OR topic LIKE '%a%')"
    times = [at for at in rows["timestamp"].to_pylist() if at is not None]
    if times:
        first, last = sorted(chance.choices(times, k=2))
        yield f"timestamp >= timestamp'{first:%Y-%m-%d %H:%M:%S.%f}' AND timestamp < timestamp'{last:%Y-%m-%d %H:%M:%S.%f}'"
        yield f"timestamp > timestamp'{first:%Y-%m-%d %H:%M:%S}'"


def compare(spark: SparkSession, path: Path, chance: random.Random) -> None:
    def load(reader: str, **options: str) -> DataFrame:
        split = str(chance.choice([1 << 18, 1 << 20, 1 << 27]))
        return spark.read.format("kolumn").options(reader=reader, splitBytes=split, **options).load(str(path))

    def both(ask: Any) -> None:
        assert ask("columnar") == ask("python")

    rows = table(load("python", columns=COLUMNS))
    for how in ("memory", "socket"):
        spark.conf.set("spark.kolumn.handOver", how)
        assert table(load("columnar", columns=COLUMNS)).equals(rows)
    if not rows.num_rows:
        return
    for condition in chance.sample(list(conditions(rows, chance)), 2):
        both(lambda reader, where=condition: table(load(reader).where(where).select("topic", "partition", "offset", "timestamp", "value")))
    limit = chance.choice([1, 5, 1000, rows.num_rows, rows.num_rows + 5])
    assert len(load("columnar").limit(limit).collect()) == min(limit, rows.num_rows)
    extra = chance.choice([{}, {"includeControl": "true"}])
    for by in ([], ["partition"], ["topic", "partition"]):
        both(lambda reader, by=by: totals(load(reader, **extra), *by))
    both(lambda reader: load(reader, isolationLevel="read_committed").groupBy("partition").count().orderBy("partition").collect())


def test_the_same_rows_by_both_ways(spark: SparkSession) -> None:
    chance = random.Random(FIRST)
    folders = [case.directory for case in cases()]
    chance.shuffle(folders)
    until, done = time.monotonic() + SECONDS, 0
    try:
        for folder in folders:
            if time.monotonic() > until:
                break
            print("at", folder, flush=True)
            compare(spark, folder, chance)
            done += 1
    finally:
        spark.conf.unset("spark.kolumn.handOver")
    assert done
    jvm = spark._jvm.ProcessHandle.current().pid()  # type: ignore[union-attr]
    for child in Path(f"/proc/{jvm}/task").glob("*/children"):
        for pid in child.read_text().split():
            if b"connector.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                assert len(os.listdir(f"/proc/{pid}/fd")) < 100
