"""The type of the values that a JSON Schema describes, of the drafts 4 to 2020-12. No schema is refused: what no other type holds is JSON
text. Members that a schema does not name are left out where it names others. Decisions:

* A schema is what it names: ``properties`` without a type are those of an object, ``items`` those of an array, a length that of a string.
* ``properties`` are fields, whatever ``additionalProperties`` are beside them; without them these, and ``patternProperties``, are a map.
* Of ``oneOf``, ``anyOf``, ``then``, ``else`` and ``dependentSchemas`` an object has the fields of all; ``if`` and ``not`` say nothing.
* Formats are text as it stands: times, dates and numbers in strings are not cut off or rounded. ``connect.type`` "bytes" is binary.
* Integers are int64 and numbers float64, whatever their bounds.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce

import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.values import json_shapes
from kolumn.values.decoder import MOST_NESTED
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.json_documents import Documents, LookUp, SchemaPlace
from kolumn.values.json_shapes import ALL, ANY, ARRAY, BOOLEAN, INTEGER, NEVER, NULL, NUMBER, OBJECT, STRING, TEXT, JsonShape, both, either
from kolumn.values.schemas.schema import Schema

logger = logging.getLogger("kolumn.values")
MOST_TYPES = 20_000  # Of one value; and schemas that are looked at to find them.
_DEEPEST = MOST_NESTED + 50  # Schemas within each other, of which several may say what one value is.
_LEVELS = (MOST_NESTED, 8, 4, 2, 1)  # Levels that are tried until there are not more types than that.
_KINDS = {
    "null": NULL, "boolean": BOOLEAN, "integer": INTEGER, "number": NUMBER, "string": STRING, "object": OBJECT, "array": ARRAY, "any": ALL,
}  # fmt: skip
_ABOUT = {
    OBJECT: (
        *("properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties", "propertyNames"),
        *("dependentRequired", "dependentSchemas", "unevaluatedProperties"),
    ),
    ARRAY: ("items", "prefixItems", "additionalItems", "contains", "minItems", "maxItems", "uniqueItems", "unevaluatedItems"),
    STRING: ("minLength", "maxLength", "pattern", "contentEncoding", "contentMediaType"),
    NUMBER: ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keywords that say nothing of values of other kinds."""


def type_of(schema: Schema, where: str = "value_schema", look_up: LookUp | None = None, max_depth: int = 1) -> pa.DataType:
    """The type of the values that a JSON Schema describes: a struct, a map, a list, or JSON text if they are nothing else for certain.

    References that are not in the text are those of the schema, looked up by ``look_up``; one that is nowhere is JSON text, and a warning
    says so. A schema that contains itself is nested ``max_depth`` times, and is JSON text below. `ArgumentError` if the text is not JSON;
    ``where`` is what the schema is.
    """
    try:
        documents = Documents(schema, where, look_up)
    except RecursionError:
        raise ArgumentError(f"{where}: types are nested too deeply") from None
    for levels in _LEVELS:
        shape = _Reader(documents, max_depth, levels).whole()
        if shape is not None:
            break
    if levels < MOST_NESTED:
        logger.warning("%s: the types are very many: those nested more than %d deep are JSON text", where, levels)
    both.cache_clear()
    either.cache_clear()
    type = json_shapes.type_of_shape(shape or TEXT)
    return type if pa.types.is_nested(type) else JSON_TEXT


class _Reader:
    """Reads the schemas of documents, ``levels`` of members and elements deep."""

    def __init__(self, documents: Documents, max_depth: int, levels: int) -> None:
        self._documents, self._max_depth, self._levels = documents, max_depth, levels
        self._left = MOST_TYPES
        self._above: Counter[int] = Counter()  # Schemas around the present one.
        self._deep = self._level = 0
        self._here: set[int] = set()  # Those of them that are about the same value.
        self._cuts = 0  # How often something was not looked at, because of what is around it.
        self._known: dict[int, JsonShape] = {}

    def whole(self) -> JsonShape | None:
        """What the schema says; None if it has more than `MOST_TYPES` types."""
        try:
            shape = self._shape(self._documents.root)
        except RecursionError:
            return None
        return shape if self._left >= 0 and json_shapes.size(shape, {}) <= MOST_TYPES else None

    def _shape(self, place: SchemaPlace) -> JsonShape:
        self._left -= 1
        node, key = place.node, id(place.node)
        if not isinstance(node, Mapping) or not node:
            return NEVER if node is False else ANY
        if key in self._known:
            return self._known[key]
        is_same = key in self._here
        if is_same or self._left < 0 or self._deep >= _DEEPEST or self._above[key] >= max(self._max_depth, 1):
            # That a schema holds where it holds says nothing.
            self._cuts += 1
            return ANY if is_same else TEXT
        cuts = self._cuts
        self._here.add(key)
        self._above[key] += 1
        self._deep += 1
        shape = reduce(both, self._parts(place), ANY)
        self._here.discard(key)
        self._above[key] -= 1
        self._deep -= 1
        if self._cuts == cuts:
            self._known[key] = shape
        return shape

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Schemas of members and elements."""
        here, self._here = self._here, set()
        self._level += 1
        try:
            yield
        finally:
            self._here = here
            self._level -= 1

    def _inner(self, place: SchemaPlace, nodes: Iterable[object]) -> list[JsonShape]:
        if self._level >= self._levels:
            self._cuts += 1
            return [TEXT for _ in nodes]
        found = []
        with self._inside():
            for node in nodes:
                found.append(self._shape(place.at(node)))
        return found

    def _parts(self, place: SchemaPlace) -> list[JsonShape]:
        """What the keywords of a schema say, each for itself."""
        node, parts = place.keywords, list[JsonShape]()
        for name in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(ref := node.get(name), str):
                target = self._documents.target(place, ref)
                parts.append(ANY if target is None else self._shape(target))
                if place.is_old and name == "$ref":
                    return parts
        parts += [self._own(place), *self._of_values(node)]
        parts += [self._shape(place.at(one)) for one in _listed(node, "allOf")]
        for name in ("anyOf", "oneOf"):
            if others := _listed(node, name):
                parts.append(reduce(either, [self._shape(place.at(one)) for one in others], NEVER))
        if "if" in node:
            parts.append(either(*(self._shape(place.at(node.get(name))) for name in ("then", "else"))))
        for name in ("dependentSchemas", "dependencies"):
            others = [one for one in _named(node, name).values() if isinstance(one, Mapping)]
            parts += [either(ANY, self._shape(place.at(one))) for one in others]
        return parts

    def _own(self, place: SchemaPlace) -> JsonShape:
        """What the keywords about types, members and elements say."""
        node = place.keywords
        named = node.get("type", "any")
        types = [type for type in (named if isinstance(named, list) else [named]) if isinstance(type, str | Mapping)]
        # Draft 3 has schemas among types, later ones have other names for none.
        kinds = reduce(int.__or__, [_KINDS.get(type, ALL) if isinstance(type, str) else ALL for type in types], 0) or ALL
        implied = sum(kind for kind, names in _ABOUT.items() if not node.keys().isdisjoint(names))
        fields, rest = self._members(place)
        is_closed = node.get("additionalProperties") is False
        return JsonShape(
            kinds, implied, fields, rest, self._elements(place), is_vague=not (fields or rest is not None or is_closed),
            is_binary=node.get("connect.type") == "bytes" and kinds & STRING != 0,
        )  # fmt: skip

    def _members(self, place: SchemaPlace) -> tuple[dict[str, JsonShape], JsonShape | None]:
        """The fields of objects, or what all members are in common."""
        node, properties = place.keywords, _named(place.keywords, "properties")
        if properties:
            return dict(zip(properties, self._inner(place, properties.values()), strict=True)), None
        others = [*_named(node, "patternProperties").values()]
        if isinstance(node.get("additionalProperties"), Mapping | bool):
            others.append(node["additionalProperties"])
        rest = reduce(either, self._inner(place, others), NEVER)
        return {}, rest if rest.kinds else None

    def _elements(self, place: SchemaPlace) -> JsonShape | None:
        """What the elements of arrays are in common; None if nothing is said of some."""
        node = place.keywords
        first = _listed(node, "prefixItems") or _listed(node, "items")
        others = node.get("items" if "prefixItems" in node else "additionalItems" if first else "items")
        # A tuple has no other elements as a rule, also if nothing forbids them.
        nodes = [*first, others] if isinstance(others, Mapping | bool) else first
        return reduce(either, self._inner(place, nodes), NEVER) if nodes else None

    def _of_values(self, node: Mapping[str, object]) -> list[JsonShape]:
        found = [[node["const"]]] if "const" in node else []
        found += [values] if (values := _listed(node, "enum")) else []
        return [reduce(either, map(_of_value, values), NEVER) for values in found]


def _listed(node: Mapping[str, object], name: str) -> list[object]:
    found = node.get(name)
    return found if isinstance(found, list) else []


def _named(node: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = node.get(name)
    return found if isinstance(found, Mapping) else {}


_SCALARS = {type(None): NULL, bool: BOOLEAN, int: INTEGER, float: NUMBER, str: STRING}


def _of_value(value: object) -> JsonShape:
    """The shape of one value; of an object or an array, that it is one: what is in it is not a type."""
    return JsonShape(OBJECT if isinstance(value, Mapping) else ARRAY if isinstance(value, list) else _SCALARS[type(value)])
