"""JSON Schema as a type of Arrow: objects, arrays, strings, integers, numbers, booleans, and null beside one of them."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kolumn.errors import ArgumentError

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
