"""What only a GPU can show: cuDF's columns, and bounded memory. The rest of these tests runs there too."""

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.corpus import cases
from kit.outcome import COLUMNS
from kit.standins import real

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not real(), reason="needs a GPU")]

READABLE = [case for case in cases() if case.segments]


def _plain(array: Any) -> list[Any]:
    """Rows with structs as tuples, since libcudf has no names, with lists of bytes as bytes, and with moments that have no zone."""
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    there = array.is_valid().to_pylist()
    if pa.types.is_struct(array.type):
        rows: list[Any] = list(zip(*map(_plain, array.flatten()), strict=True))
    elif pa.types.is_list(array.type):
        ends, inner = array.offsets.to_pylist(), _plain(array.values)
        kind = bytes if pa.types.is_uint8(array.type.value_type) else list
        rows = [kind(inner[begin:end]) for begin, end in itertools.pairwise(ends)]
    else:
        rows = array.cast(pa.timestamp(array.type.unit)).to_pylist() if pa.types.is_timestamp(array.type) else array.to_pylist()
    return [row if valid and row not in (b"", []) else None for row, valid in zip(rows, there, strict=True)]


@pytest.mark.parametrize("case", READABLE, ids=str)
def test_pylibcudf(case: Any) -> None:
    table, names = kolumn.read_pylibcudf(case.directory, columns=COLUMNS, include_control=True)
    found = pa.table(table.to_arrow().columns, names=names)
    expected = kolumn.read(case.directory, columns=COLUMNS, include_control=True, backend="cpu")
    for name in names:
        assert _plain(found[name]) == _plain(expected[name]), name


def test_committed_records() -> None:
    asked: Any = {"columns": ["offset", "transaction"], "isolation_level": "read_committed"}
    for case in READABLE:
        table, names = kolumn.read_pylibcudf(case.directory, **asked)
        expected = kolumn.read(case.directory, backend="cpu", **asked)
        assert pa.table(table.to_arrow().columns, names=names).to_pydict() == expected.to_pydict()


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"a": "int64", "b": "string"}, [b'{"a": 1,\n "b": "x"}', b"{}", b"12", b"", None, b'{"a": 5, "c": [1]}']),
        ({"a": "int32", "b": "float64"}, [b"1,2.5", b",", b"2,x", b"3,-1e300", b"4"]),
        ({"a": ">i4", "b": "f8"}, [bytes(12), b"\0\0\0\7" + bytes(8), b"short", None]),
    ],
    ids=["json", "csv", "fixed"],
)
def test_values_that_the_host_decodes(schema: Any, values: list[bytes | None], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "a.log", codec="zstd")
    asked: Any = {"columns": ["offset", "value", "valueValid"], "value_format": request.node.callspec.id, "value_schema": schema}
    table, names = kolumn.read_pylibcudf(tmp_path / "a.log", **asked)
    expected = kolumn.read(tmp_path / "a.log", value_as="columns", backend="cpu", **asked)
    assert pa.table(table.to_arrow().columns, names=names).to_pydict() == expected.to_pydict()


def test_columns_are_freed_after_libcudf_has_read_them(tmp_path: Path) -> None:
    """Columns are dropped while libcudf works on them, and others are read at once: a free in the wrong order shows as other bytes."""
    import pylibcudf

    rows = pa.table({"value": pa.array([b"%0100d" % i for i in range(500_000)], pa.binary())})
    kolumn.write(rows, tmp_path / "t-0")
    how: Any = {"payload": "string", "threads": 4, "chunk_bytes": 4 << 20}
    for _ in range(12):
        table, _ = kolumn.read_pylibcudf(tmp_path / "t-0", columns=["offset", "value"], **how)
        column = table.columns()[0]
        made = pylibcudf.binaryop.binary_operation(column, column, pylibcudf.binaryop.BinaryOperator.ADD, column.type())
        del table, column
        kolumn.read_pylibcudf(tmp_path / "t-0", columns=["value"], **how)
        assert made.to_arrow().to_pylist() == list(range(0, 1_000_000, 2))


def test_a_small_pool_is_enough(tmp_path: Path) -> None:
    """More than the pool holds goes through it, chunk by chunk."""
    import rmm.mr

    from kolumn.kernels.machine import device

    device.runtime()
    number = device.opened()
    table = pa.table({"value": pa.array([bytes(1000)] * 200_000, pa.binary())})
    kolumn.write(table, tmp_path / "t-0", segment_bytes=64 << 20)
    before = rmm.mr.get_per_device_resource(number)
    rmm.mr.set_per_device_resource(number, rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaAsyncMemoryResource(), 1 << 30))
    try:
        for _ in range(6):
            with kolumn.scan(tmp_path / "t-0", backend="gpu") as reader:
                assert sum(batch.num_rows for batch in reader) == 200_000
    finally:
        rmm.mr.set_per_device_resource(number, before)
