"""Annotations for the arguments of loops: what a loop takes and returns, as words of 64 bits, is known without a call.

number, flag     one word
array            its address, and its shape
named tuple      its fields, one after the other
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray


class ArrayKind(NamedTuple):
    """What an array must be like; all are contiguous and aligned."""

    dtype: np.dtype[Any]
    ndim: int
    readonly: bool = False


_INT64, _FLAG = np.dtype(np.int64), np.dtype(np.bool_)
Table = Annotated[NDArray[np.int64], ArrayKind(_INT64, 2)]
"""Rows of int64, for example those of the batch table."""
Int64s = Annotated[NDArray[np.int64], ArrayKind(_INT64, 1)]
Constants = Annotated[NDArray[np.int64], ArrayKind(_INT64, 1, readonly=True)]
"""Like `Int64s`, for arrays that are not written, and may be read-only."""
Flags = Annotated[NDArray[np.bool_], ArrayKind(_FLAG, 1)]
Kind = Any
"""int, bool, float; a `ArrayKind`; or a named tuple's class and the kinds of its fields."""


def arguments(function: Callable[..., Any]) -> list[Kind]:
    """Kinds of a loop's arguments, from its annotations."""
    hints = get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    return [_kind(hint) for hint in hints.values()]


def results(function: Callable[..., Any]) -> list[type] | type | None:
    """What a loop returns: None, a type, or the types of a tuple."""
    hint = get_type_hints(function)["return"]
    return list(get_args(hint)) if get_origin(hint) is tuple else None if hint is type(None) else hint


def _kind(hint: Any) -> Kind:
    if get_origin(hint) is Annotated:
        return get_args(hint)[1]
    if hint in (int, bool, float):
        return hint
    return hint, [_kind(inner) for inner in get_type_hints(hint, include_extras=True).values()]
