"""The type that some JSON values have in common. It widens where they differ: a type that holds all of them is found, in the end JSON text.

integers and other numbers       float64, or JSON text if an integer has more digits than a float64
integers beyond 64 bits          decimal(38, 0), or JSON text if they are longer
values of different kinds        JSON text
always null                      string, which takes any later value; and so do elements of lists that are always empty
objects without members          JSON text
objects with very many names     map<string, T>, if each of the names is in few of the objects
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from kolumn.core.text import is_text
from kolumn.values.decoder import MOST_NESTED, is_deep
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.schemas.schema import NO_VALUES, UntypedError

_MANY = 200  # Names of members, beyond which they may be the keys of a map.
_FEW = 5  # Each of them is in at most one of so many objects.
_DIGITS = 38  # Of the widest decimal that every tool has.
_SHOWN = {
    "null": "null", "boolean": "a boolean", "integer": "an integer", "number": "a number", "text": "text", "object": "an object",
    "list": "a list",
}  # fmt: skip


@dataclass
class SeenValues:
    """What stood at one path: how often a value of each kind, the members of objects, and the elements of lists. ``is_exact``: a float64
    has all digits of the integers. ``is_wide``: a number is so large that nothing but its text is known.
    """

    counts: Counter[str] = field(default_factory=Counter)
    members: dict[str, "SeenValues"] = field(default_factory=dict)
    elements: "SeenValues | None" = None
    least: int = 0
    most: int = 0
    is_exact: bool = True
    is_wide: bool = False

    def add(self, value: object) -> None:
        """Count one value."""
        if isinstance(value, _Wide):
            self.is_wide = True
        self.counts[value.kind if isinstance(value, _Wide) else _KINDS[type(value)]] += 1
        if isinstance(value, dict):
            for name, member in value.items():
                self.members.setdefault(name, SeenValues()).add(member)
        elif isinstance(value, list):
            self.elements = self.elements or SeenValues()
            for element in value:
                self.elements.add(element)
        elif isinstance(value, int):
            self.least, self.most = min(self.least, value), max(self.most, value)
            self.is_exact = self.is_exact and _is_exact(value)

    def update(self, other: "SeenValues") -> None:
        """Add what stood at another path."""
        self.counts.update(other.counts)
        for name, member in other.members.items():
            self.members.setdefault(name, SeenValues()).update(member)
        if other.elements is not None:
            self.elements = self.elements or SeenValues()
            self.elements.update(other.elements)
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.is_exact, self.is_wide = self.is_exact and other.is_exact, self.is_wide or other.is_wide

    @property
    def kinds(self) -> set[str]:
        return {kind for kind in self.counts if kind != "null"}

    def __str__(self) -> str:
        """Kinds with their counts, the most frequent first."""
        first, *others = self.counts.most_common()
        words = [f"{_SHOWN[first[0]]} in {first[1]} value{'' if first[1] == 1 else 's'}"]
        return ", ".join(words + [f"{_SHOWN[kind]} in {count}" for kind, count in others])


@dataclass(frozen=True)
class SeenField:
    """A field of an inferred type: its path (``[]`` are elements of a list, ``{}`` values of a map, "$" is the whole value), its type, how
    often each kind of value stood there, with "absent" in how many objects it was not, and why the type is wider than the values, or "".
    """

    path: str
    type: pa.DataType
    seen: Mapping[str, int]
    why: str = ""


@dataclass(frozen=True)
class Inferred:
    """The type of some values: a struct, or JSON text. ``values`` were looked at; ``fields`` say what was seen, outer ones first."""

    type: pa.DataType
    values: int
    fields: tuple[SeenField, ...]

    def __str__(self) -> str:
        widened = [f"{field.path}: {field.why}: {type_text(field.type)}" for field in self.fields if field.why]
        return "; ".join([str(self.type), *widened])


@dataclass(frozen=True)
class _Wide:
    """A number that neither an int nor a float holds."""

    kind: str


_KINDS = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "text", dict: "object", list: "list",
}  # fmt: skip


def inferred(values: Iterable[bytes | None], where: str = "value_schema") -> Inferred:
    """The type that all objects among the values fit, or JSON text if most of the JSON values are no objects with members. Values that are
    not JSON, or are nested too deeply (`MOST_NESTED`), are left out. `ArgumentError` if none is left; ``where`` is the option that names a
    type.
    """
    root, count, deep = SeenValues(), 0, 0
    for value in values:
        count += 1
        parsed = _parsed(value or b"")
        if parsed is _DEEP:
            deep += 1
        elif parsed is not _NOTHING:
            root.add(parsed)
    if not root.counts:
        what = "there are no values"
        if count:
            nested = f" nested at most {MOST_NESTED} deep; {deep} {'is' if deep == 1 else 'are'} deeper" if deep else ""
            what = f"none of the first {count} values is JSON{nested}"
        error = UntypedError(f"{what}, so no type can be inferred: say it in {where}")
        error.why = "no JSON" if count else NO_VALUES
        raise error
    fields: list[SeenField] = []
    return Inferred(_of_root(root, fields), count, tuple(fields))


_NOTHING, _DEEP = object(), object()


def _parsed(value: bytes) -> object:
    try:
        parsed = json.loads(value.decode("utf-8-sig"), parse_int=_integer, parse_float=_float)
    except ValueError:
        return _NOTHING
    except RecursionError:
        return _DEEP
    return _DEEP if is_deep(parsed, _inner) else parsed


def _integer(text: str) -> int | _Wide:
    # Longer ones take long, and Python refuses them.
    return int(text) if len(text) < 1000 else _Wide("integer")


def _float(text: str) -> float | _Wide:
    value = float(text)
    return _Wide("number") if value in (float("inf"), -float("inf")) else value


def _is_exact(value: int) -> bool:
    return abs(value) <= 2**53 or (abs(value) < 2**1023 and int(float(value)) == value)


def _inner(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _of_root(root: SeenValues, fields: list[SeenField]) -> pa.DataType:
    objects, others = root.counts["object"], sum(count for kind, count in root.counts.items() if kind not in ("object", "null"))
    is_struct = objects >= others and any(map(is_text, root.members)) and not _is_map(root)
    place = len(fields)
    type = _struct(root, "", fields) if is_struct else JSON_TEXT
    why = "objects without members in common" if not is_struct and root.kinds == {"object"} else ""
    if root.kinds - {"object"}:
        why = f"{root}, which are lost" if is_struct else str(root)
    fields.insert(place, SeenField("$", type, dict(root.counts), why))
    return type


def _is_map(seen: SeenValues) -> bool:
    most = max((sum(member.counts.values()) for member in seen.members.values()), default=0)
    return len(seen.members) > _MANY and most * _FEW <= seen.counts["object"]


def _struct(seen: SeenValues, path: str, fields: list[SeenField]) -> pa.StructType:
    # A name that is not UTF-8 is no name of a column.
    named = [(name, member) for name, member in seen.members.items() if is_text(name)]
    return pa.struct([(name, _field(member, f"{path}.{name}" if path else name, fields, seen.counts["object"])) for name, member in named])


def _field(seen: SeenValues, path: str, fields: list[SeenField], objects: int = 0) -> pa.DataType:
    """The type of a path, which is added to the fields, with those within it after it."""
    place, absent = len(fields), objects - sum(seen.counts.values())
    type, why = _type(seen, path, fields)
    counts = dict(seen.counts) | ({"absent": absent} if absent > 0 else {})
    fields.insert(place, SeenField(path, type, counts, why))
    return type


def _type(seen: SeenValues, path: str, fields: list[SeenField]) -> tuple[pa.DataType, str]:
    """The type of a path, and why it is wider than the values."""
    kinds = seen.kinds
    if not kinds:
        return pa.string(), f"{seen}" if seen.counts else "no elements"
    if kinds <= {"integer", "number"}:
        return _of_numbers(seen)
    if len(kinds) > 1:
        return JSON_TEXT, f"{seen}"
    if "list" in kinds:
        return pa.list_(_field(seen.elements or SeenValues(), f"{path}[]", fields)), ""
    if "object" not in kinds:
        return (pa.bool_() if "boolean" in kinds else pa.string()), ""
    if _is_map(seen):
        return _map(seen, path, fields), f"{len(seen.members)} names in {seen.counts['object']} objects"
    if any(map(is_text, seen.members)):
        return _struct(seen, path, fields), ""
    return JSON_TEXT, "objects without members"


def _of_numbers(seen: SeenValues) -> tuple[pa.DataType, str]:
    if seen.is_wide:
        return JSON_TEXT, f"{seen}, one of which no number holds"
    if "number" in seen.kinds:
        if "integer" not in seen.kinds:
            return pa.float64(), ""
        return (pa.float64(), f"{seen}") if seen.is_exact else (JSON_TEXT, f"{seen}, one of more digits than a float64 has")
    if seen.least >= -(2**63) and seen.most < 2**63:
        return pa.int64(), ""
    widest = max(-seen.least, seen.most)
    type = pa.decimal128(_DIGITS, 0) if widest < 10**_DIGITS else JSON_TEXT
    return type, f"integers of up to {len(str(widest))} digits"


def _map(seen: SeenValues, path: str, fields: list[SeenField]) -> pa.DataType:
    together = SeenValues()
    for member in seen.members.values():
        together.update(member)
    place = len(fields)
    inner = _field(together, f"{path}{{}}", fields)
    if _text(inner) is None:
        inner = JSON_TEXT
        fields[place:] = [SeenField(f"{path}{{}}", inner, dict(together.counts), "names that the text of a type cannot have")]
    return pa.map_(pa.string(), inner)


def spelled(type: pa.DataType) -> object:
    """A type as ``value_schema`` spells it in JSON: an object of names and types, a list of one type, or the text of a type."""
    if pa.types.is_struct(type):
        return {field.name: spelled(field.type) for field in type}
    return [spelled(type.value_type)] if pa.types.is_list(type) else _text(type)


def type_text(type: pa.DataType) -> str:
    """The text of a type for people: of what has fields, that it is an object."""
    if pa.types.is_struct(type):
        return "object"
    if pa.types.is_map(type):
        return f"map<string, {type_text(type.item_type)}>"
    return f"list<{type_text(type.value_type)}>" if pa.types.is_list(type) else str(_text(type))


_NAMES = {JSON_TEXT: "json", pa.float64(): "float64", pa.decimal128(_DIGITS, 0): f"decimal({_DIGITS}, 0)"}
_PLAIN = re.compile(r"[\w .-]+")  # Names that the text of a struct can have.


def _text(type: pa.DataType) -> str | None:
    """The text of a type as ``value_schema`` reads it; None if a name in it is none that a text can have."""
    if pa.types.is_struct(type):
        fields = [(field.name, _text(field.type)) for field in type]
        fits = all(text is not None and _PLAIN.fullmatch(name) for name, text in fields)
        return f"struct<{', '.join(f'`{name}`: {text}' for name, text in fields)}>" if fits else None
    if pa.types.is_list(type) or pa.types.is_map(type):
        inner = _text(type.value_type if pa.types.is_list(type) else type.item_type)
        return None if inner is None else f"list<{inner}>" if pa.types.is_list(type) else f"map<string, {inner}>"
    return _NAMES.get(type, str(type))
