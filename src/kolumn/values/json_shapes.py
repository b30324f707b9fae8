"""What a JSON Schema says of values, as far as it decides the type of a column: of which kinds they are, and what is in them. Schemas that
hold at once (allOf) are met, schemas of which one holds (oneOf, anyOf) are joined.

    string | number                  JSON text: no other type holds both
    string | null                    string: every column has nulls
    integer | number                 float64
    {a: integer} & {b: string}       struct<a, b>
    {a: integer} | {b: string}       struct<a, b>
    {a: integer} | {a: string}       struct<a: JSON text>
    {a: integer} | {*: string}       JSON text: a struct and a map
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from kolumn.core.text import is_text
from kolumn.values.decoder import MOST_NESTED
from kolumn.values.extensions import JSON_TEXT

NULL, BOOLEAN, INTEGER, FRACTION, STRING, OBJECT, ARRAY = (1 << bit for bit in range(7))
MOST_MERGED = 20_000  # Results that are kept: parts that are used twice at each of many levels are merged once.
NUMBER, ALL = INTEGER | FRACTION, (1 << 7) - 1


@dataclass(frozen=True, eq=False)
class JsonShape:
    """Values that a schema permits.

    ``kinds`` are bits, `ALL` if the schema names no type; ``implied`` those that its other keywords are about, 0 if it has none.
    ``fields`` are the members of objects by name; ``rest`` is the value of any other member, of objects without ``fields``; ``items`` are
    elements of arrays. Both are None if nothing is said of them. ``is_vague``: nothing is said of the members of some objects.
    ``is_mixed``: some objects have ``fields`` and others ``rest``. ``is_binary``: strings are bytes in base64. ``is_json``: no type but
    JSON text will do.
    """

    kinds: int = ALL
    implied: int = 0
    fields: Mapping[str, "JsonShape"] = field(default_factory=dict)
    rest: "JsonShape | None" = None
    items: "JsonShape | None" = None
    is_vague: bool = True
    is_mixed: bool = False
    is_binary: bool = False
    is_json: bool = False

    @property
    def said(self) -> int:
        """The kinds that the author means; 0 if anything may stand there."""
        return self.implied if self.kinds == ALL else self.kinds

    @property
    def is_known(self) -> bool:
        return self.said != 0 or self.is_json


ANY = JsonShape()
NEVER = JsonShape(kinds=0)
TEXT = JsonShape(is_json=True)


@lru_cache(maxsize=MOST_MERGED)
def both(left: JsonShape, right: JsonShape) -> JsonShape:
    """What two schemas say that hold at once."""
    if left is ANY or right is ANY:
        return right if left is ANY else left
    implied = left.implied & right.implied if left.implied and right.implied else left.implied | right.implied
    return JsonShape(
        left.kinds & right.kinds, implied, _together(both, left.fields, right.fields), _known(both, left.rest, right.rest),
        _known(both, left.items, right.items), left.is_vague and right.is_vague, left.is_mixed or right.is_mixed,
        left.is_binary or right.is_binary, left.is_json or right.is_json,
    )  # fmt: skip


@lru_cache(maxsize=MOST_MERGED)
def either(left: JsonShape, right: JsonShape) -> JsonShape:
    """What two schemas say of which one holds. Objects have the fields of both."""
    if left is right or not left.kinds or not right.kinds:
        return left if left.kinds else right
    kinds = left.kinds | right.kinds
    implied = left.said | right.said if kinds == ALL and left.said and right.said else 0
    # What only one of them permits is as that one says.
    one, other = (left if left.kinds & OBJECT else right), (right if right.kinds & OBJECT else left)
    mixes = bool(one.fields and other.rest and not other.fields) or bool(other.fields and one.rest and not one.fields)
    first, second = (left if left.kinds & ARRAY else right), (right if right.kinds & ARRAY else left)
    items = None if first.items is None or second.items is None else either(first.items, second.items)
    return JsonShape(
        kinds, implied, one.fields if one is other else _together(either, one.fields, other.fields), _known(either, one.rest, other.rest),
        items, one.is_vague or other.is_vague, one.is_mixed or other.is_mixed or mixes,
        all(shape.is_binary for shape in (left, right) if shape.kinds & STRING), left.is_json or right.is_json,
    )  # fmt: skip


_Rule = Callable[[JsonShape, JsonShape], JsonShape]


def _together(rule: _Rule, left: Mapping[str, JsonShape], right: Mapping[str, JsonShape]) -> Mapping[str, JsonShape]:
    if not left or not right:
        return left or right
    return {**left, **{name: rule(left[name], shape) if name in left else shape for name, shape in right.items()}}


def _known(rule: _Rule, left: JsonShape | None, right: JsonShape | None) -> JsonShape | None:
    return right if left is None else left if right is None else rule(left, right)


def size(shape: JsonShape, known: dict[JsonShape, int]) -> int:
    """How many types a column of such values has, at most; of parts in ``known`` that is known."""
    if shape not in known:
        inner = (*shape.fields.values(), *(part for part in (shape.rest, shape.items) if part is not None))
        known[shape] = 1 + sum([size(part, known) for part in inner])
    return known[shape]


def type_of_shape(shape: JsonShape, level: int = 0) -> pa.DataType:
    """The type of a column of such values, at that level within others. A type that is nested more than `MOST_NESTED` deep ends in JSON
    text, and so does what has no other type.
    """
    kinds = shape.said & ~NULL
    if shape.is_json or (not kinds and shape.kinds != NULL):
        return JSON_TEXT
    if kinds in (0, STRING):
        # Text takes what is always null.
        return pa.binary() if shape.is_binary and kinds else pa.string()
    if kinds == OBJECT:
        return _of_objects(shape, level)
    if kinds == ARRAY and level < MOST_NESTED and (shape.kinds != ALL or (shape.items or ANY).is_known):
        return pa.list_(type_of_shape(shape.items or ANY, level + 1))
    # Keywords about numbers are not enough: whatever else there is would be lost.
    return JSON_TEXT if shape.kinds == ALL else _SCALARS.get(kinds, JSON_TEXT)


_SCALARS = {BOOLEAN: pa.bool_(), INTEGER: pa.int64(), FRACTION: pa.float64(), NUMBER: pa.float64()}


def _of_objects(shape: JsonShape, level: int) -> pa.DataType:
    if shape.is_vague or shape.is_mixed:
        return JSON_TEXT
    # Of a map, its entries are a level too.
    if shape.rest is not None and not shape.fields and level < MOST_NESTED - 1 and shape.rest.is_known:
        return pa.map_(pa.string(), type_of_shape(shape.rest, level + 2))
    names = [name for name in shape.fields if is_text(name)]
    if not names or level >= MOST_NESTED:
        return JSON_TEXT
    return pa.struct([(name, type_of_shape(shape.fields[name], level + 1)) for name in names])
