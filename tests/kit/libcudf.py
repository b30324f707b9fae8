"""libcudf's functions over columns in host memory, where there is no GPU: pylibcudf's own objects, and Arrow in place of its kernels."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pylibcudf as plc
import pytest

from kit import device_columns
from kit.emulated import HostMemory

_T = plc.TypeId
_NUMBERS = {
    _T.INT8: "int8", _T.INT16: "int16", _T.INT32: "int32", _T.INT64: "int64", _T.UINT8: "uint8", _T.UINT16: "uint16", _T.UINT32: "uint32",
    _T.UINT64: "uint64", _T.FLOAT32: "float32", _T.FLOAT64: "float64", _T.TIMESTAMP_MICROSECONDS: "timestamp", _T.BOOL8: "uint8",
}  # fmt: skip


def to_arrow(column: Any) -> pa.Array:
    """What libcudf would see of a column: its rows; strings as bytes, flags as uint8."""
    return device_columns.to_arrow(_as_ours(column))


def _as_ours(column: Any) -> Any:
    """A column of libcudf by the names of `kolumn.kernels.columns.table.Column`."""
    rows, mask, kind = column.size(), _buffer(column.null_mask()), column.type().id()
    assert column.offset() == 0
    assert mask is None or mask.size >= 4 * -(-rows // 32)
    assert kind not in (_T.STRING, _T.LIST) or column.child(0).size() == rows + 1
    name = _NUMBERS.get(kind) or {_T.STRING: "string", _T.STRUCT: "struct", _T.LIST: "list"}[kind]
    bitmap, data = (one if one is None else SimpleNamespace(bytes=one) for one in (mask, _buffer(column.data()) or pa.py_buffer(b"")))
    children = [_as_ours(child) for child in column.children()]
    return SimpleNamespace(kind=name, rows=rows, nulls=column.null_count(), bitmap=bitmap, data=data, children=children)


def _buffer(span: Any) -> pa.Buffer | None:
    # Arrow wants no null pointers, and the memory must outlive the buffer.
    return None if span is None else pa.foreign_buffer(span.ptr, span.size, span) if span.size else pa.py_buffer(b"")


def concatenate(columns: list[Any]) -> Any:
    """`pylibcudf.concatenate.concatenate` of columns."""
    assert len(columns) > 1
    return _column(pa.concat_arrays([to_arrow(column) for column in columns]), columns[0])


def _column(array: pa.Array, like: Any) -> Any:
    """A column of new memory; its type is that of another one."""
    kind, rows = like.type(), len(array)
    buffers = array.buffers()
    mask = _memory(buffers[0], 4 * -(-rows // 32)) if array.null_count else None
    if kind.id() in _NUMBERS:
        width = array.type.bit_width // 8
        return plc.Column(kind, rows, _memory(buffers[1], width * rows), mask, array.null_count, 0, [])
    if kind.id() == _T.STRUCT:
        children = [_column(array.field(at), child) for at, child in enumerate(like.children())]
        return plc.Column(kind, rows, None, mask, array.null_count, 0, children)
    ends = _column(pa.Array.from_buffers(pa.int32(), rows + 1, [None, buffers[1]]), like.child(0))
    if kind.id() == _T.STRING:
        return plc.Column(kind, rows, _memory(buffers[2], buffers[2].size if buffers[2] else 0), mask, array.null_count, 0, [ends])
    return plc.Column(kind, rows, None, mask, array.null_count, 0, [ends, _column(array.values, like.child(1))])


def _memory(buffer: pa.Buffer | None, size: int) -> Any:
    memory = HostMemory(size)
    data = memoryview(buffer)[:size] if buffer is not None else b""
    memory.bytes[: len(data)] = np.frombuffer(data, np.uint8)
    return plc.gpumemoryview(memory)


def rows_of(column: Any) -> list[Any]:
    """Rows of a column, for comparisons."""
    return list(to_arrow(column).to_pylist())


def install(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let concatenations run here; returns how many columns each of them has joined."""
    joined: list[int] = []

    def counted(columns: list[Any]) -> Any:
        joined.append(len(columns))
        return concatenate(columns)

    monkeypatch.setattr(plc.concatenate, "concatenate", counted)
    return joined
