"""The type of JSON objects from some of them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from kolumn.errors import ArgumentError
from kolumn.values.types import is_deep

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
