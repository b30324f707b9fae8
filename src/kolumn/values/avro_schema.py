"""Avro schemas as nodes: JSON is read, names are replaced by what they stand for, invalid logical types are dropped. A record that contains
itself leads back to its own node. Source: https://avro.apache.org/docs/1.12.0/specification/; where it leaves something open, Java's
`org.apache.avro.Schema.Parser`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from kolumn.core.errors import ArgumentError
from kolumn.values.schemas.schema import PRIMITIVES, Schema, UnreadableSchemasError

MAX_DEPTH = 100  # Deepest nesting of a schema. Programs are made by recursion, and no schema in use comes near.
Referenced = Callable[[str, int], Schema | None]  # Looks up the schema of a reference by subject and version.


@dataclass(frozen=True)
class Logical:
    """A logical type that is valid for the type that has it; precision and scale of "decimal"; of a reader's timestamp the unit of its
    column, "" for its own.
    """

    name: str
    precision: int = 0
    scale: int = 0
    unit: str = ""


@dataclass(frozen=True, eq=False)
class SchemaNode:
    """One type of a schema. Uses of a name share the node. ``kind`` is one of `PRIMITIVES`, "record", "enum", "fixed", "array", "map",
    "union"; ``name`` and ``aliases`` are full names. ``items`` are those of an array, or the values of a map; ``default`` is an enum's
    symbol that a reader takes for symbols it does not know; ``size`` the bytes of a fixed. `kolumn.values.avro_types.readable` adds "json",
    text instead of the record ``items``, "unread", the type ``items`` of a union that has no column, and ``symbols`` of a union of several
    types, the names of their columns.
    """

    kind: str
    name: str = ""
    aliases: frozenset[str] = frozenset()
    fields: "tuple[Field, ...]" = ()
    items: "SchemaNode | None" = None
    branches: "tuple[SchemaNode, ...]" = ()
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    logical: Logical | None = None
    meant: str = ""  # The name that Kafka Connect has for the meaning of a primitive type.

    @property
    def inner(self) -> "SchemaNode":
        assert self.items is not None
        return self.items

    @property
    def original(self) -> "SchemaNode":
        """The type in the schema."""
        return self.inner if self.kind in ("json", "unread") else self

    def __str__(self) -> str:
        node = self.original
        return f"{node.kind} {node.name}" if node.name else node.kind


@dataclass(frozen=True)
class Field:
    """A field of a record; ``default`` is JSON, and counts if ``has_default``."""

    name: str
    type: SchemaNode
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


def parse(schema: Schema, referenced: Referenced | None = None) -> SchemaNode:
    """The outermost type of a schema; ``referenced`` looks up the schemas that ``schema.references`` names. `ArgumentError` if the text is
    not an Avro schema, a reference is missing, or no value of a type ends.
    """
    parser = _Parser()
    try:
        parser.references(schema, referenced, set())
        node = parser.type(_json(schema), "", "", 0)
        parser.check_ends()
        return node
    except RecursionError:
        raise ArgumentError(f"{title(schema)}: types are nested too deeply") from None
    except UnreadableSchemasError:
        raise
    except ArgumentError as error:
        raise ArgumentError(f"{title(schema)}: {error}") from None


def title(schema: Schema) -> str:
    name = schema.guid if schema.id is None else schema.id
    text = " ".join(schema.text.split()) if name is None else str(name)
    return f"Avro schema {text if len(text) <= 60 else text[:57] + '...'}"


def _json(schema: Schema) -> Any:
    if schema.kind != "AVRO":
        raise ArgumentError(f"expected an Avro schema, found one of type {schema.kind}")
    try:
        return json.loads(schema.text)
    except ValueError as error:
        raise ArgumentError(f"its text is not JSON: {error}") from None


@dataclass
class _Parser:
    """Named types so far; a record whose definition is not complete has no fields yet."""

    named: dict[str, SchemaNode] = field(default_factory=dict)

    def references(self, schema: Schema, referenced: Referenced | None, above: set[tuple[str, int]]) -> None:
        for reference in schema.references:
            version = reference.subject, reference.version
            text = f"the reference {reference.name!r} (subject {reference.subject!r}, version {reference.version})"
            if version in above:
                raise ArgumentError(f"{text} leads back to itself")
            if reference.name in self.named:
                continue
            used = referenced(*version) if referenced else None
            if used is None:
                raise ArgumentError(f"{text} is not among the schemas")
            self.references(used, referenced, above | {version})
            if reference.name not in self.named:
                self.type(_json(used), "", "", 0)

    def type(self, given: Any, space: str, path: str, depth: int) -> SchemaNode:
        """The node of a type; ``space`` is the namespace around it, ``path`` the fields that lead to it."""
        if depth > MAX_DEPTH:
            raise ArgumentError(f"{at_field(path)}: types are nested too deeply")
        if isinstance(given, str):
            return self._by_name(given, space, path)
        if isinstance(given, list):
            return self._union(given, space, path, depth)
        if not isinstance(given, dict) or "type" not in given:
            raise ArgumentError(f"{at_field(path)}: {json.dumps(given)[:40]} is not a type")
        kind = given["type"]
        if not isinstance(kind, str):
            return self.type(kind, space, path, depth + 1)
        if kind in PRIMITIVES:
            return SchemaNode(kind, logical=_logical(given, kind, 0), meant=str(given.get("connect.name", "")))
        if kind in ("array", "map"):
            return SchemaNode(kind, items=self.type(given.get("items" if kind == "array" else "values"), space, path, depth + 1))
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(given, "record" if kind == "error" else kind, space, path, depth)
        return self._by_name(kind, space, path)

    def _by_name(self, name: str, space: str, path: str) -> SchemaNode:
        if name in PRIMITIVES:
            return SchemaNode(name)
        for full in (_full(name, space), name):
            if full in self.named:
                return self.named[full]
        raise ArgumentError(f"{at_field(path)}: {name!r} is not defined")

    def _union(self, given: list[Any], space: str, path: str, depth: int) -> SchemaNode:
        branches = tuple(self.type(branch, space, path, depth + 1) for branch in given)
        if not branches:
            raise ArgumentError(f"{at_field(path)}: the union has no types")
        kinds = [branch.name or branch.kind for branch in branches]
        if len(set(kinds)) < len(kinds) or "union" in kinds:
            raise ArgumentError(f"{at_field(path)}: a union may have each type once, and no union in it; found: {', '.join(kinds)}")
        return SchemaNode("union", branches=branches)

    def _definition(self, given: dict[str, Any], kind: str, space: str, path: str, depth: int) -> SchemaNode:
        name = given.get("name")
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"{at_field(path)}: the {kind} has no name")
        outer = given.get("namespace")
        full = _full(name, outer if isinstance(outer, str) else space)
        if full in self.named:
            raise ArgumentError(f"{at_field(path)}: {full} is defined twice")
        own = full.rpartition(".")[0]
        aliases = frozenset(_full(alias, own) for alias in _texts(given, "aliases", path))
        if kind == "record":
            node = self.named[full] = SchemaNode(kind, full, aliases)
            # A type in it may be the record itself.
            object.__setattr__(node, "fields", self._fields(given, own, path, depth))
        elif kind == "enum":
            symbols = _texts(given, "symbols", path)
            default = given.get("default")
            if len(set(symbols)) < len(symbols) or (default is not None and default not in symbols):
                raise ArgumentError(f"{at_field(path)}: the symbols of enum {full} repeat, or its default is not one of them")
            node = SchemaNode(kind, full, aliases, symbols=symbols, default=default)
        else:
            size = given.get("size")
            if type(size) is not int or not 0 <= size < 1 << 31:
                raise ArgumentError(f"{at_field(path)}: fixed {full} has no size")
            node = SchemaNode(kind, full, aliases, size=size, logical=_logical(given, kind, size))
        self.named[full] = node
        return node

    def check_ends(self) -> None:
        """Refuse records that always contain themselves."""
        records = {name: node.fields for name, node in self.named.items() if node.kind == "record"}
        inner = {name: [part.type.name for part in fields if part.type.kind == "record"] for name, fields in records.items()}
        try:
            TopologicalSorter(inner).prepare()
        except CycleError as error:
            raise ArgumentError(f"record {error.args[1][0]} always contains itself, so no value of it ends") from None

    def _fields(self, given: dict[str, Any], space: str, path: str, depth: int) -> tuple[Field, ...]:
        fields = given.get("fields")
        if not isinstance(fields, list):
            raise ArgumentError(f"{at_field(path)}: the record has no fields")
        done: dict[str, Field] = {}
        for part in fields:
            name = part.get("name") if isinstance(part, dict) else None
            if not isinstance(name, str) or not name or name in done or "type" not in part:
                raise ArgumentError(f"{at_field(path)}: field {name!r} has no name or no type, or occurs twice")
            own = below(path, name)
            aliases = _texts(part, "aliases", own)
            done[name] = Field(name, self.type(part["type"], space, own, depth + 1), aliases, "default" in part, part.get("default"))
        return tuple(done.values())


def at_field(path: str) -> str:
    return f"field {path}" if path else "the outermost type"


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _texts(given: dict[str, Any], key: str, path: str) -> tuple[str, ...]:
    texts = given.get(key, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ArgumentError(f"{at_field(path)}: {key} is not a list of names")
    return tuple(texts)


_LOGICAL = {
    "date": ("int",), "time-millis": ("int",), "time-micros": ("long",), "uuid": ("string", "fixed"), "duration": ("fixed",),
    **{f"{local}timestamp-{unit}": ("long",) for local in ("", "local-") for unit in ("millis", "micros", "nanos")},
    "decimal": ("bytes", "fixed"),
}  # fmt: skip
"""Logical types, and the types that they are valid for."""
_SIZES = {"uuid": 16, "duration": 12}


def _logical(given: dict[str, Any], kind: str, size: int) -> Logical | None:
    """The logical type, or None for one that is unknown or not valid here: the specification says to ignore it."""
    name = given.get("logicalType")
    if not isinstance(name, str) or kind not in _LOGICAL.get(name, ()):
        return None
    if kind == "fixed" and name in _SIZES and size != _SIZES[name]:
        return None
    if name != "decimal":
        return Logical(name)
    precision, scale = given.get("precision"), given.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return None
    # The largest number of so many digits has to fit a fixed: 10**precision - 1 < 2**(8 * size - 1).
    fits = kind == "bytes" or (size > 0 and 10 ** min(precision, 1000) <= 1 << (8 * min(size, 500) - 1))
    return Logical(name, precision, scale) if precision > 0 and 0 <= scale <= precision and fits else None
