"""Copies of a partition in Spark are merged as by `kolumn.read`, with any division of the bytes into splits."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

import kolumn
from kit.plain_spark import load
from kolumn.spark_plugin import export, read_segments
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.spark_plugin.read.splits import plan_splits
from kolumn.spark_plugin.stream.reader import RecordStream

pytestmark = pytest.mark.spark


@pytest.fixture
def copies(small_segments: Path, tmp_path: Path) -> list[str]:
    """Two copies in which every second batch is damaged; together they have all records."""
    folders = [tmp_path / disk / small_segments.name for disk in ("b1", "b2")]
    for turn, folder in enumerate(folders):
        shutil.copytree(small_segments, folder)
        for number, row in enumerate(kolumn.batches(folder).to_pylist()):
            if number % 2 == turn:
                path = Path(row["segment"])
                data = bytearray(path.read_bytes())
                data[row["position"] + row["size"] - 1] ^= 1
                path.write_bytes(data)
    return [str(folder) for folder in folders]


def test_a_merge_is_what_python_reads(spark: SparkSession, copies: list[str], small_segments: Path, tmp_path: Path) -> None:
    columns = ["offset", "key", "value", "timestamp"]
    expected = kolumn.read(small_segments, columns=columns)
    reader = spark.read.format("kolumn").option("replicas", "merge").option("columns", ",".join(columns))
    assert reader.load(copies).toArrow().equals(expected)
    merge: dict[str, Any] = {"replicas": "merge", "columns": ",".join(columns), "splitBytes": 3000}
    cut = load(copies, **merge)
    assert len(cut.splits) > 5
    assert cut.toArrow().equals(expected)
    assert load(copies, maxRecordsPerPartition=50, **merge).toArrow().equals(expected)
    start, end = expected["offset"][100].as_py(), expected["offset"][200].as_py()
    ranged = kolumn.read(small_segments, columns=columns, start_offset=start, end_offset=end)
    assert load(copies, startOffset=start, endOffset=end, **merge).toArrow().equals(ranged)
    frame = read_segments(spark, copies, replicas="merge", columns=columns, split_bytes=3000)
    assert frame.toArrow().equals(expected)
    assert load(copies, "kolumn-damage", replicas="merge").count() == 0
    assert load(copies, table="batches", replicas="merge").count() == kolumn.batches(small_segments).num_rows
    export(spark, copies, str(tmp_path / "lake"), replicas="merge", columns=columns)
    found = ds.dataset(tmp_path / "lake", partitioning="hive", exclude_invalid_files=True).to_table(columns=columns).sort_by("offset")
    assert found["offset"].equals(expected["offset"])
    assert found["value"].equals(expected["value"])


def test_copies_are_refused_or_the_first_is_read(copies: list[str]) -> None:
    with pytest.raises(kolumn.ArgumentError, match=r"replicas='merge' reads each offset once"):
        load(copies).count()
    for source in (copies, copies[::-1]):
        assert load(source, replicas="first", errors="skip").toArrow().equals(kolumn.read(source[0], errors="skip"))


def test_positions_beyond_one_copy(copies: list[str]) -> None:
    """The end of the log is not that of a lagging follower."""
    segments = sorted(Path(copies[1]).glob("*.log"))
    segments[-1].unlink()
    options = LoadOptions.of(
        {"paths": f'["{copies[1]}", "{copies[0]}"]', "replicas": "merge", "endingOffsets": '{"many-segments":{"0":890}}'}
    )
    assert sum(len(split.ranges) for split in plan_splits(options)) > 0


def test_a_stream_reads_one_copy(copies: list[str]) -> None:
    texts = {"paths": f'["{copies[0]}", "{copies[1]}"]'}
    schema = spark_schema(kolumn.read(copies[0], errors="skip").schema)
    with pytest.raises(kolumn.ArgumentError, match="a stream reads one copy"):
        RecordStream(LoadOptions.of(texts | {"replicas": "merge"}), schema)
    with pytest.raises(kolumn.ArgumentError, match="copies of one partition"):
        RecordStream(LoadOptions.of(texts), schema).latestOffset()
    assert RecordStream(LoadOptions.of(texts | {"replicas": "first"}), schema).latestOffset()["many-segments"] == {"0": 900}
