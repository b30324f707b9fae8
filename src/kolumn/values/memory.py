"""Host memory for the columns of a layout: made for some rows, grown when a loop says so, and turned into an Arrow array."""

from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.arrays import AnyArray, Int64s
from kolumn.arrow.recycle import take_array
from kolumn.encodings.columns import NULL_BYTES, NULL_LIST, NULL_WORD, ColumnTables, full_column, full_level
from kolumn.values.layout import ColumnLayout, LayoutNode

_SLACK = 64
LARGEST = 2**31 - 1
"""Bytes and elements that int32 offsets can count."""


class ColumnMemory:
    """Memory for the columns of up to ``rows`` records, with room at first for ``elements`` in each level and ``data`` bytes in each column
    of bytes.
    """

    def __init__(self, layout: ColumnLayout, rows: int, elements: int, data: int) -> None:
        self.layout, self.rows = layout, rows
        self._room = [rows] + [elements] * (len(layout.levels) - 1)
        self._counts = np.zeros(len(layout.levels), np.int64)
        self._table = np.zeros((max(len(layout.columns), 1), 4), np.int64)
        self._levels = np.array([(room, *level, 0) for room, level in zip(self._room, layout.levels, strict=True)], np.int64)
        self._fills = layout.fill_table()
        self._valid: list[AnyArray | None] = []
        self._data: list[AnyArray | None] = []
        self._ends: list[AnyArray | None] = []
        for spec in layout.columns:
            room = self._room[spec.level]
            size = {NULL_WORD: room * spec.width, NULL_BYTES: data}.get(spec.kind)
            self._valid.append(take_array(room, np.uint8) if spec.nullable else None)
            self._data.append(None if size is None else take_array(size + _SLACK, np.uint8))
            self._ends.append(take_array(room + 1, np.int32) if spec.kind in (NULL_BYTES, NULL_LIST) else None)
        for ends in self._ends:
            if ends is not None:
                ends[0] = 0
        self._address()

    @property
    def target(self) -> ColumnTables:
        """Addresses of the tables, valid until `grow`."""
        columns, levels, counts, fills = (one.ctypes.data for one in (self._table, self._levels, self._counts, self._fills))
        return ColumnTables(columns, levels, counts, fills, 0, 8, len(self._counts), 0)

    def grow(self, code: int) -> None:
        """Make room for what a loop had no room for, by the code that it returned; `OverflowError` if int32 offsets cannot count it."""
        if code >= full_column(0):
            column = code - full_column(0)
            data = self._data[column]
            assert data is not None
            self._data[column] = _grown(data, _more(len(data)))
        else:
            level = code - full_level(0)
            self._room[level] = room = _more(self._room[level])
            self._levels[level, 0] = room
            for number, spec in enumerate(self.layout.columns):
                if spec.level == level:
                    self._grow_rows(number, room, spec.width)
        self._address()

    def _grow_rows(self, number: int, room: int, width: int) -> None:
        valid, data, ends = self._valid[number], self._data[number], self._ends[number]
        if valid is not None:
            self._valid[number] = _grown(valid, room)
        if ends is not None:
            self._ends[number] = _grown(ends, room + 1)
        elif data is not None:
            self._data[number] = _grown(data, room * width + _SLACK)

    def _address(self) -> None:
        for number, columns in enumerate(zip(self._data, self._valid, self._ends, strict=True)):
            self._table[number, :3] = [0 if one is None else one.ctypes.data for one in columns]
            data = columns[0]
            self._table[number, 3] = 0 if data is None else min(len(data) - _SLACK, LARGEST)

    def array(self, rows: int) -> pa.Array:
        """The first ``rows`` records as an Arrow array, without a copy but for flags, which become bits."""
        return self._array(self.layout.root, rows)

    def _array(self, node: LayoutNode, rows: int) -> pa.Array:
        mask, nulls = self._mask(node, rows)
        if node.child_level >= 0:
            ends = self._buffer(self._ends[node.column], 4 * (rows + 1))
            inner = int(self._counts[node.child_level]) if rows else 0
            made = [self._array(child, inner) for child in node.children]
            if pa.types.is_map(node.type):
                fields = [node.type.key_field, node.type.item_field]
                made = [pa.StructArray.from_arrays(made, fields=fields)]
            return pa.Array.from_buffers(node.type, rows, [mask, ends], nulls, children=made)
        if pa.types.is_struct(node.type):
            return pa.Array.from_buffers(node.type, rows, [mask], nulls, children=[self._array(child, rows) for child in node.children])
        data, spec = self._data[node.column], self.layout.columns[node.column]
        assert data is not None
        if spec.kind == NULL_BYTES:
            ends = self._ends[node.column]
            assert ends is not None
            return pa.Array.from_buffers(
                node.type, rows, [mask, self._buffer(ends, 4 * (rows + 1)), self._buffer(data, int(ends[rows]))], nulls
            )
        if pa.types.is_null(node.type):
            return pa.nulls(rows)
        if pa.types.is_dictionary(node.type):
            index = pa.Array.from_buffers(node.type.index_type, rows, [mask, self._buffer(data, rows * node.width)], nulls)
            return pa.DictionaryArray.from_arrays(index, pa.array(node.symbols, node.type.value_type))
        if pa.types.is_boolean(node.type):
            return pa.Array.from_buffers(node.type, rows, [mask, _bits(data[:rows])], nulls)
        return pa.Array.from_buffers(node.type, rows, [mask, self._buffer(data, rows * node.width)], nulls)

    def _mask(self, node: LayoutNode, rows: int) -> tuple[pa.Buffer | None, int]:
        valid = self._valid[node.column] if node.column >= 0 else None
        if valid is None:
            return None, 0
        nulls = rows - int(np.count_nonzero(valid[:rows]))
        return (_bits(valid[:rows]), nulls) if nulls else (None, 0)

    @staticmethod
    def _buffer(array: AnyArray | None, size: int) -> pa.Buffer:
        return pa.py_buffer(array).slice(0, size)


def shared_bytes(layout: ColumnLayout, length: Int64s) -> int:
    """Bytes that each column of bytes has room for at first: at most all of the values' (``length``, -1 for null), of which most have a
    share.
    """
    if not layout.bytes_columns:
        return 0
    total = int(length.sum()) + len(length)
    return min(total, 4 * total // len(layout.columns) + 4096)


def _bits(flags: AnyArray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags.view(np.bool_), bitorder="little"))


def _more(size: int) -> int:
    if size >= LARGEST:
        raise OverflowError(f"{size} rows or bytes in one column")
    return min(2 * size + 64, LARGEST)


def _grown(array: AnyArray, size: int) -> Any:
    made = take_array(size, array.dtype.type)
    made[: len(array)] = array
    return made
