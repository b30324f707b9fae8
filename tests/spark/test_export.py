"""An export has every record once: after retries, after a driver that died, and after a second run."""

import json
import shutil
from functools import partial
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
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.spark_plugin import export
from kolumn.spark_plugin.write import export as parquet_export
from kolumn.writers.commit.manifest import ExportTarget

pytestmark = pytest.mark.spark


def exported(target: Path) -> pa.Table:
    table = ds.dataset(target, partitioning="hive").to_table()
    return table.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])


def hidden(target: Path) -> list[str]:
    return sorted(str(file.relative_to(target / "_kolumn")) for file in (target / "_kolumn").rglob("*") if file.is_file())


def test_the_dataset_is_the_log(spark: SparkSession, segment: Path, small_segments: Path, tmp_path: Path) -> None:
    manifest = export(spark, [segment.parent, small_segments], str(tmp_path), split_bytes=50_000, include_headers=True)
    table = exported(tmp_path)
    for folder in (segment.parent, small_segments):
        topic = folder.name.rpartition("-")[0]
        expected = kolumn.read(folder, include_headers=True)
        mine = table.filter(ds.field("topic") == topic).select(expected.schema.names)
        assert mine.cast(expected.schema).equals(expected)
        assert manifest.partitions[topic]["0"] == {"first": 0, "next": expected["offset"][-1].as_py() + 1, "rows": expected.num_rows}
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
    assert export(spark, log, str(target)).files[0]["first"] == first.partitions["many-segments"]["0"]["next"]
    assert exported(target)["offset"].equals(kolumn.read(small_segments)["offset"])
    with pytest.raises(kolumn.ArgumentError, match=r"was made with columns=.*give what it was made with"):
        export(spark, log, str(target), columns=["key"])


def test_an_attempt_that_fails_after_writing_is_not_counted(spark: SparkSession, segment: Path, tmp_path: Path) -> None:
    """Files of a retried, killed or speculative attempt are removed with the staging folder."""
    place = ExportTarget(fs.LocalFileSystem(), str(tmp_path))
    layout = parquet_export.ExportLayout(place.files, place.staging("run"), Options.of(), False, 1000, "none")
    parquet_export.make_staging(place.files, layout.staging)
    segments = live_segments([str(segment)], layout.options).one_log()
    (job,) = parquet_export.plan_jobs(segments, layout.options, place.open(), 1 << 30)
    attempts = [list(parquet_export.write_job(job, layout)) for _ in range(2)]
    assert attempts[0][0]["staged"] != attempts[1][0]["staged"]
    parquet_export._publish(place, place.open(), "run", attempts[1])
    assert exported(tmp_path)["offset"].equals(kolumn.read(segment)["offset"])
    assert hidden(tmp_path) == ["00000001.json"]


def test_what_makes_no_sense_is_refused(spark: SparkSession, segment: Path, tmp_path: Path) -> None:
    for given, message in (
        ({"format": "orc"}, "format='orc': expected 'parquet'"),
        ({"compression": "rar"}, "compression='rar': expected one of zstd"),
        ({"row_group_rows": 0}, "row_group_rows=0: expected at least 1"),
    ):
        with pytest.raises(kolumn.ArgumentError, match=message):
            export(spark, segment, str(tmp_path), **given)
    assert list(tmp_path.iterdir()) == []
    copy = tmp_path / segment.parent.name
    copy.mkdir()
    shutil.copy(segment, copy)
    with pytest.raises(kolumn.ArgumentError, match="export one copy of a partition"):
        export(spark, [segment, copy], str(tmp_path / "target"))


def test_an_intent_that_no_export_wrote(spark: SparkSession, segment: Path, tmp_path: Path) -> None:
    """A user who may write to a target must not be able to choose files that the next export moves and removes."""
    target, secret = tmp_path / "lake", tmp_path / "secret.txt"
    secret.write_text("mine")
    (target / "_kolumn").mkdir(parents=True)
    planted = target / "_kolumn" / "00000001.intent.json"
    for moves in (
        {"../victim/nothing": "x/y", "../secret.txt": "stolen.txt"},
        {f"_kolumn/staging/{'0' * 32}/{'0' * 32}.parquet": "../../stolen.parquet"},
        {f"_kolumn/staging/../{'0' * 32}.parquet": f"topic=t/partition=0/{0:020d}-{'0' * 32}.parquet"},
        ["no", "moves"],
    ):
        planted.write_text(json.dumps({"moves": moves, "manifest": {"number": 1}}))
        with pytest.raises(kolumn.KolumnError, match="no export wrote this"):
            export(spark, segment, str(target))
        assert secret.read_text() == "mine"
        assert {file for file in tmp_path.rglob("*") if file.is_file()} == {secret, planted}


def log_of(root: Path, first: int, rows: int, number: str | None = None) -> Path:
    """A log of one topic with offsets from ``first`` on, and with a topic id if there is a ``number``."""
    folder = root / "log" / "orders-0"
    shutil.rmtree(folder, ignore_errors=True)
    offsets = pa.array(range(first, first + rows), pa.int64())
    kolumn.write(pa.table({"value": pa.array([b"v"] * rows, pa.binary()), "offset": offsets}), folder)
    if number is not None:
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {number}\n")
    return folder.parent


OLD, NEW = "CB7H1K6OSfK1-BrQJPzEKQ", "gMf8SHNYTfiX_aTsKKMsbQ"


def test_a_log_that_does_not_go_on_where_the_target_ends(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The topic was created again, with fewer records; or retention deleted records before they were exported."""
    target = tmp_path / "lake"
    run = partial(export, spark, target=str(target), columns=["offset"])
    assert run(log_of(tmp_path, 0, 600)).partitions["orders"]["0"]["next"] == 600
    for first, rows, message in (
        (0, 50, "orders-0: the target has the offsets up to 599, and the log ends at 50: the topic was created anew, or its log was cut"),
        (700, 50, "orders-0: the target has the offsets up to 599, and the log begins at 700: those between were deleted"),
    ):
        log = log_of(tmp_path, first, rows)
        with pytest.raises(kolumn.KolumnError, match=rf"{message}.*fail_on_data_loss=False reads what is there"):
            run(log)
        assert hidden(target) == ["00000001.json"]
    caplog.clear()
    found = run(log, fail_on_data_loss=False)
    assert "the log begins at 700" in caplog.text
    assert found.partitions["orders"]["0"] == {"first": 0, "next": 750, "rows": 650}
    assert run(log_of(tmp_path, 0, 50), fail_on_data_loss=False) == found
    # There is no warning if the log goes on at the end of the target, or has as many records again.
    assert run(log_of(tmp_path, 700, 50)) == found


def test_a_damaged_end_is_no_missing_end(spark: SparkSession, segment: Path, tmp_path: Path) -> None:
    """With errors="skip" an export may have read more records than the headers lead to; else it fails, and leaves nothing behind."""
    log, target = tmp_path / "log" / "java-zstd-0", tmp_path / "lake"
    log.mkdir(parents=True)
    data = bytearray(segment.read_bytes())
    position = kolumn.batches(segment)["position"][5].as_py()
    data[position + 8 : position + 12] = b"\x7f\xff\xff\xff"
    (log / segment.name).write_bytes(data)
    with pytest.raises(PySparkException, match="CorruptBatchError"):
        export(spark, log, str(target))
    assert [file for file in target.rglob("*") if file.is_file()] == []
    done = export(spark, log, str(target), columns=["offset"], errors="skip")
    assert done.partitions["java-zstd"]["0"]["next"] == kolumn.read(segment)["offset"][-1].as_py() + 1
    assert export(spark, log, str(target), columns=["offset"], errors="skip") == done


def test_a_topic_with_another_id(spark: SparkSession, tmp_path: Path) -> None:
    """Its log is longer than the exported one, so offsets alone would not show the change."""
    run = partial(export, spark, target=str(tmp_path / "lake"), columns=["offset"])
    assert run(log_of(tmp_path, 0, 100, OLD)).topics == {"orders": OLD}
    assert run(log_of(tmp_path, 0, 110, OLD)).partitions["orders"]["0"]["next"] == 110
    with pytest.raises(kolumn.KolumnError, match=f"topic orders: its id was {OLD} and is {NEW}: it was deleted and created anew"):
        run(log_of(tmp_path, 0, 500, NEW))
    gone_on = run(log_of(tmp_path, 0, 500, NEW), fail_on_data_loss=False)
    assert (gone_on.topics, gone_on.partitions["orders"]["0"]["rows"]) == ({"orders": NEW}, 500)
    # Without the file the topic id is not known.
    assert run(log_of(tmp_path, 0, 510)).topics == {"orders": NEW}
