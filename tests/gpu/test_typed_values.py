"""Which values does a GPU parse itself, and what does cuDF get of those that the host decodes?"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.emulated import Emulated
from kolumn.gpu_api import _for_host, _values
from kolumn.kernels.columns import assemble
from kolumn.kernels.columns.assemble import in_known_types

RECORD = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}'
TWO = '{"type": "record", "name": "r", "fields": [{"name": "b", "type": "string"}, {"name": "a", "type": "long"}]}'
MESSAGE = 'syntax = "proto3"; message M { int32 a = 1; }'
BYTES = pa.binary()
NESTED = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "long"}}]}'


@pytest.mark.parametrize(
    "options",
    [
        {"value_format": "json", "value_schema": {"a": "int64"}},
        {"value_format": "json", "value_schema": {"a": "int64"}, "value_as": "columns", "value_framing": "auto"},
        {"value_format": "csv", "value_schema": {"a": "int64"}, "value_separator": ";"},
        {"value_format": "fixed", "value_schema": {"a": ">i8"}},
        {"value_format": "avro", "value_schema": RECORD, "value_skip": 5},
        {"value_format": "avro", "value_schema": NESTED},
        {"value_format": "avro", "value_schema": NESTED, "value_columns": "a"},
        {"value_format": "avro", "value_schema": TWO, "value_columns": ["a"]},
        {"value_format": "protobuf", "value_schema": MESSAGE},
        {"value_format": "protobuf", "value_schema": MESSAGE, "value_message": "M", "value_columns": ["a"], "value_as": "columns"},
    ],
    ids=str,
)
def test_values_are_parsed_on_the_gpu(options: Any) -> None:
    assert _for_host(options) == {}
    assert [name for name, _ in _values(options).fields] == ["a"]


@pytest.mark.parametrize(
    "options",
    [
        {"value_format": "json", "value_schema": {"a": ["int64"]}},
        {"value_format": "json"},
        {"value_format": "json", "value_schema": {"a": "int64"}, "value_as": "struct"},
        {"value_format": "json", "value_schema": {"a": "int64"}, "value_errors": "raise"},
        {"value_format": "json", "value_schema": {"a": "int64"}, "key_format": "json"},
        {"value_format": "avro", "value_schema": NESTED, "value_as": "struct"},
        {"value_format": "avro", "value_schema": RECORD, "value_schemas": {1: RECORD}},
        {"value_format": "protobuf", "value_schema": "message M {}"},
        {"value_format": "protobuf", "value_schema": "message M { required int32 a = 1; }"},
        {"value_format": "protobuf", "value_schema": MESSAGE, "value_framing": "confluent"},
        {"key_format": "csv", "key_schema": {"a": "int8"}},
    ],
    ids=str,
)
def test_others_are_decoded_on_the_host(options: Any) -> None:
    assert _values(options) is None
    flat = {f"{one}_as": "columns" for one in ("key", "value") if f"{one}_format" in options}
    assert _for_host(options) == flat | options


@pytest.mark.parametrize(
    "options",
    [
        {"value_format": "json"},
        {"value_format": "json", "value_as": "struct"},
        {"key_format": "csv", "key_schema": {"k": "int8"}},
        {"key_format": "csv", "key_schema": {"k": "int8"}, "value_format": "json", "value_schema": {"a": "int64"}},
        {"value_format": "json", "value_schema": {"a": ["int64"]}, "value_errors": "keep"},
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
    kind = pa.struct(
        [
            ("label", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
            ("raw", pa.binary()),
            ("more", pa.list_(pa.struct([("ms", pa.timestamp("ms", "UTC")), ("code", pa.binary(2))]))),
        ]
    )
    columns = {
        "value": pa.array(rows, kind),
        "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())),
        "time": pa.array([1, None, 2], pa.time64("us")),
    }
    table = in_known_types(pa.table(columns), "binary")
    naive = moment.replace(tzinfo=None)
    assert table["value"].to_pylist() == [
        {"label": "x", "at": naive, "raw": [255, 0], "more": [{"ms": naive, "code": [97, 98]}]},
        None,
        {"label": None, "at": None, "raw": None, "more": []},
    ]
    assert table["dictionary"].type == pa.string()
    assert table["map"].to_pylist() == [[{"key": "k", "value": 1}], None, []]
    assert table["time"].to_pylist() == [1, None, 2]
    sliced = in_known_types(pa.table(columns).slice(1), "binary")
    assert sliced.to_pylist() == table.slice(1).to_pylist()
    table.validate(full=True)
