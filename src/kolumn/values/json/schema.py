"""JSON Schema as a type of Arrow: objects, arrays, strings, integers, numbers, booleans, and null beside one of them.

The type of JSON objects from some of them.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.values.types import is_deep

_PLAIN = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_UNMAPPED = ("allOf", "not", "if", "patternProperties", "prefixItems")


def type_of(text: str, where: str = "value_schema") -> pa.StructType:
    """The type of the objects that a JSON Schema describes; every field is nullable. ``$ref`` may name definitions of the same text.

    `ArgumentError` if it is no schema of an object, or names what has no type, and where that is; ``where`` is what the schema is.
    """
    try:
        root = json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"{where}: not a JSON Schema: {error}") from error
    found = _Mapper(root, where).type(root, "$", ())
    if not pa.types.is_struct(found):
        raise ArgumentError(f"{where}: a JSON Schema of {found}: expected one of an object")
    return found


class _Mapper:
    def __init__(self, root: object, where: str) -> None:
        self.root, self.where = root, where

    def type(self, one: Any, at: str, within: tuple[str, ...]) -> pa.DataType:
        if not isinstance(one, Mapping):
            raise self._unmapped(at, repr(one))
        if "$ref" in one:
            ref = one["$ref"]
            if ref in within:
                raise self._unmapped(at, f"{ref}, which contains itself")
            return self.type(self._target(ref, at), at, (*within, ref))
        for name in _UNMAPPED:
            if name in one:
                raise self._unmapped(at, name)
        for name in ("oneOf", "anyOf"):
            if name in one:
                others = [other for other in one[name] if not (isinstance(other, Mapping) and other.get("type") == "null")]
                if len(others) != 1:
                    raise self._unmapped(at, f"{name} of {len(others)} types")
                return self.type(others[0], at, within)
        return self._of_type(one, at, within)

    def _of_type(self, one: Mapping[str, Any], at: str, within: tuple[str, ...]) -> pa.DataType:
        kind = one.get("type")
        if isinstance(kind, list):
            others = [other for other in kind if other != "null"]
            kind = others[0] if len(others) == 1 else "number" if sorted(others) == ["integer", "number"] else kind
        if kind is None:
            kind = "object" if "properties" in one else "string" if _is_text(one.get("enum", [one.get("const")])) else None
        if kind == "object" and isinstance(one.get("properties"), Mapping) and one["properties"]:
            return pa.struct([(name, self.type(other, f"{at}.{name}", within)) for name, other in one["properties"].items()])
        if kind == "array" and isinstance(one.get("items"), Mapping):
            return pa.list_(self.type(one["items"], f"{at}[]", within))
        if isinstance(kind, str) and kind in _PLAIN:
            return _PLAIN[kind]
        raise self._unmapped(
            at, {"object": "an object without properties", "array": "an array without items"}.get(str(kind), f"type {kind!r}")
        )

    def _target(self, ref: object, at: str) -> Any:
        found = self.root
        steps = str(ref).split("/")
        if steps[0] != "#":
            raise self._unmapped(at, f"$ref {ref!r} outside of the schema")
        for step in steps[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise self._unmapped(at, f"$ref {ref!r}, which is not there")
            found = found[name]
        return found

    def _unmapped(self, at: str, what: str) -> ArgumentError:
        return ArgumentError(f"{self.where}: {at}: {what} has no column: name the types of the fields in value_schema")


def _is_text(values: Any) -> bool:
    return bool(values) and all(isinstance(value, str) for value in values)


_NONE = pa.null()


def inferred(values: Iterable[bytes | None], where: str = "value_schema") -> pa.StructType | None:
    """The type that all objects among the values fit; None if none of them is an object with a member.

    Integers are int64, or float64 where one is larger; text stays text; a member that is always null, or an empty list, is text. Values
    that are no objects, or are nested too deeply (`MOST_NESTED`), are left out. `ArgumentError` names a member whose values do not fit
    together.
    """
    found: Any = _NONE
    for value in values:
        one = _object(value)
        if one:
            found = _merged(found, _type(one, "", where), "", where)
    return None if found is _NONE else _complete(found)


def _object(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads((value or b"").decode())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and not is_deep(found, _inner) else None


def _inner(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _type(value: Any, at: str, where: str) -> Any:
    """The type of a value: Arrow's, a dict for an object, a list of one type for a list."""
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if -(2**63) <= value < 2**63 else pa.float64()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, Mapping):
        return {name: _type(one, f"{at}.{name}", where) for name, one in value.items()}
    item: Any = _NONE
    for one in value:
        item = _merged(item, _type(one, f"{at}[]", where), f"{at}[]", where)
    return [item]


def _merged(one: Any, other: Any, at: str, where: str) -> Any:
    if one is _NONE or other is _NONE:
        return other if one is _NONE else one
    if isinstance(one, dict) and isinstance(other, dict):
        both = {name: _merged(one.get(name, _NONE), kind, f"{at}.{name}", where) for name, kind in other.items()}
        return one | both
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0], f"{at}[]", where)]
    if one == other:
        return one
    if isinstance(one, pa.DataType) and isinstance(other, pa.DataType) and {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    raise ArgumentError(f"{at.removeprefix('.')}: {_name(one)} in one value and {_name(other)} in another: say its type in {where}")


def _name(kind: object) -> str:
    return "an object" if isinstance(kind, dict) else "a list" if isinstance(kind, list) else str(kind)


def _complete(kind: Any) -> Any:
    if isinstance(kind, dict):
        return pa.struct([(name, _complete(one)) for name, one in kind.items()]) if kind else pa.string()
    if isinstance(kind, list):
        return pa.list_(_complete(kind[0]))
    return pa.string() if kind is _NONE else kind
