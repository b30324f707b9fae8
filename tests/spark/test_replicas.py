"""Copies of a partition in Spark are merged as by `kolumn.read`, with any division of the bytes into splits."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

import kolumn
from kit.corpus import HERE
from kit.draft_segments import FORMATS
from kit.encoder import Record, batch
from kit.plain_spark import load
from kit.tiers import Aiven, tier_of
from kolumn import spark_plugin
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


# Spark reads tiers as `kolumn.read` does, in splits of any size, and streams them.


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


# Internal topics in Spark: the option `decode` returns the structs of `kolumn.read`, and SQL reaches into them.


INTERNAL = HERE / "internal"


def test_rows_are_those_of_a_read(spark: SparkSession) -> None:
    source = str(INTERNAL / "__consumer_offsets-0")
    frame = spark.read.format("kolumn").option("decode", "internal").load(source)
    names = ("key", "value", "valueValid")
    rows = kolumn.read(source, decode="internal").select(names).to_pylist()
    assert [row.asDict(recursive=True) for row in frame.orderBy("offset").select(*names).collect()] == rows
    newest = frame.where("value.type = 'OffsetCommit'").groupBy("key.OffsetCommit.group").agg({"value.OffsetCommit.offset": "max"})
    assert "readers-0" in {row[0] for row in newest.collect()}


def test_snapshots_and_control_records() -> None:
    source = str(INTERNAL / "__cluster_metadata-0")
    rows = load(source, decode="internal", includeSnapshots=True, includeControl=True, columns="key,value").collect()
    expected = kolumn.read(source, decode="internal", include_snapshots=True, include_control=True, columns=["offset"]).num_rows
    assert len(rows) == expected
    snapshots = len(list((INTERNAL / "__cluster_metadata-0").glob("*.checkpoint")))
    assert sum(row.key is not None and row.key["type"] == "SNAPSHOT_FOOTER" for row in rows) == snapshots


def test_other_topics_are_refused() -> None:
    with pytest.raises(kolumn.ArgumentError, match="expected one of __consumer_offsets"):
        load(HERE / "transactional" / "txn-open-0", decode="internal").count()


# Drafts in Spark: the option ``format`` of reads, writes and streams.


VECTORS = Path(__file__).resolve().parent.parent / "data" / "dialects"


@pytest.mark.parametrize("name", ["enriched-1", "kip98-1", "v3-1", "kip87-1"])
def test_vectors(name: str) -> None:
    expected = json.loads((VECTORS / f"{name}.json").read_text())
    path = str(VECTORS / f"{name}.bin")
    options = {"format": expected["format"], "topic": "t", "partition": 0}
    rows = load(path, columns="offset,key,value", **options).toArrow()
    assert rows.equals(kolumn.read(path, format=expected["format"], columns=["offset", "key", "value"]).cast(rows.schema))
    assert rows["offset"].to_pylist() == [record["offset"] for record in expected["records"]]
    assert load(path, table="batches", **options).count() == kolumn.batches(path, format=expected["format"]).num_rows


@pytest.mark.parametrize("format", FORMATS)
def test_written_appended_and_read(spark: SparkSession, tmp_path: Path, format: str) -> None:
    frame = spark.range(500).selectExpr("cast(id as string) as key", "repeat(cast(id as string), 5) as value", "id as offset").coalesce(1)
    target = str(tmp_path / "log")
    for part in (frame.where("offset < 300"), frame.where("offset >= 300")):
        part.write.format("kolumn").option("format", format).option("codec", "gzip").option("topic", "t").option("partition", "0").mode(
            "append"
        ).save(target)
    found = spark.read.format("kolumn").option("format", format).option("splitBytes", "2000").load(target).orderBy("offset").toArrow()
    assert found["offset"].to_pylist() == list(range(500))
    magics = {"enriched": 1, "kip98-draft": 2, "v3-compact": 3, "kip87": 2}
    assert set(kolumn.batches(target, format=format)["magic"].to_pylist()) == {magics[format]}
    assert found["value"].to_pylist() == [str(i).encode() * 5 for i in range(500)]
    newest = spark.read.format("kolumn").option("format", format).option("startingOffsets", '{"t": {"0": 498}}').load(target)
    assert [row.offset for row in newest.collect()] == [498, 499]


def test_a_stream_of_enriched_segments(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(400).selectExpr("id as offset", "cast(id as string) as value").coalesce(1)
    writer = frame.write.format("kolumn").option("format", "enriched").option("codec", "gzip").option("batchBytes", "500")
    writer.option("topic", "t").option("partition", "0").mode("append").save(str(tmp_path / "log"))
    reader = spark.readStream.format("kolumn").option("format", "enriched").option("startingOffsets", "earliest")
    stream = reader.option("maxOffsetsPerTrigger", "90").load(str(tmp_path / "log"))
    query = (
        stream.writeStream.format("memory")
        .queryName("enriched")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
    )
    query.start().awaitTermination()
    assert sorted(row.offset for row in spark.table("enriched").select("offset").collect()) == list(range(400))


# Sources at URLs in Spark: batch reads, streams of a prefix that gets more segments, exports.


CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"


def test_batch(spark: SparkSession) -> None:
    url = f"local://{CORPUS / 'transactional'}"
    reader = spark.read.format("kolumn").option("splitBytes", "20000").option("isolationLevel", "read_committed")
    rows = reader.load(url).select("topic", "partition", "offset", "value").orderBy("topic", "partition", "offset").toArrow()
    expected = kolumn.read(CORPUS / "transactional", columns=rows.schema.names, isolation_level="read_committed")
    assert rows.equals(expected.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]).cast(rows.schema))
    assert spark.read.format("kolumn").option("table", "batches").load(url).count() == kolumn.batches(CORPUS / "transactional").num_rows
    assert spark_plugin.read_segments(spark, url).count() == kolumn.read(CORPUS / "transactional").num_rows


def test_a_prefix_that_gains_segments(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "bucket" / "t-0"
    folder.mkdir(parents=True)

    def segment(first: int) -> None:
        data = b"".join(batch([Record(at, None, b"%d" % at, at)]) for at in range(first, first + 10))
        (folder / f"{first:020}.log").write_bytes(data)

    def run() -> list[int]:
        stream = spark.readStream.format("kolumn").option("startingOffsets", "earliest").load(f"local://{tmp_path / 'bucket'}")
        query = stream.select("offset").writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
        return sorted(row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect())

    segment(0)
    assert run() == list(range(10))
    segment(10)
    segment(20)
    assert run() == list(range(30))
    # Retention deletes segments that were read before.
    (folder / f"{0:020}.log").unlink()
    segment(30)
    assert run() == list(range(40))


def test_export(spark: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(CORPUS / "upgraded", tmp_path / "log")
    done = spark_plugin.export(spark, f"local://{tmp_path / 'log'}", str(tmp_path / "lake"))
    assert sum(one["rows"] for one in done.files) == kolumn.read(CORPUS / "upgraded").num_rows
