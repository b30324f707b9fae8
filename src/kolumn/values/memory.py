"""Host memory for the columns of a layout: made for some rows, grown when a loop says so, and turned into an Arrow array. Structs are
spread out, every list counts its elements at a level of its own:

    struct<id: int64, tags: list<string>>       node          level  valid  column  child level
                                                 (root)        0      1      -1      -1
                                                 id            0      -1      2      -1
                                                 tags          0      3       3       1
                                                   (element)   1      0       0      -1

The number of a column is its row in the table of columns (`kolumn.values.wire.columns`). Columns of bytes have the first numbers: a GPU
keeps a cursor for each value in each of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import AnyArray, Int64s
from kolumn.core.recycle import take_array
from kolumn.values.extensions import stored_type
from kolumn.values.wire.columns import NULL_BYTES, NULL_LIST, NULL_STRUCT, NULL_WORD, ColumnTables, full_column, full_level

Path = tuple[str, ...]


class ColumnSpec(NamedTuple):
    """One column: its kind (`NULL_WORD`, `NULL_BYTES`, `NULL_LIST`, or `NULL_STRUCT`: validity alone), level, and whether it has validity
    bytes. ``width`` are the bytes of a word, or the child level of a list.
    """

    kind: int
    width: int
    level: int
    nullable: bool


@dataclass(frozen=True)
class LayoutNode:
    """A type and where its values are. ``name`` is "" for the root and for elements. ``column`` is -1 for a struct that cannot be null,
    ``width`` the bytes of a word in it or 0, ``child_level`` the level of a list's or map's elements or -1. ``children`` are the fields of
    a struct, the element of a list, key and value of a map; ``symbols`` the values of a dictionary. The fills from ``first_fill`` on make
    it null.
    """

    name: str
    type: pa.DataType
    level: int
    column: int
    width: int
    nullable: bool
    child_level: int
    children: "tuple[LayoutNode, ...]"
    symbols: tuple[str, ...]
    first_fill: int
    fills: int


@dataclass
class ColumnLayout:
    """Columns and levels of a type. The ``root`` is the value of a record, which can be null; the first ``bytes_columns`` have
    `NULL_BYTES`. The numbers of level 0 mean nothing.
    """

    root: LayoutNode = field(init=False)
    columns: list[ColumnSpec] = field(default_factory=list)
    bytes_columns: int = 0
    levels: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """For each level the list column whose elements its rows are, and the level of that list."""
    fills: list[tuple[int, int, int]] = field(default_factory=list)
    _first_other: int = 0

    @classmethod
    def of(cls, type: pa.DataType, symbols: Mapping[Path, Sequence[str]] | None = None) -> "ColumnLayout":
        """The layout of a type, whose fields that are not nullable have no validity. ``symbols`` are the values of each dictionary type by
        its path: names of fields, "element" for those of lists, "key" and "value" of maps.
        """
        layout = cls()
        layout._first_other = _count_bytes(type)
        layout.root = layout._node("", type, 0, True, (), symbols or {})
        return layout

    def fill_table(self) -> Int64s:
        return np.array([(*fill, 0) for fill in self.fills], np.int64).reshape(-1, 4)

    def _node(
        self, name: str, type: pa.DataType, level: int, nullable: bool, path: Path, symbols: Mapping[Path, Sequence[str]]
    ) -> LayoutNode:
        column, width, child_level, fill = -1, 0, -1, NULL_WORD
        children: tuple[LayoutNode, ...] = ()
        given, type = type, stored_type(type)
        if pa.types.is_struct(type):
            if nullable:
                fill, column = NULL_STRUCT, self._column(NULL_STRUCT, 0, level, True)
            children = tuple(self._node(field.name, field.type, level, field.nullable, (*path, field.name), symbols) for field in type)
        elif pa.types.is_list(type) or pa.types.is_map(type):
            child_level = len(self.levels)
            fill, column = NULL_LIST, self._column(NULL_LIST, child_level, level, nullable)
            self.levels.append((column, level))
            parts = {"key": type.key_field, "value": type.item_field} if pa.types.is_map(type) else {"element": type.value_field}
            children = tuple(self._node("", part.type, child_level, part.nullable, (*path, step), symbols) for step, part in parts.items())
        elif type in (pa.string(), pa.binary()):
            fill, column = NULL_BYTES, self._column(NULL_BYTES, 0, level, nullable)
        else:
            width = word_width(type)
            column = self._column(NULL_WORD, width, level, nullable)
        first = len(self.fills)
        fills = [] if column < 0 else [(fill, column, width if child_level < 0 else child_level)]
        if child_level < 0:
            fills += [inner for child in children for inner in self.fills[child.first_fill : child.first_fill + child.fills]]
        self.fills += fills
        own = tuple(symbols.get(path, ()))
        return LayoutNode(name, given, level, column, width, nullable, child_level, children, own, first, len(fills))

    def _column(self, kind: int, width: int, level: int, nullable: bool) -> int:
        spec = ColumnSpec(kind, width, level, nullable)
        if kind != NULL_BYTES:
            self.columns.append(spec)
            return self._first_other + len(self.columns) - self.bytes_columns - 1
        self.columns.insert(self.bytes_columns, spec)
        self.bytes_columns += 1
        return self.bytes_columns - 1


def _count_bytes(type: pa.DataType) -> int:
    type = stored_type(type)
    if pa.types.is_struct(type):
        return sum(_count_bytes(field.type) for field in type)
    if pa.types.is_map(type):
        return _count_bytes(type.key_type) + _count_bytes(type.item_type)
    return _count_bytes(type.value_type) if pa.types.is_list(type) else int(type in (pa.string(), pa.binary()))


def word_width(type: pa.DataType) -> int:
    """Bytes of a value of fixed size in its column; a bool has a byte there."""
    if pa.types.is_boolean(type) or pa.types.is_null(type):
        return 1
    return word_width(type.index_type) if pa.types.is_dictionary(type) else type.bit_width // 8


def nodes(node: LayoutNode) -> Iterator[LayoutNode]:
    yield node
    for child in node.children:
        yield from nodes(child)


_SLACK = 64
LARGEST = 2**31 - 1  # Bytes and elements that int32 offsets can count.


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
            ends = take_array(room + 1, np.int32) if spec.kind in (NULL_BYTES, NULL_LIST) else None
            if ends is not None:
                ends[0] = 0
            self._ends.append(ends)
        self._address()

    @property
    def target(self) -> ColumnTables:
        """Addresses of the tables, valid until `grow`."""
        columns, levels, counts, fills = (table.ctypes.data for table in (self._table, self._levels, self._counts, self._fills))
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
                    valid, data, ends = self._valid[number], self._data[number], self._ends[number]
                    self._valid[number] = None if valid is None else _grown(valid, room)
                    self._ends[number] = None if ends is None else _grown(ends, room + 1)
                    if ends is None and data is not None:
                        self._data[number] = _grown(data, room * spec.width + _SLACK)
        self._address()

    def _address(self) -> None:
        for number, columns in enumerate(zip(self._data, self._valid, self._ends, strict=True)):
            self._table[number, :3] = [0 if column is None else column.ctypes.data for column in columns]
            data = columns[0]
            self._table[number, 3] = 0 if data is None else min(len(data) - _SLACK, LARGEST)

    def array(self, rows: int) -> pa.Array:
        """The first ``rows`` records as an Arrow array, without a copy but for flags, which become bits."""
        return self._array(self.layout.root, rows)

    def _array(self, node: LayoutNode, rows: int) -> pa.Array:
        if isinstance(node.type, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(node.type, self._array(replace(node, type=node.type.storage_type), rows))
        mask, nulls = self._mask(node, rows)
        type, data, ends = node.type, self._data[node.column], self._ends[node.column]
        if node.child_level >= 0:
            inner = int(self._counts[node.child_level]) if rows else 0
            children = [self._array(child, inner) for child in node.children]
            if pa.types.is_map(type):
                children = [pa.StructArray.from_arrays(children, fields=[type.key_field, type.item_field])]
            return pa.Array.from_buffers(type, rows, [mask, _buffer(ends, 4 * (rows + 1))], nulls, children=children)
        if pa.types.is_struct(type):
            return pa.Array.from_buffers(type, rows, [mask], nulls, children=[self._array(child, rows) for child in node.children])
        if ends is not None:
            return pa.Array.from_buffers(type, rows, [mask, _buffer(ends, 4 * (rows + 1)), _buffer(data, int(ends[rows]))], nulls)
        if pa.types.is_null(type):
            return pa.nulls(rows)
        if pa.types.is_boolean(type):
            assert data is not None
            return pa.Array.from_buffers(type, rows, [mask, _bits(data[:rows])], nulls)
        is_named = pa.types.is_dictionary(type)
        words = pa.Array.from_buffers(type.index_type if is_named else type, rows, [mask, _buffer(data, rows * node.width)], nulls)
        return pa.DictionaryArray.from_arrays(words, pa.array(node.symbols, type.value_type)) if is_named else words

    def _mask(self, node: LayoutNode, rows: int) -> tuple[pa.Buffer | None, int]:
        valid = self._valid[node.column] if node.column >= 0 else None
        nulls = 0 if valid is None else rows - int(np.count_nonzero(valid[:rows]))
        return (_bits(valid[:rows]), nulls) if valid is not None and nulls else (None, 0)


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
    larger = take_array(size, array.dtype.type)
    larger[: len(array)] = array
    return larger
