"""Loads shared objects of packages or of the system, whose functions compiled code calls."""

import ctypes
from importlib.util import find_spec
from typing import Any


def load(place: str) -> ctypes.CDLL:
    """The shared object of an extension module, or the one with this file name.

    Raises
    ------
    OSError
        There is no such module or file.
    """
    return ctypes.CDLL(place if ".so" in place else _file(place))


def address(function: Any) -> int:
    """Address of a function of a shared object."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _file(module: str) -> str:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise OSError(f"no module {module}")
    return spec.origin
