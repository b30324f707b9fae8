"""``writeStream.format("kolumn")`` appends each epoch of a query once, by the source written in Python and by the connector."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import kolumn
from kit.faults import killed_after
from kit.fuzz import FIRST
from kolumn.core.errors import KolumnError
from kolumn.spark_plugin.write.staging import Epoch, Staging, publish

pytestmark = pytest.mark.spark
STATES = ".kolumn-streams"


@pytest.fixture(params=["python", "columnar"])
def reader(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """Who gets the write: the source written in Python, or the connector, which passes it on."""
    before = spark.conf.get("spark.kolumn.reader")
    spark.conf.set("spark.kolumn.reader", request.param)
    yield request.param
    spark.conf.set("spark.kolumn.reader", before)


class Mirror:
    """A folder of text files, streamed into a log."""

    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        self.spark, self.source, self.log, self.checkpoint = spark, scratch / "source", scratch / "log", scratch / "checkpoint"
        self.source.mkdir()
        self.count = 0

    def add(self, count: int) -> None:
        lines = range(self.count, self.count + count)
        # A name that Spark ignores until the file is whole.
        draft = self.source / f".{self.count}.txt"
        draft.write_text("".join(f"{line}\n" for line in lines))
        draft.rename(self.source / f"{self.count}.txt")
        self.count += count

    def rows(self) -> DataFrame:
        return self.spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(str(self.source))

    def run(self, frame: DataFrame | None = None, target: object = None, checkpoint: Path | None = None, **options: str) -> Any:
        writer = (self.rows() if frame is None else frame).writeStream.format("kolumn").options(**{"topic": "t", **options})
        writer = writer.option("checkpointLocation", str(checkpoint or self.checkpoint)).trigger(availableNow=True)
        query = writer.start(str(target or self.log))
        query.awaitTermination()
        return query

    def forget_last_commit(self) -> None:
        """What is left if Spark is killed after the epoch's commit and before it notes it."""
        last = max(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit())
        for name in (f"{last}", f".{last}.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def lines(self) -> list[int]:
        return sorted(int(value) for value in kolumn.read(self.log, columns=["value"])["value"].to_pylist())


@pytest.fixture
def mirror(spark: SparkSession, tmp_path: Path) -> Mirror:
    return Mirror(spark, tmp_path)


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("scheme", ["", "local://"], ids=["path", "URL"])
def test_an_epoch_is_written_once(mirror: Mirror, scheme: str) -> None:
    target = f"{scheme}{mirror.log}"
    for count in (10, 7, 3):
        mirror.add(count)
    query = mirror.run(target=target)
    state = mirror.log / STATES / f"{query.id}.json"
    assert json.loads(state.read_text()).items() >= {"version": 1, "epoch": 2}.items()
    mirror.forget_last_commit()
    mirror.run(target=target)
    assert mirror.lines() == list(range(20))
    mirror.add(5)
    mirror.run(mirror.rows().repartition(2), target)
    assert mirror.lines() == list(range(25))
    assert json.loads(state.read_text())["epoch"] == 3
    for partition in (0, 1):
        offsets = kolumn.read(mirror.log / f"t-{partition}", columns=["offset"])["offset"].to_pylist()
        assert offsets == list(range(len(offsets)))
    # An object store has no folders without files.
    found = {path.name for path in mirror.log.iterdir() if path.is_file() or any(path.iterdir())}
    assert found == {STATES, "t-0", "t-1"}
    # Readers, and tidy, pass by what is known of streams.
    assert kolumn.tidy(target) == []


def test_a_checkpoint_goes_from_one_to_the_other(spark: SparkSession, mirror: Mirror) -> None:
    before = spark.conf.get("spark.kolumn.reader")
    try:
        for name in ("python", "columnar", "python"):
            spark.conf.set("spark.kolumn.reader", name)
            mirror.add(4)
            mirror.run()
            mirror.forget_last_commit()
            mirror.run()
    finally:
        spark.conf.set("spark.kolumn.reader", before)
    assert mirror.lines() == list(range(12))
    assert len(list((mirror.log / STATES).iterdir())) == 1


@pytest.mark.usefixtures("reader")
def test_a_log_is_mirrored_with_its_offsets(spark: SparkSession, mirror: Mirror, small_segments: Path) -> None:
    frame = (
        spark.readStream.format("kolumn")
        .options(startingOffsets="earliest", includeHeaders="true", splitBytes="30000")
        .load(str(small_segments))
    )
    # Tasks have ranges of offsets of one topic partition.
    mirror.run(frame)
    columns = ["topic", "partition", "offset", "key", "value", "timestamp", "headers"]
    assert kolumn.read(mirror.log, columns=columns).equals(kolumn.read(small_segments, columns=columns))


@pytest.mark.usefixtures("reader")
def test_an_epoch_that_fails_leaves_nothing(mirror: Mirror) -> None:
    mirror.add(10)
    failing = mirror.rows().selectExpr("string(assert_true(value <> '7', 'it is 7')) AS value")
    with pytest.raises(StreamingQueryException, match="it is 7"):
        mirror.run(failing)
    assert list(mirror.log.iterdir()) == []
    mirror.run()
    assert mirror.lines() == list(range(10))


@pytest.mark.usefixtures("reader")
def test_epochs_without_rows(mirror: Mirror) -> None:
    mirror.add(4)
    mirror.run(mirror.rows().where("value = 'none'"))
    assert list(mirror.log.iterdir()) == []
    mirror.add(4)
    mirror.run(mirror.rows().where("value > '5'"))
    assert mirror.lines() == [6, 7]


@pytest.mark.parametrize(
    ("mode", "message"), [("complete", "output mode complete would replace the log"), ("update", "kolumn does not support Update mode")]
)
@pytest.mark.usefixtures("reader")
def test_modes_that_are_refused(mirror: Mirror, mode: str, message: str) -> None:
    mirror.add(1)
    writer = mirror.rows().groupBy("value").count().selectExpr("value").writeStream.format("kolumn").outputMode(mode).option("topic", "t")
    with pytest.raises(StreamingQueryException, match=message):
        writer.option("checkpointLocation", str(mirror.checkpoint)).trigger(availableNow=True).start(str(mirror.log)).awaitTermination()
    assert not mirror.log.exists()


def test_a_checkpoint_of_the_session(spark: SparkSession, mirror: Mirror, reader: str) -> None:
    mirror.add(3)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(mirror.checkpoint))
    try:
        writer = mirror.rows().writeStream.format("kolumn").option("topic", "t").queryName("named").trigger(availableNow=True)
        if reader == "columnar":
            writer.start(str(mirror.log)).awaitTermination()
            assert mirror.lines() == [0, 1, 2]
        else:
            with pytest.raises(StreamingQueryException, match="no checkpointLocation: name it in the query"):
                writer.start(str(mirror.log)).awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


@pytest.mark.usefixtures("reader")
def test_two_streams_into_one_log(mirror: Mirror, tmp_path: Path) -> None:
    """Side by side; one that meets records of the other in its topic partition fails, and goes on when it is started again."""
    for _ in range(4):
        mirror.add(5)
    queries = [
        mirror.rows().writeStream.format("kolumn").option("topic", topic).option("checkpointLocation", str(tmp_path / topic))
        .trigger(availableNow=True).start(str(mirror.log))
        for topic in ("a", "b")
    ]  # fmt: skip
    for query in queries:
        query.awaitTermination()
    assert kolumn.read(mirror.log, columns=["topic"])["topic"].to_pylist() == ["a"] * 20 + ["b"] * 20
    assert len(list((mirror.log / STATES).iterdir())) == 2
    mirror.run(topic="a")
    assert kolumn.read(mirror.log / "a-0").num_rows == 40


@pytest.mark.usefixtures("reader")
def test_a_batch_writes_within_foreach_batch(spark: SparkSession, mirror: Mirror) -> None:
    mirror.add(6)

    def write(frame: DataFrame, _: int) -> None:
        frame.write.format("kolumn").mode("append").option("topic", "t").save(str(mirror.log))

    writer = mirror.rows().writeStream.foreachBatch(write).option("checkpointLocation", str(mirror.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert mirror.lines() == list(range(6))


def test_overwrite_leaves_what_is_known_of_streams(spark: SparkSession, mirror: Mirror) -> None:
    """Epochs before it are not written again: their rows were there, and went."""
    mirror.add(3)
    mirror.run()
    spark.range(1).selectExpr("string(id + 100) AS value").coalesce(1).write.format("kolumn").mode("overwrite").option("topic", "t").save(
        str(mirror.log)
    )
    mirror.forget_last_commit()
    mirror.run()
    assert mirror.lines() == [100]
    mirror.add(1)
    mirror.run()
    assert mirror.lines() == [3, 100]


def test_a_state_that_nobody_understands(tmp_path: Path) -> None:
    epoch = Epoch("s", 3)
    (tmp_path / STATES).mkdir()
    for text, message in (("[]", "expected the number of the stream's last epoch"), ('{"version": 9, "epoch": 1}', "this Kolumn knows 1")):
        Path(epoch.file(str(tmp_path))).write_text(text)
        with pytest.raises(KolumnError, match=message):
            epoch.is_committed(str(tmp_path))
    Path(epoch.file(str(tmp_path))).write_text('{"version": 1, "epoch": 2}')
    assert [Epoch("s", number).is_committed(str(tmp_path)) for number in (1, 2, 3)] == [True, True, False]


def test_a_copied_checkpoint_takes_no_epoch_for_its_own(tmp_path: Path) -> None:
    """It has the id of the query that it was copied from."""
    target = str(tmp_path / "log")
    staging = Staging(target, "stream", True, "0a" * 16)
    own = Epoch("id", 3, "/checkpoints/own")
    publish(target, staging.name, [], False, epoch=own)
    assert own.is_committed(target)
    assert Epoch("id", 3).is_committed(target)
    copied = Epoch("id", 3, "/checkpoints/copy")
    with pytest.raises(KolumnError, match="whose checkpoint is /checkpoints/own, and this one's is /checkpoints/copy, with the same id"):
        copied.is_committed(target)
    staging.remove()


INTERRUPTED = """
import os, sys
import pyarrow as pa
from kolumn.spark_plugin.write.staging import Epoch, Staging, publish, publish
from kolumn.spark_plugin.write.writer import WriteOptions, write_segments
from kolumn.writers.commit import run

log, moves = sys.argv[1], int(sys.argv[2])
options = WriteOptions.of({"path": log, "topic": "t"})

def staged():
    staging = Staging(log, "stream", True, "0a" * 16)
    parts = [{"value": [b"%d" % i for i in range(10)], "partition": pa.array([part] * 10, pa.int32())} for part in (0, 1)]
    return staging, [piece for part in parts for piece in write_segments(iter([pa.RecordBatch.from_pydict(part)]), options, staging)]

first, pieces = staged()
name = run._name

def dies(*arguments):
    global moves
    name(*arguments)
    moves -= 1
    if not moves:
        os._exit(9)

child = os.fork()
if not child:
    run._name = dies
    publish(log, first.name, pieces, False, epoch=Epoch("id", 0))
    os._exit(0)
os.waitpid(child, 0)
again, pieces = staged()
publish(log, again.name, pieces, False, epoch=Epoch("id", 0))
again.remove()
"""


@pytest.mark.parametrize("moves", [1, 2, 3, 5])
def test_a_commit_that_dies_when_the_next_run_has_begun(tmp_path: Path, moves: int) -> None:
    """Both runs have the stream's staging folder: the second one completes the commit, and has nothing to add."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "log"), str(moves)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert kolumn.read(tmp_path / "log").num_rows == 20


def test_a_stream_has_one_staging_folder_at_a_time(tmp_path: Path) -> None:
    first, number = Staging(str(tmp_path), "stream", number="a" * 32), "a" * 32
    assert Staging(str(tmp_path), "stream", number=number).name == first.name
    owner = Path(first.name, "owner")
    known = json.loads(owner.read_text())
    with first.attempt() as (folder, _):
        (folder / "file").touch()
    # That of a process on another machine, which the stream has left; and that of one that lives on this machine.
    owner.write_text(json.dumps(known | {"boot": "another"}))
    again = Staging(str(tmp_path), "stream", number=number)
    assert [path.name for path in Path(again.name).iterdir()] == ["owner"]
    owner.unlink()
    owner.write_text(json.dumps(known | {"pid": 1, "start": int(Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19])}))
    with pytest.raises(KolumnError, match="its job lives: expected no other run of this stream"):
        Staging(str(tmp_path), "stream", number=number)


KILLS = int(os.environ.get("KOLUMN_STREAM_KILLS", "3"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_and_started_again(mirror: Mirror) -> None:
    """The driver, with Java and the Python workers, is killed at any moment of an epoch; rows are there once."""
    dice, killed = random.Random(FIRST), 0

    def start(reader: str) -> "subprocess.Popen[bytes]":
        folders = (str(path) for path in (mirror.source, mirror.log, mirror.checkpoint))
        job = [sys.executable, str(Path(__file__).with_name("jobs.py")), "mirroring", *folders, reader]
        return subprocess.Popen(job, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def epochs() -> int:
        return len([path for path in (mirror.checkpoint / "offsets").glob("*") if path.name.isdigit()])

    while killed < KILLS:
        for _ in range(8):
            mirror.add(20)
        before, wanted = epochs(), dice.randint(1, 6)
        job = start(dice.choice(["columnar", "python"]))
        killed += killed_after(job, epochs, before + wanted, dice.random())
    assert start("columnar").wait(timeout=600) == 0
    assert mirror.lines() == list(range(mirror.count))
    assert sorted(path.name for path in mirror.log.iterdir()) == [STATES, "t-0"]


@pytest.mark.parametrize("reader", ["columnar"], indirect=True)
@pytest.mark.usefixtures("reader")
def test_a_stream_into_a_table(spark: SparkSession, mirror: Mirror) -> None:
    mirror.add(3)
    spark.sql(f"CREATE TABLE mirrored USING kolumn OPTIONS (path '{mirror.log}', topic 't')")
    try:
        frame = mirror.rows().selectExpr("CAST(value AS BINARY) AS value")
        writer = frame.writeStream.option("checkpointLocation", str(mirror.checkpoint)).trigger(availableNow=True)
        writer.toTable("mirrored").awaitTermination()
    finally:
        spark.sql("DROP TABLE mirrored")
    assert mirror.lines() == [0, 1, 2]
