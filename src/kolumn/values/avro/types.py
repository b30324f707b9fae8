"""Which Arrow type each Avro type becomes. Unions are as in Spark, because Parquet and Spark have none.

Defaults of a reader's fields: JSON becomes the bits, bytes and elements that columns get.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.values.avro.schema import SchemaNode, below
from kolumn.values.memory import Path
from kolumn.values.schemas.schema import is_text
from kolumn.values.types import Wanted, wanted_fields

MOST_NODES = 20_000
"""Types in a schema after names are replaced by what they stand for: a short text can define more than memory holds."""
_NUMBERS = ({"int", "long"}, {"float", "double"})
"""Unions that Spark reads as the second type."""
_PRIMITIVE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
    "duration": pa.month_day_nano_interval(),
}
TIMES = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
"""Numbers of a day. Arrow has no times after it, and neither fastavro nor Java returns one."""


def readable(node: SchemaNode, columns: Sequence[str] | None = None) -> SchemaNode:
    """A reader's schema as it is read: unions as in Spark, and only the columns that are wanted; `ArgumentError` if one does not exist.

    ``columns`` are dotted paths of fields. Arrays, maps and unions with null have no step of their own in a path.
    """
    reader = _Readable()
    return reader.node(node, None if columns is None else wanted_fields(columns), "")


@dataclass
class _Readable:
    made: dict[SchemaNode, SchemaNode] = field(default_factory=dict)

    def node(self, node: SchemaNode, wanted: Wanted, path: str) -> SchemaNode:
        if wanted is None and node in self.made:
            return self.made[node]
        made = self._rebuilt(node, wanted, path)
        if wanted is None:
            self.made[node] = made
        return made

    def _rebuilt(self, node: SchemaNode, wanted: Wanted, path: str) -> SchemaNode:
        if node.kind in ("array", "map"):
            return replace(node, items=self.node(node.inner, wanted, path))
        if node.kind == "union":
            return self._union(node, wanted, path)
        if node.kind != "record":
            if wanted is not None:
                raise ArgumentError(f"column {path + '.' if path else ''}{next(iter(wanted), '')}: {path or 'the value'} has no fields")
            return node
        fields = {one.name: one for one in node.fields}
        names: dict[str, Wanted] = wanted if wanted is not None else dict.fromkeys(fields)
        for name in names:
            if name not in fields:
                near = get_close_matches(name, fields, 1)
                hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(fields) or 'none'}"
                raise ArgumentError(f"column {below(path, name)} is not in the Avro schema{hint}")
        kept = []
        for one in node.fields:
            if one.name in names:
                kept.append(replace(one, type=self.node(one.type, names[one.name], below(path, one.name))))
        return replace(node, fields=tuple(kept))

    def _union(self, node: SchemaNode, wanted: Wanted, path: str) -> SchemaNode:
        others = [one for one in node.branches if one.kind != "null"]
        nulls = [one for one in node.branches if one.kind == "null"]
        for numbers in _NUMBERS:
            if {one.kind for one in others} == numbers:
                others = [SchemaNode(max(numbers, key=("int", "float", "long", "double").index))]
        if len(others) > 1 and wanted is not None:
            raise ArgumentError(f"column {path}.{next(iter(wanted))}: {path} is a union of several types, which is read as a whole")
        branches = tuple(nulls + [self.node(one, wanted, path) for one in others])
        return branches[0] if len(branches) == 1 else replace(node, branches=branches)


def members(union: SchemaNode) -> list[SchemaNode]:
    """The types of a union but null."""
    return [one for one in union.branches if one.kind != "null"]


def decimal_bytes(node: SchemaNode) -> int:
    """Bytes of Arrow's decimal for a type; 0 if the type is not a decimal, or has more digits than Arrow's decimals."""
    if node.logical is None or node.logical.name != "decimal" or node.logical.precision > 76:
        return 0
    return 16 if node.logical.precision <= 38 else 32


@dataclass
class ArrowTypes:
    """Arrow types of a schema that `readable` returned; ``symbols`` of each enum by its path, as `ColumnLayout.of` takes them."""

    symbols: dict[Path, tuple[str, ...]] = field(default_factory=dict)
    _count: int = 0

    def of(self, node: SchemaNode, path: Path = ()) -> pa.DataType:
        """The type of a value; raises `ArgumentError` for one that is too large."""
        self._count += 1
        if self._count > MOST_NODES:
            raise ArgumentError(f"the Avro schema has more than {MOST_NODES} types")
        if node.kind == "array":
            return pa.list_(self._field("item", node.inner, (*path, "element")))
        if node.kind == "map":
            return pa.map_(pa.string(), self._field("value", node.inner, (*path, "value")))
        if node.kind == "record":
            return pa.struct([self._field(one.name, one.type, (*path, one.name)) for one in node.fields])
        if node.kind == "union":
            others = members(node)
            if len(others) == 1:
                return self.of(others[0], path)
            return pa.struct([pa.field(name := f"member{number}", self.of(one, (*path, name))) for number, one in enumerate(others)])
        if node.kind == "enum":
            self.symbols[path] = node.symbols
            return pa.dictionary(pa.int32(), pa.string())
        width = decimal_bytes(node)
        if width:
            logical = node.logical
            assert logical is not None
            return (pa.decimal128 if width == 16 else pa.decimal256)(logical.precision, logical.scale)
        if node.logical is not None and node.logical.name in _LOGICAL:
            return _LOGICAL[node.logical.name]
        return pa.binary(node.size) if node.kind == "fixed" else _PRIMITIVE[node.kind]

    def _field(self, name: str, node: SchemaNode, path: Path) -> pa.Field:
        can_be_null = node.kind == "null" or (node.kind == "union" and len(members(node)) < len(node.branches))
        return pa.field(name, self.of(node, path), nullable=can_be_null)


NULL, WORD, BYTES, FIXED, FIELDS, ITEMS = range(6)
_INTS = {"int": 31, "long": 63}
_NAMED_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "INF": math.inf, "-Infinity": -math.inf, "-INF": -math.inf}


@dataclass(frozen=True)
class Constant:
    """A value that is the same in every row: NULL; a WORD of ``bits`` and ``width``; ``data`` of BYTES, and of FIXED as the column has
    them; ``parts`` of FIELDS (names of columns with their constants) and ITEMS (elements of an array, without names; of a map "key" and
    "value" by turns).
    """

    kind: int
    bits: int = 0
    width: int = 0
    data: bytes = b""
    parts: "tuple[tuple[str, Constant], ...]" = ()


def constant(node: SchemaNode, value: object) -> Constant | None:
    """The constant for a default, or None if the JSON is not a value of the type. ``node`` is a part of a readable schema."""
    if node.kind == "union":
        return _of_union(node, value)
    if node.kind == "null":
        return Constant(NULL) if value is None else None
    if node.kind == "record":
        return _of_record(node, value)
    if node.kind == "array":
        items = [constant(node.inner, one) for one in value] if isinstance(value, list) else [None]
        return None if None in items else Constant(ITEMS, parts=tuple(("", one) for one in items if one is not None))
    if node.kind == "map":
        return _of_map(node, value)
    if node.kind == "string":
        return Constant(BYTES, data=value.encode()) if is_text(value) else None
    if node.kind in ("bytes", "fixed"):
        return _of_bytes(node, value)
    return _of_word(node, value)


def _of_word(node: SchemaNode, value: Any) -> Constant | None:
    if node.kind == "enum":
        return Constant(WORD, node.symbols.index(value), 4) if isinstance(value, str) and value in node.symbols else None
    if node.kind == "boolean":
        return Constant(WORD, int(value), 1) if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if node.kind in _INTS:
        bits = _INTS[node.kind]
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        day = TIMES.get(node.logical.name) if node.logical is not None else None
        least, most = (0, day) if day is not None else (-(1 << bits), 1 << bits)
        return Constant(WORD, int(value), (bits + 1) // 8) if whole and least <= value < most else None
    if isinstance(value, str):
        value = _NAMED_NUMBERS.get(value)
    if not isinstance(value, int | float):
        return None
    try:
        if node.kind == "float":
            return Constant(WORD, struct.unpack("<i", struct.pack("<f", value))[0], 4)
        return Constant(WORD, struct.unpack("<q", struct.pack("<d", value))[0], 8)
    except OverflowError:
        return None


def _of_bytes(node: SchemaNode, value: object) -> Constant | None:
    """Bytes are text in JSON, whose characters are the bytes."""
    if not isinstance(value, str) or any(ord(one) > 0xFF for one in value):
        return None
    data = value.encode("latin-1")
    if node.kind == "fixed" and len(data) != node.size:
        return None
    width = decimal_bytes(node)
    if width:
        number = int.from_bytes(data, "big", signed=True)
        assert node.logical is not None
        fits = data and abs(number) < 10**node.logical.precision
        return Constant(FIXED, data=number.to_bytes(width, "little", signed=True)) if fits else None
    if node.logical is not None and node.logical.name == "duration":
        months, days, milliseconds = struct.unpack("<III", data)
        fits = max(months, days) < 1 << 31
        return Constant(FIXED, data=struct.pack("<iiq", months, days, milliseconds * 1_000_000)) if fits else None
    return Constant(FIXED if node.kind == "fixed" else BYTES, data=data)


def _of_union(node: SchemaNode, value: object) -> Constant | None:
    """The first type that the JSON is a value of. Types are fields of a struct if there are several."""
    if value is None and len(members(node)) < len(node.branches):
        return Constant(NULL)
    for number, one in enumerate(members(node)):
        made = constant(one, value)
        if made is not None and len(members(node)) == 1:
            return made
        if made is not None:
            parts = [(f"member{other}", made if other == number else Constant(NULL)) for other in range(len(members(node)))]
            return Constant(FIELDS, parts=tuple(parts))
    return None


def _of_record(node: SchemaNode, value: object) -> Constant | None:
    if not isinstance(value, dict):
        return None
    parts = []
    for one in node.fields:
        if one.name not in value and not one.has_default:
            return None
        made = constant(one.type, value.get(one.name, one.default))
        if made is None:
            return None
        parts.append((one.name, made))
    return Constant(FIELDS, parts=tuple(parts))


def _of_map(node: SchemaNode, value: object) -> Constant | None:
    if not isinstance(value, dict) or not all(is_text(key) for key in value):
        return None
    parts: list[tuple[str, Constant]] = []
    for key, one in value.items():
        made = constant(node.inner, one)
        if made is None:
            return None
        parts += [("key", Constant(BYTES, data=key.encode())), ("value", made)]
    return Constant(ITEMS, parts=tuple(parts))
