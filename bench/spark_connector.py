"""How fast is the connector beside Spark's own scan of the same rows as Parquet?  python -m bench.spark_connector [SEGMENTS]

One session on local[2], 100-byte values, uncompressed on both sides, all files in the page cache; the data of `bench.spark_vs_parquet`.
For each question all routes take turns, after their answers have been compared. Ratios are Parquet's best time by the route's.
"zstd value" is the first question over compressed segments; there the connector is to be 1.5 times as fast as the source in Python.

connector  `format("kolumn")` with the jar, batches in shared memory; "pipe" sends them instead
python     the source written in Python, which reads all columns; "columns" names them by hand, as careful users do
"""

import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from bench import machine
from bench.spark_vs_parquet import everything, fresh, log, race, session, value
from kolumn.spark_plugin import configure, read_segments

SEGMENTS = 8
TARGETS = {"value": 1.3, "all columns": 1.0, "sum(offset)": 0.8, "count(*)": 1.0, "max(offset)": 1.0, "few rows": 0.8}
BESIDE_PYTHON = 1.5
HANDOVER = "spark.kolumn.handOver"


def one(frame: DataFrame, *totals: Any) -> tuple[Any, ...]:
    """Totals of a frame."""
    return tuple(frame.agg(*totals).first() or ())


def questions(last: int) -> dict[str, tuple[str, Callable[[DataFrame], tuple[Any, ...]]]]:
    """The columns that a careful user names, and the query."""
    few = f"offset > {last - 1000}"
    return {
        "value": ("value", value),
        "all columns": ("", everything),
        "sum(offset)": ("offset", lambda frame: one(frame, sql.sum("offset"))),
        "count(*)": ("offset", lambda frame: one(frame, sql.count("*"))),
        "max(offset)": ("offset", lambda frame: one(frame, sql.max("offset"))),
        "few rows": ("value,offset", lambda frame: one(frame.where(few), sql.sum(sql.octet_length("value")))),
    }


def ways(spark: SparkSession, path: str, parquet: str, columns: str, query: Callable[[DataFrame], tuple[Any, ...]]) -> dict[str, Any]:
    """The routes of one question."""

    def load(**options: str) -> DataFrame:
        return spark.read.format("kolumn").options(**options).load(path)

    def by_connector(how: str) -> tuple[Any, ...]:
        spark.conf.set(HANDOVER, how)
        return query(load())

    found: dict[str, Callable[[], tuple[Any, ...]]] = {
        "Parquet": lambda: query(spark.read.parquet(parquet)),
        "connector": lambda: by_connector("memory"),
        "connector, pipe": lambda: by_connector("pipe"),
        "python": lambda: query(load(reader="python")),
    }
    if columns:
        found["python, columns"] = lambda: query(load(reader="python", columns=columns))
    return found


def main() -> None:
    """Measure, print and keep."""
    segments = int(sys.argv[1]) if len(sys.argv) > 1 else SEGMENTS
    path, parquet = log(segments), fresh("parquet")
    spark = session("Unix", configure)
    read_segments(spark, path).write.parquet(parquet)
    rows, last = spark.read.parquet(parquet).agg(sql.count("*"), sql.max("offset")).first() or (0, 0)
    result: dict[str, Any] = {"segments": segments, "rows": rows, "questions": {}}
    for question, (columns, query) in questions(last).items():
        found = result["questions"][question] = race(ways(spark, path, parquet, columns, query), question)
        for name, timed in found.items():
            note = (
                ""
                if name == "Parquet"
                else f"  {timed['ratio']:.2f} x Parquet" + (f", target {TARGETS[question]}" if name == "connector" else "")
            )
            print(f"{question:12} {name:18} {timed['seconds']:8.3f} s{note}", flush=True)
    columns, query = questions(last)["value"]
    found = result["questions"]["zstd value"] = race(ways(spark, log(segments, "zstd"), parquet, columns, query), "zstd value")
    beside = found["python"]["seconds"] / found["connector"]["seconds"]
    result["zstd value beside python"] = round(beside, 2)
    print(f"zstd value: the connector is {beside:.2f} x python, target {BESIDE_PYTHON}")
    spark.stop()
    print(machine.save("spark_connector", result))


if __name__ == "__main__":
    main()
