"""Host memory for the columns of a layout: made for some rows, grown when a loop says so, and turned into an Arrow array.

Which columns and levels a type takes: structs are spread out, every list counts its elements at a level of its own.

    struct<id: int64, tags: list<string>>       node          level  valid  column  child level
                                                 (root)        0      1      -1      -1
                                                 id            0      -1      2      -1
                                                 tags          0      3       3       1
                                                   (element)   1      0       0      -1

Each number of a column is a row of the table of columns (`kolumn.values.wire.columns`); the validity of a struct is a column too.
Columns of bytes have the first numbers: a GPU keeps a cursor for each value in each of them, and in no other column.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import AnyArray, Int64s
from kolumn.core.recycle import take_array
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


class Level(NamedTuple):
    """The list column whose elements the rows of a level are, and the level of that list."""

    list: int
    parent: int


@dataclass(frozen=True)
class LayoutNode:
    """A type and where its values are.

    ``name`` is "" for the root and for elements. ``column`` is -1 for a struct that cannot be null, ``width`` the bytes of a word in it or
    0, ``child_level`` the level of a list's or map's elements or -1. ``children`` are the fields of a struct, the element of a list, key
    and value of a map; ``symbols`` the values of a dictionary. The fills from ``first_fill`` on make it null.
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

    def child(self, name: str) -> "LayoutNode":
        """The field of that name."""
        return next(one for one in self.children if one.name == name)


@dataclass
class ColumnLayout:
    """Columns and levels of a type. The ``root`` is the value of a record, which can be null; the first ``bytes_columns`` have
    `NULL_BYTES`. The numbers of level 0 mean nothing.
    """

    root: LayoutNode = field(init=False)
    columns: list[ColumnSpec] = field(default_factory=list)
    bytes_columns: int = 0
    levels: list[Level] = field(default_factory=lambda: [Level(0, 0)])
    fills: list[tuple[int, int, int]] = field(default_factory=list)
    _first_other: int = 0

    @classmethod
    def of(cls, type: pa.DataType, symbols: Mapping[Path, Sequence[str]] | None = None) -> "ColumnLayout":
        """The layout of a type, whose fields that are not nullable have no validity. ``symbols`` are the values of each dictionary type by
        its path: names of fields, "element" for those of lists, "key" and "value" of maps.
        """
        made = cls()
        made._first_other = _count_bytes(type)
        made.root = made._node("", type, 0, True, (), symbols or {})
        return made

    def fill_table(self) -> Int64s:
        """The fills as int64 of shape (n, 4)."""
        return np.array([(*fill, 0) for fill in self.fills], np.int64).reshape(-1, 4)

    def _node(
        self, name: str, kind: pa.DataType, level: int, nullable: bool, path: Path, symbols: Mapping[Path, Sequence[str]]
    ) -> LayoutNode:
        column, width, child_level, fill = -1, 0, -1, NULL_WORD
        children: tuple[LayoutNode, ...] = ()
        if pa.types.is_struct(kind):
            if nullable:
                fill, column = NULL_STRUCT, self._column(NULL_STRUCT, 0, level, True)
            children = tuple(self._node(one.name, one.type, level, one.nullable, (*path, one.name), symbols) for one in kind)
        elif pa.types.is_list(kind) or pa.types.is_map(kind):
            child_level = len(self.levels)
            fill, column = NULL_LIST, self._column(NULL_LIST, child_level, level, nullable)
            self.levels.append(Level(column, level))
            parts = [kind.key_field, kind.item_field] if pa.types.is_map(kind) else [kind.value_field]
            names = ("key", "value") if pa.types.is_map(kind) else ("element",)
            children = tuple(
                self._node("", one.type, child_level, one.nullable, (*path, step), symbols) for one, step in zip(parts, names, strict=True)
            )
        elif kind in (pa.string(), pa.binary()):
            fill, column = NULL_BYTES, self._column(NULL_BYTES, 0, level, nullable)
        else:
            width = word_width(kind)
            column = self._column(NULL_WORD, width, level, nullable)
        first = len(self.fills)
        own = [] if column < 0 else [(fill, column, width if child_level < 0 else child_level)]
        inner = [other for one in children if child_level < 0 for other in self.fills[one.first_fill : one.first_fill + one.fills]]
        self.fills += own + inner
        return LayoutNode(
            name, kind, level, column, width, nullable, child_level, children, tuple(symbols.get(path, ())), first, len(own + inner)
        )

    def _column(self, kind: int, width: int, level: int, nullable: bool) -> int:
        made = ColumnSpec(kind, width, level, nullable)
        if kind != NULL_BYTES:
            self.columns.append(made)
            return self._first_other + len(self.columns) - self.bytes_columns - 1
        self.columns.insert(self.bytes_columns, made)
        self.bytes_columns += 1
        return self.bytes_columns - 1


def _count_bytes(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_count_bytes(one.type) for one in kind)
    if pa.types.is_map(kind):
        return _count_bytes(kind.key_type) + _count_bytes(kind.item_type)
    return _count_bytes(kind.value_type) if pa.types.is_list(kind) else int(kind in (pa.string(), pa.binary()))


def word_width(kind: pa.DataType) -> int:
    """Bytes of a value of fixed size in its column; a bool has a byte there."""
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return 1
    return word_width(kind.index_type) if pa.types.is_dictionary(kind) else kind.bit_width // 8


def nodes(node: LayoutNode) -> Iterator[LayoutNode]:
    """A node and everything in it."""
    yield node
    for child in node.children:
        yield from nodes(child)


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
