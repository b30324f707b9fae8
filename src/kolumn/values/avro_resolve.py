"""What defaults of a reader's fields become, and what has to be done with each part of a writer's schema to fill the columns of a reader's
schema. A plan follows the writer's order, because the bytes do; what only the reader has comes last in each record. A field that cannot be
had from the writer's is lost, and no other one. Source: the Avro specification, "Schema Resolution", and Java's `org.apache.avro.Resolver`:
names of records count only among the types of a union, and of a reader's union the first type that matches without a promotion is taken.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

from kolumn.core.text import is_text
from kolumn.values.avro_schema import Logical, SchemaNode, at_field, below
from kolumn.values.avro_types import MOST_DIGITS, MOST_NODES, can_be_null, decimal_bytes, is_text_decimal, members, per_unit

TIMES = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
"""Numbers of a day. Arrow has no times after it, and neither fastavro nor Java returns one."""
_EXACT = Context(prec=MOST_DIGITS)
NULL, WORD, BYTES, FIXED, FIELDS, ITEMS = range(6)
_INTS = {"int": 31, "long": 63}
_NAMED_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "INF": math.inf, "-Infinity": -math.inf, "-INF": -math.inf}


@dataclass(frozen=True)
class Constant:
    """A value that is the same in every row: NULL; a WORD of ``bits`` and ``width``; ``data`` of BYTES, and of FIXED as the column has
    them; ``parts`` of FIELDS (names of columns with their constants) and ITEMS (elements of an array, without names; of a map "key" and
    "value" by turns). ``value`` is the same for Python.
    """

    kind: int
    value: object = None
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
    if node.kind == "json":
        # What it looks like in the writer's values is not known: defaults of such a type are null or empty lists.
        return None
    if node.kind == "record":
        if not isinstance(value, dict) or not all(part.name in value or part.has_default for part in node.fields):
            return None
        return _fields([(part.name, constant(part.type, value.get(part.name, part.default))) for part in node.fields])
    if node.kind == "array":
        return _items([("", constant(node.inner, item)) for item in value]) if isinstance(value, list) else None
    if node.kind == "map":
        if not isinstance(value, dict) or not all(is_text(key) for key in value):
            return None
        entries = [(Constant(BYTES, key, data=key.encode()), constant(node.inner, item)) for key, item in value.items()]
        return _items([part for key, item in entries for part in (("key", key), ("value", item))])
    if node.kind == "string":
        return Constant(BYTES, value, data=value.encode()) if is_text(value) else None
    return _of_bytes(node, value) if node.kind in ("bytes", "fixed") else _of_word(node, value)


def _fields(parts: Sequence[tuple[str, Constant | None]]) -> Constant | None:
    known = tuple((name, part) for name, part in parts if part is not None)
    return Constant(FIELDS, {name: part.value for name, part in known}, parts=known) if len(known) == len(parts) else None


def _items(parts: Sequence[tuple[str, Constant | None]]) -> Constant | None:
    known = tuple((name, part) for name, part in parts if part is not None)
    values = [part.value for _, part in known]
    pairs = list(zip(values[::2], values[1::2], strict=True)) if known and known[0][0] else values
    return Constant(ITEMS, pairs, parts=known) if len(known) == len(parts) else None


def _of_word(node: SchemaNode, value: Any) -> Constant | None:
    if node.kind == "enum":
        return Constant(WORD, value, node.symbols.index(value), 4) if isinstance(value, str) and value in node.symbols else None
    if node.kind == "boolean":
        return Constant(WORD, value, int(value), 1) if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if node.kind in _INTS:
        bits = _INTS[node.kind]
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        day = TIMES.get(node.logical.name) if node.logical is not None else None
        least, most = (0, day) if day is not None else (-(1 << bits), 1 << bits)
        count = in_unit(int(value), node.logical) if whole and least <= value < most else None
        return None if count is None else Constant(WORD, count, count, (bits + 1) // 8)
    if isinstance(value, str):
        value = _NAMED_NUMBERS.get(value)
    if not isinstance(value, int | float):
        return None
    number, word, width = ("<f", "<i", 4) if node.kind == "float" else ("<d", "<q", 8)
    try:
        return Constant(WORD, float(value), struct.unpack(word, struct.pack(number, value))[0], width)
    except OverflowError:
        return None


def in_unit(value: int, logical: Logical | None) -> int | None:
    """A number of a reader's type in the unit of its column; None if 64 bits do not hold it."""
    if logical is None or not logical.unit:
        return value
    factor = per_unit(logical.name, logical.unit)
    value = value * factor if factor > 0 else value // -factor
    return value if -(1 << 63) <= value < 1 << 63 else None


def decimal_of(data: bytes, logical: Logical) -> Decimal | None:
    """The decimal that bytes are; None if they are none, or it has more digits than its type."""
    unscaled = int.from_bytes(data, "big", signed=True)
    # Four bits hold a digit. To turn more of them into digits would take the square of their number.
    if not data or unscaled.bit_length() > 4 * logical.precision:
        return None
    number = Decimal(unscaled)
    return number.scaleb(-logical.scale, _EXACT) if number.adjusted() < logical.precision else None


def duration_of(data: bytes) -> tuple[int, int, int] | None:
    """Months, days and nanoseconds; None if Arrow's 32 bits do not hold them."""
    months, days, milliseconds = struct.unpack("<III", data)
    return (months, days, milliseconds * 1_000_000) if max(months, days) < 1 << 31 else None


def _of_bytes(node: SchemaNode, value: object) -> Constant | None:
    """Bytes are text in JSON, whose characters are the bytes."""
    if not isinstance(value, str) or any(ord(character) > 0xFF for character in value):
        return None
    data, width, logical = value.encode("latin-1"), decimal_bytes(node), node.logical
    if node.kind == "fixed" and len(data) != node.size:
        return None
    if logical is not None and (width or is_text_decimal(node)):
        number = decimal_of(data, logical)
        if number is None:
            return None
        if not width:
            return Constant(BYTES, f"{number:f}", data=f"{number:f}".encode())
        return Constant(FIXED, number, data=int.from_bytes(data, "big", signed=True).to_bytes(width, "little", signed=True))
    if logical is not None and logical.name == "duration":
        parts = duration_of(data)
        return None if parts is None else Constant(FIXED, parts, data=struct.pack("<iiq", *parts))
    return Constant(FIXED if node.kind == "fixed" else BYTES, data, data=data)


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
            read = [(k, name) for k, name in enumerate(node.symbols) if others[k].kind != "unread"]
            return _fields([(name, own if k == number else Constant(NULL)) for k, name in read])
    return None


_PROMOTIONS = {
    "int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",), "string": ("bytes",), "bytes": ("string",),
}  # fmt: skip


class MismatchError(Exception):
    """Schemas that cannot be resolved: the field and the reason."""


class TooLargeError(MismatchError):
    """Schemas that have too many types together."""


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
class Json:
    """A value that becomes its text in JSON."""

    writer: SchemaNode


@dataclass(frozen=True)
class LostField:
    """A field of the reader's that no value of the writer's has, and why; the ``writer``'s bytes, if it has any, are skipped."""

    writer: SchemaNode | None
    reason: str


@dataclass(frozen=True)
class RecordFields:
    """A record: what becomes of each of the writer's fields, and of those that only the reader has, by the names of columns."""

    parts: "tuple[tuple[str, Plan], ...]"


@dataclass(frozen=True)
class Items:
    """An array or a map: what becomes of each item; ``empties``: items may have no bytes; ``nullable``: in the column they can be null."""

    item: "Plan"
    is_map: bool
    empties: bool
    nullable: bool


@dataclass(frozen=True)
class Branches:
    """A writer's union: what becomes of each of its types; None for those that the reader does not have."""

    writer: SchemaNode
    branches: "tuple[Plan | None, ...]"


@dataclass(frozen=True)
class Member:
    """A value for a reader's union: number of the type among those that are not null, -1 for null."""

    union: SchemaNode
    number: int
    value: "Plan"

    @property
    def name(self) -> str:
        """The field of the union's struct; "" where the column is the value itself, or null."""
        return self.union.symbols[self.number] if self.number >= 0 and self.union.symbols else ""


Plan = Value | Skip | Json | LostField | RecordFields | Items | Branches | Member | Constant
Steps = tuple[str, ...]  # Fields that lead from the value to a part of it.


def resolve(writer: SchemaNode, reader: SchemaNode) -> Plan:
    """The plan; ``reader`` is as `readable` returns it. `MismatchError` if the schemas cannot be resolved."""
    return _Resolver().node(writer, reader, "")


def losses(plan: Plan, steps: Steps = ()) -> Iterator[tuple[Steps, str, str]]:
    """What a plan loses of every record at the end of some steps: the steps, the field, the reason."""
    if isinstance(plan, RecordFields):
        for name, part in plan.parts:
            if isinstance(part, LostField):
                yield steps, name, part.reason
            else:
                yield from losses(part, (*steps, name))
    elif isinstance(plan, Items):
        yield from losses(plan.item, steps)
    elif isinstance(plan, Branches):
        for branch in plan.branches:
            if branch is not None:
                yield from losses(branch, steps)
    elif isinstance(plan, Member):
        yield from losses(plan.value, (*steps, plan.name) if plan.name else steps)


def may_be_empty(node: SchemaNode, known: dict[SchemaNode, bool]) -> bool:
    """Whether values of a type may have no bytes."""
    if node not in known:
        known[node] = False  # Also of a record within itself, as long as nothing else is known.
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
            raise TooLargeError("the schemas are too large")
        if writer.kind == "union":
            return self._writers_union(writer, reader, path)
        if reader.kind == "union":
            return self._readers_union(writer, reader, path)
        if reader.kind == "json" and writer.kind == reader.inner.kind:
            return Json(writer)
        if writer.kind == reader.kind == "record":
            return self._record(writer, reader, path)
        if writer.kind == reader.kind and writer.kind in ("array", "map"):
            item = self.node(writer.inner, reader.inner, path)
            is_map = writer.kind == "map"
            return Items(item, is_map, not is_map and may_be_empty(writer.inner, self.empty), can_be_null(reader.inner))
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
            parts.append(("", Skip(part.type)) if name is None else (name, self._field(part.type, types[name], below(path, name))))
        for part in reader.fields:
            if part.name not in targets.values():
                where = at_field(below(path, part.name))
                default = constant(part.type, part.default) if part.has_default else None
                why = (
                    f"its default is not of type {part.type}"
                    if part.has_default
                    else f"it is not in the writer's {writer} and has no default"
                )
                parts.append((part.name, default or LostField(None, f"{where}: {why}")))
        return RecordFields(tuple(parts))

    def _field(self, writer: SchemaNode, reader: SchemaNode, path: str) -> Plan:
        try:
            return self.node(writer, reader, path)
        except TooLargeError:
            raise
        except MismatchError as error:
            return LostField(writer, str(error))

    def _writers_union(self, writer: SchemaNode, reader: SchemaNode, path: str) -> Plan:
        branches: list[Plan | None] = []
        reasons = []
        for branch in writer.branches:
            try:
                branches.append(self.node(branch, reader, path))
            except TooLargeError:
                raise
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
        exact = [other for other in others if other.original.kind == writer.kind]
        named = [other for other in exact if writer.name and _same_name(writer, other.original)]
        full = [other for other in named if writer.name == other.original.name]
        promoted = [other for other in others if other.original.kind in _PROMOTIONS.get(writer.kind, ())]
        reason = f"{at_field(path)}: {writer} is not in the reader's union of {', '.join(map(str, reader.branches))}"
        partly: list[Member] = []
        for other in dict.fromkeys([*full, *named, *exact, *promoted]):
            number = others.index(other)
            try:
                found = Member(reader, number, Skip(writer) if other.kind == "unread" else self.node(writer, other, path))
            except TooLargeError:
                raise
            except MismatchError as error:
                if len(others) == 1:
                    reason = str(error)
                continue
            if not any(losses(found)):
                return found
            if other in named or len(others) == 1:
                partly.append(found)
        if partly:
            return partly[0]
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
