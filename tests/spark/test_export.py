"""`export`, a name of version 0.1, is a stream into Parquet: Spark reads every record once, whatever was killed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import kolumn
from kolumn.spark_plugin import export

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:kolumn.spark_plugin.export goes")]
DAY_MS = 86_400_000


def log_of(root: Path, first: int, rows: int) -> Path:
    """A log of one topic, a day for every hundred offsets."""
    offsets = pa.array(range(first, first + rows), pa.int64())
    times = pa.array([DAY_MS * (offset // 100) + DAY_MS - 1 for offset in range(first, first + rows)], pa.timestamp("ms", "UTC"))
    table = pa.table({"value": [b'{"n": %d}' % offset for offset in offsets.to_pylist()], "offset": offsets, "timestamp": times})
    kolumn.write(table, root / "log" / "orders-0" / f"{first:020}.log")
    return root / "log"


@pytest.fixture
def paris(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def test_rows_once_each_after_a_kill_between_the_commits(spark: SparkSession, paris: None, tmp_path: Path) -> None:
    """The sink has committed, and the checkpoint does not know. Options reach the stream; days are those of UTC."""
    target = str(tmp_path / "lake")

    def run(first: int) -> list[tuple[int, int, str]]:
        log = log_of(tmp_path, first, 250)
        with pytest.warns(DeprecationWarning, match="write a stream"):
            export(spark, [log], target, by_day=True, columns=["value"], value_format="json", value_schema={"n": "int64"})
        rows = spark.read.parquet(target).selectExpr("offset", "value.n", "string(day)", "topic", "partition").collect()
        assert {(row.topic, row.partition) for row in rows} == {("orders", 0)}
        return sorted(tuple(row)[:3] for row in rows)

    def expected(rows: int) -> list[tuple[int, int, str]]:
        days = [f"1970-01-0{number}" for number in range(1, 6)]
        return [(offset, offset, days[offset // 100]) for offset in range(rows)]

    assert run(0) == expected(250)
    for path in (tmp_path / "lake" / "_checkpoint" / "commits").glob("*0*"):
        path.unlink()
    assert run(250) == expected(500)


def test_what_it_refuses(spark: SparkSession, tmp_path: Path) -> None:
    log, target = log_of(tmp_path, 0, 10), tmp_path / "lake"
    wrong = {"format": ("orc", "expected 'parquet'"), "row_group_rows": (1, "parquet.block.size"), "filesystem": (1, "file systems write")}
    for name, (value, message) in wrong.items():
        with pytest.raises(kolumn.ArgumentError, match=message):
            export(spark, log, str(target), **{name: value})
    with pytest.raises(StreamingQueryException, match="a stream reads one copy"):
        export(spark, log, str(target), replicas="merge")
    # A target of version 0.1: a stream goes on from the offsets of its manifest.
    older = tmp_path / "older"
    (older / "_kolumn").mkdir(parents=True)
    manifest = {"number": 2, "partitions": {"orders": {"0": {"first": 0, "next": 7, "rows": 7}}}}
    (older / "_kolumn" / "00000002.json").write_text(json.dumps(manifest))
    with pytest.raises(kolumn.ArgumentError, match=r"version 0\.1.*startingOffsets'") as caught:
        export(spark, log, str(older))
    offsets = str(caught.value).split("'startingOffsets', '")[1].rstrip("')")
    stream = spark.readStream.format("kolumn").option("startingOffsets", offsets).load(str(log))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
    writer.start(str(tmp_path / "new")).awaitTermination()
    assert sorted(row.offset for row in spark.read.parquet(str(tmp_path / "new")).collect()) == [7, 8, 9]
    (older / "_kolumn" / "00000003.intent.json").write_text("{}")
    with pytest.raises(kolumn.ArgumentError, match=r"`kolumn tidy` of version 0\.1 has to complete 00000003\.intent\.json"):
        export(spark, log, str(older))
