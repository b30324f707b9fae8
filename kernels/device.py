"""The device of this process, and the one memory pool that cuDF and CuPy share on it."""

from kolumn.errors import MissingError

ADVICE = "pip install 'kolumn[gpu]', and see `kolumn doctor`"


def count() -> int:
    """How many devices CUDA sees in this process.

    Raises
    ------
    MissingError
        CuPy is not there, there is no driver, or no device.
    """
    try:
        import cupy
    except ImportError as error:
        raise MissingError(f"a GPU was asked for: {error}; {ADVICE}") from error
    try:
        found = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MissingError(f"a GPU was asked for, and CUDA has none: {error}; {ADVICE}") from error
    return int(found)


def open_device(device: int, share: float) -> None:
    """Make a device current, with a pool that takes at most ``share`` of its memory and grows to it by need.

    Raises
    ------
    MissingError
        RMM is not there.
    """
    try:
        import cupy
        import rmm.mr
        from rmm.allocators.cupy import rmm_cupy_allocator
    except ImportError as error:
        raise MissingError(f"a GPU was asked for: {error}; {ADVICE}") from error
    cupy.cuda.Device(device).use()
    _, total = cupy.cuda.runtime.memGetInfo()
    pool = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaAsyncMemoryResource(), int(share * total))
    rmm.mr.set_per_device_resource(device, pool)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
