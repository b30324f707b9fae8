"""Splits cover every batch once, at batch boundaries, and small segments share one. These tests need no session."""

import os
import pickle
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

import kolumn
from kolumn.core.errors import KolumnError
from kolumn.source.segments import Range, Segment
from kolumn.spark_plugin import DamageSource, RecordSource
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.schema import MAX_BYTES, MAX_ROWS, conform
from kolumn.spark_plugin.read.splits import pack, plan_splits


def ranges(*sizes: int) -> list[Range]:
    return [Range(Segment(f"{index}.log", "t", 0, index, size), 0, size) for index, size in enumerate(sizes)]


def packed(target: int, *sizes: int) -> list[list[int]]:
    return [[part.end for part in group] for group in pack(ranges(*sizes), target)]


def test_pack_fills_up_to_the_target() -> None:
    assert packed(10, 4, 4, 4, 10, 1, 25, 3) == [[4, 4], [4], [10], [1], [25], [3]]
    assert packed(10) == []
    assert packed(10, 0, 0, 10) == [[0, 0, 10]]


@pytest.mark.parametrize("split_bytes", [1, 10_000, 64_000, 1 << 30])
def test_splits_cover_every_batch_once(segment: Path, small_segments: Path, split_bytes: int) -> None:
    options = LoadOptions.of({"paths": f'["{segment}", "{small_segments}"]', "splitBytes": str(split_bytes)})
    parts = [part for split in plan_splits(options) for part in split.ranges]
    batches = kolumn.batches([segment, small_segments])
    seen = []
    for part in parts:
        inside = [
            (row["segment"], row["position"])
            for row in batches.select(["segment", "position", "size"]).to_pylist()
            if row["segment"] == part.segment.path and part.start <= row["position"] < part.end
        ]
        assert inside[:1] in ([], [(part.segment.path, part.start)])
        seen += inside
    assert seen == list(zip(batches["segment"].to_pylist(), batches["position"].to_pylist(), strict=True))
    for one, other in pairwise(parts):
        assert other.start == (one.end if one.segment == other.segment else 0)


def test_a_split_is_about_the_size_asked_for(segment: Path) -> None:
    splits = plan_splits(LoadOptions.of({"path": str(segment), "splitBytes": "50000"}))
    largest = max(kolumn.batches(segment)["size"].to_pylist())
    assert len(splits) >= segment.stat().st_size // (50_000 + largest)
    assert all(split.ranges[-1].end - split.ranges[0].start <= 50_000 + largest for split in splits)


def test_small_segments_share_a_split(small_segments: Path) -> None:
    assert len(list(small_segments.glob("*.log"))) > 3
    (split,) = plan_splits(LoadOptions.of({"path": str(small_segments)}))
    assert len(split.ranges) == len(list(small_segments.glob("*.log")))


@pytest.mark.parametrize("split_bytes", [10_000, 1 << 30])
@pytest.mark.parametrize("start", [0, 1, 400, 700, 899, 5000])
def test_splits_leave_out_what_the_range_cannot_want(small_segments: Path, start: int, split_bytes: int) -> None:
    texts = {"path": str(small_segments), "splitBytes": str(split_bytes)}
    everything = [part for split in plan_splits(LoadOptions.of(texts)) for part in split.ranges]
    parts = [part for split in plan_splits(LoadOptions.of(texts | {"startOffset": str(start)})) for part in split.ranges]
    assert sum(part.end - part.start for part in parts) < sum(part.end - part.start for part in everything) or start < 2
    wanted = kolumn.read(small_segments, start_offset=start, columns=["segment", "position"]).to_pylist()
    assert all(any(part.segment.path == row["segment"] and part.start <= row["position"] < part.end for part in parts) for row in wanted)


def test_a_split_ships_no_bytes(segment: Path) -> None:
    (split,) = plan_splits(LoadOptions.of({"path": str(segment)}))
    assert len(pickle.dumps(split)) < 1000


def test_batches_are_cut_to_size() -> None:
    schema = pa.schema([("value", pa.binary())])
    short = pa.record_batch([pa.array([b"x"] * (2 * MAX_ROWS + 1))], schema=schema)
    assert [part.num_rows for part in conform(short, schema)] == [MAX_ROWS, MAX_ROWS, 1]
    long = pa.record_batch([pa.array([bytes(MAX_BYTES // 4)] * 8)], schema=schema)
    assert [part.num_rows for part in conform(long, schema)] == [3, 3, 2]
    huge = pa.record_batch([pa.array([bytes(MAX_BYTES + 1)] * 2)], schema=schema)
    assert [part.num_rows for part in conform(huge, schema)] == [1, 1]
    assert list(conform(huge.slice(0, 0), schema)) == []


def read(reader: Any, splits: list[InputPartition]) -> int:
    """Rows of all splits."""
    return sum(batch.num_rows for split in splits for batch in reader.read(split))


@pytest.mark.parametrize("change", ["replaced", "deleted"])
@pytest.mark.parametrize("table", ["records", "batches", "damage"])
def test_tasks_read_the_files_that_were_planned(table: str, change: str, small_segments: Path, segment: Path, tmp_path: Path) -> None:
    log = tmp_path / small_segments.name
    shutil.copytree(small_segments, log)
    options = {"path": str(log), "splitBytes": "50000"}
    source = DamageSource(options) if table == "damage" else RecordSource(options | {"table": table})
    reader = source.reader(schema=source.schema())
    sent: list[InputPartition] = pickle.loads(pickle.dumps(reader.partitions()))
    assert len(sent) > 1 or table == "batches"
    third = sorted(log.glob("*.log"))[2]
    third.rename(tmp_path / "kept")
    if change == "replaced":
        shutil.copy(segment, log / "new")
        os.replace(log / "new", third)
    with pytest.raises(KolumnError, match=f"was {change}.* after the source was listed.* Run again"):
        read(reader, sent)
    # The original file has its name again, so it is read.
    (tmp_path / "kept").replace(third)
    expected = {"records": kolumn.read(log).num_rows, "batches": kolumn.batches(log).num_rows, "damage": 0}
    assert read(reader, sent) == expected[table]
