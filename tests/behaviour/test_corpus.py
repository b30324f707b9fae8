"""Segments of real brokers: every row and column is what Kafka's own record classes read."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kit.corpus import BATCH_NAMES, RECORD_NAMES, Case, cases
from kit.fuzz import TURN
from kit.paths import GENERAL, without

COLUMNS = [*RECORD_NAMES, "segment", "topic", "partition", "timestamp", "tombstone"]
CASES = cases()


def read(case: Case, **options: Any) -> pa.Table:
    if not case.segments:
        return kolumn.read(case.directory, columns=COLUMNS, include_control=True, **options)
    return kolumn.read(case.segments, columns=COLUMNS, include_control=True, **options)


def same(found: Any, expected: Any) -> None:
    """Both have the same values and nulls in the same order; the message names the first row that differs."""
    found, expected = found.combine_chunks(), expected.combine_chunks()
    if pa.types.is_binary_view(found.type):
        found = found.cast(pa.binary())
    expected = expected.cast(found.type)
    assert len(found) == len(expected)
    assert found.null_count == expected.null_count
    if not found.equals(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        row, (one, other) = next((row, pair) for row, pair in pairs if pair[0].as_py() != pair[1].as_py())
        pytest.fail(f"row {row}: {one!r}, expected {other!r}")


def same_table(found: pa.Table, expected: pa.Table) -> None:
    for name, other in RECORD_NAMES.items():
        if name in found.column_names:
            same(found[name], expected[other])


OTHERWISE: list[dict[str, Any]] = [
    {"binary": "view"},
    {"threads": 2, "chunk_bytes": 20_000},
    {"threads": 2, "chunk_bytes": 20_000, "binary": "view"},
    {"threads": 1, "chunk_bytes": 1},
    {"check_crcs": False, "threads": 2},
    {"errors": "skip", "threads": 1},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_everything_that_can_be_asked(case: Case) -> None:
    turn = (TURN + CASES.index(case)) % len(OTHERWISE)
    # All ways to read a case in CI; in `make test` the default, and one of the others, which take turns.
    for options in ({}, *(OTHERWISE if os.environ.get("CI") else OTHERWISE[turn : turn + 1])):
        records(case, options)
    derived_columns(case)
    offset_range(case)
    timestamp_range(case)
    expected = case.expected()
    data = expected.filter(~pc.field("is_control"))
    same_table(kolumn.read(case.segments, columns=COLUMNS) if case.segments else read(case), data)
    # A directory leaves snapshots out.
    expected = expected.filter(pc.ends_with(expected["segment"], ".log"))
    same_table(kolumn.read(case.directory, columns=COLUMNS, include_control=True), expected)
    batches(case)
    verified(case)


def records(case: Case, options: dict[str, Any]) -> None:
    same_table(read(case, **options), case.expected())
    with without(GENERAL):
        same_table(read(case, **options), case.expected())
    # Other loops decode records whose headers nobody asked for.
    columns = [name for name in COLUMNS if name != "headers"]
    found = kolumn.read(case.segments or case.directory, columns=columns, include_control=True, **options)
    same_table(found, case.expected())


def derived_columns(case: Case) -> None:
    found, expected = read(case), case.expected()
    assert [Path(path).name for path in found["segment"].to_pylist()] == expected["segment"].to_pylist()
    topic, _, partition = case.directory.name.rpartition("-")
    assert found["topic"].unique().to_pylist() in ([topic], [])
    assert found["partition"].unique().to_pylist() in ([int(partition)], [])
    known = expected["timestamp_ms"].combine_chunks()
    moments = pc.if_else(pc.equal(known, -1), pa.scalar(None, pa.int64()), pc.multiply(known, 1000)).cast(pa.timestamp("us", tz="UTC"))
    same(found["timestamp"], pa.chunked_array([moments]))
    assert found["tombstone"].to_pylist() == pc.is_null(expected["value"]).to_pylist()


def offset_range(case: Case) -> None:
    expected = case.expected()
    offsets = sorted(expected["offset"].to_pylist()) or [0]
    for low, high in ((0.3, 0.6), (0.0, 0.1), (0.9, 1.0)):
        start, end = (offsets[round(share * (len(offsets) - 1))] for share in (low, high))
        within = expected.filter((pc.field("offset") >= start) & (pc.field("offset") < end))
        same_table(read(case, start_offset=start, end_offset=end), within)
        same_table(read(case, start_offset=start, end_offset=end, binary="view"), within)
        same_table(read(case, start_offset=start, threads=1), expected.filter(pc.field("offset") >= start))


def timestamp_range(case: Case) -> None:
    expected = case.expected()
    known = expected.filter(pc.field("timestamp_ms") != -1)
    times = sorted(known["timestamp_ms"].to_pylist()) or [0]
    for low, high in ((0.25, 0.5), (0.0, 0.2), (0.8, 1.0)):
        start, end = (times[round(share * (len(times) - 1))] for share in (low, high))
        within = known.filter((pc.field("timestamp_ms") >= start) & (pc.field("timestamp_ms") < end))
        same_table(read(case, start_timestamp=start, end_timestamp=end), within)


def batches(case: Case) -> None:
    found, expected = kolumn.batches(case.segments or case.directory), case.expected_batches()
    assert [Path(path).name for path in found["segment"].to_pylist()] == expected["segment"].to_pylist()
    for name, other in BATCH_NAMES.items():
        same(found[name], expected[other])
    wrapper = pc.and_(pc.less(expected["magic"], 2), pc.not_equal(expected["codec"], "none"))
    # Java reports no count for a message that is not a wrapper; it is one record.
    single = pc.and_(pc.less(expected["magic"], 2), pc.equal(expected["codec"], "none"))
    same(found["count"], pc.if_else(single, pa.scalar(1, pa.int32()), expected["count_or_null"].cast(pa.int32())))
    same(found["baseOffset"], pc.if_else(wrapper, pa.scalar(None, pa.int64()), expected["base_offset"]))
    by_headers = kolumn.batches(case.segments or case.directory, check_crcs=False)
    assert by_headers["crcValid"].null_count == by_headers.num_rows
    names = [name for name in by_headers.column_names if name != "crcValid"]
    assert by_headers.select(names).equals(found.select(names))


def verified(case: Case) -> None:
    report = kolumn.verify(case.segments or case.directory)
    assert report.ok
    assert report.damage.num_rows == 0
    expected = case.expected_segments()
    rows = report.segments.to_pylist()
    assert [Path(row["segment"]).name for row in rows] == [segment["segment"] for segment in expected]
    for row, segment in zip(rows, expected, strict=True):
        assert (row["size"], row["validBytes"]) == (segment["file_size"], segment["valid_bytes"])
        assert (row["batches"], row["records"]) == (segment["batches"], segment["records"])
        left = segment["file_size"] - segment["valid_bytes"]
        tail = None if not left else "zeros" if "record size 0" in segment["stop"] else "truncated"
        assert (row["tail"], row["tailBytes"]) == (tail, left)
    assert report.batches == sum(segment["batches"] for segment in expected)
    assert report.records == sum(segment["records"] for segment in expected)
    assert report.bytes == sum(segment["file_size"] for segment in expected)
