"""What has to be done with each part of a writer's schema to fill the columns of a reader's schema.

`resolve` is a pure function of two trees. A plan follows the writer's order, because the bytes do; what only the reader has comes last in
each record. Source: the Avro specification, "Schema Resolution"; where it leaves something open, Java's `org.apache.avro.Resolver`: names
of records count only among the types of a union, and of a reader's union the first type that matches without a promotion is taken.
"""

from dataclasses import dataclass, field

from kolumn.values.avro.schema import SchemaNode, at_field, below
from kolumn.values.avro.types import MOST_NODES, Constant, constant, members

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


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
    """The plan; ``reader`` is as `kolumn.values.avro.types.readable` returns it. `MismatchError` if the schemas cannot be resolved."""
    return _Resolver().node(writer, reader, "")


def may_be_empty(node: SchemaNode, known: dict[SchemaNode, bool]) -> bool:
    """Whether values of a type may have no bytes."""
    if node not in known:
        known[node] = (
            node.kind == "null"
            or (node.kind == "fixed" and node.size == 0)
            or (node.kind == "record" and all(may_be_empty(one.type, known) for one in node.fields))
        )
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
        return self._value(writer, reader, path)

    def _value(self, writer: SchemaNode, reader: SchemaNode, path: str) -> Value:
        if writer.kind != reader.kind and reader.kind not in _PROMOTIONS.get(writer.kind, ()):
            raise MismatchError(f"{at_field(path)}: {writer} is not read as {reader}")
        if writer.name and not _same_name(writer, reader):
            raise MismatchError(f"{at_field(path)}: {writer} is not read as {reader}: the names differ")
        if writer.size != reader.size:
            raise MismatchError(f"{at_field(path)}: {writer} of {writer.size} bytes is not read as {reader} of {reader.size}")
        meanings = [_meaning(one) for one in (writer, reader)]
        if all(meanings) and meanings[0] != meanings[1]:
            raise MismatchError(f"{at_field(path)}: {meanings[0]} is not read as {meanings[1]}")
        return Value(writer, reader)

    def _record(self, writer: SchemaNode, reader: SchemaNode, path: str) -> RecordFields:
        targets = _targets(writer, reader)
        types = {one.name: one.type for one in reader.fields}
        parts: list[tuple[str, Plan]] = []
        for part in writer.fields:
            name = targets.get(part.name)
            if name is None:
                parts.append(("", Skip(part.type)))
            else:
                parts.append((name, self.node(part.type, types[name], below(path, name))))
        for one in reader.fields:
            if one.name not in targets.values():
                if not one.has_default:
                    raise MismatchError(f"{at_field(below(path, one.name))}: it is not in the writer's {writer} and has no default")
                made = constant(one.type, one.default)
                if made is None:
                    raise MismatchError(f"{at_field(below(path, one.name))}: its default is not of type {one.type}")
                parts.append((one.name, made))
        return RecordFields(tuple(parts))

    def _writers_union(self, writer: SchemaNode, reader: SchemaNode, path: str) -> Plan:
        branches: list[Plan | None] = []
        reasons = []
        for one in writer.branches:
            try:
                branches.append(self.node(one, reader, path))
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
        exact = [one for one in others if one.kind == writer.kind]
        named = [one for one in exact if writer.name and _same_name(writer, one)]
        full = [one for one in named if writer.name == one.name]
        promoted = [one for one in others if one.kind in _PROMOTIONS.get(writer.kind, ())]
        reason = f"{at_field(path)}: {writer} is not in the reader's union of {', '.join(map(str, reader.branches))}"
        for one in [*full, *named, *exact, *promoted]:
            try:
                return Member(reader, others.index(one), self.node(writer, one, path))
            except MismatchError as error:
                if len(others) == 1:
                    reason = str(error)
        raise MismatchError(reason)


def _targets(writer: SchemaNode, reader: SchemaNode) -> dict[str, str]:
    """The reader's field for each of the writer's that has one; names come before aliases."""
    own = {one.name for one in writer.fields}
    targets = {one.name: one.name for one in reader.fields if one.name in own}
    for one in reader.fields:
        if one.name not in own:
            alias = next((name for name in one.aliases if name in own and name not in targets), None)
            if alias is not None:
                targets[alias] = one.name
    return targets


def _same_name(writer: SchemaNode, reader: SchemaNode) -> bool:
    """Whether names are equal without their namespaces, or the writer's is an alias of the reader's."""
    return _last(writer.name) == _last(reader.name) or any(
        alias == writer.name or _last(alias) == _last(writer.name) for alias in reader.aliases
    )


def _meaning(node: SchemaNode) -> str:
    """What a number stands for: a logical type, with its unit or scale."""
    if node.logical is None:
        return ""
    name = node.logical.name.removeprefix("local-")
    return f"{name} with scale {node.logical.scale}" if name == "decimal" else name


def _last(name: str) -> str:
    return name.rpartition(".")[2]
