"""Spark returns the rows of `kolumn.read`, with any division of the bytes into splits: ranges, damage, schemas, committed reads."""

import logging
import re
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

import kolumn
from kit.corpus import HERE as CORPUS
from kit.corpus import RECORD_NAMES
from kit.corpus import cases as corpus_cases
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kit.partitions import INJURIES
from kit.plain_spark import load, stream_rows
from kit.spark_session import streamed
from kit.wrong_records import cases
from kolumn.core.schema import REMARK_SCHEMA, record_schema
from kolumn.options import TIME
from kolumn.spark_plugin import DamageSource, RecordSource, read_segments
from kolumn.spark_plugin.read.options import LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema, with_columns
from kolumn.spark_plugin.read.stream import RecordStream

pytestmark = pytest.mark.spark


def test_every_row_and_column(spark: SparkSession) -> None:
    """Segments of real brokers, read at once: all is what Kafka's own classes read."""
    # Of two folders with one name, the latter.
    chosen = {case.directory.name: case for case in corpus_cases()}.values()
    expected = {
        str(case.directory / name): case.expected().filter(pc.equal(case.expected()["segment"], name))
        for case in chosen
        for name in pc.unique(case.expected()["segment"]).to_pylist()
    }
    assert len(expected) > 10
    checkpoints = [path for path in expected if path.endswith(".checkpoint")]
    columns = ",".join([*RECORD_NAMES, "segment", "topic", "partition", "timestamp"])
    frame = spark.read.format("kolumn").options(includeControl="true", columns=columns)
    table = frame.load([*(str(case.directory) for case in chosen), *checkpoints]).toArrow()
    assert set(pc.unique(table["segment"]).to_pylist()) == set(expected)
    for path, wanted in expected.items():
        rows = table.filter(pc.equal(table["segment"], path)).combine_chunks()
        for name, other in RECORD_NAMES.items():
            assert rows[name].equals(wanted[other].cast(rows[name].type)), (path, name)
        assert {f"{row['topic']}-{row['partition']}" for row in rows.select(["topic", "partition"]).to_pylist()} == {Path(path).parent.name}
        raw = rows["timestampMs"]
        times = pc.if_else(pc.equal(raw, -1), None, raw).cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
        assert rows["timestamp"].equals(times), path


@pytest.fixture
def damaged(segment: Path, tmp_path: Path) -> Path:
    copy = tmp_path / segment.parent.name / segment.name
    copy.parent.mkdir()
    fourth, data = kolumn.batches(segment).slice(3, 1).to_pylist()[0], bytearray(segment.read_bytes())
    data[fourth["position"] + fourth["size"] - 1] ^= 0x10
    copy.write_bytes(data)
    return copy


def test_options_reach_the_decoder(segment: Path) -> None:
    names: Any = ["offset", "topic", "partition", "segment", "position"]
    table = kolumn.read(segment, start_offset=500, end_offset=777, columns=names, topic="t", partition=9)
    assert load(segment, startOffset=500, endOffset=777, columns=",".join(names), topic="t", partition=9).toArrow().equals(table)
    times = pc.unique(kolumn.read(segment, columns=["timestamp"])["timestamp"].drop_null()).sort()
    start, end = times[len(times) // 4].as_py(), times[len(times) // 2].as_py()
    table = kolumn.read(segment, start_timestamp=start, end_timestamp=end)
    assert 0 < table.num_rows < kolumn.read(segment).num_rows
    for spelled in (lambda time: time.isoformat(), lambda time: round(time.timestamp() * 1000)):
        assert load(segment, startTimestamp=spelled(start), endTimestamp=spelled(end)).toArrow().equals(table)


def test_damage_fails_the_task_or_is_skipped_and_counted(spark: SparkSession, damaged: Path, segment: Path) -> None:
    with pytest.raises(kolumn.CorruptBatchError) as in_python:
        kolumn.read(damaged)
    with pytest.raises(PySparkException) as in_spark:
        spark.read.format("kolumn").load(str(damaged)).toArrow()
    assert f"kolumn.core.errors.{type(in_python.value).__name__}: {in_python.value}" in str(in_spark.value)
    table = kolumn.read(damaged, errors="skip")
    assert spark.read.format("kolumn").option("errors", "skip").load(str(damaged)).toArrow().equals(table)
    damage = spark.read.format("kolumn").option("table", "damage").load(str(damaged))
    assert damage.toArrow().equals(kolumn.verify(damaged).damage)
    (row,) = damage.collect()
    assert (row.segment, row.recordsLost) == (str(damaged), kolumn.read(segment).num_rows - table.num_rows)
    assert load(segment, table="damage").count() == 0
    (case,) = (case for case in cases() if case.name == "2 1 first")
    damaged.write_bytes(case.data)
    assert [row.offset for row in load(damaged, errors="skip").collect()] == case.offsets
    (row,) = load(damaged, table="damage").collect()
    assert (row.recordsLost, row.baseOffset, row.lastOffset) == (1, 3, 3)


def test_sources_travel_by_name() -> None:
    """Workers have the package, so the name of the class is sent to them, and not a copy of it."""
    assert all(len(cloudpickle.dumps(source)) < 200 for source in (RecordSource, DamageSource))


INJURED = {one.name: one for one in INJURIES}


@pytest.mark.parametrize(
    ("name", "split_bytes"),
    [("cut in a batch", 4000), ("log removed", 1 << 27), ("removed", 4000), ("duplicated under another offset", 1 << 27),
     ("duplicated under another offset", 4000), ("text", 4000)],
)  # fmt: skip
def test_reads_of_what_is_cut_or_missing(name: str, tmp_path: Path, split_bytes: int) -> None:
    injury = INJURED[name]
    folder = injury.to(tmp_path)
    report = kolumn.verify(folder)
    order = [("segment", "ascending"), ("position", "ascending")]
    damage = load(folder, table="damage", splitBytes=split_bytes).toArrow().sort_by(order)
    assert damage.to_pylist() == report.damage.sort_by(order).to_pylist()
    assert load(folder, errors="skip", splitBytes=split_bytes).count() == injury.records
    remarks = load(folder, errors="skip", splitBytes=split_bytes, table="remarks").toArrow()
    assert remarks.schema.names == REMARK_SCHEMA.names
    assert remarks.to_pylist() == report.remarks.to_pylist()
    if injury.damage:
        stems = {Path(name).stem for name in report.damage["segment"].to_pylist()}
        with pytest.raises(kolumn.KolumnError, match="|".join(sorted(stems))):
            load(folder, splitBytes=split_bytes).count()
    else:
        assert load(folder, splitBytes=split_bytes).count() == injury.records


@pytest.mark.parametrize("name", ["cut in a batch", pytest.param("emptied", marks=pytest.mark.slow), "removed"])
def test_other_doors_of_what_is_cut_or_missing(spark: SparkSession, name: str, tmp_path: Path) -> None:
    injury = INJURED[name]
    folder = str(injury.to(tmp_path / "log"))
    if injury.damage:
        with pytest.raises(StreamingQueryException):
            streamed(spark, folder, tmp_path)
        with pytest.raises(PySparkException):
            read_segments(spark, folder).count()
    else:
        for frame in (streamed(spark, folder, tmp_path), read_segments(spark, folder)):
            assert frame.count() == injury.records


KAFKA = "key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
"""What `spark.read.format("kafka").load().schema` has in spark-sql-kafka-0-10, where all may be null."""


def told(schema: StructType) -> str:
    assert schema.toNullable() == schema
    return schema.simpleString()


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    directory = tmp_path / "orders-3"
    directory.mkdir()
    (directory / "00000000000000000000.log").touch()
    return directory


def test_schemas(spark: SparkSession, topic: Path, segment: Path) -> None:
    assert told(spark.read.format("kolumn").load(str(topic)).schema) == f"struct<{KAFKA}>"
    assert told(load(topic, includeHeaders=True).schema) == f"struct<{KAFKA},headers:array<struct<key:string,value:binary>>>"
    some = "struct<offset:bigint,magic:tinyint,producerEpoch:smallint,value:binary>"
    assert told(load(topic, columns="offset, magic,producerEpoch ,value").schema) == some
    frame = spark.read.schema("value binary, offset bigint").format("kolumn").load(str(segment))
    assert frame.columns == ["value", "offset"]
    assert frame.toArrow().equals(kolumn.read(segment, columns=["value", "offset"]))
    frame = spark.read.format("KOLUMN").option("INCLUDEHEADERS", "True").load(f"file://{topic}")
    assert frame.columns[-1] == "headers"
    assert frame.collect() == []


OFFSET = StructField("offset", LongType())


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ([StructField("offset", IntegerType())], {}, "column offset is bigint, not int"),
        ([OFFSET, StructField("vaule", BinaryType())], {}, "unknown column 'vaule', did you mean 'value'?"),
        ([StructField("offset", LongType(), False)], {}, "column offset is nullable: leave out NOT NULL"),
        ([StructField("headers", ArrayType(StringType()))], {}, "column headers is array<struct<key:string,value:binary>>"),
        ([OFFSET], {"columns": "offset,value"}, "the schema has the columns offset, the options ask for offset, value"),
        (None, {"startOfset": "1"}, "unknown option 'startofset', did you mean 'startOffset'?"),
        (None, {"startOffset": "one"}, "option startOffset: expected an integer, found 'one'"),
        (None, {"includeHeaders": "yes"}, "option includeHeaders: expected true or false, found 'yes'"),
        (None, {"startTimestamp": "noon"}, f"option startTimestamp: expected {TIME}, found 'noon'"),
        (None, {"splitBytes": "0"}, "option splitBytes: expected at least 1, found 0"),
        (None, {"isolationLevel": "committed"}, "isolation_level='committed': expected one of read_uncommitted, read_committed"),
        (None, {"errors": "ignore"}, "errors='ignore': expected one of raise, skip"),
        (None, {"columns": "offset,vaule"}, "unknown column 'vaule', did you mean 'value'?"),
    ],
)
def test_wrong_schemas_and_options_are_refused(topic: Path, fields: list[StructField] | None, options: dict, message: str) -> None:
    # Spark hands a source in Python the names of options with small letters.
    with pytest.raises(kolumn.ArgumentError, match=f"(?i){re.escape(message)}"):
        load(topic, schema=None if fields is None else StructType(fields), **options)


def test_load_refuses_a_wrong_option(spark: SparkSession, topic: Path) -> None:
    with pytest.raises(AnalysisException, match="ArgumentError: unknown option 'startofset', did you mean 'startOffset'"):
        spark.read.format("kolumn").option("startOfset", "1").load(str(topic))
    with pytest.raises(AnalysisException, match=r"no path: name a segment file"):
        spark.read.format("kolumn").load()
    with pytest.raises(kolumn.KolumnError, match="no such file or directory"):
        load(topic / "gone")


CONSUMED = sorted(CORPUS.glob("*/*.committed.parquet"))
FOLDERS = [str(path).removesuffix(".committed.parquet") for path in CONSUMED]
ABORT, COMMIT = 0, 1


def test_what_a_consumer_was_given_is_read(spark: SparkSession) -> None:
    frame = load(FOLDERS, **{"kafka.isolation.level": "read_committed", "splitBytes": 2000})
    assert len(frame.splits) > 4 * len(FOLDERS)
    columns = ["topic", "offset", "value", "transaction"]
    in_spark = read_segments(spark, FOLDERS, isolation_level="read_committed", split_bytes=20_000, columns=columns).toArrow()
    for table in (frame.toArrow(), in_spark):
        for path in CONSUMED:
            name = path.name.removesuffix(".committed.parquet").rpartition("-")[0]
            mine, expected = table.filter(pc.equal(table["topic"], name)).sort_by("offset"), pq.read_table(path).sort_by("offset")
            assert mine.select(["offset", "value"]).to_pylist() == expected.select(["offset", "value"]).to_pylist()
    assert {*in_spark["transaction"].to_pylist()} == {"none", "committed"}
    for of_open, states in (("skip", {"none", "committed"}), ("include", {"none", "committed", "open"})):
        given: dict[str, Any] = {"isolationLevel": "read_committed", "openTransactions": of_open, "columns": "topic,offset,transaction"}
        order = [("topic", "ascending"), ("offset", "ascending")]
        mine, every = load(FOLDERS, splitBytes="5000", **given).toArrow(), kolumn.read(FOLDERS, columns=["topic", "offset", "transaction"])
        assert mine.sort_by(order).to_pylist() == every.filter(pc.is_in(every["transaction"], pa.array(states))).sort_by(order).to_pylist()


def test_a_read_that_stops_warns_once(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kolumn")
    frame = load(log.parent, **{"kafka.isolation.level": "read_committed"})
    said = "t-0 stops at offset 1: a transaction of producer 7 (epoch "
    (planned,) = caplog.messages
    assert planned.startswith(said)
    assert planned.endswith("; committed records after it are not read. openTransactions=skip reads past it")
    assert frame.count() == 1
    assert caplog.messages[-1].startswith(said)
    assert caplog.messages[-1].endswith("; 1 committed record after it is not read. openTransactions=skip reads past it")
    assert [record.levelname for record in caplog.records if record.message.startswith(said)][-1] == "INFO"
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert [text for text in warned if text not in planned] == []
    caplog.clear()
    for options in ({"openTransactions": "skip"}, {"endingOffsets": '{"t": {"0": 1}}'}):
        load(log.parent, **{"kafka.isolation.level": "read_committed"}, **options).count()
    assert caplog.messages == []
    # Another task may have what comes after the transaction.
    assert load(log.parent, **{"kafka.isolation.level": "read_committed"}, endingOffsets='{"t": {"0": 2}}').count() == 1
    assert "; committed records after it are not read" in caplog.text
    assert "no committed record" not in caplog.text


def data(offset: int) -> bytes:
    return batch([Record(offset, None, struct.pack(">q", offset), 0)], flags=TRANSACTIONAL, producer_id=7)


def plain(offset: int) -> bytes:
    return batch([Record(offset, None, struct.pack(">q", offset), 0)])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log whose last stable offset is 1."""
    path = tmp_path / "log" / "t-0" / f"{0:020}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(plain(0) + data(1) + plain(2))
    return path


def append(path: Path, *entries: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(entries))


def test_a_committed_stream_waits_for_the_marker(log: Path) -> None:
    schema = spark_schema(record_schema(("offset",)))
    options = {"path": str(log.parent), "kafka.isolation.level": "read_committed"}
    assert RecordStream(with_columns(LoadOptions.of(options), schema), schema).initialOffset() == {"t": {"0": 1}}

    def offsets(first: int, stop: int) -> list[int]:
        start, end = ({"t": {"0": offset}} for offset in (first, stop))
        reader = RecordStream(with_columns(LoadOptions.of(options | {"startingOffsets": "earliest"}), schema), schema)
        assert reader.latestOffset(start, None) == end
        return [row["offset"] for row in stream_rows(reader, start, end)]

    assert offsets(0, 1) == [0]
    with pytest.raises(kolumn.ArgumentError, match="openTransactions: a stream waits for the end of a transaction"):
        RecordStream(LoadOptions.of(options | {"openTransactions": "skip"}), schema)
    append(log, data(3))
    assert offsets(1, 1) == []
    append(log, control_batch(4, COMMIT), data(5), plain(6))
    assert offsets(1, 5) == [1, 2, 3]
    append(log, control_batch(7, ABORT), plain(8))
    assert offsets(5, 9) == [6, 8]
