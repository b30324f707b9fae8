"""The type of the objects that a JSON Schema describes: objects, arrays, strings, integers, numbers, booleans, and null beside one."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kolumn.core.errors import ArgumentError

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
    type = _Mapper(root, where).type(root, "$", ())
    if not pa.types.is_struct(type):
        raise ArgumentError(f"{where}: a JSON Schema of {type}: expected one of an object")
    return type


class _Mapper:
    def __init__(self, root: object, where: str) -> None:
        self.root, self.where = root, where

    def type(self, node: object, path: str, within: tuple[str, ...]) -> pa.DataType:
        if not isinstance(node, Mapping):
            raise self._unmapped(path, repr(node))
        if "$ref" in node:
            ref = node["$ref"]
            if ref in within:
                raise self._unmapped(path, f"{ref}, which contains itself")
            return self.type(self._target(ref, path), path, (*within, ref))
        for name in _UNMAPPED:
            if name in node:
                raise self._unmapped(path, name)
        for name in ("oneOf", "anyOf"):
            if name in node:
                others = [other for other in node[name] if not (isinstance(other, Mapping) and other.get("type") == "null")]
                if len(others) != 1:
                    raise self._unmapped(path, f"{name} of {len(others)} types")
                return self.type(others[0], path, within)
        return self._of_type(node, path, within)

    def _of_type(self, node: Mapping[str, Any], path: str, within: tuple[str, ...]) -> pa.DataType:
        type = node.get("type")
        if isinstance(type, list):
            others = [other for other in type if other != "null"]
            type = others[0] if len(others) == 1 else "number" if sorted(others) == ["integer", "number"] else type
        if type is None:
            values = node.get("enum", [node.get("const")])
            is_text = bool(values) and all(isinstance(value, str) for value in values)
            type = "object" if "properties" in node else "string" if is_text else None
        if type == "object" and isinstance(node.get("properties"), Mapping) and node["properties"]:
            return pa.struct([(name, self.type(field, f"{path}.{name}", within)) for name, field in node["properties"].items()])
        if type == "array" and isinstance(node.get("items"), Mapping):
            return pa.list_(self.type(node["items"], f"{path}[]", within))
        if isinstance(type, str) and type in _PLAIN:
            return _PLAIN[type]
        incomplete = {"object": "an object without properties", "array": "an array without items"}
        raise self._unmapped(path, incomplete.get(str(type), f"type {type!r}"))

    def _target(self, ref: object, path: str) -> object:
        node = self.root
        steps = str(ref).split("/")
        if steps[0] != "#":
            raise self._unmapped(path, f"$ref {ref!r} outside of the schema")
        for step in steps[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or name not in node:
                raise self._unmapped(path, f"$ref {ref!r}, which is not there")
            node = node[name]
        return node

    def _unmapped(self, path: str, what: str) -> ArgumentError:
        return ArgumentError(f"{self.where}: {path}: {what} has no column: name the types of the fields in value_schema")
