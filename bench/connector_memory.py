"""How much memory does a worker of the connector take?  python -m bench.connector_memory [SHAPE ...]

For each shape of `bench.scan_memory` a session of its own on local[2] aggregates all columns of 512 MiB of keys and values. The peak of a
worker is what Spark's UI shows: resident memory with libraries and what it shares with the JVM. The number to plan with is in
`docs/sizing.md`.
"""

import json
import sys
from typing import Any

from bench import machine
from bench.scan_memory import SHAPES, directory
from bench.spark_connector import last_query
from bench.spark_vs_parquet import everything, session
from kolumn.spark_plugin import configure
from kolumn.spark_plugin.read.options import camel

GIB = 0.5
LIMIT_MIB = 450
NAMES = {"shared": "peak memory that a Python worker shares", "peak": "peak memory of a Python worker, shared memory included"}
SKIPPED = ("views", "values of 10 MiB", "batches of 100 MiB")
"""Spark has no views, and a record or a batch as large as a chunk takes what it takes."""


def measured(shape: str) -> dict[str, float]:
    """Peaks in MiB."""
    path, _ = directory(shape, GIB)
    options = {camel(name): value if isinstance(value, str) else json.dumps(value) for name, value in SHAPES[shape][2].items()}
    spark = session("Unix", configure)
    frame = spark.read.format("kolumn").options(**options).load(path)
    if "valueFormat" in options:
        frame.selectExpr("sum(value.id)", "sum(length(value.note))", "count(key)", "max(timestamp)").collect()
    else:
        everything(frame)
    counted = last_query(spark)[1]
    spark.stop()
    return {name: float(counted[shown].removesuffix(" MiB")) for name, shown in NAMES.items()}


def main() -> None:
    """Measure, print and keep."""
    shapes = sys.argv[1:] or [shape for shape in SHAPES if not any(part in shape for part in SKIPPED)]
    result: dict[str, Any] = {}
    for shape in shapes:
        result[shape] = measured(shape)
        print(f"{shape:28} {result[shape]['peak']:6.0f} MiB, target {LIMIT_MIB}", flush=True)
    if not sys.argv[1:]:
        print(machine.save("connector_memory", {"GiB": GIB, "MiB": result}))


if __name__ == "__main__":
    main()
