"""Largest timestamps in headers that are unset, or lower than the records'."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kolumn
from kit.command_line import run
from kolumn.spark_plugin.connector.questions import answer
from kolumn.spark_plugin.connector.statistics import COUNT, NEWEST, totals_of
from kolumn.spark_plugin.connector.task import Task
from kolumn.spark_plugin.connector.work import Work, unpacked
from kolumn.spark_plugin.read.splits import Split

START = 1_700_000_000_000
TIMES = [START + late for late in (0, 5000, 1000, 9000, 500, 9500)]
RANGES = [(5000, None), (9000, None), (500, 5001), (None, 1000), (9501, None)]


def expected(low: int | None, high: int | None) -> list[int]:
    return [i for i, time in enumerate(TIMES) if (low is None or time >= START + low) and (high is None or time < START + high)]


def at(late: int | None) -> int | None:
    return None if late is None else START + late


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_a_range_of_times_has_the_records_of_these_times(disk: Path, low: int | None, high: int | None) -> None:
    found = kolumn.read(disk, columns=["offset"], start_timestamp=at(low), end_timestamp=at(high))
    assert found["offset"].to_pylist() == expected(low, high)
    frame = kolumn.scan_polars(disk)
    if low is not None:
        frame = frame.filter(pl.col("timestamp") >= datetime.fromtimestamp(START / 1000, UTC) + timedelta(milliseconds=low))
    if high is not None:
        frame = frame.filter(pl.col("timestamp") < datetime.fromtimestamp(START / 1000, UTC) + timedelta(milliseconds=high))
    assert frame.collect()["offset"].to_list() == expected(low, high)


def test_on_the_command_line(disk: Path) -> None:
    found = run("cat", "--json", "--columns", "offset", "--since", START + 5000, disk)
    assert [json.loads(line)["offset"] for line in found.stdout.splitlines()] == expected(5000, None)


def test_in_the_connector(disk: Path) -> None:
    given = {"path": str(disk), "columns": "offset,timestamp"}
    schema = answer({"op": "schema", "options": given})["schema"]
    plan: Any = answer({
        "op": "plan", "options": given, "schema": schema, "asked": schema, "conditions": [[">=", "timestamp", (START + 5000) * 1000]],
        "found": [], "limit": -1, "totals": [], "slots": 1, "keyed": False, "mustBeKeyed": False,
    })  # fmt: skip
    (split,) = plan["splits"]
    batch = Task(unpacked(split, Split), unpacked(plan["work"], Work)).next()
    assert batch is not None
    assert batch["offset"].to_pylist() == expected(5000, None)


def test_an_unset_largest_timestamp_is_no_total(disk: Path) -> None:
    """Of the second batch alone."""
    from kolumn.options import Options
    from kolumn.readers.plan import live_segments
    from kolumn.source.segments import Range

    options = Options.of()
    (segment,) = live_segments(disk, options).one_log()
    found = totals_of(Range(segment, 80, 160), options, frozenset({COUNT, NEWEST}))
    assert (found.count, found.newest_ms) == (2, TIMES[3])
