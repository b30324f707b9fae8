"""`kolumn cat` and `kolumn to-parquet` with decoded keys and values."""

import json
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import kolumn
from kolumn.cli import app
from kolumn.cli.json_lines import json_lines
from kolumn.cli.shown import data_of
from kolumn.cli.text_lines import text_lines

SCHEMA = '{"id": "int64", "name": "string", "items": [{"price": "float64"}]}'
VALUES = [b'{"id": 1, "name": "a\\"\xc3\xa9", "items": [{"price": 0.5}, null]}', None, b"{", b'{"items": []}']


@pytest.fixture
def log(tmp_path: Path) -> Path:
    kolumn.write(pa.table({"key": pa.array([b"k"] * 4), "value": pa.array(VALUES, pa.binary())}), tmp_path / "orders-0")
    return tmp_path / "orders-0"


def run(*arguments: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, [str(one) for one in arguments])
    return found.exit_code, found.stdout, found.stderr


def test_cat_prints_structs_as_json(log: Path) -> None:
    code, out, _ = run("cat", "--json", log, "--value-format", "json", "--value-schema", SCHEMA, "--columns", "offset,value,valueValid")
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"offset": 0, "value": {"id": 1, "name": 'a"é', "items": [{"price": 0.5}, None]}, "valueValid": True},
        {"offset": 1, "value": None, "valueValid": False},
        {"offset": 2, "value": None, "valueValid": False},
        {"offset": 3, "value": {"id": None, "name": None, "items": []}, "valueValid": True},
    ]
    code, out, _ = run("cat", log, "--value-format", "json", "--value-schema", SCHEMA, "--value-columns", "id", "--columns", "offset,value")
    assert (code, out) == (0, 'offset=0  value={"id": 1}\noffset=1  value=null\noffset=2  value=null\noffset=3  value={"id": null}\n')


def test_a_schema_in_a_file(log: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(SCHEMA)
    how = ["--value-format", "json", "--value-as", "columns", "--columns", "value"]
    code, out, _ = run("cat", "--json", log, *how, "--value-schema", tmp_path / "schema.json", "--limit", 1)
    assert (code, json.loads(out)) == (0, {"id": 1, "name": 'a"é', "items": [{"price": 0.5}, None]})
    code, _, error = run("cat", log, *how, "--value-schema", "missing.json")
    assert code == 2
    assert "--value-schema missing.json: neither a schema nor a file that can be read" in error


def test_errors_have_the_words_of_the_shell(log: Path) -> None:
    code, out, error = run(
        "cat", log, "--value-format", "json", "--value-schema", SCHEMA, "--value-errors", "raise", "--columns", "offset,value"
    )
    assert (code, out.count("\n")) == (3, 2)
    assert "offset 2: value: 1 bytes" in error
    assert "--value-errors keep" in error
    code, _, error = run("cat", log, "--key-format", "jsom")
    assert code == 2
    assert "--key-format jsom" in error
    assert "did you mean 'json'" in error


def test_to_parquet(log: Path, tmp_path: Path) -> None:
    how = ["--value-format", "json", "--value-schema", SCHEMA, "--columns", "offset,value,valueValid,valueRaw"]
    code, _, error = run("to-parquet", log, tmp_path / "out", *how)
    assert code == 0, error
    found = pq.ParquetFile(next((tmp_path / "out").rglob("*.parquet"))).read()
    columns = ["offset", "value", "valueValid", "valueRaw"]
    assert found.to_pylist() == kolumn.read(log, columns=columns, value_format="json", value_schema=SCHEMA).to_pylist()


def test_every_type_has_a_json_text() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 1)
    columns: dict[str, tuple[pa.Array, list[Any]]] = {
        "label": (pa.array(["a", None]).dictionary_encode(), ["a", None]),
        "float": (pa.array([float("nan"), float("-inf")], pa.float32()), ["nan", "-inf"]),
        "date": (pa.array([date(2026, 1, 31), None]), ["2026-01-31", None]),
        "time": (pa.array([time(12, 0, 1), None]), ["12:00:01.000000", None]),
        "moment": (pa.array([moment, None], pa.timestamp("us")), ["2026-01-31T12:00:00.000001", None]),
        "zoned": (pa.array([moment, None], pa.timestamp("ns", "UTC")), ["2026-01-31T12:00:00.000001000Z", None]),
        "decimal": (pa.array([Decimal("1.50"), None]), [1.5, None]),
        "fixed": (pa.array([b"ab", None], pa.binary(2)), ["YWI=", None]),
        "map": (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8())), [{"k": 1}, None]),
        "nothing": (pa.nulls(2), [None, None]),
        "bytes": (pa.array([[b"\xff"], None], pa.list_(pa.binary())), [["/w=="], None]),
        "struct": (pa.array([{"": {"a": True}}, {"": None}]), [{"": {"a": True}}, {"": None}]),
        "interval": (pa.array([pa.MonthDayNano([1, 2, 3]), None]), ["MonthDayNano(months=1, days=2, nanoseconds=3)", None]),
    }
    batch = pa.RecordBatch.from_arrays([array for array, _ in columns.values()], list(columns))
    lines = bytes(data_of(json_lines(batch), 2)).decode().splitlines()
    found = [json.loads(line, parse_constant=lambda text: {"NaN": "nan", "-Infinity": "-inf"}[text]) for line in lines]
    assert found == [{name: wanted[i] for name, (_, wanted) in columns.items()} for i in range(2)]
    last = pa.RecordBatch.from_arrays([batch.drop_columns(["float"]).to_struct_array()], ["value"]).slice(1)
    assert json.loads(bytes(data_of(json_lines(last), 1)))["value"] == {name: one for name, one in found[1].items() if name != "float"}
    assert bytes(data_of(text_lines(batch.select(["label", "map"])), 2)) == b'label="a"  map={"k": 1}\nlabel=null  map=null\n'
