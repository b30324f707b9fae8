"""How fast is a group-by over one field of Avro values in Spark?  python -m bench.values_in_spark

A topic of 600,000 orders (`bench.value_data`) in 16 KiB batches, with its schema in the topic `_schemas` beside it, local[2]. The query is
``groupBy("value.customer").agg(sum("value.id"))``. Answers are compared first, the ways take turns, ratios are of best times.

typed       ``option("valueFormat", "registry")`` by the connector, which decodes the fields that the query needs
python      the same by the source written in Python: the value as a struct of all fields
one field   by the source written in Python, with ``valueColumns`` = customer, id
fastavro    the bytes of the connector, decoded by fastavro in ``mapInArrow``, as people do it without typed values
Parquet     Spark's scan of the same orders as uncompressed Parquet, that Spark wrote
"""

import io
import json
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import kolumn
from bench import data, machine, value_data
from bench.spark_vs_parquet import session
from kolumn.spark_plugin import configure

COUNT, TURNS = 600_000, 5
TARGETS = {"fastavro": 3.0, "Parquet": 0.8}
FOLDER = data.FOLDER.parent / "values"
ID = 7


def topics() -> str:
    """The log directory, made anew; returns the path of the topic-partition."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    key = {"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1}
    registered = {"subject": "orders-value", "version": 1, "id": ID, "schema": json.dumps(value_data.AVRO), "deleted": False}
    kolumn.write(pa.table({"key": [json.dumps(key).encode()], "value": [json.dumps(registered).encode()]}), FOLDER / "_schemas-0")
    prefix = b"\0" + ID.to_bytes(4, "big")
    values = [prefix + value for value in value_data.as_avro(value_data.orders(COUNT))]
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), FOLDER / "orders-0", segment_bytes=8 << 20)
    return str(FOLDER / "orders-0")


def grouped(frame: DataFrame) -> dict[str, int]:
    """The answer."""
    rows = frame.groupBy("value.customer").agg(sql.sum("value.id").alias("sum")).collect()
    return {row["customer"]: row["sum"] for row in rows}


def by_fastavro(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In the worker: values as the two fields that the query needs."""
    schema = fastavro.parse_schema(json.loads(json.dumps(value_data.AVRO)))
    for batch in batches:
        read: list[Any] = [fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None) for value in batch.column("value").to_pylist()]
        customer, number = [one["customer"] for one in read], [one["id"] for one in read]
        yield pa.RecordBatch.from_pydict({"value": pa.StructArray.from_arrays([pa.array(customer), pa.array(number)], ["customer", "id"])})


def ways(spark: SparkSession, path: str, parquet: str) -> dict[str, Callable[[], Any]]:
    """The ways to answer the query."""

    def read(**options: str) -> DataFrame:
        return spark.read.format("kolumn").options(columns="value", **options).load(path)

    return {
        "typed": lambda: grouped(read(valueFormat="registry")),
        "python": lambda: grouped(read(valueFormat="registry", reader="python")),
        "one field": lambda: grouped(read(valueFormat="registry", reader="python", valueColumns="customer,id")),
        "fastavro": lambda: grouped(read().mapInArrow(by_fastavro, "value struct<customer: string, id: bigint>")),
        "Parquet": lambda: grouped(spark.read.parquet(parquet)),
    }


def main() -> None:
    path = topics()
    spark = session("TCP", configure)
    parquet = str(FOLDER / "parquet")
    spark.read.format("kolumn").option("valueFormat", "registry").option("columns", "value").load(path).write.parquet(parquet)
    found = ways(spark, path, parquet)
    answers = [way() for way in found.values()]
    if any(one != answers[0] for one in answers):
        raise SystemExit("not the same answers")
    best = dict.fromkeys(found, float("inf"))
    for _ in range(TURNS):
        for name, way in found.items():
            begun = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - begun)
    spark.stop()
    ratios = {name: {way: round(best[name] / best[way], 2) for way in ("typed", "python", "one field")} for name in TARGETS}
    for name, seconds in best.items():
        print(f"{name:10}{seconds:7.2f} s {COUNT / seconds / 1e6:7.2f} M records/s  {ratios.get(name, '')}", flush=True)
    times = {name: round(seconds, 3) for name, seconds in best.items()}
    print(machine.save("values_in_spark", {"records": COUNT, "turns": TURNS, "targets": TARGETS, "seconds": times, "ratios": ratios}))


if __name__ == "__main__":
    main()
