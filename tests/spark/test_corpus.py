"""Segments of real brokers, read by Spark at once: every row and column is what Kafka's own classes read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from kit.corpus import RECORD_NAMES, cases

pytestmark = pytest.mark.spark


def test_every_row_and_column(spark: SparkSession) -> None:
    # Of two folders with one name, the latter.
    chosen = {case.directory.name: case for case in cases()}.values()
    expected = {
        str(case.directory / name): case.expected().filter(pc.equal(case.expected()["segment"], name))
        for case in chosen
        for name in pc.unique(case.expected()["segment"]).to_pylist()
    }
    assert len(expected) > 10
    checkpoints = [path for path in expected if path.endswith(".checkpoint")]
    frame = spark.read.format("kolumn").option("includeControl", "true")
    frame = frame.option("columns", ",".join([*RECORD_NAMES, "segment", "topic", "partition", "timestamp"]))
    table = frame.load([*(str(case.directory) for case in chosen), *checkpoints]).toArrow()
    assert set(pc.unique(table["segment"]).to_pylist()) == set(expected)
    for path, wanted in expected.items():
        rows = table.filter(pc.equal(table["segment"], path)).combine_chunks()
        for name, other in RECORD_NAMES.items():
            assert rows[name].equals(wanted[other].cast(rows[name].type)), (path, name)
        topic, _, partition = Path(path).parent.name.rpartition("-")
        assert pc.unique(rows["topic"]).to_pylist() == [topic]
        assert pc.unique(rows["partition"]).to_pylist() == [int(partition)]
        raw = rows["timestampMs"]
        times = pc.if_else(pc.equal(raw, -1), None, raw).cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
        assert rows["timestamp"].equals(times), path
