"""Which Arrow type each Avro type becomes. Unions are as in Spark, because Parquet and Spark have none."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import pyarrow as pa

from kolumn.errors import ArgumentError
from kolumn.values.avro.schema import SchemaNode, below
from kolumn.values.layout import Path
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
