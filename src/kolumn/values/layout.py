"""Which columns and levels a type takes: structs are spread out, every list counts its elements at a level of its own.

    struct<id: int64, tags: list<string>>       node          level  valid  column  child level
                                                 (root)        0      1      -1      -1
                                                 id            0      -1      2      -1
                                                 tags          0      3       3       1
                                                   (element)   1      0       0      -1

Each number of a column is a row of the table of columns (`kolumn.encodings.columns`); validity without data, of a struct, is a column too.
Columns of bytes have the first numbers: a GPU keeps a cursor for each value in each of them, and in no other column.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.arrays import Int64s
from kolumn.encodings.columns import NULL_BYTES, NULL_LIST, NULL_STRUCT, NULL_WORD

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
