"""Shared objects whose functions compiled code calls: of packages, or of the system."""

import ctypes
from importlib.util import find_spec
from typing import Any


def load(place: str) -> ctypes.CDLL:
    """The shared object of an extension module, or the one of that file name.

    Raises
    ------
    OSError
        It is not here.
    """
    return ctypes.CDLL(place if ".so" in place else _file(place))


def address(function: Any) -> int:
    """Where a function of a shared object lies."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _file(module: str) -> str:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise OSError(f"no module {module}")
    return spec.origin
