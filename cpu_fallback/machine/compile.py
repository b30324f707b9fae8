"""Numba for the CPU: `compiled` makes a loop that has no GIL and no bounds checks and whose machine code is kept on disk.

Numba looks at the file of the outermost function only. Kolumn's folder of machine code is named for everything that can change the code
(`kolumn.cpu_fallback.machine.loops`).

A loop without code is compiled when it is called: by `kolumn.cpu_fallback.machine.compile_ahead`, together with the loops of its group.
This process compiles it only where that is impossible.
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
    """A loop for the CPU: GIL released, machine code shared by processes.

    The parameters of a loop of Kolumn are annotated, see `kolumn.cpu_fallback.machine.arrays`.
    """
    dispatcher = njit(nogil=True, boundscheck=False)(function)
    name = f"{function.__module__}:{function.__qualname__}"
    LOOPS[name] = dispatcher
    dispatcher._cache = _Cache(function, name) if folder() is not None else _NoCache(name)
    return cast(_Loop, dispatcher)


class _Locator(_CacheLocator):
    """Where Numba keeps the code of one function."""

    def __init__(self, function: Callable[..., Any], source: str) -> None:
        # Numba takes the stem of the file only: two folders may have files of one name.
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
    """Files that others can't write to, whatever the umask."""

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
        """Machine code from disk; what is not there is compiled ahead, with all that belongs to it."""
        found = self._stored(sig, target_context)
        if found is None and compile_ahead.make(self._loop):
            found = self._stored(sig, target_context)
        if found is None:
            compile_ahead.begin_alone(self._loop)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep machine code for other processes; a full disk, or a folder that can only be read, is no reason to fail."""
        compile_ahead.end_alone()
        try:
            super().save_overload(sig, data)
        except OSError as error:
            logger.info("machine code of %s is not kept: %s", self._loop, error)

    def _stored(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            logger.info("machine code of %s can't be read: %s", self._loop, error)
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
