"""Streams whose log changes under them, and that die at each step of a micro-batch, by both readers: what is read once, what is said."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from kit.plain_spark import soon
from kit.stream_query import StreamedLog, batches, upto, write

pytestmark = pytest.mark.spark

READERS = pytest.mark.parametrize("reader", [pytest.param("python", marks=pytest.mark.slow), "columnar"])
OLD, NEW = "CB7H1K6OSfK1-BrQJPzEKQ", "gMf8SHNYTfiX_aTsKKMsbQ"


def named(log: Path, topic_id: str) -> None:
    for folder in log.iterdir():
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


@READERS
@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        ({"maxFilesPerTrigger": 1}, [20, 10, 10]),
        ({"maxBytesPerTrigger": 1}, [10, 10, 5, 5, 5, 5]),
        ({"maxOffsetsPerTrigger": 1000, "maxFilesPerTrigger": 1, "maxBytesPerTrigger": 1}, [5] * 8),
        ({"minOffsetsPerTrigger": 1000, "maxTriggerDelay": "1h", "maxFilesPerTrigger": 2}, [30, 10]),
    ],
)
def test_limits_bound_micro_batches(spark: SparkSession, tmp_path: Path, reader: str, limits: dict[str, object], sizes: list[int]) -> None:
    query = StreamedLog(spark, tmp_path, reader)
    write(query.log, 0, 0, 20), write(query.log, 0, 20, 30), write(query.log, 1, 0, 10)
    assert query.run(**limits) == sizes
    assert query.rows() == upto(0, 0, 30) + upto(1, 0, 10)


@READERS
def test_a_running_query_goes_on_while_its_log_changes(spark: SparkSession, tmp_path: Path, reader: str) -> None:
    """With failOnDataLoss=false: what is lost is said, and everything that is new is read once."""
    query = StreamedLog(spark, tmp_path, reader)
    first = write(query.log, 0, 0, 20)
    write(query.log, 2, 0, 5)
    named(query.log, OLD)
    writer = query.frame(failOnDataLoss="false", maxOffsetsPerTrigger=8).select("partition", "offset").writeStream.format("parquet")
    running = writer.option("checkpointLocation", query.checkpoint).trigger(processingTime="50 milliseconds").start(query.out)
    expected = upto(0, 0, 20) + upto(2, 0, 5)

    def then(*rows: list[tuple[int, int]]) -> None:
        expected.extend(row for some in rows for row in some)
        expected.sort()
        written = Path(query.out, "_spark_metadata")
        assert soon(lambda: running.exception() is not None or (list(written.glob("[0-9]*")) and query.rows() == expected), 60), expected
        assert running.exception() is None

    try:
        then()
        # a partition that is new, another that goes, and a segment that is rolled
        write(query.log, 1, 0, 10), shutil.rmtree(query.log / "t-2"), write(query.log, 0, 20, 30)
        then(upto(1, 0, 10), upto(0, 20, 30))
        # a segment that is compacted away, after it was read
        (tmp_path / "compacted").write_bytes(batches(range(0, 20))[3])
        (tmp_path / "compacted").rename(first)
        write(query.log, 0, 30, 35)
        then(upto(0, 30, 35))
        # an unclean leader: the log ends before what was read, and goes on with other records
        (query.log / "t-0" / f"{30:020}.log").unlink()
        assert soon(lambda: json.loads(running.lastProgress["sources"][0]["endOffset"])["t"]["0"] == 30, 60)  # type: ignore[index]
        write(query.log, 0, 30, 33)
        then(upto(0, 30, 33))
        # the topic is made anew, and has fewer records than were read of the old one
        (tmp_path / "made").mkdir()
        write(tmp_path / "made", 0, 0, 12), named(tmp_path / "made", NEW)
        query.log.rename(tmp_path / "deleted"), (tmp_path / "made").rename(query.log)
        then(upto(0, 0, 12))
        write(query.log, 0, 12, 40)
        then(upto(0, 12, 40))
    finally:
        running.stop()
    # A log whose first segments were deleted while nobody read it.
    write(query.log, 0, 40, 50), write(query.log, 0, 50, 60)
    for base in (0, 12, 40):
        (query.log / "t-0" / f"{base:020}.log").unlink()
    with pytest.raises(StreamingQueryException, match="t-0: offset 40 was to be read, and the log begins at 50"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.rows() == sorted(expected + upto(0, 50, 60))


GONE: dict[str, tuple[Callable[[Path], object], str]] = {
    "partition": (lambda log: shutil.rmtree(log / "t-1"), "t-1: read up to offset 10, and the partition no longer exists"),
    "truncated": (lambda log: write_over(log / "t-0", 15), "t-0: read up to offset 20, and the log ends at 15"),
    "anew": (lambda log: named(log, NEW), f"topic t: its id was {OLD} and is {NEW}: it was deleted and created anew"),
}


def write_over(folder: Path, stop: int) -> None:
    (folder / "new").write_bytes(b"".join(batches(range(0, stop))))
    (folder / "new").rename(folder / f"{0:020}.log")


@READERS
@pytest.mark.parametrize("what", GONE)
def test_what_is_lost_ends_a_query_that_runs(spark: SparkSession, tmp_path: Path, reader: str, what: str) -> None:
    query, (change, message) = StreamedLog(spark, tmp_path, reader), GONE[what]
    write(query.log, 0, 0, 20), write(query.log, 1, 0, 10), named(query.log, OLD)
    seen: list[int] = []
    running = query.start(query.frame(), lambda rows, _: seen.append(rows.count()), processingTime="50 milliseconds")
    assert soon(lambda: sum(seen) == 30, 60)
    change(query.log)
    with pytest.raises(StreamingQueryException, match=message):
        running.awaitTermination(60)


STEPS = ["planned", "tasks", "sink"]


@READERS
@pytest.mark.parametrize("step", STEPS)
def test_rows_once_after_death_at_each_step(spark: SparkSession, tmp_path: Path, reader: str, step: str) -> None:
    """All that a query keeps is in files; they are made as a death leaves them: the last micro-batch is undone to a step."""
    query = StreamedLog(spark, tmp_path, reader)
    checkpoint, sink = Path(query.checkpoint), Path(query.out) / "_spark_metadata"
    expected, end = list[tuple[int, int]](), 0
    for round_ in range(3):
        write(query.log, 0, end, end + 10), write(query.log, 1, 0, 5, base=0) if not round_ else None
        expected, end = expected + upto(0, end, end + 10) + (upto(1, 0, 5) if not round_ else []), end + 10
        query.run(maxOffsetsPerTrigger=100)
        last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
        lost = [checkpoint / "commits" / str(last), *([sink / str(last)] if step != "sink" else [])]
        if step == "planned":
            entries = [json.loads(line) for line in (sink / str(last)).read_text().splitlines()[1:]]
            lost += [Path(query.out, Path(entry["path"]).name) for entry in entries]
        for path in lost:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        # The log has changed when the query is started again: what is there is compacted to the same records, and more was written.
        for path in (query.log / "t-0").glob("*.log"):
            data = path.read_bytes()
            path.unlink(), path.write_bytes(data)
    query.run()
    assert query.rows() == sorted(expected)
    assert len(list((checkpoint / "offsets").glob("[0-9]*"))) == len(list((checkpoint / "commits").glob("[0-9]*")))
