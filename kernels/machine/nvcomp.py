"""nvCOMP's batched C interface, versions 5 and 6: it decompresses blocks where they are, with a status for each.

The Python interface of the library has no statuses and takes lists; here all arrays are on the device. What the library does with
broken input is not defined, so only batches with a right checksum come here. It takes the decompression engine of a GPU (Blackwell) where
the memory on both sides is fit for it; that of a pool is if the pool was made with a flag (CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS and
CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK in cuda.h of CUDA 12.8).
"""

import ctypes
import logging
from ctypes import POINTER, byref, c_char, c_int, c_size_t, c_void_p
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.errors import KolumnError, MissingError
from kolumn.formats.codecs import DEFLATE, LZ4_BLOCK, SNAPPY_BLOCK, ZSTD_FRAME

NAMES = {LZ4_BLOCK: "LZ4", SNAPPY_BLOCK: "Snappy", ZSTD_FRAME: "Zstd", DEFLATE: "Gzip"}
"""Of the library's codecs, by kind of block. A deflate stream comes with its gzip member: the plain codec wants it aligned."""
TEMPORARY_BYTES = 512 << 20
"""Temporary memory of one call at most, where the size of the pool is not known."""
_FILES = ("libnvcomp.so.6", "libnvcomp.so.5")


class DecompressOptions(ctypes.Structure):
    """Any of the ``nvcompBatched*DecompressOpts_t``: 64 bytes, of which zeros mean the defaults."""

    _fields_ = (("backend", c_int), ("rest", c_char * 60))


def places() -> list[Path]:
    """Files of the library's package that are there, those of the newest version first."""
    try:
        spec = find_spec("nvidia.libnvcomp")
    except ModuleNotFoundError:
        return []
    folders = [Path(place) / "lib64" for place in spec.submodule_search_locations or ()] if spec is not None else []
    return [folder / name for name in _FILES for folder in folders if (folder / name).is_file()]


def load() -> Any:
    """The library: from its package, or from where the system looks. Raises `MissingError`: it is not there, or of another version."""
    tried = []
    for path in (*map(str, places()), *_FILES):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
    raise missing("; ".join(tried))


def missing(why: str) -> MissingError:
    """The error that the library is not there."""
    return MissingError(f"nvCOMP was not found: pip install nvidia-libnvcomp-cu13 ({why})")


class Request(NamedTuple):
    """Arguments of one call, in the library's order: addresses of arrays with an item for each block, how many these are, and the address
    and bytes of temporary memory."""

    sources: int
    sizes: int
    rooms: int
    out_sizes: int
    blocks: int
    temporary: int
    temporary_bytes: int
    targets: int
    statuses: int


class Library:
    """The library in this process."""

    def __init__(self) -> None:
        self.loaded = load()

    def temporary(self, device: Any, kind: int, blocks: int, largest: int, total: int) -> int:
        """Bytes of temporary memory for some blocks that decompress to at most ``largest`` bytes each and ``total`` together."""
        found, how = c_size_t(), DecompressOptions()
        kinds = [c_size_t, c_size_t, DecompressOptions, POINTER(c_size_t), c_size_t]
        if hasattr(self.loaded, f"nvcompBatched{NAMES[kind]}DecompressGetTempSize"):
            query = self._function(kind, "GetTempSize", [*kinds, c_void_p])
            status = query(blocks, largest, how, byref(found), total, None)
        else:
            query = self._function(kind, "GetTempSizeAsync", kinds)
            status = query(blocks, largest, how, byref(found), total)
        demand(status, f"temporary memory of {NAMES[kind]}")
        return found.value

    def inflate(self, device: Any, kind: int, request: Request) -> None:
        """Decompress blocks on the stream of ``device``; does not wait."""
        inflate = self._function(
            kind, "Async", [c_void_p] * 4 + [c_size_t, c_void_p, c_size_t, c_void_p, DecompressOptions, c_void_p, c_void_p]
        )  # fmt: skip
        status = inflate(*request[:8], DecompressOptions(), request.statuses, device.stream.ptr)
        demand(status, f"decompressing {request.blocks} blocks of {NAMES[kind]}")

    def _function(self, kind: int, name: str, arguments: list[Any]) -> Any:
        function = getattr(self.loaded, f"nvcompBatched{NAMES[kind]}Decompress{name}")
        function.argtypes, function.restype = arguments, c_int
        return function


def demand(status: int, what: str) -> None:
    """Raise `KolumnError` unless a status of the library is that of success."""
    if status:
        raise KolumnError(f"nvCOMP: {what}: status {status}")


class Decompressor:
    """Decompresses by a library, or what stands for it. ``memory``: bytes of the pool: temporary memory of zstd takes at most a quarter of
    it in the three chunks that are on a device at a time."""

    def __init__(self, memory: int | None = None, library: Any = None) -> None:
        self.library = Library() if library is None else library
        self.most = TEMPORARY_BYTES if memory is None else memory // (4 * 3)

    def run(self, device: Any, kind: int, sources: Int64s, sizes: Int64s, room: Int64s, targets: Int64s) -> tuple[Int64s, Flags]:
        """As `runtime.Runtime.inflate`: waits for the device once."""
        n = len(sources)
        given = device.upload(np.stack([sources, sizes, room, targets]))
        answer = device.zeros(8 * n + 4 * n)
        self._begin(device, kind, 0, n, room, (given.address, answer.address))
        found = device.download(answer, 12 * n)
        out, statuses = found[: 8 * n].view(np.int64), found[8 * n :].view(np.int32)
        return out, (statuses == 0) & (out >= 0) & (out <= room)

    def _begin(self, device: Any, kind: int, start: int, stop: int, room: Int64s, arrays: tuple[int, int]) -> None:
        """Ask for some blocks, ``arrays`` are the addresses of what is given of all, and of the answers. Those that need too much temporary
        memory together are halved. The memory serves the next ones: it is freed in the order of the stream."""
        n, count, largest, total = len(room), stop - start, int(room[start:stop].max()), int(room[start:stop].sum())
        given, answer = arrays[0] + 8 * start, arrays[1]
        need = self.library.temporary(device, kind, count, largest, total)
        if need > self.most and count > 1:
            for begin, end in pairwise((start, start + count // 2, stop)):
                self._begin(device, kind, begin, end, room, arrays)
            return
        temporary = device.empty(need)
        sources, sizes, rooms, targets = (given + 8 * n * column for column in range(4))
        out, statuses = answer + 8 * start, answer + 8 * n + 4 * start
        self.library.inflate(device, kind, Request(sources, sizes, rooms, out, count, temporary.address, need, targets, statuses))


_ALGORITHMS, _LONGEST = 136, 137
"""Device attributes: a mask of `_CODECS`, and the most bytes of one operation. Drivers older than CUDA 12.8 know neither."""
_CODECS = ("deflate", "snappy", "lz4")
_LIBRARY = "libcuda.so.1"
logger = logging.getLogger(__name__)


def engines() -> list[tuple[tuple[str, ...], int]]:
    """Of each GPU the codecs that its engine decompresses, none without an engine, and the most bytes of one operation. Asks the driver
    alone, which takes no memory of a GPU. Empty where there is no driver."""
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
