"""libzstd's decoder as an address that compiled code calls.

Where no library can be had, zstd payloads go through the interface of the package ``zstandard`` (`inflate`).
"""

import ctypes
import threading
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import zstandard

PLACES = ("backports.zstd._zstd", "libzstd.so.1", "zstandard._cffi")
"""Modules and a system's library that export libzstd. The last is built without libzstd's assembly for Huffman codes: slower."""

_MAJOR, _MINOR, _PATCH = zstandard.ZSTD_VERSION
# Older ones take damaged payloads that this one refuses: what is read must not depend on the machine.
_OLDEST = 10000 * _MAJOR + 100 * _MINOR + _PATCH

_local = threading.local()


class Zstd(NamedTuple):
    """Addresses of ``ZSTD_decompressDCtx`` and of a context for it; 0 where there is no library."""

    decompress: int
    context: int


class _Own:
    """A thread's ``ZSTD_DCtx``, freed when the thread ends."""

    def __init__(self) -> None:
        _, self.library = _library()
        self.zstd = Zstd(0, 0)
        if self.library is not None:
            context = self.library.ZSTD_createDCtx() or 0
            function = ctypes.cast(self.library.ZSTD_decompressDCtx, ctypes.c_void_p).value or 0
            self.zstd = Zstd(function if context else 0, context)

    def __del__(self) -> None:
        if self.zstd.context:
            self.library.ZSTD_freeDCtx(self.zstd.context)


@lru_cache(maxsize=1)
def _library() -> tuple[str, Any]:
    """Place and library, its functions as they are called here; None where none can be loaded or shows what it has."""
    for place in PLACES:
        library = _load(place)
        if library is not None:
            return place, library
    return "", None


def _load(place: str) -> Any:
    try:
        library = ctypes.CDLL(place if ".so" in place else _file(place))
        library.ZSTD_createDCtx.restype = ctypes.c_void_p
        library.ZSTD_freeDCtx.argtypes = (ctypes.c_void_p,)
        return library if library.ZSTD_decompressDCtx and library.ZSTD_versionNumber() >= _OLDEST else None
    except (ImportError, OSError, AttributeError):
        return None


def _file(module: str) -> str:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(module)
    return spec.origin


def name() -> str:
    """Version and place of the library; empty where there is none."""
    place, library = _library()
    if library is None:
        return ""
    number = library.ZSTD_versionNumber()
    return f"libzstd {number // 10000}.{number // 100 % 100}.{number % 100} of {place}"


def decoder() -> Zstd:
    """This thread's decoder: it must not go to another."""
    if not hasattr(_local, "own"):
        _local.own = _Own()
    zstd: Zstd = _local.own.zstd
    return zstd
