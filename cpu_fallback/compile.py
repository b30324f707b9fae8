"""Numba for the CPU: `compiled` makes a loop that has no GIL and no bounds checks and is cached on disk.

The cache is keyed by a fingerprint of every source file that can end up in compiled code, because Numba itself only looks
at the file of the outermost function; and by how checksums are made, which the environment may say.
"""

import os
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from kolumn.cache import cache_folder, fingerprint
from kolumn.cpu_fallback.crc import KIND


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a loop for the CPU on first use: GIL released, machine code cached between processes."""
    dispatcher = njit(nogil=True, boundscheck=False)(function)
    if cache_folder() is not None:
        dispatcher._cache = _Cache(function)
    return dispatcher


def _fingerprint() -> str:
    return f"{fingerprint('scalar.py', 'cpu_fallback', 'formats', 'codecs')}-{KIND}"


class _Locator(_CacheLocator):
    """Where Numba keeps the code of one function: `cache_folder`, under the fingerprint of the sources."""

    def __init__(self, function: Callable[..., Any], source: str) -> None:
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Callable[..., Any], source: str) -> "_Locator":
        return cls(function, source)

    def get_cache_path(self) -> str:
        return os.path.join(str(cache_folder()), _fingerprint())

    def get_source_stamp(self) -> str:
        return _fingerprint()

    def get_disambiguator(self) -> str:
        return str(self._line)


class _CacheImpl(CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _Cache(FunctionCache):
    _impl_class = _CacheImpl
