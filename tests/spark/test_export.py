"""An export holds every record once: after retries, after a driver that died, and after a second run."""

import importlib
import json
import os
import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kolumn
from kolumn.api import segments_of
from kolumn.options import Options
from kolumn.spark_plugin import export
from kolumn.spark_plugin.manifest import Target

module = importlib.import_module("kolumn.spark_plugin.export")
pytestmark = pytest.mark.spark


def exported(target: Path) -> pa.Table:
    """What a reader of Parquet datasets finds, in the order of the log."""
    table = ds.dataset(target, partitioning="hive").to_table()
    return table.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])


def hidden(target: Path) -> list[str]:
    """Everything in the export's own folder, staged files too."""
    return sorted(str(file.relative_to(target / "_kolumn")) for file in (target / "_kolumn").rglob("*") if file.is_file())


def test_the_dataset_is_the_log(spark: SparkSession, segment: Path, small_segments: Path, tmp_path: Path) -> None:
    manifest = export(spark, [segment.parent, small_segments], str(tmp_path), split_bytes=50_000, include_headers=True)
    table = exported(tmp_path)
    for folder in (segment.parent, small_segments):
        topic = folder.name.rpartition("-")[0]
        expected = kolumn.read(folder, include_headers=True)
        mine = table.filter(ds.field("topic") == topic).select(expected.schema.names)
        assert mine.cast(expected.schema).equals(expected)
        last = expected["offset"].to_pylist()[-1]
        assert manifest.partitions[topic]["0"] == {"first": 0, "next": last + 1, "rows": expected.num_rows}
    assert len(manifest.files) > 3
    assert hidden(tmp_path) == ["00000001.json"]
    frame = spark.read.parquet(str(tmp_path))
    assert frame.count() == table.num_rows
    assert {"topic", "partition"} <= set(frame.columns)


def test_by_day_and_row_groups(spark: SparkSession, segment: Path, tmp_path: Path) -> None:
    export(spark, segment, str(tmp_path), by_day=True, columns=["value"], row_group_rows=100, compression="none")
    table = ds.dataset(tmp_path, partitioning="hive").to_table()
    expected = kolumn.read(segment, columns=["value", "offset", "timestamp"])
    assert table.sort_by("offset").select(["value", "offset", "timestamp"]).equals(expected)
    assert [str(time.date()) for time in table["timestamp"].to_pylist()] == [str(day)[:10] for day in table["day"].to_pylist()]
    metadata = [pq.ParquetFile(file).metadata for file in tmp_path.glob("topic=*/partition=0/day=*/*.parquet")]
    assert max(found.num_row_groups for found in metadata) > 2
    for found in metadata:
        groups = [found.row_group(number) for number in range(found.num_row_groups)]
        assert all(group.num_rows <= 100 and group.sorting_columns[0].column_index == 1 for group in groups)
        ends = [(group.column(1).statistics.min, group.column(1).statistics.max) for group in groups]
        assert all(end < start for (_, end), (start, _) in pairwise(ends))


def test_a_second_run_adds_what_is_new(spark: SparkSession, small_segments: Path, tmp_path: Path) -> None:
    log, target = tmp_path / small_segments.name, tmp_path / "target"
    log.mkdir()
    segments = sorted(small_segments.glob("*.log"))
    for segment in segments[:2]:
        shutil.copy(segment, log)
    first = export(spark, log, str(target))
    assert export(spark, log, str(target)) == first
    for segment in segments[2:]:
        shutil.copy(segment, log)
    second = export(spark, log, str(target))
    topic = small_segments.name.rpartition("-")[0]
    assert second.files[0]["first"] == first.partitions[topic]["0"]["next"]
    assert exported(target)["offset"].equals(kolumn.read(small_segments)["offset"])
    with pytest.raises(kolumn.ArgumentError, match=r"was made with columns=.*give what it was made with"):
        export(spark, log, str(target), columns=["key"])


def test_a_failed_job_leaves_nothing_behind(spark: SparkSession, segment: Path, tmp_path: Path) -> None:
    log, target = tmp_path / "broken-0" / segment.name, tmp_path / "target"
    log.parent.mkdir()
    content = bytearray(segment.read_bytes())
    content[-10] ^= 0x10
    log.write_bytes(content)
    with pytest.raises(PySparkException, match="CorruptBatchError"):
        export(spark, log, str(target))
    assert [file for file in target.rglob("*") if file.is_file()] == []


def test_a_run_that_died_while_publishing_is_finished_by_the_next(
    spark: SparkSession, small_segments: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = []

    class Dies(Target):
        def _forward(self, intent: dict) -> None:
            staged, final = next(iter(intent["moves"].items()))
            (tmp_path / final).parent.mkdir(parents=True)
            os.rename(tmp_path / staged, tmp_path / final)
            moved.append(final)
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "Target", Dies)
    with pytest.raises(KeyboardInterrupt):
        export(spark, small_segments, str(tmp_path), split_bytes=30_000)
    assert len(moved) == 1
    intent = json.loads((tmp_path / "_kolumn" / "00000001.intent.json").read_text())
    assert len(intent["moves"]) > 1
    assert exported(tmp_path).num_rows < kolumn.read(small_segments).num_rows
    monkeypatch.undo()
    manifest = export(spark, small_segments, str(tmp_path), split_bytes=30_000)
    assert manifest.number == 1
    assert exported(tmp_path)["offset"].equals(kolumn.read(small_segments)["offset"])
    assert hidden(tmp_path) == ["00000001.json"]


def test_an_attempt_that_fails_after_writing_is_not_counted(spark: SparkSession, segment: Path, tmp_path: Path) -> None:
    """What a retried, killed or speculative attempt has written is in nobody's result, and goes with the staging folder."""
    place = Target(fs.LocalFileSystem(), str(tmp_path))
    layout = module.Layout(place.files, place.staging("run"), Options.of(), False, 1000, "none")
    (task,) = module.plan_tasks(
        module.plan_jobs(segments_of([str(segment)], layout.options), layout.options, place.open(), 1 << 30), 1 << 30
    )
    attempts = [list(module.write_job(task[0], layout)) for _ in range(2)]
    assert attempts[0][0]["staged"] != attempts[1][0]["staged"]
    module._publish(place, place.open(), "run", attempts[1])
    assert exported(tmp_path)["offset"].equals(kolumn.read(segment)["offset"])
    assert hidden(tmp_path) == ["00000001.json"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "orc"}, "format='orc': expected 'parquet'"),
        ({"compression": "rar"}, "compression='rar': expected one of zstd"),
        ({"row_group_rows": 0}, "row_group_rows=0: expected at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(spark: SparkSession, segment: Path, tmp_path: Path, given: dict, message: str) -> None:
    with pytest.raises(kolumn.ArgumentError, match=message):
        export(spark, segment, str(tmp_path), **given)
    assert list(tmp_path.iterdir()) == []


def test_two_copies_of_a_partition_are_refused(spark: SparkSession, segment: Path, tmp_path: Path) -> None:
    copy = tmp_path / segment.parent.name
    copy.mkdir()
    shutil.copy(segment, copy)
    with pytest.raises(kolumn.ArgumentError, match="export one copy of a partition"):
        export(spark, [segment, copy], str(tmp_path / "target"))
