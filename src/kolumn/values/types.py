"""Types of fields as callers name them, for formats without a schema of their own."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.core.errors import ArgumentError, unknown

TYPES: dict[str, pa.DataType] = {
    "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(),
    "float32": pa.float32(), "float64": pa.float64(), "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"), "string": pa.string(),
}  # fmt: skip
"""Names of types. ``timestamp`` has no zone in cuDF, and no other unit here."""
MOST_NESTED = 100
"""Levels of nested types, and of values from which a type is inferred: as many as messages of Protobuf may have."""
SCHEMALESS = ("csv", "fixed")
"""Formats without a schema of their own, whose values no serialiser frames."""
NOT_OF_CSV = frozenset({"timestamp", "uint64"})
_NAMED = TYPES | {"date32": pa.date32()}


def is_deep(root: object, inner: Callable[[Any], Iterable[object]]) -> bool:
    """Whether something is nested more than `MOST_NESTED` deep; ``inner`` returns the parts of a part."""
    parts = [root]
    for _ in range(MOST_NESTED + 1):
        parts = [part for one in parts for part in inner(one)]
        if not parts:
            return False
    return True


def named_type(name: str, kind: object, where: str = "value_schema") -> pa.DataType:
    """The type that a name means; `ArgumentError` with the nearest one for an unknown name."""
    if isinstance(kind, str) and kind in _NAMED:
        return _NAMED[kind]
    raise ArgumentError(f"{where}: field {name!r}: {unknown('type', str(kind), _NAMED)}")


def fixed_type(name: str, kind: Any, where: str = "value_schema") -> np.dtype[Any]:
    """The NumPy dtype of a field of "fixed"; `ArgumentError` if there is no column for it."""
    try:
        found = np.dtype(kind)
    except TypeError as error:
        raise ArgumentError(f"{where}: field {name!r}: {error}") from error
    if found.kind not in "iufb" or found.itemsize > 8 or found.name == "float16":
        raise ArgumentError(f"{where}: field {name!r}: no column for {found}; expected integers, float32, float64 or bool")
    return found


def check_separator(separator: str, format: str, where: str = "value") -> None:
    """`ArgumentError` if this cannot be the byte between fields of "csv"."""
    if len(separator.encode()) != 1 or separator in '"\r\n' or (separator != "," and format != "csv"):
        raise ArgumentError(
            f"{where}_separator={separator!r}: expected one ASCII character but quotes and line ends, for {where}_format='csv' only"
        )


def mapping_of(schema: object, where: str = "value_schema") -> Mapping[str, Any]:
    """The mapping of names to types that a caller has given, as a mapping, as its JSON text or as an Arrow schema."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise ArgumentError(f"{where}: not the JSON text of a mapping of names to types: {error}") from error
    if isinstance(schema, pa.Schema | pa.StructType):
        schema = {field.name: field.type for field in schema}
    if not isinstance(schema, Mapping) or not schema:
        raise ArgumentError(f"{where}={schema!r}: expected a mapping of names to types")
    return {str(name): kind for name, kind in schema.items()}


def nested_type(schema: object, where: str = "value_schema") -> pa.StructType:
    """The type of "json": names to types, where a type may be a mapping again, a list of one type, or Arrow's."""
    return pa.struct([pa.field(name, _nested(name, kind, where)) for name, kind in mapping_of(schema, where).items()])


def _nested(name: str, kind: object, where: str) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return _of_json(name, kind, where)
    if isinstance(kind, Mapping):
        return nested_type(kind, where)
    if isinstance(kind, list) and len(kind) == 1:
        return pa.list_(_nested(name, kind[0], where))
    if isinstance(kind, list):
        raise ArgumentError(f"{where}: field {name!r}: expected a list of one type, found {kind!r}")
    return named_type(name, kind, where)


def _of_json(name: str, kind: pa.DataType, where: str) -> pa.DataType:
    """A type of Arrow, if JSON has values for it."""
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(one.name, _of_json(f"{name}.{one.name}", one.type, where)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(_of_json(name, kind.value_type, where))
    if kind in _NAMED.values() or pa.types.is_timestamp(kind):
        return kind
    raise ArgumentError(f"{where}: field {name!r}: JSON has no values of {kind}; expected {', '.join(_NAMED)}, a struct or a list")


Wanted = dict[str, Any] | None
"""Names of fields and what is wanted of each; None is everything."""


def wanted_fields(columns: Iterable[str]) -> dict[str, Any]:
    """The fields that dotted paths name. A path that names a field as a whole counts more than those that name parts of it."""
    found: dict[str, Any] = {}
    for path in columns:
        at, (*steps, last) = found, path.split(".")
        for step in steps:
            at = at.setdefault(step, {})
            if at is None:
                break
        else:
            at[last] = None
    return found


def only_fields(kind: pa.DataType, names: tuple[str, ...], where: str) -> pa.DataType:
    """A struct with the named fields alone; dotted names are fields of structs, also of those in lists. `ArgumentError` for an unknown
    name.
    """
    if not pa.types.is_struct(kind):
        raise ArgumentError(f"{where}: {kind} has no fields")
    inner: dict[str, list[str]] = {}
    for name in names:
        first, _, rest = name.partition(".")
        if kind.get_field_index(first) < 0:
            raise ArgumentError(f"{where}: {unknown('field', first, [field.name for field in kind])}")
        inner.setdefault(first, []).append(rest)
    return pa.struct([_narrowed(field, inner[field.name], where) for field in kind if field.name in inner])


def _narrowed(field: pa.Field, rests: list[str], where: str) -> pa.Field:
    if "" in rests:
        return field
    if pa.types.is_list(field.type):
        return field.with_type(pa.list_(only_fields(field.type.value_type, tuple(rests), where)))
    return field.with_type(only_fields(field.type, tuple(rests), where))
