"""Which Arrow type each Avro type becomes, what defaults of a reader's fields become, and what has to be done with each part of a writer's
schema to fill the columns of a reader's schema. Unions are as in Spark, because Parquet and Spark have none. A plan follows the writer's
order, because the bytes do; what only the reader has comes last in each record. Source: the Avro specification, "Schema Resolution", and
Java's `org.apache.avro.Resolver`: names of records count only among the types of a union, and of a reader's union the first type that
matches without a promotion is taken.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.core.text import is_text
from kolumn.values.avro_schema import SchemaNode, at_field, below
from kolumn.values.decoder import Wanted, wanted_fields
from kolumn.values.memory import Path

MOST_NODES = 20_000  # Types in a schema after names are replaced by what they stand for: a short text can define more than memory holds.
_NUMBERS = ({"int", "long"}, {"float", "double"})  # Unions that Spark reads as the second type.
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_PRIMITIVE = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_LOGICAL = {
    "date": pa.date32(), "time-millis": pa.time32("ms"), "time-micros": pa.time64("us"), "duration": pa.month_day_nano_interval(),
    **{f"timestamp-{name}": pa.timestamp(unit, "UTC") for name, unit in _UNITS.items()},
    **{f"local-timestamp-{name}": pa.timestamp(unit) for name, unit in _UNITS.items()},
}  # fmt: skip
TIMES = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
"""Numbers of a day. Arrow has no times after it, and neither fastavro nor Java returns one."""


def readable(node: SchemaNode, columns: Sequence[str] | None = None) -> SchemaNode:
    """A reader's schema as it is read: unions as in Spark, and only the columns that are wanted; `ArgumentError` if one does not exist.
    ``columns`` are dotted paths of fields. Arrays, maps and unions with null have no step of their own in a path.
    """
    return _Readable().node(node, None if columns is None else wanted_fields(columns), "")


@dataclass
class _Readable:
    done: dict[SchemaNode, SchemaNode] = field(default_factory=dict)

    def node(self, node: SchemaNode, wanted: Wanted, path: str) -> SchemaNode:
        if wanted is not None:
            return self._rebuilt(node, wanted, path)
        if node not in self.done:
            self.done[node] = self._rebuilt(node, wanted, path)
        return self.done[node]

    def _rebuilt(self, node: SchemaNode, wanted: Wanted, path: str) -> SchemaNode:
        if node.kind in ("array", "map"):
            return replace(node, items=self.node(node.inner, wanted, path))
        if node.kind == "union":
            return self._union(node, wanted, path)
        if node.kind != "record":
            if wanted is not None:
                raise ArgumentError(f"column {path + '.' if path else ''}{next(iter(wanted), '')}: {path or 'the value'} has no fields")
            return node
        own = {part.name: part for part in node.fields}
        names: dict[str, Wanted] = wanted if wanted is not None else dict.fromkeys(own)
        for name in names:
            if name not in own:
                near = get_close_matches(name, own, 1)
                hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(own) or 'none'}"
                raise ArgumentError(f"column {below(path, name)} is not in the Avro schema{hint}")
        kept = [part for part in node.fields if part.name in names]
        fields = [replace(part, type=self.node(part.type, names[part.name], below(path, part.name))) for part in kept]
        return replace(node, fields=tuple(fields))

    def _union(self, node: SchemaNode, wanted: Wanted, path: str) -> SchemaNode:
        others = members(node)
        nulls = [branch for branch in node.branches if branch.kind == "null"]
        for numbers in _NUMBERS:
            if {branch.kind for branch in others} == numbers:
                others = [SchemaNode(max(numbers, key=("int", "float", "long", "double").index))]
        if len(others) > 1 and wanted is not None:
            raise ArgumentError(f"column {path}.{next(iter(wanted))}: {path} is a union of several types, which is read as a whole")
        branches = tuple(nulls + [self.node(branch, wanted, path) for branch in others])
        return branches[0] if len(branches) == 1 else replace(node, branches=branches)


def members(union: SchemaNode) -> list[SchemaNode]:
    """The types of a union but null."""
    return [branch for branch in union.branches if branch.kind != "null"]


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
            return pa.struct([self._field(part.name, part.type, (*path, part.name)) for part in node.fields])
        if node.kind == "union":
            others = members(node)
            if len(others) == 1:
                return self.of(others[0], path)
            return pa.struct([pa.field(name := f"member{number}", self.of(other, (*path, name))) for number, other in enumerate(others)])
        if node.kind == "enum":
            self.symbols[path] = node.symbols
            return pa.dictionary(pa.int32(), pa.string())
        logical, width = node.logical, decimal_bytes(node)
        if width:
            assert logical is not None
            return (pa.decimal128 if width == 16 else pa.decimal256)(logical.precision, logical.scale)
        if logical is not None and logical.name in _LOGICAL:
            return _LOGICAL[logical.name]
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
        if not isinstance(value, dict) or not all(part.name in value or part.has_default for part in node.fields):
            return None
        return _of_parts(FIELDS, [(part.name, constant(part.type, value.get(part.name, part.default))) for part in node.fields])
    if node.kind == "array":
        return _of_parts(ITEMS, [("", constant(node.inner, item)) for item in value]) if isinstance(value, list) else None
    if node.kind == "map":
        if not isinstance(value, dict) or not all(is_text(key) for key in value):
            return None
        entries = [(Constant(BYTES, data=key.encode()), constant(node.inner, item)) for key, item in value.items()]
        return _of_parts(ITEMS, [part for key, item in entries for part in (("key", key), ("value", item))])
    if node.kind == "string":
        return Constant(BYTES, data=value.encode()) if is_text(value) else None
    return _of_bytes(node, value) if node.kind in ("bytes", "fixed") else _of_word(node, value)


def _of_parts(kind: int, parts: Sequence[tuple[str, Constant | None]]) -> Constant | None:
    known = tuple((name, part) for name, part in parts if part is not None)
    return Constant(kind, parts=known) if len(known) == len(parts) else None


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
    number, word, width = ("<f", "<i", 4) if node.kind == "float" else ("<d", "<q", 8)
    try:
        return Constant(WORD, struct.unpack(word, struct.pack(number, value))[0], width)
    except OverflowError:
        return None


def _of_bytes(node: SchemaNode, value: object) -> Constant | None:
    """Bytes are text in JSON, whose characters are the bytes."""
    if not isinstance(value, str) or any(ord(character) > 0xFF for character in value):
        return None
    data, width, logical = value.encode("latin-1"), decimal_bytes(node), node.logical
    if node.kind == "fixed" and len(data) != node.size:
        return None
    if width:
        number = int.from_bytes(data, "big", signed=True)
        assert logical is not None
        fits = data and abs(number) < 10**logical.precision
        return Constant(FIXED, data=number.to_bytes(width, "little", signed=True)) if fits else None
    if logical is not None and logical.name == "duration":
        months, days, milliseconds = struct.unpack("<III", data)
        fits = max(months, days) < 1 << 31
        return Constant(FIXED, data=struct.pack("<iiq", months, days, milliseconds * 1_000_000)) if fits else None
    return Constant(FIXED if node.kind == "fixed" else BYTES, data=data)


def _of_union(node: SchemaNode, value: object) -> Constant | None:
    """The first type that the JSON is a value of. Types are fields of a struct if there are several."""
    others = members(node)
    if value is None and len(others) < len(node.branches):
        return Constant(NULL)
    for number, other in enumerate(others):
        own = constant(other, value)
        if own is not None and len(others) == 1:
            return own
        if own is not None:
            return Constant(FIELDS, parts=tuple((f"member{k}", own if k == number else Constant(NULL)) for k in range(len(others))))
    return None


_PROMOTIONS = {
    "int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",), "string": ("bytes",), "bytes": ("string",),
}  # fmt: skip


class MismatchError(Exception):
    """Schemas that cannot be resolved: the field and the reason."""


@dataclass(frozen=True)
class Value:
    """A primitive, enum or fixed; null has no bytes and no column."""

    writer: SchemaNode
    reader: SchemaNode


@dataclass(frozen=True)
class Skip:
    """Bytes that no column gets."""

    writer: SchemaNode


@dataclass(frozen=True)
class RecordFields:
    """A record: what becomes of each of the writer's fields, and of those that only the reader has, by the names of columns."""

    parts: "tuple[tuple[str, Plan], ...]"


@dataclass(frozen=True)
class Items:
    """An array or a map: what becomes of each item; ``empties``: items may have no bytes."""

    item: "Plan"
    is_map: bool
    empties: bool


@dataclass(frozen=True)
class Branches:
    """A writer's union: what becomes of each of its types; None for those that make a value invalid."""

    writer: SchemaNode
    branches: "tuple[Plan | None, ...]"


@dataclass(frozen=True)
class Member:
    """A value for a reader's union: number of the type among those that are not null, -1 for null."""

    union: SchemaNode
    number: int
    value: "Plan"


Plan = Value | Skip | RecordFields | Items | Branches | Member | Constant


def resolve(writer: SchemaNode, reader: SchemaNode) -> Plan:
    """The plan; ``reader`` is as `readable` returns it. `MismatchError` if the schemas cannot be resolved."""
    return _Resolver().node(writer, reader, "")


def may_be_empty(node: SchemaNode, known: dict[SchemaNode, bool]) -> bool:
    """Whether values of a type may have no bytes."""
    if node not in known:
        no_bytes = node.kind == "null" or (node.kind == "fixed" and node.size == 0)
        known[node] = no_bytes or (node.kind == "record" and all(may_be_empty(part.type, known) for part in node.fields))
    return known[node]


@dataclass
class _Resolver:
    empty: dict[SchemaNode, bool] = field(default_factory=dict)
    steps: int = 0

    def node(self, writer: SchemaNode, reader: SchemaNode, path: str) -> Plan:
        self.steps += 1
        if self.steps > 4 * MOST_NODES:
            raise MismatchError("the schemas are too large")
        if writer.kind == "union":
            return self._writers_union(writer, reader, path)
        if reader.kind == "union":
            return self._readers_union(writer, reader, path)
        if writer.kind == reader.kind == "record":
            return self._record(writer, reader, path)
        if writer.kind == reader.kind and writer.kind in ("array", "map"):
            item = self.node(writer.inner, reader.inner, path)
            return Items(item, writer.kind == "map", writer.kind == "array" and may_be_empty(writer.inner, self.empty))
        differs = f"{at_field(path)}: {writer} is not read as {reader}"
        if writer.kind != reader.kind and reader.kind not in _PROMOTIONS.get(writer.kind, ()):
            raise MismatchError(differs)
        if writer.name and not _same_name(writer, reader):
            raise MismatchError(f"{differs}: the names differ")
        if writer.size != reader.size:
            raise MismatchError(f"{at_field(path)}: {writer} of {writer.size} bytes is not read as {reader} of {reader.size}")
        own, other = _meaning(writer), _meaning(reader)
        if own and other and own != other:
            raise MismatchError(f"{at_field(path)}: {own} is not read as {other}")
        return Value(writer, reader)

    def _record(self, writer: SchemaNode, reader: SchemaNode, path: str) -> RecordFields:
        targets = _targets(writer, reader)
        types = {part.name: part.type for part in reader.fields}
        parts: list[tuple[str, Plan]] = []
        for part in writer.fields:
            name = targets.get(part.name)
            parts.append(("", Skip(part.type)) if name is None else (name, self.node(part.type, types[name], below(path, name))))
        for part in reader.fields:
            if part.name not in targets.values():
                where = at_field(below(path, part.name))
                if not part.has_default:
                    raise MismatchError(f"{where}: it is not in the writer's {writer} and has no default")
                default = constant(part.type, part.default)
                if default is None:
                    raise MismatchError(f"{where}: its default is not of type {part.type}")
                parts.append((part.name, default))
        return RecordFields(tuple(parts))

    def _writers_union(self, writer: SchemaNode, reader: SchemaNode, path: str) -> Plan:
        branches: list[Plan | None] = []
        reasons = []
        for branch in writer.branches:
            try:
                branches.append(self.node(branch, reader, path))
            except MismatchError as error:
                branches.append(None)
                reasons.append(str(error))
        if len(reasons) == len(branches):
            raise MismatchError(reasons[0])
        return Branches(writer, tuple(branches))

    def _readers_union(self, writer: SchemaNode, reader: SchemaNode, path: str) -> Member:
        others = members(reader)
        if writer.kind == "null":
            if len(others) == len(reader.branches):
                raise MismatchError(f"{at_field(path)}: null is not in the reader's union")
            return Member(reader, -1, Value(writer, writer))
        exact = [other for other in others if other.kind == writer.kind]
        named = [other for other in exact if writer.name and _same_name(writer, other)]
        full = [other for other in named if writer.name == other.name]
        promoted = [other for other in others if other.kind in _PROMOTIONS.get(writer.kind, ())]
        reason = f"{at_field(path)}: {writer} is not in the reader's union of {', '.join(map(str, reader.branches))}"
        for other in [*full, *named, *exact, *promoted]:
            try:
                return Member(reader, others.index(other), self.node(writer, other, path))
            except MismatchError as error:
                if len(others) == 1:
                    reason = str(error)
        raise MismatchError(reason)


def _targets(writer: SchemaNode, reader: SchemaNode) -> dict[str, str]:
    """The reader's field for each of the writer's that has one; names come before aliases."""
    own = {part.name for part in writer.fields}
    targets = {part.name: part.name for part in reader.fields if part.name in own}
    for part in reader.fields:
        if part.name not in own:
            alias = next((name for name in part.aliases if name in own and name not in targets), None)
            if alias is not None:
                targets[alias] = part.name
    return targets


def _same_name(writer: SchemaNode, reader: SchemaNode) -> bool:
    """Whether names are equal without their namespaces, or the writer's is an alias of the reader's."""
    return _last(writer.name) in {_last(name) for name in (reader.name, *reader.aliases)}


def _meaning(node: SchemaNode) -> str:
    """What a number stands for: a logical type, with its unit or scale."""
    if node.logical is None:
        return ""
    name = node.logical.name.removeprefix("local-")
    return f"{name} with scale {node.logical.scale}" if name == "decimal" else name


def _last(name: str) -> str:
    return name.rpartition(".")[2]
