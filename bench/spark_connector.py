"""How fast is the connector beside Spark's own scan of the same rows as Parquet?  python -m bench.spark_connector [SEGMENTS]

One session on local[2], all files in the page cache, both sides uncompressed or both with zstd. For each question all routes take turns,
after their answers have been compared. Ratios are Parquet's best time by the route's.

connector  `format("kolumn")` with the jar, batches in shared memory; "pipe" sends them instead
python     the source written in Python, which reads all columns; "columns" names them by hand, as careful users do

`questions` are asked of 512 MiB (8 segments) of 100-byte values, `few` of half of that, where fixed costs weigh more, `zstd` of compressed
segments; `kinds` is the first question for several kinds of values. `profile` says where the connector's time goes: medians in ms of the
whole query, of what the driver does before the job, of the job, of its tasks together (their time, their JVM threads' CPU time, decoding
in Python, and waiting for it).
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from bench import data, machine
from bench.spark_vs_parquet import everything, fresh, log, race, session, value
from kolumn.spark_plugin import configure, read_segments

SEGMENTS, TURNS = 8, 7
KIND_BYTES = 32 << 20
TARGETS = {"value": 1.8, "all columns": 1.8, "sum(offset)": 1.2, "count(*)": 1.2, "max(offset)": 1.2, "few rows": 1.2}
BESIDE_PYTHON = 1.5
HANDOVER = "spark.kolumn.handOver"
Query = Callable[[DataFrame], tuple[Any, ...]]


def one(frame: DataFrame, *totals: Any) -> tuple[Any, ...]:
    """Totals of a frame."""
    return tuple(frame.agg(*totals).first() or ())


def by_key(frame: DataFrame) -> tuple[Any, ...]:
    """Groups and rows."""
    return one(frame.groupBy("key").count(), sql.count("*"), sql.sum("count"))


def questions(last: int) -> dict[str, tuple[str, Query]]:
    """The columns that a careful user names, and the query."""
    few = f"offset > {last - 1000}"
    return {
        "value": ("value", value),
        "all columns": ("", everything),
        "sum(offset)": ("offset", lambda frame: one(frame, sql.sum("offset"))),
        "count(*)": ("offset", lambda frame: one(frame, sql.count("*"))),
        "max(offset)": ("offset", lambda frame: one(frame, sql.max("offset"))),
        "few rows": ("value,offset", lambda frame: one(frame.where(few), sql.sum(sql.octet_length("value")))),
        "group by key": ("key", by_key),
    }


def last_query(spark: SparkSession) -> tuple[list[int], dict[str, str]]:
    """The jobs of the last query, and what it has counted, by the names in Spark's UI."""
    store = spark._jsparkSession.sharedState().statusStore()
    done = store.executionsList().last()
    # What is counted reaches the store by a queue.
    until = time.monotonic() + 10
    while not (done.completionTime().isDefined() and done.metricValues()) and time.monotonic() < until:
        time.sleep(0.01)
        done = store.executionsList().last()
    jobs, metrics, values = list[int](), done.metrics().iterator(), store.executionMetrics(done.executionId())
    numbers = done.jobs().keys().iterator()
    while numbers.hasNext():
        jobs.append(numbers.next())
    counted = {}
    while metrics.hasNext():
        metric = metrics.next()
        counted[metric.name()] = values.get(metric.accumulatorId())
    return jobs, {name: value.get().replace(",", "") for name, value in counted.items() if value.isDefined()}


class Bench:
    """A session, and what was measured in it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def frame(self, path: str, **options: str) -> DataFrame:
        return self.spark.read.format("kolumn").options(**options).load(path)

    def parquet(self, path: str, name: str, codec: str) -> str:
        """The rows as Parquet files."""
        target = fresh(name)
        read_segments(self.spark, path).write.option("compression", codec).parquet(target)
        return target

    def ask(self, path: str, parquet: str, name: str, query: Query, columns: str | None = None) -> dict[str, Any]:
        """Times of one question; with the columns that a careful user names, of all routes."""

        def by_connector(how: str) -> tuple[Any, ...]:
            self.spark.conf.set(HANDOVER, how)
            return query(self.frame(path))

        found: dict[str, Callable[[], tuple[Any, ...]]] = {
            "Parquet": lambda: query(self.spark.read.parquet(parquet)),
            "connector": lambda: by_connector("memory"),
        }
        if columns is not None:
            found["connector, pipe"] = lambda: by_connector("pipe")
            found["python"] = lambda: query(self.frame(path, reader="python"))
        if columns:
            found["python, columns"] = lambda: query(self.frame(path, reader="python", columns=columns))
        timed = race(found, name)
        for route, times in timed.items():
            note = "" if route == "Parquet" else f"  {times['ratio']:.2f} x Parquet"
            note += f", target {TARGETS[name]}" if route == "connector" and name in TARGETS else ""
            print(f"{name:24} {route:16} {times['seconds']:8.3f} s{note}", flush=True)
        return timed

    def all(self, path: str, parquet: str, every_route: bool) -> dict[str, Any]:
        """Times of all questions."""
        last = self.spark.read.parquet(parquet).agg(sql.max("offset")).first()
        asked = questions(last[0] if last else 0).items()
        return {name: self.ask(path, parquet, name, query, columns if every_route else None) for name, (columns, query) in asked}

    def profile(self, path: str, query: Query) -> dict[str, float]:
        """Where the time of a query goes: medians."""
        self.spark.conf.set(HANDOVER, "memory")
        turns = [self._turn(partial(query, self.frame(path))) for _ in range(TURNS)]
        return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}

    def _turn(self, run: Callable[[], object]) -> dict[str, float]:
        start = time.perf_counter()
        run()
        found: dict[str, float] = {"query": round((time.perf_counter() - start) * 1000)}
        jobs, counted = last_query(self.spark)
        found |= dict.fromkeys(("job", "tasks", "tasks' CPU in the JVM"), 0)
        for number in jobs:
            self._add_job(number, found)
        found["decoding"], found["waiting"] = (int(counted[name]) for name in ("ms decoding in Python", "ms waited for Python"))
        found["driver"] = found["query"] - found["job"]
        return found

    def _add_job(self, number: Any, found: dict[str, float]) -> None:
        store = self.spark.sparkContext._jsc.sc().statusStore()
        job = store.job(number)
        found["job"] += job.completionTime().get().getTime() - job.submissionTime().get().getTime()
        stages = job.stageIds().iterator()
        while stages.hasNext():
            stage = store.lastStageAttempt(stages.next())
            found["tasks"] += stage.executorRunTime()
            found["tasks' CPU in the JVM"] += stage.executorCpuTime() // 1_000_000


def main() -> None:
    """Measure, print and keep."""
    segments = int(sys.argv[1]) if len(sys.argv) > 1 else SEGMENTS
    bench = Bench(session("Unix", configure))
    result: dict[str, Any] = {"segments": segments}
    path = log(segments)
    parquet = bench.parquet(path, "parquet", "uncompressed")
    result["rows"] = bench.spark.read.parquet(parquet).count()
    result["questions"] = bench.all(path, parquet, every_route=True)
    result["profile"] = {name: bench.profile(path, query) for name, (_, query) in questions(result["rows"]).items()}
    for name, parts in result["profile"].items():
        print(f"{name:24} {', '.join(f'{part} {value:.0f}' for part, value in parts.items())} ms")
    path = log(segments, "zstd")
    parquet = bench.parquet(path, "parquet_zstd", "zstd")
    result["zstd"] = bench.all(path, parquet, every_route=False) | {"value": bench.ask(path, parquet, "value", value, "value")}
    beside = result["zstd"]["value"]["python"]["seconds"] / result["zstd"]["value"]["connector"]["seconds"]
    result["zstd value beside python"] = round(beside, 2)
    print(f"zstd value: the connector is {beside:.2f} x python, target {BESIDE_PYTHON}")
    path = log(max(1, segments // 2))
    result["few"] = bench.all(path, bench.parquet(path, "parquet", "uncompressed"), every_route=False)
    result["kinds"] = {}
    for kind, codec in product(data.KINDS, ("none", "zstd")):
        path = str(data.of_kind(kind, codec, KIND_BYTES).parent)
        parquet = bench.parquet(path, "parquet", "uncompressed" if codec == "none" else codec)
        result["kinds"][f"{kind}, {codec}"] = bench.ask(path, parquet, f"{kind}, {codec}", value)
    bench.spark.stop()
    print(machine.save("spark_connector", result))


if __name__ == "__main__":
    main()
