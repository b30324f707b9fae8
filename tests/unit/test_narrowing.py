"""Types that the next tool does not have: every one of them gets to every tool, at any depth, and one line of the log says what changed."""

import logging
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from kolumn.values.extensions import JSON_TEXT
from kolumn.values.narrowing import Narrowed, Tool, narrowed_schema, narrowed_type, say_narrowed

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 1, UTC)
WIDE = Decimal(f"1{'0' * 46}1.05")
COLUMNS: dict[str, pa.Array] = {
    "json": pa.ExtensionArray.from_storage(JSON_TEXT, pa.array(['{"a": 1}', None])),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ID.bytes, None], pa.binary(16))),
    "wide": pa.array([WIDE, None], pa.decimal256(60, 2)),
    "decimal": pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)),
    "hundreds": pa.array([Decimal("12300"), None], pa.decimal128(36, -2)),
    "thousands": pa.array([Decimal("12000"), None], pa.decimal128(36, -3)),
    "interval": pa.array([pa.MonthDayNano([1, 2, 3]), None]),
    "empty": pa.array([{}, None], pa.struct([])),
    "nothing": pa.nulls(2),
    "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.uint16())),
    "label": pa.array(["a", None]).dictionary_encode(),
    "fixed": pa.array([b"abcd", None], pa.binary(4)),
    "half": pa.array([1.5, None], pa.float16()),
    "view": pa.array([b"abcd", None], pa.binary_view()),
    "text": pa.array(["abcd", None], pa.string_view()),
    "large": pa.array([["abcd"], None], pa.large_list(pa.large_string())),
    "u64": pa.array([2**64 - 1, None], pa.uint64()),
    **{f"timestamp_{unit}": pa.array([MOMENT, None]).cast(pa.timestamp(unit, "UTC"), safe=False) for unit in ("s", "ms", "us", "ns")},
    **{f"duration_{unit}": pa.array([5, None], pa.duration(unit)) for unit in ("s", "ms", "us", "ns")},
    "time_s": pa.array([5, None], pa.time32("s")),
    "time_ms": pa.array([5, None], pa.time32("ms")),
    "time_us": pa.array([5, None], pa.time64("us")),
    "time_ns": pa.array([5, None], pa.time64("ns")),
    "day": pa.array([5, None], pa.date32()),
    "day64": pa.array([86_400_000, None], pa.date64()),
}
TOOLS: tuple[Tool, ...] = get_args(Tool)
TEXTS = {"json": '{"a": 1}', "uuid": str(ID), "wide": str(WIDE), "thousands": "12000", "empty": "{}"}


def everything() -> pa.RecordBatch:
    """Each column by itself, and all of them in a struct, in lists of structs and in a map, which begin within their buffers."""
    struct = pa.StructArray.from_arrays(list(COLUMNS.values()), names=list(COLUMNS))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), struct)
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["a", "b"]), struct)
    nested = {"struct": struct, "list": lists, "in_map": maps}
    return pa.RecordBatch.from_pydict({**COLUMNS, **nested})


def narrowed(tool: Tool) -> pa.RecordBatch:
    batch = everything()
    made = Narrowed(narrowed_schema(batch.schema, tool), in_polars=tool == "Polars").batch(batch)
    made.validate(full=True)
    sliced = Narrowed(made.schema, in_polars=tool == "Polars").batch(batch.slice(1))
    sliced.validate(full=True)
    assert sliced.equals(made.slice(1))
    return made


@pytest.mark.parametrize("tool", TOOLS)
def test_values_are_the_same(tool: Tool) -> None:
    made = narrowed(tool)
    for name, text in TEXTS.items():
        kept = tool == "Parquet" and name == "json"
        assert made[name].type == (JSON_TEXT if kept else pa.string())
        assert made[name].to_pylist() == [text, None]
        assert made["struct"].field(name).to_pylist() == [text, None]
        assert made["list"].values.field(name).to_pylist() == [text, None]
        assert made["in_map"].items.field(name).to_pylist() == [text, None]
    assert made["interval"].to_pylist() == [{"months": 1, "days": 2, "nanoseconds": 3}, None]
    assert (made["hundreds"].type, made["hundreds"].to_pylist()) == (pa.decimal128(38, 0), [Decimal("12300"), None])
    assert made["nothing"].null_count == made["label"].null_count + 1 == 2
    micros = made["timestamp_ns"].cast(pa.timestamp("us", "UTC"), safe=False)
    assert micros.to_pylist() == [MOMENT, None]
    # A type that is narrow already stays what it is.
    assert all(narrowed_type(column.type, tool) == column.type for column in made.schema)


@pytest.mark.parametrize("tool", TOOLS)
def test_one_line_says_what_changes(tool: Tool, caplog: pytest.LogCaptureFixture) -> None:
    schema = everything().schema
    say_narrowed(pa.schema([schema.field(name) for name in ("decimal", "u64", "view", "day64", "timestamp_us")]), tool)
    assert not caplog.messages
    say_narrowed(schema, tool)
    (said,) = caplog.messages
    assert caplog.records[0].levelno == logging.WARNING
    for part in (
        "wide of decimal256(60, 2) is text",
        "struct.wide of",
        "list.uuid of uuid is text",
        'empty of a record without fields is the text "{}"',
    ):
        assert part in said
    assert ("json of JSON is text" in said) == (tool != "Parquet")
    assert ("timestamp_ns of nanoseconds is cut" in said) == (tool in ("Spark", "Iceberg and Delta"))
    assert ("time_ms of time32[ms] is a number" in said) == (tool in ("Spark", "Iceberg and Delta"))


def test_polars_and_duckdb_take_all_of_them() -> None:
    pl = pytest.importorskip("polars", reason="kolumn[polars] has it")
    made = narrowed("Polars")
    frame: Any = pl.from_arrow(pa.table(made))
    assert (frame.height, str(frame) != "") == (2, True)
    duckdb = pytest.importorskip("duckdb", reason="kolumn[sql] has it")
    with duckdb.connect() as connection:
        connection.register("t", frame.lazy())
        found = connection.sql("select json ->> '$.a', uuid, wide, \"empty\", struct.wide, list[1].wide, u64 from t").fetchall()
    assert found == [("1", str(ID), str(WIDE), "{}", str(WIDE), str(WIDE), 2**64 - 1), (None,) * 7]


def test_parquet_takes_all_of_them(tmp_path: Path) -> None:
    made = narrowed("Parquet")
    pq.write_table(pa.table(made), tmp_path / "all.parquet")
    found = pq.read_table(tmp_path / "all.parquet")
    assert found["struct"].combine_chunks().field("wide").to_pylist() == [str(WIDE), None]
    # What a text was is said beside it, also within a struct.
    struct = pq.read_schema(tmp_path / "all.parquet").field("struct").type
    assert struct.field("wide").metadata[b"kolumn.type"] == b"decimal256(60, 2)"
    assert struct.field("json").type == JSON_TEXT
    pl = pytest.importorskip("polars", reason="kolumn[polars] has it")
    assert pl.read_parquet(tmp_path / "all.parquet")["wide"].to_list() == [str(WIDE), None]
    duckdb = pytest.importorskip("duckdb", reason="kolumn[sql] has it")
    assert duckdb.sql(f"select wide, json ->> '$.a' from '{tmp_path}/all.parquet'").fetchall() == [(str(WIDE), "1"), (None, None)]


def test_tables_of_lakes_take_all_of_them(tmp_path: Path) -> None:
    made = narrowed("Iceberg and Delta")
    deltalake = pytest.importorskip("deltalake", reason="kolumn[delta] has it")
    deltalake.write_deltalake(str(tmp_path / "delta"), pa.table(made))
    assert deltalake.DeltaTable(str(tmp_path / "delta")).to_pyarrow_table()["wide"].to_pylist() == [str(WIDE), None]
    iceberg = pytest.importorskip("pyiceberg.catalog", reason="kolumn[iceberg] has it")
    catalog = iceberg.load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", pa.table(made).schema)
    table.append(pa.table(made))
    assert table.scan().to_arrow()["struct"].combine_chunks().field("wide").to_pylist() == [str(WIDE), None]
    catalog.close()


@pytest.mark.parametrize("tool", TOOLS)
def test_times_out_of_range_are_null_and_counted(tool: Tool, caplog: pytest.LogCaptureFixture) -> None:
    numbers = [2**63 - 1, -(2**63), 9_000_000_000_000_000, 0, None]
    batch = pa.RecordBatch.from_pydict({unit: pa.array(numbers, pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")})
    batch = batch.append_column("day", pa.array([2**31 - 1, -(2**31), 95_026_236, 0, None], pa.date32()))
    narrow = Narrowed(narrowed_schema(batch.schema, tool), in_polars=tool == "Polars")
    made = narrow.batch(batch)
    for name in batch.schema.names:
        factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
        kept = [value for value in made[name].cast(pa.int32() if name == "day" else pa.int64()).to_pylist() if value]
        if name != "day":
            assert set(kept) <= {value * factor[made[name].type.unit] // factor[name] for value in numbers if value is not None}
        assert narrow.out_of_range[name] == len(numbers) - 2 - len(kept)
    narrow.say()
    (said,) = caplog.messages or [""]
    assert ("s (3)" in said) == (tool != "Parquet") or tool == "Parquet"
    if tool == "Polars":
        pl = pytest.importorskip("polars", reason="kolumn[polars] has it")
        frame: Any = pl.from_arrow(pa.table(made))
        # It would end the program here.
        assert "+262142-12-31" in str(frame["day"])


def test_uuids_are_pythons_text() -> None:
    ids = [uuid.UUID(int=7919**i % 2**128) for i in range(50)]
    array = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([one.bytes for one in ids], pa.binary(16)))
    found = Narrowed(pa.schema([])).column(array.slice(3), pa.string(), "")
    assert found.to_pylist() == [str(one) for one in ids[3:]]
    assert pc.all(found.is_valid()).as_py()
