"""Tables and frames over decoded columns: nothing is copied that need not be, memory is bounded, and cuDF takes them as they are."""

import os
import sys
import weakref
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.change_events import avro_schema
from kit.device_columns import to_arrow
from kit.emulated import Emulated, HostMemory
from kit.outcome import COLUMNS
from kolumn.core.lost import LostValues
from kolumn.core.schema import HEADERS
from kolumn.kernels.columns.table import Column
from kolumn.kernels.machine.device import runtime
from kolumn.kernels.values.columns import Values, typed_columns
from kolumn.kernels.values.typed import kind_of
from kolumn.options import Options
from kolumn.readers.types import with_types

plc = import_module("pylibcudf") if os.environ.get("CI") else pytest.importorskip("pylibcudf", reason="make gpu-packages")
libcudf = import_module("kit.libcudf")

VALUE = 1000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    n, rng = 4000, np.random.default_rng(1)
    keys = [None if i % 7 == 0 else b"\xffkey%d" % i + rng.bytes(VALUE) for i in range(n)]
    values = [None if i % 11 == 0 else rng.bytes(VALUE) for i in range(n)]
    headers = pa.array([[("a", b"x" * (i % 5)), ("b", None)] if i % 3 else [] for i in range(n)], HEADERS)
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()), "headers": headers})
    kolumn.write(table, tmp_path / "t-0", segment_bytes=1 << 20, batch_bytes=1 << 14)
    return tmp_path / "t-0"


@pytest.fixture
def joined(device: Emulated, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return libcudf.install(monkeypatch)


@pytest.fixture
def held(device: Emulated, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Bytes of device memory, now and at most; and those that stay for calls to come."""
    count: dict[str, Any] = {"now": 0, "most": 0, "kept": lambda: sum(one.size for one in device.kept.values())}
    begin = HostMemory.__init__

    def changed(by: int) -> None:
        count["now"] += by
        count["most"] = max(count["most"], count["now"])

    def made(self: HostMemory, size: int, data: bytes = b"") -> None:
        begin(self, size, data)
        changed(size)
        weakref.finalize(self, changed, -size)

    monkeypatch.setattr(HostMemory, "__init__", made)
    return count


def plain(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(one, int) for one in value):
        return bytes(value) or None
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, str):
        return value.encode() or None
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else (value or None) if isinstance(value, bytes | bool) else value


def same(names: list[str], columns: dict[str, list[Any]], expected: pa.Table) -> None:
    assert list(columns) == names == expected.column_names
    for name in names:
        found, wanted = ([plain(value) or None for value in side] for side in (columns[name], expected[name].to_pylist()))
        assert found == wanted, name


@pytest.mark.parametrize("payload", ["binary", "string"])
def test_several_chunks_become_one_table(log: Path, payload: Any, joined: list[int]) -> None:
    table, names = kolumn.read_pylibcudf(log, columns=COLUMNS, payload=payload, chunk_bytes=1 << 18, threads=2)
    same(names, dict(zip(names, map(libcudf.rows_of, table.columns()), strict=True)), kolumn.read(log, columns=COLUMNS))
    assert len(joined) == len(COLUMNS)
    assert min(joined) > 5


def test_one_chunk_is_taken_as_it_is(log: Path, joined: list[int]) -> None:
    first = sorted(log.glob("*.log"))[0]
    table, _names = kolumn.read_pylibcudf(first, columns=COLUMNS, threads=1)
    assert (joined, table.num_rows()) == ([], kolumn.read(first).num_rows)
    (again, _), *more = kolumn.scan_pylibcudf(first, columns=COLUMNS, threads=1)
    assert not more
    for one, other in zip(table.columns(), again.columns(), strict=True):
        assert libcudf.rows_of(one) == libcudf.rows_of(other)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_topic_larger_than_the_gpu(log: Path, threads: int, held: dict[str, Any], joined: list[int]) -> None:
    rows = 0
    for table, names in kolumn.scan_pylibcudf(log, columns=["key", "value"], chunk_bytes=1 << 17, threads=threads):
        assert (names, table.num_rows() > 0) == (["key", "value"], True)
        rows += table.num_rows()
        del table
    assert (rows, joined) == (kolumn.read(log).num_rows, [])
    # A chunk under way takes its bytes, its columns and some fields for each record.
    assert held["most"] < 6 * threads * (1 << 17) < rows * VALUE / 2
    assert held["now"] == held["kept"]()


def test_small_files_that_decompress_to_much_are_bounded(tmp_path: Path, held: dict[str, Any], joined: list[int]) -> None:
    values = pa.table({"value": pa.array([bytes(1 << 14)] * 4000, pa.binary())})
    kolumn.write(values, tmp_path / "t-0", codec="zstd", batch_bytes=1 << 16)
    size = sum(file.stat().st_size for file in (tmp_path / "t-0").glob("*.log"))
    assert size < 1 << 18
    rows = sum(table.num_rows() for table, _ in kolumn.scan_pylibcudf(tmp_path / "t-0", columns=["value"], memory_bytes=1 << 20, threads=1))
    assert rows == 4000
    assert held["most"] < 6 << 20 < (4000 << 14) / 8


def test_joining_frees_each_column_when_it_is_in(log: Path, held: dict[str, Any], joined: list[int]) -> None:
    columns = ["offset", "timestampMs", "key", "value"]
    table, _ = kolumn.read_pylibcudf(log, columns=columns, chunk_bytes=1 << 17, threads=1)
    whole = held["now"]
    value = table.columns()[3].device_buffer_size()
    assert whole > value > 3 << 20
    # All pieces, one joined column, and what the last chunk took.
    assert held["most"] < whole + value + (1 << 20)
    del table
    assert held["now"] == held["kept"]()


def test_what_is_not_asked_for_is_not_decoded(log: Path, device: Emulated, joined: list[int]) -> None:
    tables = kolumn.scan_pylibcudf(log, chunk_bytes=1 << 17, threads=1)
    assert device.launched == {}
    next(tables)
    begun = dict(device.launched)
    next(tables)
    assert device.launched["fields"] == 2 * begun["fields"]


AVRO: dict[str, Any] = {"value_format": "avro", "value_schema": {"type": "record", "name": "r", "fields": [
    {"name": name, "type": kind} for name, kind in {"a": "long", "b": "string", "c": "bytes", "d": ["null", "int"], "e": "null"}.items()
]}}  # fmt: skip


def test_values_without_rows(tmp_path: Path, device: Emulated, joined: list[int]) -> None:
    """No record in the log, no record in the range, and a batch of which no record is kept."""
    empty, log = tmp_path / "00000000000000000000.log", tmp_path / "t-0"
    empty.touch()
    kolumn.write(pa.table({"value": pa.array([b"1", b"2"], pa.binary())}), log)
    asked = {"columns": ["offset", "value", "valueSchemaId", "valueRaw", "valueValid"], **AVRO}
    kinds = []
    for source, options in ((empty, {}), (log, {"start_offset": 100}), (log, {"start_timestamp": 1, "end_timestamp": 2})):
        table, names = kolumn.read_pylibcudf(source, **asked, **options)
        assert (table.num_rows(), names[0], names[-1]) == (0, "offset", "valueValid")
        assert [libcudf.rows_of(column) for column in table.columns()] == [[]] * len(names)
        kinds.append([column.type().id() for column in table.columns()])
        assert list(kolumn.scan_pylibcudf(source, **asked, **options)) == []
    assert kinds == [kinds[0]] * 3
    # No values at all have the same types.
    n = 40
    kolumn.write(pa.table({"value": pa.array([None] * n, pa.binary())}), tmp_path / "u-0")
    table, names = kolumn.read_pylibcudf(tmp_path / "u-0", **asked)
    assert [column.type().id() for column in table.columns()] == kinds[0]
    rows = dict(zip(names, map(libcudf.rows_of, table.columns()), strict=True))
    assert rows == {name: [None] * n for name in names} | {"offset": [*range(n)], "valueValid": [0] * n}
    # On the device.
    (typed,) = with_types(Options.of(value_as="columns", **AVRO), [], []).typed
    found = typed_columns(runtime(), None, Values.of(typed), ["value", "valueValid", "valueSchemaId"], "binary", LostValues())
    beside = {"valueValid": "bool", "valueSchemaId": "int64"}
    assert {name: column.kind for name, column in found.items()} == {one.name: kind_of(one.type) for one in typed.type} | beside
    assert {column.rows for column in found.values()} == {0}
    ends = [end for column in found.values() for end in _ends(column)]
    assert [to_arrow(end).to_pylist() for end in ends] == [[0]] * len(ends)


def _ends(column: Column) -> Iterator[Column]:
    """Where elements of it and of what it consists of end, which is where the first one begins if there is none."""
    if column.kind in ("string", "list"):
        yield column.children[0]
    for child in column.children:
        yield from _ends(child)


def test_no_records_have_the_types_of_records(log: Path, joined: list[int]) -> None:
    names = list(dict.fromkeys(["headers", "transaction", "isControl", "brokerTimestampMs", *COLUMNS]))
    for payload in ("binary", "string"):
        some, _ = kolumn.read_pylibcudf(log, columns=names, payload=payload)
        none, _ = kolumn.read_pylibcudf(log, columns=names, payload=payload, end_offset=0)
        assert (none.num_rows(), [_types(one) for one in none.columns()]) == (0, [_types(one) for one in some.columns()])
        assert [libcudf.rows_of(one) for one in none.columns()] == [[]] * len(names)


def _types(column: Any) -> tuple[Any, ...]:
    return (column.type().id(), *(_types(child) for child in column.children()))


@pytest.fixture
def cudf() -> Any:
    os.environ.setdefault("RAPIDS_NO_INITIALIZE", "1")
    return pytest.importorskip("cudf", reason="pip install cudf-cu13, which has no room beside pandas 2")


@pytest.mark.parametrize("payload", ["binary", "string"])
def test_cudf_takes_them_without_a_copy(log: Path, payload: Any, cudf: Any, joined: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    first = sorted(log.glob("*.log"))[0]
    names = ["key", "value", "headers", "timestamp", "offset", "topic", "partition", "isControl"]
    module = import_module("kolumn.kernels.columns.assemble")
    whole = module.from_pylibcudf
    monkeypatch.setattr(module, "from_pylibcudf", lambda table, *named: (table, whole(table, *named)))
    for table, frame in kolumn.scan_cudf(first, columns=names, payload=payload, threads=1):
        assert isinstance(frame, cudf.DataFrame)
        assert list(frame.columns) == names
        bytes_ = "str" if payload == "string" else "list"
        assert [str(frame[name].dtype) for name in ("key", "value")] == [bytes_] * 2
        assert (list(frame["headers"].dtype.element_type.fields), str(frame["timestamp"].dtype)) == (["key", "value"], "datetime64[us]")
        for name, column in zip(names, table.columns(), strict=True):
            _same_memory(frame._data[name].plc_column, column)
    assert len(list(kolumn.scan_cudf(log, columns=["value", "headers"], chunk_bytes=1 << 18))) > 5
    for end_offset in (0, kolumn.read(log).num_rows):
        assert len(kolumn.read_cudf(log, columns=["value", "headers"], chunk_bytes=1 << 18, end_offset=end_offset)) == end_offset


def _same_memory(one: Any, other: Any) -> None:
    for made in (type(one).data, type(one).null_mask):
        left, right = made(one), made(other)
        assert (left is None) == (right is None)
        assert left is None or left.ptr == right.ptr
    assert (one.size(), one.null_count()) == (other.size(), other.null_count())
    for left, right in zip(one.children(), other.children(), strict=True):
        _same_memory(left, right)


ITEM = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
PARTS = {"x": "int", "y": "int", "of": ["null", "Item"], "b": "bytes"}
NESTED = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "one", "type": ITEM},
        {"name": "items", "type": {"type": "array", "items": "Item"}},
        {"name": "map", "type": {"type": "map", "values": "Item"}},
        {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": k, "type": v} for k, v in PARTS.items()]}},
    ],
}
MESSAGE = """
syntax = "proto3";
message Item { string sku = 1; }
message Order { Item one = 1; repeated Item items = 2; Place place = 3; repeated bytes parts = 4; }
message Place { int32 x = 1; int32 y = 2; Item of = 3; }
"""
READS: dict[str, dict[str, Any]] = {
    "headers": {"columns": ["headers", "key"]},
    "avro": {"columns": ["value"], "value_format": "avro", "value_schema": NESTED},
    "avro, a struct": {"columns": ["value"], "value_format": "avro", "value_schema": NESTED, "value_as": "struct"},
    "json, decoded on the host": {
        "columns": ["value"], "value_format": "json", "value_schema": {"one": {"sku": "string"}, "items": [{"sku": "string"}]},
    },
    "avro in an envelope, taken off on the host": {
        "columns": ["value"], "value_format": "avro", "value_schema": avro_schema(), "value_envelope": "debezium",
    },
    "protobuf": {"columns": ["value"], "value_format": "protobuf", "value_schema": MESSAGE, "value_message": "Order"},
}  # fmt: skip


class OfArrow:
    """pylibcudf's table, whose columns are Arrow's still."""

    def __init__(self, columns: list[Any]) -> None:
        self.columns = lambda: columns

    @classmethod
    def from_arrow(cls, table: pa.Table) -> "OfArrow":
        return cls(table.columns)


@pytest.mark.parametrize("emulated", ["ptx"], indirect=True)
@pytest.mark.parametrize("end_offset", [None, 0], ids=["rows", "no rows"])
@pytest.mark.parametrize("read", READS)
def test_cudf_is_told_the_names_of_what_is_nested(
    read: str, end_offset: int | None, tmp_path: Path, emulated: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of structs with any number of fields: libcudf has no names. As loops, kernels of messages take long to compile."""
    on_host, whole = "host" in read, import_module("kolumn.kernels.columns.assemble").in_known_types
    given: list[tuple[Any, dict[str, Any]]] = []
    frame = SimpleNamespace(from_pylibcudf=lambda table, metadata: given.append((table, metadata)))
    monkeypatch.setitem(sys.modules, "cudf", SimpleNamespace(DataFrame=frame))
    if on_host:
        monkeypatch.setattr(plc, "Table", OfArrow)
    kolumn.write(pa.table({"key": [b"k"], "value": [b"\0"], "headers": pa.array([[("a", b"b")]], HEADERS)}), tmp_path / "t-0")
    options = READS[read]
    kolumn.read_cudf(tmp_path / "t-0", end_offset=end_offset, **options)
    list(kolumn.scan_cudf(tmp_path / "t-0", end_offset=end_offset, **options))
    assert len(given) == (1 if end_offset == 0 else 2)
    expected = kolumn.read(tmp_path / "t-0", backend="cpu", **({} if read == "headers" else {"value_as": "columns"}) | options)
    expected = whole(expected, "binary")
    for table, metadata in given:
        names = metadata["child_names"]
        assert (metadata["columns"], list(names)) == (list(names), expected.column_names)
        for column, name in zip(table.columns(), names, strict=True):
            found = _named(_types_of(column.type) if on_host else _kinds_of(column), names[name])
            assert found == _types_of(expected.schema.field(name).type), name


def _named(kind: Any, names: dict[str, Any]) -> Any:
    """What cuDF makes of names (``recursively_update_struct_names``): lists of what is in lists, structs by their names."""
    if isinstance(kind, list):
        return [_named(kind[0], names[next(reversed(names))])]
    if isinstance(kind, dict):
        return {name: _named(child, inner) for (name, inner), child in zip(names.items(), kind.values(), strict=True)}
    return None


def _kinds_of(column: Any) -> Any:
    """As `_types_of`, of a column of libcudf, which has no names."""
    if column.type().id() == plc.TypeId.LIST:
        return [_kinds_of(column.child(1))]
    return dict(enumerate(map(_kinds_of, column.children()))) if column.type().id() == plc.TypeId.STRUCT else None


def _types_of(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return [_types_of(kind.value_type)]
    return {child.name: _types_of(child.type) for child in kind} if pa.types.is_struct(kind) else None


def test_cudf_is_missed_before_anything_is_read(log: Path, device: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudf", None)
    for call in (kolumn.scan_cudf, kolumn.read_cudf):
        with pytest.raises(kolumn.MissingError, match=r"a cudf\.DataFrame was asked for: .*scan_pylibcudf and .*pip install cudf-cu13 "):
            call(log)
    assert device.launched == {}
