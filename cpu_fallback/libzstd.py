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


class _Own:
    """A thread's ``ZSTD_DCtx``, freed when the thread ends."""

    def __init__(self) -> None:
        self.library = _library()
        self.zstd = Zstd(0, 0)
        if self.library is not None:
            context = self.library.ZSTD_createDCtx() or 0
            function = ctypes.cast(self.library.ZSTD_decompressDCtx, ctypes.c_void_p).value or 0
            self.zstd = Zstd(function if context else 0, context)

    def __del__(self) -> None:
        if self.zstd.context:
            self.library.ZSTD_freeDCtx(self.zstd.context)


@lru_cache(maxsize=1)
def _library() -> Any:
    """The library, its functions as they are called here; None where it can't be loaded or keeps them to itself."""
    spec = find_spec("zstandard._cffi")
    if spec is None or spec.origin is None:
        return None
    try:
        library = ctypes.CDLL(spec.origin)
        library.ZSTD_createDCtx.restype = ctypes.c_void_p
        library.ZSTD_freeDCtx.argtypes = (ctypes.c_void_p,)
        return library if library.ZSTD_decompressDCtx else None
    except (OSError, AttributeError):
        return None


def decoder() -> Zstd:
    """This thread's decoder: it must not go to another."""
    if not hasattr(_local, "own"):
        _local.own = _Own()
    zstd: Zstd = _local.own.zstd
    return zstd
