"""Drafts in Spark: the option ``format`` of reads, writes and streams."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kolumn
from kit.draft_segments import FORMATS
from kit.plain_spark import load

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
