"""How fast do values become typed columns, beside the libraries that do it from Python?  python -m bench.values_vs_peers [FORMAT ...]

200,000 orders with a list of items (`bench.value_data`) lie in memory, in the form that each way wants: Arrow for Kolumn, ptars, Polars and
DuckDB, a list of bytes for fastavro and pyruhvro, a container file for polars-avro, lines for pyarrow. Everything runs on one core. Answers
are compared first: the id, customer and quantities of every order. The ways take turns; ratios are of best times. With some of the formats
avro, protobuf and json alone, results are printed and not saved.

What Kolumn does besides and the others do not: a bad value is one bad row. pyruhvro, polars-avro, ptars and pyarrow fail as a whole.
"""

import io
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import duckdb
import fastavro
import numpy as np
import polars
import polars_avro
import ptars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyruhvro

from bench import machine, value_data
from kolumn.values.avro import AvroDecoder
from kolumn.values.decoder import Bodies
from kolumn.values.json import JsonDecoder
from kolumn.values.protobuf import ProtobufDecoder
from kolumn.values.schemas.schema import Schema
from kolumn.values.wire import framing

COUNT, TURNS = 200_000, 7
TARGETS = {"avro": ("pyruhvro", 1.5), "protobuf": ("ptars", 2.0), "json": ("DuckDB", 1.0)}
_Way = Callable[[], Any]


def bodies(values: pa.BinaryArray) -> Bodies:
    """All values of an array, as a read hands them over that found no prefix: their schema is the reader's."""
    ends = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1).astype(np.int64)
    none = np.zeros(len(values), np.int64)
    at = values.buffers()[2].address + ends[:-1]
    return Bodies(at, np.diff(ends), none, np.full(len(values), framing.NONE, np.int64), none - 1, [], held=values)


def avro(rows: list[dict[str, Any]]) -> tuple[dict[str, _Way], dict[str, _Way]]:
    """Ways to read all fields, and Kolumn's to read one."""
    values, text = value_data.as_avro(rows), json.dumps(value_data.AVRO)
    array, parsed, schema = pa.array(values, pa.binary()), fastavro.parse_schema(value_data.AVRO), Schema("AVRO", text)
    block = io.BytesIO()
    fastavro.writer(block, parsed, rows)
    every, one = AvroDecoder(schema), AvroDecoder(schema, ("id",))
    given = bodies(array)
    return {
        "Kolumn": lambda: every.decode(given)[0],
        "pyruhvro": lambda: pyruhvro.deserialize_array(values, text),
        "polars-avro": lambda: polars_avro.read_avro(io.BytesIO(block.getvalue())),
        "fastavro": lambda: [fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in values],
    }, {"Kolumn, one field": lambda: one.decode(given)[0]}


def protobuf(rows: list[dict[str, Any]]) -> tuple[dict[str, _Way], dict[str, _Way]]:
    """As `avro`."""
    values = value_data.as_protobuf(rows)
    message, files = value_data.message()
    array = pa.array(values, pa.binary())
    handler = ptars.HandlerPool([message.DESCRIPTOR.file]).get_for_message(message.DESCRIPTOR)
    every, one = (ProtobufDecoder(files.SerializeToString(), "bench.Order", columns=names) for names in (None, ("id",)))
    given = bodies(array)
    return {
        "Kolumn": lambda: every.decode(given)[0],
        "ptars": lambda: handler.array_to_record_batch(array),
        "protobuf": lambda: [message.FromString(value) for value in values],
    }, {"Kolumn, one field": lambda: one.decode(given)[0]}


def by_duckdb(array: pa.Array) -> Any:
    """The values by DuckDB on one thread, with its guard against bad ones."""
    text = pa.table({"v": array.cast(pa.string())})
    shape = json.dumps(
        {"id": "BIGINT", "customer": "VARCHAR", "amount": "DOUBLE", "note": "VARCHAR", "ts": "BIGINT",
         "items": [{"sku": "VARCHAR", "qty": "INTEGER"}]}
    )  # fmt: skip
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("t", text)
        query = f"SELECT CASE WHEN json_valid(v) THEN from_json(v, '{shape}') END AS v FROM t"
        return connection.sql(query).to_arrow_table().column("v").combine_chunks()


def valid_by_duckdb(array: pa.Array) -> Any:
    """How many values are JSON, by DuckDB on one thread: a reader of one field has to know no less of each value."""
    text = pa.table({"v": array.cast(pa.string())})
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("t", text)
        return connection.sql("SELECT count(*) FROM t WHERE json_valid(v)").fetchall()


def by_polars(array: pa.Array) -> Any:
    """The values by Polars."""
    item = polars.Struct({"sku": polars.String, "qty": polars.Int32})
    shape = polars.Struct(
        {"id": polars.Int64, "customer": polars.String, "amount": polars.Float64, "note": polars.String, "ts": polars.Int64,
         "items": polars.List(item)}
    )  # fmt: skip
    series = polars.Series(polars.from_arrow(array.cast(pa.string())))
    return series.str.json_decode(shape)


def json_(rows: list[dict[str, Any]]) -> tuple[dict[str, _Way], dict[str, _Way]]:
    """As `avro`."""
    values = value_data.as_json(rows)
    array, lines = pa.array(values, pa.binary()), b"\n".join(values)
    every, one = JsonDecoder(value_data.ARROW), JsonDecoder(pa.struct([value_data.ARROW.field("id")]))
    given = bodies(array)
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(list(value_data.ARROW)))
    return {
        "Kolumn": lambda: every.decode(given)[0],
        "DuckDB": lambda: by_duckdb(array),
        "Polars": lambda: by_polars(array),
        "pyarrow.json": lambda: pyarrow.json.read_json(io.BytesIO(lines), parse_options=options),
        "json.loads": lambda: [json.loads(value) for value in values],
    }, {"Kolumn, one field": lambda: one.decode(given)[0], "json_valid alone": lambda: valid_by_duckdb(array)}


def answer(found: Any) -> tuple[int, int, int, int]:
    """Orders, and sums over ids, customers' names and quantities; of whatever a way returns."""
    if isinstance(found, list):
        rows = [one if isinstance(one, dict) else _as_dict(one) for one in found]
        found = pa.array(rows, value_data.ARROW)
    if isinstance(found, polars.DataFrame | polars.Series):
        found = found.to_arrow()
    if isinstance(found, pa.Table | pa.RecordBatch):
        found = pa.table(found).to_struct_array().combine_chunks()
    items = pc.list_flatten(found.field("items"))
    customers = pc.sum(pc.binary_length(pc.cast(found.field("customer"), pa.string()))).as_py()
    return len(found), pc.sum(found.field("id")).as_py(), customers, pc.sum(pc.struct_field(items, "qty")).as_py()


def _as_dict(order: Any) -> dict[str, Any]:
    items = [{"sku": item.sku, "qty": item.qty} for item in order.items]
    return {"id": order.id, "customer": order.customer, "amount": order.amount, "note": order.note, "ts": order.ts, "items": items}


def race(ways: dict[str, _Way], alone: dict[str, _Way]) -> dict[str, float]:
    """Best seconds of each way, in turns."""
    answers = {name: answer(way()) for name, way in ways.items()}
    if len(set(answers.values())) > 1:
        raise SystemExit(f"not the same answers: {answers}")
    best = dict.fromkeys([*ways, *alone], float("inf"))
    for _ in range(TURNS):
        for name, way in {**ways, **alone}.items():
            begun = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - begun)
    return best


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    rows = value_data.orders(COUNT)
    result, every = {}, {"avro": avro, "protobuf": protobuf, "json": json_}
    for name, make in {name: every[name] for name in sys.argv[1:] or every}.items():
        best = race(*make(rows))
        rival, target = TARGETS[name]
        ours = best["Kolumn"]
        result[name] = {
            "million_records_per_s": {way: round(COUNT / seconds / 1e6, 3) for way, seconds in best.items()},
            "ratios": {way: round(seconds / ours, 2) for way, seconds in best.items() if not way.startswith("Kolumn")},
            "one_field": round(ours / best["Kolumn, one field"], 2),
        }
        print(f"{name}: target {target} x {rival}", flush=True)
        for way, seconds in best.items():
            print(f"  {way:18}{COUNT / seconds / 1e6:8.2f} M/s {seconds / ours:8.2f} x Kolumn's time", flush=True)
    if len(result) < len(every):
        return
    packages = {one.__name__: getattr(one, "__version__", "") for one in (fastavro, polars, duckdb)}
    print(machine.save("values_vs_peers", {"records": COUNT, "turns": TURNS, "targets": TARGETS, "peers": packages, **result}))


if __name__ == "__main__":
    main()
