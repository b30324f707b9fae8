"""Records without fields: objects without members in JSON, and an error before anything is written for Parquet."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from kolumn.cli import app


def run(disk: Path, command: str, topic: str, *args: object) -> Any:
    schema = ("--value-format", "avro", "--value-schema", disk / f"{topic}.avsc")
    return CliRunner().invoke(app, [command, *map(str, (*schema, disk / f"{topic}-0", *args))])


@pytest.mark.parametrize(("topic", "right"), [("heartbeat", [{}, {}, None]), ("topunionempty", [None, {"First": {}, "Second": {}}])])
def test_json(disk: Path, topic: str, right: list[object]) -> None:
    out = run(disk, "cat", topic, "--json")
    assert [json.loads(line)["value"] for line in out.stdout.splitlines()] == right


@pytest.mark.parametrize(("topic", "path"), [("heartbeat", "value"), ("topunionempty", "value.First")])
def test_parquet_is_refused_before_anything_is_written(disk: Path, tmp_path: Path, topic: str, path: str) -> None:
    out = run(disk, "to-parquet", topic, "-o", tmp_path / "lake")
    assert out.exit_code == 2
    assert f"column value: {path} is a record without fields, which Parquet does not have: name other" in out.stderr
    assert not (tmp_path / "lake").exists()


def test_what_the_error_says_helps(disk: Path, tmp_path: Path) -> None:
    assert run(disk, "to-parquet", "heartbeat", "--columns", "key,offset,valueValid", "-o", tmp_path / "lake").exit_code == 0
    (file,) = (tmp_path / "lake").rglob("*.parquet")
    assert pq.ParquetFile(file).read().column("valueValid").to_pylist() == [True, True, False]
