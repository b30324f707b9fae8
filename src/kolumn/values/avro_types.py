"""A reader's schema as it is read, and which Arrow type each Avro type becomes. A type that contains itself is nested to a depth; below it
is text in JSON. Unions of several types, which neither Arrow's tools nor Parquet have, are structs with a field for each type.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import warn_renamed
from kolumn.core.times import PER_SECOND
from kolumn.values.avro_schema import SchemaNode, below
from kolumn.values.decoder import Wanted, wanted_fields
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.memory import Path

MOST_NODES = 20_000  # Types in a schema after names are replaced by what they stand for: a short text can define more than memory holds.
MOST_DIGITS = 10_000  # Digits of a decimal that is text; one of more is its bytes.
UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_NUMBERS = ({"int", "long"}, {"float", "double"})  # Unions that are read as the second type, as in Spark.
_DEBEZIUM_UUID = "io.debezium.data.Uuid"
_PRIMITIVE = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_LOGICAL = {
    "date": pa.date32(), "time-millis": pa.time32("ms"), "time-micros": pa.time64("us"), "duration": pa.month_day_nano_interval(),
    **{f"timestamp-{name}": pa.timestamp(unit, "UTC") for name, unit in UNITS.items()},
    **{f"local-timestamp-{name}": pa.timestamp(unit) for name, unit in UNITS.items()},
}  # fmt: skip


@dataclass(frozen=True)
class AvroShape:
    """How a schema becomes columns: ``max_depth``, from 1, how often a record that contains itself is nested, and is JSON text below;
    ``unions``, whether the fields of a union's struct have the names of its "types" or those of "members"; ``time_unit`` of timestamps;
    ``uuids``, whether UUIDs have Arrow's type for them.
    """

    max_depth: int = 1
    unions: str = "types"
    time_unit: str | None = None
    uuids: bool = False


def readable(node: SchemaNode, columns: Sequence[str] | None = None, shape: AvroShape | None = None) -> SchemaNode:
    """A reader's schema as it is read: a tree, with only the columns that are wanted; `ArgumentError` if one does not exist. ``columns``
    are dotted paths of fields. Arrays, maps and unions with null have no step of their own in a path.
    """
    return _Readable(shape or AvroShape()).node(node, None if columns is None else wanted_fields(columns), "")


@dataclass
class _Readable:
    shape: AvroShape
    above: list[SchemaNode] = field(default_factory=list)
    count: int = 0

    def node(self, node: SchemaNode, wanted: Wanted, path: str) -> SchemaNode:
        self.count += 1
        if self.count > MOST_NODES:
            advice = "name the columns that are wanted"
            raise ArgumentError(f"the Avro schema has more than {MOST_NODES} types, each counted wherever it occurs: {advice}")
        if node.kind in ("array", "map"):
            return replace(node, items=self.node(node.inner, wanted, path))
        if node.kind == "union":
            return self._union(node, wanted, path)
        if node.kind != "record":
            if wanted is not None:
                raise ArgumentError(f"column {below(path, next(iter(wanted), ''))}: {path or 'the value'} has no fields")
            if self.shape.time_unit and node.logical is not None and "timestamp" in node.logical.name:
                return replace(node, logical=replace(node.logical, unit=self.shape.time_unit))
            return node
        if self.above.count(node) >= self.shape.max_depth:
            if wanted is not None:
                more = f"{node} contains itself; a larger max_depth makes columns of it"
                raise ArgumentError(f"column {below(path, next(iter(wanted), ''))}: {path or 'the value'} is JSON text, because {more}")
            return SchemaNode("json", items=node)
        self.above.append(node)
        made = self._record(node, wanted, path)
        self.above.pop()
        return made

    def _record(self, node: SchemaNode, wanted: Wanted, path: str) -> SchemaNode:
        own = {part.name: part for part in node.fields}
        names: dict[str, Wanted] = wanted if wanted is not None else dict.fromkeys(own)
        for name in names:
            if name not in own:
                raise ArgumentError(f"column {below(path, name)} is not in the Avro schema{_hint(name, list(own))}")
        kept = [part for part in node.fields if part.name in names]
        return replace(
            node, fields=tuple(replace(part, type=self.node(part.type, names[part.name], below(path, part.name))) for part in kept)
        )

    def _union(self, node: SchemaNode, wanted: Wanted, path: str) -> SchemaNode:
        others = members(node)
        nulls = [branch for branch in node.branches if branch.kind == "null"]
        for numbers in _NUMBERS:
            if {branch.kind for branch in others} == numbers:
                others = [SchemaNode(max(numbers, key=("int", "float", "long", "double").index))]
        if len(others) < 2:
            branches = (*nulls, *(self.node(branch, wanted, path) for branch in others))
            return branches[0] if len(branches) == 1 else replace(node, branches=branches)
        names = member_names(others, self.shape.unions)
        chosen = dict.fromkeys(names) if wanted is None else _members_of(wanted, names, path)
        made = [
            self.node(branch, chosen[name], below(path, name)) if name in chosen else SchemaNode("unread", items=branch)
            for branch, name in zip(others, names, strict=True)
        ]
        return replace(node, branches=(*nulls, *made), symbols=tuple(names))


def _hint(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known) or 'none'}"


def _members_of(wanted: dict[str, Wanted], names: list[str], path: str) -> dict[str, Wanted]:
    """What is wanted of each type of a union. Numbered names, which all unions had once, are known as well."""
    numbered = dict(zip(member_names(names, "members"), names, strict=True))
    chosen: dict[str, Wanted] = {}
    for name, inner in wanted.items():
        if name in names:
            chosen[name] = inner
        elif name in numbered:
            warn_renamed(f"column {below(path, name)}", below(path, numbered[name]))
            chosen[numbered[name]] = inner
        else:
            raise ArgumentError(f"column {below(path, name)} is not a type of the union{_hint(name, names)}")
    return chosen


def member_names(types: Sequence[SchemaNode | str], style: str = "types") -> list[str]:
    """Names of the types of a union: what they are, of a named type the last part of its name; the whole name, with "_", if two types
    would have the same. With "members" their numbers, as in Spark.
    """
    numbered = [f"member{number}" for number in range(len(types))]
    if style == "members":
        return numbered
    full = [one if isinstance(one, str) else one.name or one.kind for one in types]
    short = [name.rpartition(".")[2] for name in full]
    names = [one if short.count(one) == 1 else whole.replace(".", "_") for one, whole in zip(short, full, strict=True)]
    # Two names with "_" can be equal, if the namespaces are made for it.
    return [name if names.count(name) == 1 else number for name, number in zip(names, numbered, strict=True)]


def members(union: SchemaNode) -> list[SchemaNode]:
    """The types of a union but null."""
    return [branch for branch in union.branches if branch.kind != "null"]


def can_be_null(node: SchemaNode) -> bool:
    return node.kind == "null" or (node.kind == "union" and len(members(node)) < len(node.branches))


def decimal_bytes(node: SchemaNode) -> int:
    """Bytes of Arrow's decimal for a type; 0 if the type is not a decimal, or has more digits than Arrow's decimals."""
    if node.logical is None or node.logical.name != "decimal" or node.logical.precision > 76:
        return 0
    return 16 if node.logical.precision <= 38 else 32


def is_text_decimal(node: SchemaNode) -> bool:
    """Whether a type is a decimal of more digits than Arrow's: it becomes text."""
    return node.logical is not None and node.logical.name == "decimal" and 76 < node.logical.precision <= MOST_DIGITS


@dataclass
class ArrowTypes:
    """Arrow types of a schema that `readable` returned; ``symbols`` of each enum by its path, as `ColumnLayout.of` takes them."""

    symbols: dict[Path, tuple[str, ...]] = field(default_factory=dict)

    def of(self, node: SchemaNode, path: Path = ()) -> pa.DataType:
        """The type of a value. What cannot be null by the schema is not nullable."""
        if node.kind == "array":
            return pa.list_(self._field("item", node.inner, (*path, "element")))
        if node.kind == "map":
            return pa.map_(pa.string(), self._field("value", node.inner, (*path, "value")))
        if node.kind == "record":
            return pa.struct([self._field(part.name, part.type, (*path, part.name)) for part in node.fields])
        if node.kind == "union":
            others = members(node)
            if len(others) == 1:
                return self.of(others[0], path)
            named = [(name, other) for name, other in zip(node.symbols, others, strict=True) if other.kind != "unread"]
            return pa.struct([pa.field(name, self.of(other, (*path, name))) for name, other in named])
        if node.kind == "enum":
            self.symbols[path] = node.symbols
            return pa.dictionary(pa.int32(), pa.string())
        if node.kind == "json":
            return JSON_TEXT
        logical, width = node.logical, decimal_bytes(node)
        if width:
            assert logical is not None
            return (pa.decimal128 if width == 16 else pa.decimal256)(logical.precision, logical.scale)
        if is_text_decimal(node):
            return pa.string()
        if logical is not None and logical.name in _LOGICAL:
            type = _LOGICAL[logical.name]
            return pa.timestamp(logical.unit, type.tz) if logical.unit else type
        return pa.binary(node.size) if node.kind == "fixed" else _PRIMITIVE[node.kind]

    def _field(self, name: str, node: SchemaNode, path: Path) -> pa.Field:
        return pa.field(name, self.of(node, path), nullable=can_be_null(node))


def with_nulls(type: pa.DataType) -> pa.DataType:
    """The same type whose fields can be null, as those that are lost are. Elements of lists and values of maps stay as they are."""
    if pa.types.is_struct(type):
        return pa.struct([pa.field(part.name, with_nulls(part.type)) for part in type])
    if pa.types.is_map(type):
        return pa.map_(type.key_type, type.item_field.with_type(with_nulls(type.item_type)))
    return pa.list_(type.value_field.with_type(with_nulls(type.value_type))) if pa.types.is_list(type) else type


Meant = Callable[[SchemaNode, pa.DataType], pa.DataType | None]
"""The type that a part of a schema means, whose values are read as another one; None if its parts say that."""


def meant_type(node: SchemaNode, type: pa.DataType, meant: Meant) -> pa.DataType:
    """The type that is meant by a part of a readable schema, whose values are read as ``type``."""
    found = meant(node, type)
    if found is not None:
        return found
    if node.kind == "union":
        others = members(node)
        if len(others) == 1:
            return meant_type(others[0], type, meant)
        read = [branch for branch in others if branch.kind != "unread"]
        return pa.struct([part.with_type(meant_type(other, part.type, meant)) for part, other in zip(type, read, strict=True)])
    if node.kind == "record":
        own = {part.name: part.type for part in node.fields}
        return pa.struct([part.with_type(meant_type(own[part.name], part.type, meant)) for part in type])
    if node.kind == "array":
        return pa.list_(_of_items(node.inner, type.value_field, meant))
    return pa.map_(type.key_field, _of_items(node.inner, type.item_field, meant)) if node.kind == "map" else type


def _of_items(node: SchemaNode, part: pa.Field, meant: Meant) -> pa.Field:
    """An element that is not what it means is null."""
    type = meant_type(node, part.type, meant)
    return part.with_type(type).with_nullable(part.nullable or not (type == part.type or pa.types.is_nested(type)))


def uuid_type(node: SchemaNode, type: pa.DataType) -> pa.DataType | None:
    """Arrow's type of a UUID, which Avro writes as text or as 16 bytes, and Debezium as text with a name of its own."""
    is_uuid = (node.logical is not None and node.logical.name == "uuid") or (node.kind == "string" and node.meant == _DEBEZIUM_UUID)
    return pa.uuid() if is_uuid else None


def per_unit(name: str, unit: str) -> int:
    """What turns a timestamp of a logical type into a unit: what to multiply it with, or, if negative, to divide it by."""
    own, wanted = PER_SECOND[UNITS[name.rpartition("-")[2]]], PER_SECOND[unit]
    return wanted // own if wanted >= own else -(own // wanted)
