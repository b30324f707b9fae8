"""libzstd's decoder as an address that compiled code calls.

It is the libzstd in the package ``zstandard``, which its module for CFFI exports. Where that cannot be had, zstd payloads
go through the package's own interface (`inflate`).
"""

import ctypes
import threading
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

_local = threading.local()


class Zstd(NamedTuple):
    """Addresses of ``ZSTD_decompressDCtx`` and of a context for it; 0 where there is no library."""

    decompress: int
    context: int


class _Context:
    """A ``ZSTD_DCtx`` of one thread, freed when the thread ends."""

    def __init__(self, library: Any) -> None:
        self.free = library.ZSTD_freeDCtx
        self.free.argtypes = (ctypes.c_void_p,)
        library.ZSTD_createDCtx.restype = ctypes.c_void_p
        self.address = library.ZSTD_createDCtx() or 0

    def __del__(self) -> None:
        self.free(self.address)


@lru_cache(maxsize=1)
def _library() -> Any:
    spec = find_spec("zstandard._cffi")
    try:
        library = ctypes.CDLL(spec.origin) if spec and spec.origin else None
        return library if hasattr(library, "ZSTD_decompressDCtx") and hasattr(library, "ZSTD_createDCtx") else None
    except OSError:
        return None


def decoder() -> Zstd:
    """This thread's decoder: it must not go to another."""
    library = _library()
    if library is None:
        return Zstd(0, 0)
    if not hasattr(_local, "context"):
        _local.context = _Context(library)
    function = ctypes.cast(library.ZSTD_decompressDCtx, ctypes.c_void_p).value or 0
    return Zstd(function if _local.context.address else 0, _local.context.address)
