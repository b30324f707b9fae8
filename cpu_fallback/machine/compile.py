"""Numba for the CPU: `compiled` makes a loop that releases the GIL, checks no bounds, and has its machine code stored on disk.

Numba's own cache compares only the file of the outermost function. The name of Kolumn's folder of machine code depends on everything
that can change the code (`kolumn.cpu_fallback.machine.loops`).

A loop without machine code is compiled when it is called: `kolumn.cpu_fallback.machine.compile_ahead` compiles it together with the
loops of its group. This process compiles the loop itself only if that is impossible.
"""

import logging
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, NullCache, _CacheLocator

from kolumn.cpu_fallback.machine import compile_ahead
from kolumn.cpu_fallback.machine.loops import LOOPS, folder, version

_Loop = TypeVar("_Loop", bound=Callable[..., Any])

logger = logging.getLogger("kolumn")


def compiled(function: _Loop) -> _Loop:
    """Make a loop for the CPU: it releases the GIL, and processes share its machine code.

    The parameters of the function must be annotated, see `kolumn.cpu_fallback.machine.arrays`.
    """
    dispatcher = njit(nogil=True, boundscheck=False)(function)
    name = f"{function.__module__}:{function.__qualname__}"
    LOOPS[name] = dispatcher
    dispatcher._cache = _Cache(function, name) if folder() is not None else _NoCache(name)
    return cast(_Loop, dispatcher)


class _Locator(_CacheLocator):
    """Tells Numba where to store the code of one function."""

    def __init__(self, function: Callable[..., Any], source: str) -> None:
        # The full module name is needed, because files of different folders may have the same name.
        self._place = f"{function.__module__}-{function.__code__.co_firstlineno}"

    @classmethod
    def from_function(cls, function: Callable[..., Any], source: str) -> "_Locator":
        return cls(function, source)

    def get_cache_path(self) -> str:
        return str(folder())

    def get_source_stamp(self) -> str:
        return version()

    def get_disambiguator(self) -> str:
        return self._place

    def ensure_cache_path(self) -> None:
        Path(self.get_cache_path()).mkdir(mode=0o755, exist_ok=True)


class _CacheImpl(CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _CacheFile(IndexDataCacheFile):
    """Writes files that others cannot write to, with any umask."""

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        draft = f"{filepath}.{os.getpid()}.tmp"
        try:
            with open(draft, "wb", opener=_private) as file:
                yield file
            os.replace(draft, filepath)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


class _Cache(FunctionCache):
    _impl_class = _CacheImpl

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        super().__init__(function)
        self._loop = name
        self._cache_file = _CacheFile(self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load machine code from disk. If there is none, all loops of the group are compiled first."""
        found = self._stored(sig, target_context)
        if found is None and compile_ahead.make(self._loop):
            found = self._stored(sig, target_context)
        if found is None:
            compile_ahead.begin_alone(self._loop)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store machine code for other processes. A full disk or a read-only folder is logged, and is not an error."""
        compile_ahead.end_alone()
        try:
            super().save_overload(sig, data)
        except OSError as error:
            logger.info("machine code of %s is not stored: %s", self._loop, error)

    def _stored(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            logger.info("machine code of %s cannot be read: %s", self._loop, error)
            with suppress(OSError):
                os.unlink(self._cache_file._index_path)
            return None


class _NoCache(NullCache):
    def __init__(self, loop: str) -> None:
        self._loop = loop

    def load_overload(self, sig: Any, target_context: Any) -> None:
        compile_ahead.begin_alone(self._loop)

    def save_overload(self, sig: Any, cres: Any) -> None:
        compile_ahead.end_alone()
