"""Which values does a GPU parse itself, and what does cuDF get of those that the host decodes?"""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.emulated import Emulated
from kolumn.kernels.columns import assemble
from kolumn.kernels.columns.assemble import in_known_types
from kolumn.readers.gpu import _chosen, resident_options
from kolumn.readers.types import with_types

RECORD = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}'
TWO = '{"type": "record", "name": "r", "fields": [{"name": "b", "type": "string"}, {"name": "a", "type": "long"}]}'
MESSAGE = 'syntax = "proto3"; message M { int32 a = 1; }'
BYTES = pa.binary()
ITSELF = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]}'
NESTED = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "long"}}]}'


ON_DEVICE: list[Any] = [
    {"value_format": "avro", "value_schema": RECORD, "value_skip": 5},
    {"value_format": "avro", "value_schema": NESTED},
    {"value_format": "avro", "value_schema": NESTED, "value_columns": "a", "value_as": "struct"},
    {"value_format": "avro", "value_schema": TWO, "value_columns": ["a"]},
    {"value_format": "avro", "value_schema": RECORD, "value_schemas": {1: RECORD}, "value_errors": "keep"},
    {"value_format": "registry", "value_schema": RECORD, "value_schemas": {1: RECORD}},
    {"value_format": "protobuf", "value_schema": MESSAGE},
    {"value_format": "protobuf", "value_schema": MESSAGE, "value_message": "M", "value_columns": ["a"], "value_framing": "confluent"},
    {"key_format": "protobuf", "key_schema": MESSAGE, "value_format": "avro", "value_schema": RECORD, "value_as": "struct"},
]
ON_HOST: list[Any] = [
    {"value_format": "avro", "value_schema": ITSELF},
    {"value_format": "avro", "value_schema": RECORD, "value_errors": "raise"},
    {"value_format": "json", "value_schema": {"a": "int64"}, "value_framing": "confluent"},
    {"value_format": "csv", "value_schema": {"a": "int64"}, "value_separator": ";"},
    {"value_format": "fixed", "value_schema": {"a": ">i8"}},
    {"key_format": "csv", "key_schema": {"k": "int8"}, "value_format": "avro", "value_schema": RECORD},
    {"value_format": "protobuf", "value_schema": 'syntax = "proto2"; message M {}'},
    {"value_format": "protobuf", "value_schema": 'syntax = "proto2"; message M { required int32 a = 1; }'},
    {"include_control": True, "decode": "internal"},
]


@pytest.mark.parametrize(("options", "on_device"), [(one, one in ON_DEVICE) for one in ON_DEVICE + ON_HOST], ids=str)
def test_what_is_decoded_on_the_device(options: Any, on_device: bool) -> None:
    assert (resident_options(with_types(_chosen(dict(options)), [], []), "binary", []) is not None) == on_device


@pytest.mark.parametrize(
    "options",
    [
        {"value_format": "json"},
        {"value_format": "json", "value_as": "struct"},
        {"key_format": "csv", "key_schema": {"k": "int8"}, "key_as": "struct"},
        {"key_format": "csv", "key_schema": {"k": "int8"}, "value_format": "json"},
        {"value_format": "json", "value_schema": {"a": ["int64"]}, "value_errors": "keep"},
        {"key_format": "fixed", "key_schema": {"k": "i1"}, "value_format": "csv", "value_schema": {"v": "string", "w": "float32"}},
    ],
    ids=str,
)
def test_the_host_decodes_them(options: Any, device: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `kolumn.read` does, with fields as columns; only the copy to the device is left out."""
    monkeypatch.setattr(assemble, "from_arrow", lambda table, payload: (in_known_types(table, payload), table.column_names, []))
    made = pa.table({"key": [b"1", b"x", None], "value": [b'{"a": [5]}', b"{}", b"?"]}, pa.schema([("key", BYTES), ("value", BYTES)]))
    kolumn.write(made, tmp_path / "t-0")
    expected = kolumn.read(tmp_path / "t-0", **({f"{name.partition('_')[0]}_as": "columns" for name in options} | options))
    found, names = kolumn.read_pylibcudf(tmp_path / "t-0", payload="string", **options)
    assert names == expected.column_names
    assert found.equals(in_known_types(expected, "string"))
    ((streamed, _),) = kolumn.scan_pylibcudf(tmp_path / "t-0", payload="string", **options)
    assert streamed.equals(found)


def test_typed_columns_in_types_of_cudf() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    rows = [{"label": "x", "at": moment, "raw": b"\xff\0", "more": [{"ms": moment, "code": b"ab"}]}, None, {"more": []}]
    more = pa.list_(pa.struct([("ms", pa.timestamp("ms", "UTC")), ("code", pa.binary(2))]))
    kind = pa.struct([("label", pa.string()), ("at", pa.timestamp("us", "UTC")), ("raw", pa.binary()), ("more", more)])
    columns = {
        "value": pa.array(rows, kind),
        "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())),
        "time": pa.array([1, None, 2], pa.time64("us")),
        "json": pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(["{}", None, "[1]"])),
    }
    table = in_known_types(pa.table(columns), "binary")
    naive = moment.replace(tzinfo=None)
    assert table["value"].to_pylist() == [
        {"label": "x", "at": naive, "raw": [255, 0], "more": [{"ms": naive, "code": [97, 98]}]},
        None,
        {"label": None, "at": None, "raw": None, "more": []},
    ]
    assert (table["dictionary"].type, table["map"].to_pylist()) == (pa.string(), [[{"key": "k", "value": 1}], None, []])
    assert table["time"].to_pylist() == [1, None, 2]
    assert (table["json"].type, table["json"].to_pylist()) == (pa.string(), ["{}", None, "[1]"])
    sliced = in_known_types(pa.table(columns).slice(1), "binary")
    assert sliced.to_pylist() == table.slice(1).to_pylist()
    table.validate(full=True)


def test_more_bytes_than_an_array_of_arrow_has() -> None:
    """cuDF's strings may have more than 2 GiB. Nothing touches these bytes, so they take no memory."""
    buffers = [None, pa.py_buffer(np.array([0, 1 << 30], np.int32)), pa.py_buffer(np.zeros(1 << 30, np.uint8))]
    half = pa.Array.from_buffers(BYTES, 1, buffers)
    known = in_known_types(pa.table({"value": pa.chunked_array([half] * 3)}), "string")
    assert [(len(chunk), chunk.type, chunk.buffers()[2].size) for chunk in known["value"].chunks] == [(1, pa.string(), 1 << 30)] * 3


NESTS = pa.list_(pa.struct([("value", BYTES)]))


@pytest.mark.parametrize("rows", [pa.array([b"12345"] * 8, BYTES), pa.array([[{"value": b"12345"}]] * 8, NESTS)], ids=["bytes", "headers"])
def test_more_than_lists_of_cudf_have(rows: pa.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of all chunks is compared before any of them goes to the device."""
    pytest.importorskip("pylibcudf", reason="make gpu-packages")
    sent: list[pa.Table] = []
    monkeypatch.setattr("pylibcudf.Table", lambda columns: columns)
    columns = SimpleNamespace(columns=lambda: [0])
    monkeypatch.setattr("pylibcudf.Table.from_arrow", lambda table: sent.append(table) or columns, raising=False)
    table = pa.table({"other": pa.chunked_array([[1] * 6, [2] * 2]), "value": pa.chunked_array([rows[1:7], rows[:0], rows[:2]])})
    for most, payload in ((40, "binary"), (39, "string")):
        monkeypatch.setattr(assemble, "MOST", most)
        _, names, _ = assemble.from_arrow(table, payload)
        assert names == table.column_names
    with pytest.raises(kolumn.KolumnError, match=r"column 'value' would have more than 39 rows or bytes.*or take payload='string'"):
        assemble.from_arrow(table, "binary")
    assert [(one.column_names, one.column(0).num_chunks) for one in sent] == [(["other"], 2), (["value"], 3)] * 2


def test_options_of_the_call(tmp_path: Path, device: Emulated) -> None:
    with pytest.raises(kolumn.ArgumentError, match="go with value_format"):
        kolumn.read_pylibcudf(tmp_path, value_schema={})
    with pytest.raises(kolumn.ArgumentError, match="payload='text'"):
        kolumn.read_pylibcudf(tmp_path, payload="text")
    (tmp_path / "00000000000000000000.log").touch()
    with pytest.raises(kolumn.ArgumentError, match="two columns would be called offset"):
        kolumn.read_pylibcudf(tmp_path, value_format="fixed", value_schema={"offset": "i8"})
