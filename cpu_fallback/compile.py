"""Numba for the CPU: `compiled` makes a loop that has no GIL and no bounds checks and is cached on disk.

The cache is keyed by a fingerprint of every source file that can end up in compiled code, because Numba itself only looks
at the file of the outermost function.
"""

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a loop for the CPU on first use: GIL released, machine code cached between processes."""
    dispatcher = njit(nogil=True, boundscheck=False)(function)
    if cache_folder() is not None:
        dispatcher._cache = _Cache(function)
    return dispatcher


@cache
def cache_folder() -> Path | None:
    """Writable folder of the machine code: KOLUMN_CACHE_DIR, else the user's cache folder, else one for temporary files."""
    named = os.environ.get("KOLUMN_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    places = [Path(named)] if named else [Path(home) / "kolumn", Path(tempfile.gettempdir()) / f"kolumn-{os.getuid()}"]
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=place):
                return place
        except OSError:
            continue
    tried = ", ".join(map(str, places))
    warnings.warn(f"no writable cache folder ({tried}): compiling anew in every process takes seconds; set KOLUMN_CACHE_DIR", stacklevel=2)
    return None


@cache
def _fingerprint() -> str:
    digest = hashlib.sha256(files("kolumn").joinpath("scalar.py").read_bytes())
    # Not by path: the package may be in a zip, as Spark ships it.
    for package in ("kolumn.cpu_fallback", "kolumn.formats", "kolumn.codecs"):
        for source in sorted(files(package).iterdir(), key=lambda file: file.name):
            if source.name.endswith(".py"):
                digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


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
