"""``df.write.format("kolumn")`` writes DataFrames as segments; a job is committed as a whole or not at all."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import kolumn
from kit.dying_writer import DyingSource
from kit.plain_spark import soon
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.spark_plugin.source import RecordSource
from kolumn.spark_plugin.write.staging import StagedSegments, Staging, publish
from kolumn.writers.commit.run import new_folder
from kolumn.writers.write import SegmentFiles

pytestmark = pytest.mark.spark

COLUMNS = ["topic", "partition", "offset", "key", "value", "timestamp", "timestampType", "headers"]


def write(frame: DataFrame, path: Path, mode: str = "append", **options: object) -> None:
    texts = {name: str(value) for name, value in options.items()}
    frame.write.format("kolumn").mode(mode).options(**texts).save(str(path))


def names(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


@pytest.mark.parametrize("options", [{}, {"codec": "zstd", "segmentBytes": 50_000}])
def test_what_is_read_is_written(spark: SparkSession, segment: Path, small_segments: Path, tmp_path: Path, options: dict) -> None:
    reader = spark.read.format("kolumn").options(includeHeaders="true", splitBytes="30000")
    frame = reader.load([str(segment.parent), str(small_segments)])
    assert frame.rdd.getNumPartitions() > 3
    write(frame.repartition(3, "topic", "partition").sortWithinPartitions("offset"), tmp_path, **options)
    for folder in (segment.parent, small_segments):
        assert kolumn.read(tmp_path / folder.name, columns=COLUMNS).equals(kolumn.read(folder, columns=COLUMNS))
        assert set(kolumn.batches(tmp_path / folder.name)["codec"].to_pylist()) == {options.get("codec", "none")}
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".log", ".index", ".timeindex"}
    assert not [name for name in names(tmp_path) if "partial" in name]


ANYWHERE = pytest.mark.parametrize("scheme", ["", "local://"], ids=["path", "URL"])
"""``local://`` is a scheme of fsspec for a file system that any process can open by URLs."""


@ANYWHERE
def test_records_get_partitions_and_offsets(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}{tmp_path}"
    frame = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) as value")
    write(frame, url, topic="t", magic=1)
    found = kolumn.read(tmp_path, columns=["partition", "offset", "value", "magic"]).to_pylist()
    assert [(*row.values(),) for row in found] == [(i // 25, i % 25, b"%d" % i, 1) for i in range(100)]
    write(frame.limit(3).coalesce(1), url, topic="t", partition=2)
    found = kolumn.read(tmp_path / "t-2", columns=["offset", "value"])
    assert found["offset"].to_pylist() == list(range(28))
    assert found["value"].to_pylist()[25:] == [b"0", b"1", b"2"]


@ANYWHERE
def test_overwrite_replaces_everything(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}{tmp_path}"
    schema = "topic string, partition int, offset long, value string"
    frame = spark.createDataFrame([("a", 0, 5, "x"), ("b", 1, 7, "y")], schema).coalesce(1)
    write(frame, url)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-0", "b-1"]
    (tmp_path / "meta.properties").touch()
    write(frame.filter("topic = 'a'"), url, mode="overwrite")
    # An object store has no folders without files.
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file() or any(path.iterdir())) == ["a-0", "meta.properties"]
    assert kolumn.read(tmp_path)["offset"].to_pylist() == [5]


@ANYWHERE
def test_a_failed_job_leaves_nothing(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    frame = spark.range(0, 100, 1, 4).selectExpr("id AS offset", "string(assert_true(id <> 77, 'it is 77')) AS value")
    with pytest.raises(PySparkException, match="it is 77"):
        write(frame, f"{scheme}{tmp_path / 'log'}", topic="t")
    # At a URL, a task that was not stopped in time may still write a file to the job's folder.
    assert [name for name in names(tmp_path / "log") if not scheme or not name.startswith(".kolumn-write.")] == []


def test_a_late_task_does_not_bring_the_folder_of_a_failed_job_back(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path), "write")
    with staging.attempt() as (folder, _):
        staging.remove()
        with pytest.raises(KolumnError, match=r"t-0: cannot be written: No such file"), SegmentFiles(folder / "t-0", 1, 1):
            pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 't' AS topic, 0 AS partition, explode(array(5L, 4L)) AS offset", "4 follows 5: offsets have to increase.*sortWithin"),
        ("SELECT '../t' AS topic, 'x' AS value", "topic '../t': expected 1 to 249 of the characters"),
        ("SELECT CAST(NULL AS string) AS topic, 'x' AS value", "topic None: expected"),
        ("SELECT 't' AS topic, -1 AS partition", "partition -1: expected a number from 0 on"),
    ],
)
def test_records_that_fit_no_log(spark: SparkSession, tmp_path: Path, query: str, message: str) -> None:
    with pytest.raises(PySparkException, match=f"(?s){message}"):
        write(spark.sql(query).coalesce(1), tmp_path / "log")
    assert names(tmp_path / "log") == []


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        (pa.field("value", pa.string()), {}, "no topic: give the DataFrame a column 'topic'"),
        (pa.field("vaule", pa.string()), {"topic": "t"}, "column 'vaule': records have no column of that name"),
        (pa.field("value", pa.int32()), {"topic": "t"}, "column 'value': expected binary, found int32"),
        (pa.field("value", pa.string()), {"topic": "t", "codek": "zstd"}, "unknown option 'codek', did you mean 'codec'?"),
        (pa.field("value", pa.string()), {"topic": "t", "codec": "brotli"}, "codec='brotli': expected one of"),
        (pa.field("value", pa.string()), {"topic": "t", "magic": "two"}, "option magic: expected an integer, found 'two'"),
        (pa.field("value", pa.string()), {"topic": "t", "segmentBytes": "0"}, "segment_bytes=0: expected at least 1"),
        (pa.field("value", pa.string()), {"topic": "a/b"}, "topic 'a/b': expected 1 to 249"),
        (pa.field("value", pa.string()), {"topic": "t", "format": "redpanda"}, "Write format='kafka', and convert the result"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(tmp_path: Path, column: pa.Field, options: dict[str, str], message: str) -> None:
    source = RecordSource(options | {"path": str(tmp_path / "log")})
    with pytest.raises(ArgumentError, match=re.escape(message)):
        source.writer(spark_schema(pa.schema([column])), overwrite=False)
    assert not (tmp_path / "log").exists()


def test_offsets_of_two_tasks_must_not_overlap(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 10, 1, 2).selectExpr("id AS offset", "int(id % 2) AS partition")
    write(frame, tmp_path, topic="t")
    assert kolumn.read(tmp_path / "t-1", columns=["offset"])["offset"].to_pylist() == [1, 3, 5, 7, 9]
    mixed = frame.selectExpr("(offset * 7) % 10 AS offset", "0 AS partition").sortWithinPartitions("offset")
    with pytest.raises(PySparkException, match=r"one task has the offsets .*another"):
        write(mixed, tmp_path / "other", topic="t")
    assert names(tmp_path / "other") == []
    with pytest.raises(AnalysisException, match="no topic: give the DataFrame a column 'topic'"):
        write(frame, tmp_path / "third")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    kolumn.write(pa.table({"value": ["old"]}), tmp_path / "log" / "t-0")
    return tmp_path / "log"


def _staged(log: str, staging: str = "", partition: int = 0) -> tuple[str, StagedSegments]:
    """A job's staging folder in a log directory, and a segment in it."""
    staging = staging or Staging(log, "write").name
    attempt = f"{staging}/{'a' * 32}/t-{partition}"
    kolumn.write(pa.table({"value": ["new"]}), attempt)
    return staging, StagedSegments("t", partition, attempt, 0, 0)


@ANYWHERE
def test_a_move_that_fails_is_undone(tmp_path: Path, scheme: str) -> None:
    log = f"{scheme}{tmp_path / 'log'}"
    staging = f"{new_folder(log, 'write')}"
    pieces = [_staged(log, staging, partition)[1] for partition in (0, 1)]
    (tmp_path / "log" / "t-1").write_text("a file where a folder has to be")
    with pytest.raises(KolumnError, match="t-1"):
        publish(log, staging, pieces, overwrite=False)
    seen = [path for path in (tmp_path / "log").iterdir() if not path.name.startswith(".kolumn-")]
    assert [path.name for path in seen if path.is_file() or any(path.iterdir())] == ["t-1"]
    assert len(list((tmp_path / "log").glob(f".kolumn-*/{'a' * 32}/t-0/*"))) == 3
    with pytest.raises(ArgumentError, match="one task has the offsets 0 to 0, another 0 to 0"):
        publish(log, staging, [pieces[0], pieces[0]], overwrite=False)


@ANYWHERE
def test_staged_files_that_somebody_removed(old: Path, scheme: str) -> None:
    before, log = names(old), f"{scheme}{old}"
    staging = new_folder(log, "write")
    with pytest.raises(KolumnError, match="t-0 that were staged no longer exist"):
        publish(log, staging, [StagedSegments("t", 0, f"{staging}/{'a' * 32}/t-0", 0, 9)], overwrite=True)
    assert names(old) == before


FOREIGN = [("notes.txt", ""), ("leader-epoch-checkpoint", ""), ("leader-epoch-checkpoint", "local://"), ("sub/deep.txt", "local://")]


@pytest.mark.parametrize(("name", "scheme"), FOREIGN)
def test_overwrite_refuses_what_is_not_its_own(old: Path, scheme: str, name: str) -> None:
    (old / "t-0" / name).parent.mkdir(exist_ok=True)
    (old / "t-0" / name).write_text("mine")
    staging, piece = _staged(f"{scheme}{old}")
    before = names(old)
    with pytest.raises(ArgumentError, match=rf"1 files or folders in them were not written by Kolumn: .*{name.partition('/')[0]}"):
        publish(f"{scheme}{old}", staging, [piece], overwrite=True)
    assert names(old) == before


def test_overwrite_leaves_alone_what_a_link_leads_to(old: Path, tmp_path: Path) -> None:
    log = tmp_path / "links"
    log.mkdir()
    (log / "t-0").symlink_to(old / "t-0")
    staging, piece = _staged(str(log))
    publish(str(log), staging, [piece], overwrite=True)
    assert kolumn.read(log)["value"].to_pylist() == [b"new"]
    assert not (log / "t-0").is_symlink()
    assert kolumn.read(old)["value"].to_pylist() == [b"old"]


def test_overwrite_refuses_a_partition_folder_and_may_write_nothing(old: Path) -> None:
    staging, piece = _staged(str(old / "t-0"))
    with pytest.raises(ArgumentError, match="holds segments itself"):
        publish(str(old / "t-0"), staging, [piece], overwrite=True)
    assert kolumn.read(old)["value"].to_pylist() == [b"old"]
    shutil.rmtree(staging)
    nothing = Staging(str(old), "write")
    publish(str(old), nothing.name, [], overwrite=True)
    nothing.remove()
    assert names(old) == []


@pytest.mark.parametrize(("mode", "scheme"), [("append", "local://"), ("overwrite", ""), ("append", "")])
def test_a_commit_whose_process_is_killed(spark: SparkSession, tmp_path: Path, mode: str, scheme: str) -> None:
    """Spark commits in a Python worker, which the kernel may kill for memory, and then calls `abort`.

    The commit is undone, so that the job can be run again; one that replaces files is completed.
    """

    url, (frame, more) = f"{scheme}{tmp_path}", (spark.range(0, n, 1, 3).selectExpr("cast(id as string) as value") for n in (30, 40))
    write(frame, url, topic="t")
    before = [name for name in names(tmp_path) if (tmp_path / name).is_file()]
    spark.dataSource.register(DyingSource)
    with pytest.raises(Exception, match=r"(?s)Python worker|EOFException|crashed"):
        more.write.format("dying").mode(mode).option("topic", "t").save(url)
    assert [name for name in names(tmp_path) if (tmp_path / name).is_file()] == before
    assert kolumn.read(tmp_path).num_rows == (40 if mode == "overwrite" else 30)
    write(more, url, mode=mode, topic="t")
    assert kolumn.read(tmp_path).num_rows == (70 if mode == "append" else 40)
    assert kolumn.tidy(url) == []


@pytest.mark.slow
def test_a_driver_that_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    """Staged files of its tasks belong to its JVM, and the next job removes them."""
    target = tmp_path / "log"
    frame = spark.range(0, 3, 1, 1).selectExpr("CAST(id AS string) AS value")
    program = Path(__file__).with_name("jobs.py")
    job = subprocess.Popen([sys.executable, str(program), "slow_write", str(target)], start_new_session=True)
    try:
        assert soon(lambda: list(target.glob(".kolumn-write.*/*/t-0/*")), 120)
        write(frame, target, topic="t")
        assert [(one.action, one.detail) for one in kolumn.tidy(target)] == [("left", "its job lives")]
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    assert soon(lambda: kolumn.tidy(target, dry_run=True)[0].action == "removed", 120)
    write(frame, target, topic="t")
    assert sorted(path.name for path in target.iterdir()) == ["t-0"]
    assert kolumn.read(target).num_rows == 6
