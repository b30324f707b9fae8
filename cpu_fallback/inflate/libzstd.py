"""Finds a libzstd whose functions compiled code can call."""

import ctypes
from functools import lru_cache
from typing import Any

import zstandard

from kolumn.cpu_fallback.machine.address import function_address, library

PLACES = ("backports.zstd._zstd", "libzstd.so.1", "zstandard._cffi")
"""Modules, and a library of the system, that export libzstd. The last one is slower: it lacks libzstd's assembly for Huffman codes."""

_MAJOR, _MINOR, _PATCH = zstandard.ZSTD_VERSION
# Older versions accept damaged payloads that this one rejects, and the result of a read must not depend on the machine.
_OLDEST = 10000 * _MAJOR + 100 * _MINOR + _PATCH


class Context:
    """Addresses of a ``ZSTD_DCtx``, freed with this object, and of ``ZSTD_decompressDCtx``; both 0 if there is no library."""

    function, state = 0, 0

    def __init__(self) -> None:
        _, self.library = _library()
        if self.library is not None:
            self.state = self.library.ZSTD_createDCtx() or 0
            self.function = function_address(self.library.ZSTD_decompressDCtx) if self.state else 0

    def __del__(self) -> None:
        if self.state:
            self.library.ZSTD_freeDCtx(self.state)


def name() -> str:
    """Version of the library and where it was found; empty if there is no library."""
    place, zstd = _library()
    if zstd is None:
        return ""
    number = zstd.ZSTD_versionNumber()
    return f"libzstd {number // 10000}.{number // 100 % 100}.{number % 100} of {place}"


@lru_cache(maxsize=1)
def _library() -> tuple[str, Any]:
    """Where the library was found, and the library with typed functions; None if no library can be loaded or has these functions."""
    for place in PLACES:
        zstd = _load(place)
        if zstd is not None:
            return place, zstd
    return "", None


def _load(place: str) -> Any:
    try:
        zstd = library(place)
        zstd.ZSTD_createDCtx.restype = ctypes.c_void_p
        zstd.ZSTD_freeDCtx.argtypes = (ctypes.c_void_p,)
        return zstd if zstd.ZSTD_decompressDCtx and zstd.ZSTD_versionNumber() >= _OLDEST else None
    except (OSError, AttributeError):
        return None
