"""Does Spark return what Kolumn returns for Redpanda's segments, with splits anywhere in them?"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kolumn
from kit.asked import put
from kit.encoder import Record, batch
from kit.outcome import raises
from kit.plain_spark import load
from kit.redpanda import ARCHIVAL, CONFIGURATION, TX_FENCE, Mixed, mixed, put_on_node
from kolumn.core.errors import ArgumentError
from kolumn.spark_plugin import RecordSource

pytestmark = pytest.mark.spark
COLUMNS = "key,value,topic,partition,offset,timestamp,batchType,rawOffset"


@pytest.fixture
def log(tmp_path: Path) -> Mixed:
    """300 batches with others between them, in two segments of one folder."""
    entries = [batch([Record(i, b"k%d" % i, b"v" * 50, i) for i in range(at, at + 4)]) for at in range(0, 1200, 4)]
    own = {0: (CONFIGURATION,), 7: (ARCHIVAL, TX_FENCE), 150: (CONFIGURATION, CONFIGURATION), 290: (ARCHIVAL,)}
    first = mixed(b"".join(entries[:200]), own)
    second = mixed(b"".join(entries[200:]), {90: own[290]}, first.end, first.delta)
    put(tmp_path / "t-0", first.data)
    put(tmp_path / "t-0", second.data, base=first.end)
    return Mixed(first.data + second.data, {**first.offsets, **second.offsets}, second.end, second.delta)


def test_both_sources_return_translated_rows(spark: SparkSession, log: Mixed, tmp_path: Path) -> None:
    expected = kolumn.read(tmp_path, format="redpanda", columns=COLUMNS.split(",")).sort_by("rawOffset")
    assert dict(zip(expected["rawOffset"].to_pylist(), expected["offset"].to_pylist(), strict=True)) == log.offsets
    options = {"format": "redpanda", "columns": COLUMNS, "splitBytes": "20000"}
    frame = spark.read.format("kolumn").options(**options).load(str(tmp_path))
    assert frame.rdd.getNumPartitions() > 2
    assert frame.toArrow().sort_by("rawOffset").to_pylist() == expected.to_pylist()
    counted = frame.selectExpr("count(*)", "min(offset)", "max(offset)").collect()[0]
    assert tuple(counted) == (1200, 0, 1200)
    assert [row["offset"] for row in frame.orderBy(frame["offset"].desc()).limit(3).collect()] == [1200, 1199, 1198]
    plain = load(tmp_path, **options)
    assert len(plain.splits) > 2
    assert plain.toArrow().sort_by("rawOffset").to_pylist() == expected.to_pylist()


def test_bounds_are_offsets_of_consumers(log: Mixed, tmp_path: Path) -> None:
    options = {"format": "redpanda", "columns": "offset", "splitBytes": "20000"}
    some = load(tmp_path, startingOffsets='{"t":{"0":590}}', endingOffsets='{"t":{"0":1200}}', **options).toArrow()
    assert sorted(some["offset"].to_pylist()) == list(range(590, 1200))
    raises(kolumn.KolumnError, "the log ends at 1201", load, tmp_path, endingOffsets='{"t":{"0":1202}}', **options)
    timed = load(tmp_path, startingTimestamp="600", includeControl="true", **options).toArrow()
    assert sorted(offset for offset in timed["offset"].to_pylist() if offset is not None) == list(range(601, 1201))


def test_a_stream_says_what_to_do(log: Mixed, tmp_path: Path) -> None:
    source = RecordSource({"path": str(tmp_path), "format": "redpanda"})
    raises(ArgumentError, "read it without a stream, or convert the log", source.streamReader(source.schema()).initialOffset)


def test_a_stream_looks_at_segments_not_at_the_option(tmp_path: Path) -> None:
    put_on_node(tmp_path, "t-0", mixed(batch([Record(0, b"k", b"v", 0)]), {0: (CONFIGURATION,)}).data)
    source = RecordSource({"path": str(tmp_path)})
    raises(ArgumentError, "read it without a stream", source.streamReader(source.schema()).initialOffset)
