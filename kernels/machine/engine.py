"""The decompression engine of a GPU (Blackwell): what it decompresses, and a memory pool whose memory may go through it.

nvCOMP takes the engine by itself where the memory on both sides is fit for it; that of a pool is if the pool was made with a flag. See
CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK and CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS in cuda.h of CUDA 12.8.
"""

import ctypes
import logging
from importlib import import_module
from typing import Any

_ALGORITHMS, _LONGEST = 136, 137
"""Device attributes: a mask of `_CODECS`, and the most bytes of one operation. Drivers older than CUDA 12.8 know neither."""
_CODECS = ("deflate", "snappy", "lz4")
_LIBRARY = "libcuda.so.1"
logger = logging.getLogger(__name__)


def engines() -> list[tuple[tuple[str, ...], int]]:
    """Of each GPU the codecs that its engine decompresses, none without an engine, and the most bytes of one operation.

    Asks the driver alone, which takes no memory of a GPU. Empty where there is no driver.
    """
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError:
        return []
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    masks = [(_attribute(driver, _ALGORITHMS, device), _attribute(driver, _LONGEST, device)) for device in range(count.value)]
    return [(tuple(name for bit, name in enumerate(_CODECS) if mask >> bit & 1), longest) for mask, longest in masks]


def _attribute(driver: ctypes.CDLL, attribute: int, device: int) -> int:
    value, handle = ctypes.c_int(), ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(handle), device) or driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle):
        return 0
    return value.value


def memory(device: int) -> Any:
    """An RMM resource of the driver's pool for a device, with the flag where the device has an engine."""
    import rmm.mr

    known = engines()
    if device < len(known) and known[device][0]:
        try:
            return rmm.mr.CudaAsyncViewMemoryResource(_flagged_pool(device))
        except (AttributeError, ImportError, RuntimeError) as error:
            logger.warning("GPU %d: its decompression engine is not used: %s", device, error)
    return rmm.mr.CudaAsyncMemoryResource()


def _flagged_pool(device: int) -> Any:
    """A pool that lasts as long as the process and keeps what is freed."""
    runtime, driver = import_module("cuda.bindings.runtime"), import_module("cuda.bindings.driver")
    properties = runtime.cudaMemPoolProps()
    properties.allocType = runtime.cudaMemAllocationType.cudaMemAllocationTypePinned
    properties.location.type = runtime.cudaMemLocationType.cudaMemLocationTypeDevice
    properties.location.id = device
    properties.usage = runtime.cudaMemPoolCreateUsageHwDecompress
    status, pool = runtime.cudaMemPoolCreate(properties)
    if status:
        raise RuntimeError(f"cudaMemPoolCreate: {status!r}")
    keep = driver.cuuint64_t(2**64 - 1)
    (status,) = runtime.cudaMemPoolSetAttribute(pool, runtime.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold, keep)
    if status:
        raise RuntimeError(f"cudaMemPoolSetAttribute: {status!r}")
    return pool
