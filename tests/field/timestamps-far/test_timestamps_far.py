"""Timestamps in other units, and far from now: each row is there, nothing ends in a traceback, and what has no place is said."""

import logging
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kolumn
from kolumn.cli import app

TOPICS = ["go-zero", "long-max", "long-min", "micros", "minus-two", "nanos", "none", "one-micro", "one-nano", "year-0", "year-10000"]


def run(*args: object, text: bool = True) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args], env={"KOLUMN_OUTPUT": "text" if text else "json"})


@pytest.mark.parametrize("topic", TOPICS)
def test_rows(disk: Path, topic: str) -> None:
    found = kolumn.read(disk / f"{topic}-0", columns=["value", "timestampMs"])
    told = [int(value) for value in found["value"].to_pylist()]
    assert len(told) == 50
    assert found["timestampMs"].to_pylist() == told


@pytest.mark.parametrize("topic", TOPICS)
def test_sql_as_text(disk: Path, topic: str) -> None:
    pytest.importorskip("duckdb", reason="kolumn[sql] has it")
    out = run("sql", disk / f"{topic}-0", f'select * from "{topic}" order by "offset"')
    assert out.exit_code == 0, out.output
    lines = out.stdout.splitlines()
    assert len(lines) == 51
    if topic == "micros":
        assert "  1774000000123000  " in lines[1]
    if topic in ("one-micro", "long-max"):
        assert "  2026-03-20T09:46:40.123Z  " in lines[1]


def test_report(disk: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="kolumn[report] has it")
    for source in [*(disk / f"{topic}-0" for topic in TOPICS), disk]:
        out = run("report", source, "-o", tmp_path / "report.html")
        assert out.exit_code == 0, (source, out.output)


def test_what_does_not_fit_is_null_and_said(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kolumn"):
        found = kolumn.read(disk, columns=["topic", "timestamp", "timestampMs"])
    none = found.filter(found["timestamp"].is_null())
    assert none["topic"].value_counts().to_pylist() == [
        {"values": "long-max", "counts": 1}, {"values": "long-min", "counts": 1}, {"values": "nanos", "counts": 50},
        {"values": "none", "counts": 50}, {"values": "one-nano", "counts": 1},
    ]  # fmt: skip
    said = [one.getMessage() for one in caplog.records]
    for topic, number in (("long-max", 2**63 - 1), ("nanos", 1774000000123000000), ("one-nano", 1774000000123000000)):
        assert [one for one in said if f"/{topic}-0/" in one and f"the timestamp {number} does not fit" in one]
    assert len(said) == 3
