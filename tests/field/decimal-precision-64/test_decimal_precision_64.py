"""Decimals of more than 38 digits: all of them, as text where a tool has no such type."""

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import kolumn
from kolumn.cli import app

AMOUNTS = ["12.34", "-0.01", None, "99999999999999999999999999999999999999.99"]


def test_read(disk: Path) -> None:
    values = kolumn.read(disk / "n-0", value_format="registry")["value"]
    assert values.type.field("amount").type == pa.decimal256(64, 2)
    assert [one["amount"] for one in values.to_pylist()] == [None if one is None else Decimal(one) for one in AMOUNTS]


def test_polars(disk: Path) -> None:
    pytest.importorskip("polars", reason="kolumn[polars] has it")
    found = kolumn.scan_polars(disk / "n-0", value_format="registry").collect()
    assert [one["amount"] for one in found["value"]] == AMOUNTS
    assert kolumn.scan_polars(disk / "n-0", value_format="registry").select("offset").collect().height == 4


@pytest.mark.parametrize("form", ["text", "json"])
def test_sql(disk: Path, form: str) -> None:
    pytest.importorskip("duckdb", reason="kolumn[sql] has it")
    query = 'select value.amount amount from n order by "offset"'
    out = CliRunner().invoke(app, ["sql", f"--{form}", "--value-format", "registry", str(disk / "n-0"), query])
    assert out.exit_code == 0, out.output
    lines = out.stdout.splitlines()
    assert (lines[1:] if form == "text" else [json.loads(line)["amount"] for line in lines]) == [
        one or "" if form == "text" else one for one in AMOUNTS
    ]


def test_spark_has_text(disk: Path) -> None:
    pytest.importorskip("pyspark", reason="kolumn[spark] has it")
    from kolumn.spark_plugin.read.schema import in_spark, spark_type

    values = kolumn.read(disk / "n-0", value_format="registry")["value"].combine_chunks()
    kind = spark_type(values.type)
    assert kind.field("amount").type == pa.string()
    assert [one["amount"] for one in in_spark(values, kind).to_pylist()] == AMOUNTS
