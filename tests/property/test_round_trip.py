"""Kolumn reads all that the independent encoder writes, and options of the read do not change the records."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import kolumn
from kit import oracle
from kit.differential import first_difference, read
from kit.fuzz import examples
from kit.lying_headers import Asked
from kit.strategies import segments
from kolumn.core.schema import RECORD_COLUMNS

QUICK = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
COLUMNS = [name for name in RECORD_COLUMNS if name != "transaction"]


def same(one: pa.Table, other: pa.Table) -> None:
    """Both are equal, with any layout of binary columns."""
    assert one.schema.names == other.schema.names
    for name in one.schema.names:
        assert one[name].cast(other.schema.field(name).type).combine_chunks().equals(other[name].combine_chunks()), name


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("topic-", numbered=True) / "00000000000000000000.log"


@QUICK
@given(segments())
def test_records_come_back(path: Path, segment: tuple[bytes, list[oracle.Row]]) -> None:
    """The kit's reader reads them too; control records come on request."""
    data, rows = segment
    path.write_bytes(data)
    known = oracle.read(data)
    assert known.first_error is None
    for found in (read(path), known.rows()):
        assert found == rows, first_difference(found, rows)
    assert kolumn.verify(path).ok
    plain = kolumn.read(path, columns=["offset", "isControl"])
    assert plain["offset"].to_pylist() == [row.offset for row in rows if not row.isControl]
    assert not any(plain["isControl"].to_pylist())


@QUICK
@given(segments(), st.integers(1, 3000), st.integers(1, 3), st.sampled_from(["contiguous", "view"]), st.booleans())
def test_chunks_threads_and_views_change_nothing(path, segment, chunk_bytes, threads, binary, check_crcs) -> None:
    path.write_bytes(segment[0])
    how = {"chunk_bytes": chunk_bytes, "threads": threads, "binary": binary, "check_crcs": check_crcs}
    plain, other = (kolumn.read(path, columns=COLUMNS, include_control=True, **more) for more in ({}, how))
    same(other, plain)


@QUICK
@given(segments(), st.lists(st.sampled_from(COLUMNS), unique=True))
@example((b"", []), [])
def test_columns_are_independent(path: Path, segment: tuple[bytes, list[oracle.Row]], columns: list[str]) -> None:
    path.write_bytes(segment[0])
    everything = kolumn.read(path, columns=COLUMNS, include_control=True)
    some = kolumn.read(path, columns=columns, include_control=True)
    assert some.schema.names == columns
    same(some, everything.select(columns))


@QUICK
@given(segments(), st.data())
def test_ranges_are_filters(path: Path, segment: tuple[bytes, list[oracle.Row]], data: st.DataObject) -> None:
    path.write_bytes(segment[0])
    rows = segment[1]
    offsets = st.none() | st.sampled_from([row.offset + shift for row in rows for shift in (0, 1)] or [0])
    times = st.none() | st.sampled_from([row.timestampMs for row in rows] or [0])
    asked = Asked(data.draw(offsets), data.draw(offsets), data.draw(times), data.draw(times))
    assert read(path, **asked._asdict()) == [row for row in rows if asked.has(row.offset, row.timestampMs)]
