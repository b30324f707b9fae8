"""How fast does Spark read segments beside its own scan of the same rows as Parquet?  python -m bench.spark_vs_parquet [SEGMENTS]

Sessions on local[2], 100-byte values, uncompressed on both sides, all files in the page cache. The Parquet files are written by
Spark itself from the records. For each question Kolumn and its rival take turns; ratios are of the best times, after the results
have been compared. All of it once with TCP between Spark and its Python workers, which is Spark's default, and once with Unix
domain sockets (`spark.python.unix.domain.socket.enabled`).

value       sum(octet_length(value)) and count: Kolumn reads the column value, Parquet prunes to it; "as strings" is `read_segments`
            with ``payload="string"``, which leaves out Spark's copy of every value from string to binary
all columns the same with an aggregate of every column of Spark's Kafka schema
transform   the first aggregate, summed by `transform` in the worker, one row a batch
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from bench import data, machine
from kolumn.spark_plugin import read_segments, register
from kolumn.spark_plugin.session.java import use_java

SEGMENTS, TURNS = 12, 6
TARGETS = {"value": 0.8, "all columns": 0.5, "transform": 2.0}
SOCKETS = {"TCP": "false", "Unix": "true"}
FOLDER = data.FOLDER.parent / "spark"


def session(sockets: str, configured: Callable[[SparkSession.Builder], SparkSession.Builder] = lambda given: given) -> SparkSession:
    """A session with a split for each core at a time, as `spark.sql.files.maxPartitionBytes` gives Parquet."""
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        configured(SparkSession.builder).master("local[2]").config("spark.driver.memory", "4g").config("spark.driver.host", "127.0.0.1")
    )
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": SOCKETS[sockets],
    }
    spark = builder.config(map={**settings, "spark.sql.parquet.compression.codec": "uncompressed"}).getOrCreate()
    register(spark)
    return spark


def log(segments: int, codec: str = "none") -> str:
    """A partition of ``segments`` times 64 MiB before compression."""
    folder = FOLDER / ("bench-0" if codec == "none" else f"{codec}-0")
    folder.mkdir(parents=True, exist_ok=True)
    plain = data.segment(codec).read_bytes()
    count = data.records(plain)
    for path in sorted(folder.glob("*.log"))[segments:]:
        path.unlink()
    for number in range(segments):
        path = folder / f"{number * count:020d}.log"
        if not path.exists():
            path.write_bytes(data.rebase(plain, number * count))
    return str(folder)


def value(frame: DataFrame) -> tuple[Any, ...]:
    """One column."""
    return tuple(frame.agg(sql.sum(sql.octet_length("value")), sql.count("value")).first() or ())


def everything(frame: DataFrame) -> tuple[Any, ...]:
    """Every column of Spark's Kafka source."""
    sizes = [sql.sum(sql.octet_length(name)) for name in ("key", "value", "topic")]
    return tuple(frame.agg(*sizes, *(sql.max(name) for name in ("partition", "offset", "timestamp", "timestampType"))).first() or ())


def summed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """In the worker: one row for a batch."""
    values = batch.column("value")
    size = pc.sum(pc.binary_length(values)).as_py() or 0
    return pa.RecordBatch.from_pydict({"size": pa.array([size], pa.int64()), "n": pa.array([len(values) - values.null_count], pa.int64())})


def transformed(spark: SparkSession, path: str) -> tuple[Any, ...]:
    """`value` with the work done before rows exist."""
    frame = read_segments(spark, path, columns=["value"], transform=summed, schema="size long, n long")
    return tuple(frame.agg(sql.sum("size"), sql.sum("n")).first() or ())


def fresh(name: str) -> str:
    """A target that does not exist."""
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    return str(FOLDER / name)


def races(spark: SparkSession, path: str, parquet: str) -> dict[str, dict[str, Callable[[], Any]]]:
    """For each question the ways to answer it; the rival is called Parquet."""
    source = spark.read.format("kolumn")
    return {
        "value": {
            "Parquet": lambda: value(spark.read.parquet(parquet)),
            "format(kolumn)": lambda: value(source.option("columns", "value").load(path)),
            "read_segments": lambda: value(read_segments(spark, path, columns=["value"])),
            "as strings": lambda: value(read_segments(spark, path, columns=["value"], payload="string")),
        },
        "all columns": {
            "Parquet": lambda: everything(spark.read.parquet(parquet)),
            "format(kolumn)": lambda: everything(spark.read.format("kolumn").load(path)),
            "read_segments": lambda: everything(read_segments(spark, path)),
        },
        "transform": {"Parquet": lambda: value(spark.read.parquet(parquet)), "transform": lambda: transformed(spark, path)},
    }


def race(ways: dict[str, Callable[[], Any]], question: str) -> dict[str, dict[str, float]]:
    """Best seconds of each way and their ratios to Parquet's, all ways in turns."""
    answers = {name: way() for name, way in ways.items()}
    if len(set(answers.values())) > 1:
        raise SystemExit(f"{question}: different answers: {answers}")
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(TURNS):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - start)
    return {name: {"seconds": best[name], "ratio": best["Parquet"] / best[name]} for name in ways}


def main() -> None:
    segments = int(sys.argv[1]) if len(sys.argv) > 1 else SEGMENTS
    path, parquet = log(segments), fresh("parquet")
    result: dict[str, Any] = {"segments": segments, "sockets": {}}
    for sockets in SOCKETS:
        spark = session(sockets)
        if "rows" not in result:
            read_segments(spark, path).write.parquet(parquet)
            result["rows"] = spark.read.parquet(parquet).count()
        questions = result["sockets"][sockets] = {}
        for question, ways in races(spark, path, parquet).items():
            questions[question] = race(ways, question)
            for name, one in questions[question].items():
                note = "" if name == "Parquet" else f"  {one['ratio']:.2f} x Parquet, target {TARGETS[question]}"
                speed = result["rows"] / one["seconds"] / 1e6
                print(f"{sockets:5} {question:12} {name:16} {one['seconds']:7.3f} s  {speed:6.1f} M rows/s{note}", flush=True)
        spark.stop()
    print(machine.save("spark_vs_parquet", result))


if __name__ == "__main__":
    main()
