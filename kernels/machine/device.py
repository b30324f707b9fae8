"""The device of this process, and the one memory pool that cuDF, CuPy and Kolumn share on it."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kolumn.core.errors import MissingError
from kolumn.core.packages import GPU, missing_package
from kolumn.core.recycle import lock_by
from kolumn.kernels.machine.nvcomp import memory
from kolumn.kernels.machine.runtime import Runtime

_local = threading.local()
_idle: list[Runtime] = []
"""Runtimes of threads that have ended, for threads to come."""
_lock = threading.Lock()
_given: list[Runtime] = []
_opened: list[int] = []
_limit: list[int] = []
_pinned: list[bool] = []
SHARE = 0.8
"""Share of a device's memory for the pool, unless a task opened the device: the rest is for libraries that allocate by themselves."""
CUDA = 13
"""What the kernels are compiled for: an older driver does not take their PTX, whatever CuPy is for."""


def count() -> int:
    """How many devices CUDA sees in this process. Raises `MissingError`: CuPy is not installed, there is no driver or an old one, or no
    device."""
    try:
        import cupy
    except ImportError as error:
        raise missing_package(f"a GPU was asked for: {error} (`kolumn doctor` says more)", *GPU) from error
    try:
        found = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MissingError(f"a GPU was asked for, and {_why_none(cupy.cuda.runtime)}: {error}; see `kolumn doctor`") from error
    driver = cupy.cuda.runtime.driverGetVersion()
    if driver // 1000 < CUDA:
        raise MissingError(f"a GPU was asked for, and {_knows(driver)}: Kolumn's kernels are for CUDA {CUDA}, install a newer driver")
    return int(found)


def _knows(driver: int) -> str:
    return f"the NVIDIA driver knows CUDA {driver // 1000}.{driver % 1000 // 10}"


def _why_none(cuda: Any) -> str:
    """What a machine lacks on which CUDA's runtime finds no device: CUDA says the same of a driver that is too old and of none."""
    driver, own = cuda.driverGetVersion(), cuda.runtimeGetVersion() // 1000
    if not driver:
        return f"there is no NVIDIA driver (libcuda.so.1): install one that knows CUDA {own}"
    if driver // 1000 < own:
        return f"{_knows(driver)}, and CuPy is for CUDA {own}: install a newer driver"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "CUDA has none" if visible is None else f"CUDA has none, with CUDA_VISIBLE_DEVICES={visible}"


def memory_of(device: int) -> int:
    """Bytes of memory that a device has; makes the device current."""
    import cupy

    cupy.cuda.Device(device).use()
    _, total = cupy.cuda.runtime.memGetInfo()
    return int(total)


def open_device(device: int, share: float) -> None:
    """Make a device current, with a pool that takes at most ``share`` of its memory and grows to it by need. RMM's resource of the device
    is used as it is where the process has set one, and so is CuPy's allocator: another pool beside theirs could not have the memory that
    they hold. Raises `MissingError`: RMM is not there."""
    try:
        import cupy
        import rmm.mr
        from rmm.allocators.cupy import rmm_cupy_allocator
    except ImportError as error:
        raise missing_package(f"a GPU was asked for: {error} (`kolumn doctor` says more)", *GPU) from error
    limit, pool = int(share * memory_of(device)), rmm.mr.get_per_device_resource(device)
    # What RMM begins with.
    if type(pool) is rmm.mr.CudaMemoryResource:
        rmm.mr.set_per_device_resource(device, rmm.mr.LimitingResourceAdaptor(memory(device), limit))
    else:
        limit = min(limit, _most_of(pool))
    if cupy.cuda.get_allocator() == cupy.get_default_memory_pool().malloc:
        cupy.cuda.set_allocator(rmm_cupy_allocator)
    _limit[:], _opened[:] = [limit], [device]


def _most_of(pool: Any) -> int:
    """Bytes that a pool of the process can have: its limit where it has one, else what it holds and what is free."""
    import cupy

    if hasattr(pool, "get_allocation_limit"):
        return int(pool.get_allocation_limit())
    free, _ = cupy.cuda.runtime.memGetInfo()
    return int(free) + (int(pool.pool_size()) if hasattr(pool, "pool_size") else 0)


def runtime() -> Runtime:
    """The device as this thread sees it, opened on first use. Raises `MissingError`: there is no device, or a package is missing."""
    if _given:
        return _given[-1]
    if not hasattr(_local, "lent"):
        count()
        try:
            from kolumn.kernels.machine.cuda import CudaRuntime, page_locked, use
        except ImportError as error:
            raise missing_package(f"a GPU was asked for: {error} (`kolumn doctor` says more)", *GPU) from error
        with _lock:
            if not _opened:
                open_device(0, SHARE)
        # Each thread of a process has a current device of its own.
        use(_opened[0])
        with _lock:
            if not _pinned:
                lock_by(page_locked)
                _pinned.append(True)
        try:
            _local.lent = _Lent(_idle.pop())
        except IndexError:
            _local.lent = _Lent(CudaRuntime(_limit[0]))
    found: Runtime = _local.lent.runtime
    return found


class _Lent:
    """The runtime of a thread. Runtimes are never destroyed; another thread takes one over when its thread has ended.

    A stream must outlive every piece of memory that is freed in its order. A garbage collection that finds both, as in the traceback of an
    error, may destroy the stream first."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime

    def __del__(self) -> None:
        if not sys.is_finalizing():
            # What an error left under way reads page-locked memory, which is used again as soon as nobody has it.
            self.runtime.synchronize()
            _idle.append(self.runtime)


def opened() -> int:
    """Number of the device that this process has opened."""
    return _opened[0]


@contextmanager
def using(runtime: Runtime) -> Iterator[None]:
    """Let all threads use a runtime within a context: an emulated device, in tests."""
    _given.append(runtime)
    try:
        yield
    finally:
        _given.pop()
