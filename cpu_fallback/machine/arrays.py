"""Annotations for the arguments of loops. Numba's types are made from them, so a loop can be compiled before it is called."""

from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
from numba import types
from numpy.typing import NDArray

Table = Annotated[NDArray[np.int64], types.int64[:, ::1]]
"""Rows of int64, for example those of the batch table."""
Int64s = Annotated[NDArray[np.int64], types.int64[::1]]
Constants = Annotated[NDArray[np.int64], types.Array(types.int64, 1, "C", readonly=True)]
"""Like `Int64s`, for read-only arrays, which are another type for Numba."""
Flags = Annotated[NDArray[np.bool_], types.boolean[::1]]

_NUMBERS = {int: types.int64, bool: types.boolean, float: types.float64}


def signature(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Numba's types of a loop's arguments, from its annotations: numbers, the arrays above, and named tuples of both."""
    hints = get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    return tuple(map(_numba_type, hints.values()))


def _numba_type(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        return get_args(hint)[1]
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    return types.BaseTuple.from_types([_numba_type(inner) for inner in get_type_hints(hint, include_extras=True).values()], hint)
