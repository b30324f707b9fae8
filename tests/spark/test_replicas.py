"""Sources that are not one plain folder: copies of a partition, tiers, internal topics, drafts, URLs; as `kolumn.read` returns them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kolumn
from kit.corpus import HERE as CORPUS
from kit.draft_segments import FORMATS
from kit.encoder import Record, batch
from kit.plain_spark import load
from kit.spark_session import streamed
from kit.tiers import Aiven, tier_of
from kolumn.spark_plugin import read_segments
from kolumn.spark_plugin.read.options import LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.spark_plugin.read.splits import plan_splits
from kolumn.spark_plugin.read.stream import RecordStream

pytestmark = pytest.mark.spark


@pytest.fixture
def copies(small_segments: Path, tmp_path: Path) -> list[str]:
    """Two copies in which every second batch is damaged; together they have all records."""
    folders = [tmp_path / disk / small_segments.name for disk in ("b1", "b2")]
    for turn, folder in enumerate(folders):
        shutil.copytree(small_segments, folder)
        for number, row in enumerate(kolumn.batches(folder).to_pylist()):
            if number % 2 == turn:
                data = bytearray(Path(row["segment"]).read_bytes())
                data[row["position"] + row["size"] - 1] ^= 1
                Path(row["segment"]).write_bytes(data)
    return [str(folder) for folder in folders]


def test_a_merge_is_what_python_reads(spark: SparkSession, copies: list[str], small_segments: Path, tmp_path: Path) -> None:
    columns = ["offset", "key", "value", "timestamp"]
    expected = kolumn.read(small_segments, columns=columns)
    reader = spark.read.format("kolumn").options(replicas="merge", columns=",".join(columns))
    assert reader.load(copies).toArrow().equals(expected)
    merge: dict[str, Any] = {"replicas": "merge", "columns": ",".join(columns), "splitBytes": 3000}
    cut = load(copies, **merge)
    assert len(cut.splits) > 5
    assert cut.toArrow().equals(expected)
    assert load(copies, maxRecordsPerPartition=50, **merge).toArrow().equals(expected)
    ranged = kolumn.read(small_segments, columns=columns, start_offset=100, end_offset=200)
    assert load(copies, startOffset=100, endOffset=200, **merge).toArrow().equals(ranged)
    frame = read_segments(spark, copies, replicas="merge", columns=columns, split_bytes=3000)
    assert frame.toArrow().equals(expected)
    assert ranged.num_rows > 50
    assert load(copies, table="damage", replicas="merge").count() == 0
    assert load(copies, table="batches", replicas="merge").count() == kolumn.batches(small_segments).num_rows


def test_copies_that_are_not_merged(copies: list[str]) -> None:
    with pytest.raises(kolumn.ArgumentError, match=r"replicas='merge' reads each offset once"):
        load(copies).count()
    for source in (copies, copies[::-1]):
        assert load(source, replicas="first", errors="skip").toArrow().equals(kolumn.read(source[0], errors="skip"))
    texts, schema = {"paths": json.dumps(copies)}, spark_schema(kolumn.read(copies[0], errors="skip").schema)
    for more, message in (({"replicas": "merge"}, "a stream reads one copy"), ({}, "copies of one partition")):
        with pytest.raises(kolumn.ArgumentError, match=message):
            RecordStream(LoadOptions.of(texts | more), schema).latestOffset()
    assert RecordStream(LoadOptions.of(texts | {"replicas": "first"}), schema).latestOffset()["many-segments"] == {"0": 900}
    # The end of the log is not that of a lagging follower.
    sorted(Path(copies[1]).glob("*.log"))[-1].unlink()
    beyond = {"paths": json.dumps(copies[::-1]), "replicas": "merge", "endingOffsets": '{"many-segments":{"0":890}}'}
    assert sum(len(split.ranges) for split in plan_splits(LoadOptions.of(beyond))) > 0


COLUMNS = ["topic", "partition", "offset", "key", "value"]


def test_a_tier_and_its_broker_are_one_log(spark: SparkSession, small_segments: Path, tmp_path: Path) -> None:
    tier = tier_of(small_segments, tmp_path / "tier")
    expected = kolumn.read(small_segments, columns=COLUMNS)
    found = load([tier.parent, small_segments], columns=",".join(COLUMNS), splitBytes=3000)
    assert len(found.splits) > 3
    assert found.toArrow().equals(expected)
    both = json.dumps([str(tier.parent), str(small_segments)])
    rows = streamed(spark, small_segments, tmp_path, "offset", paths=both, replicas="first", maxOffsetsPerTrigger="300")
    assert sorted(row.offset for row in rows.collect()) == expected["offset"].to_pylist()


def test_encrypted_chunks(small_segments: Path, tmp_path: Path) -> None:
    made = Aiven(tmp_path, 3000, zstd=True, key="key1")
    logs = sorted(small_segments.glob("*.log"))
    rows = kolumn.read(small_segments, columns=COLUMNS)
    last, topic = rows["offset"][-1].as_py(), rows["topic"][0].as_py()
    for log, following in zip(logs, [*(int(one.stem) for one in logs[1:]), last + 1], strict=True):
        made.put(log.read_bytes(), topic, 0, int(log.stem), following - 1)
    found = load(tmp_path, columns=",".join(COLUMNS), privateKeys=f"key1={made.key_file()}", splitBytes=3000)
    assert found.toArrow().equals(rows)


def test_internal_topics(spark: SparkSession) -> None:
    """The option `decode` returns structs, and SQL reaches into them."""
    source = str(CORPUS / "internal" / "__consumer_offsets-0")
    frame = spark.read.format("kolumn").option("decode", "internal").load(source)
    names = ("key", "value", "valueValid")
    rows = kolumn.read(source, decode="internal").select(names).to_pylist()
    assert [row.asDict(recursive=True) for row in frame.orderBy("offset").select(*names).collect()] == rows
    newest = frame.where("value.type = 'OffsetCommit'").groupBy("key.OffsetCommit.group").agg({"value.OffsetCommit.offset": "max"})
    assert "readers-0" in {row[0] for row in newest.collect()}
    with pytest.raises(kolumn.ArgumentError, match="expected one of __consumer_offsets"):
        load(CORPUS / "transactional" / "txn-open-0", decode="internal").count()
    # Snapshots and control records.
    metadata = CORPUS / "internal" / "__cluster_metadata-0"
    found = load(metadata, decode="internal", includeSnapshots=True, includeControl=True, columns="key,value").collect()
    assert len(found) == kolumn.read(metadata, decode="internal", include_snapshots=True, include_control=True).num_rows
    footers = [row for row in found if row.key is not None and row.key["type"] == "SNAPSHOT_FOOTER"]
    assert len(footers) == len(list(metadata.glob("*.checkpoint")))


def test_files_that_brokers_delete() -> None:
    columns = ["offset", "transaction", "value"]
    for case in ("compact-txn-0", "compact-txn-gone-0"):
        folder = CORPUS / "compacted" / case
        expected = kolumn.read(folder, columns=columns, include_deleted_segments=True)
        asked: dict[str, Any] = {"includeDeletedSegments": True, "columns": ",".join(columns)}
        assert load(folder, **asked).toArrow().sort_by("offset").equals(expected.sort_by("offset"))
        cut = load(folder, splitBytes=3000, **asked)
        assert len(cut.splits) > 5
        assert cut.toArrow().sort_by("offset").equals(expected.sort_by("offset"))
        assert expected.num_rows > kolumn.read(folder).num_rows


@pytest.mark.parametrize("format", FORMATS)
def test_drafts_are_written_appended_and_read(spark: SparkSession, tmp_path: Path, format: str) -> None:
    frame = spark.range(500).selectExpr("cast(id as string) as key", "repeat(cast(id as string), 5) as value", "id as offset").coalesce(1)
    target, options = str(tmp_path / "log"), {"format": format, "codec": "gzip", "batchBytes": "2000", "topic": "t", "partition": "0"}
    for part in (frame.where("offset < 300"), frame.where("offset >= 300")):
        part.write.format("kolumn").options(**options).mode("append").save(target)
    found = spark.read.format("kolumn").options(format=format, splitBytes="2000").load(target).orderBy("offset").toArrow()
    assert found["offset"].to_pylist() == list(range(500))
    magics = {"enriched": 1, "kip98-draft": 2, "v3-compact": 3, "kip87": 2}
    table = load(target, table="batches", format=format).toArrow()
    assert table.equals(kolumn.batches(target, format=format, check_crcs=False))
    assert set(table["magic"].to_pylist()) == {magics[format]}
    assert found["value"].to_pylist() == [str(i).encode() * 5 for i in range(500)]
    newest = load(target, format=format, startingOffsets='{"t": {"0": 498}}')
    assert [row.offset for row in newest.collect()] == [498, 499]
    if format == "enriched":
        rows = streamed(spark, target, tmp_path, "offset", format=format, maxOffsetsPerTrigger="90").collect()
        assert sorted(row.offset for row in rows) == list(range(500))


def test_urls(spark: SparkSession, tmp_path: Path) -> None:
    log = CORPUS / "transactional"
    reader = spark.read.format("kolumn").options(splitBytes="20000", isolationLevel="read_committed")
    rows = reader.load(f"local://{log}").select("topic", "partition", "offset", "value").toArrow().to_pylist()
    expected = kolumn.read(log, columns=list(rows[0]), isolation_level="read_committed").to_pylist()
    assert sorted(rows, key=str) == sorted(expected, key=str)
    assert load(f"local://{log}", table="batches").count() == kolumn.batches(log).num_rows
    assert read_segments(spark, f"local://{log}").count() == kolumn.read(log).num_rows


def test_a_prefix_that_gains_segments(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "bucket" / "t-0"
    folder.mkdir(parents=True)

    def offsets_with(*segments: int) -> list[int]:
        for first in segments:
            data = b"".join(batch([Record(i, None, b"%d" % i, i)]) for i in range(first, first + 10))
            (folder / f"{first:020}.log").write_bytes(data)
        return sorted(row.offset for row in streamed(spark, f"local://{tmp_path / 'bucket'}", tmp_path, "offset").collect())

    assert offsets_with(0, 10) == list(range(20))
    # Retention deletes segments that were read before.
    (folder / f"{0:020}.log").unlink()
    assert offsets_with(20, 30) == list(range(40))
