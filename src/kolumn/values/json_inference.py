"""The type that JSON objects have in common."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.values.decoder import is_deep

_NONE = pa.null()


def inferred(values: Iterable[bytes | None], where: str = "value_schema") -> pa.StructType | None:
    """The type that all objects among the values fit; None if none of them is an object with a member. Integers are int64, or float64 where
    one is larger; text stays text; a member that is always null, or an empty list, is text. Values that are no objects, or are nested too
    deeply (`MOST_NESTED`), are left out. `ArgumentError` names a member whose values do not fit together.
    """
    type: Any = _NONE
    for value in values:
        members = _object(value)
        if members:
            type = _merged(type, _type_of(members, "", where), "", where)
    return None if type is _NONE else _complete(type)


def _object(value: bytes | None) -> dict[str, Any] | None:
    try:
        parsed = json.loads((value or b"").decode())
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) and not is_deep(parsed, _inner) else None


def _inner(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _type_of(value: Any, path: str, where: str) -> Any:
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
        return {name: _type_of(member, f"{path}.{name}", where) for name, member in value.items()}
    path, type = f"{path}[]", _NONE
    for element in value:
        type = _merged(type, _type_of(element, path, where), path, where)
    return [type]


def _merged(left: Any, right: Any, path: str, where: str) -> Any:
    if left is _NONE or right is _NONE:
        return right if left is _NONE else left
    if isinstance(left, dict) and isinstance(right, dict):
        return left | {name: _merged(left.get(name, _NONE), type, f"{path}.{name}", where) for name, type in right.items()}
    if isinstance(left, list) and isinstance(right, list):
        return [_merged(left[0], right[0], f"{path}[]", where)]
    if left == right:
        return left
    if isinstance(left, pa.DataType) and isinstance(right, pa.DataType) and {left, right} == {pa.int64(), pa.float64()}:
        return pa.float64()
    raise ArgumentError(f"{path.removeprefix('.')}: {_shown(left)} in one value and {_shown(right)} in another: say its type in {where}")


def _shown(type: object) -> str:
    return "an object" if isinstance(type, dict) else "a list" if isinstance(type, list) else str(type)


def _complete(type: Any) -> Any:
    if isinstance(type, dict):
        return pa.struct([(name, _complete(inner)) for name, inner in type.items()]) if type else pa.string()
    if isinstance(type, list):
        return pa.list_(_complete(type[0]))
    return pa.string() if type is _NONE else type
