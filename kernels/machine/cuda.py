"""A CUDA device by CuPy: memory from the pool that all libraries share, kernels by plain pointers, running sums by CUB."""

from functools import cache
from typing import Any

import cupy
import numpy as np

from kolumn.arrays import AnyArray, Int64s
from kolumn.errors import KolumnError
from kolumn.kernels.machine import direct
from kolumn.kernels.machine.image import image
from kolumn.kernels.machine.kernel import Kernel
from kolumn.kernels.machine.nvcomp import Decompressor
from kolumn.kernels.machine.runtime import PAD

_OUT_OF_MEMORY = (cupy.cuda.memory.OutOfMemoryError, MemoryError)
_TO_HOST = cupy.cuda.runtime.memcpyDeviceToHost
_TO_DEVICE = cupy.cuda.runtime.memcpyHostToDevice
_CONCURRENT = 32
"""Most blocks for each multiprocessor, of a kernel that assigns items to threads itself: more would wait."""


def page_locked(size: int) -> Any:
    """Host memory that copies to and from the device can run beside: uint8 array of ``size``."""
    return np.frombuffer(cupy.cuda.alloc_pinned_memory(size), np.uint8, size)


def use(device: int) -> None:
    """Make a device this thread's current one."""
    cupy.cuda.Device(device).use()


class DeviceMemory:
    """Memory of the device; goes back to the pool with the object, in the order of its stream."""

    def __init__(self, pointer: Any, size: int) -> None:
        self.pointer, self.size = pointer, size

    @property
    def address(self) -> int:
        """Of the first byte."""
        return int(self.pointer.ptr)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For pylibcudf, Numba and others."""
        return {"shape": (self.size,), "strides": None, "typestr": "|u1", "data": (self.address, False), "version": 3}


@cache
def _function(kernel: Kernel, arch: int) -> Any:
    """A kernel's code, loaded once for all threads."""
    return cupy.RawModule(path=str(image(kernel, arch))).get_function(kernel.entry)


class CudaRuntime:
    """The current device for one thread, with a stream of its own.

    Copies in, kernels and copies out of different threads overlap; those of one follow each other.
    """

    def __init__(self) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        device = cupy.cuda.Device()
        self.arch = int(device.compute_capability)
        self._most_blocks = _CONCURRENT * device.attributes["MultiProcessorCount"]
        self.kept: dict[str, Any] = {}
        self.reads_files = direct.available()
        self._sent: list[Any] = []
        self._decompressor: Decompressor | None = None

    def empty(self, size: int) -> DeviceMemory:
        """Memory, not initialised."""
        with self.stream:
            try:
                return DeviceMemory(cupy.cuda.alloc(size + PAD), size)
            except _OUT_OF_MEMORY as error:
                raise KolumnError(f"no room for {size} bytes on the GPU: {error}; try a smaller chunk_bytes, or backend='cpu'") from error

    def zeros(self, size: int) -> DeviceMemory:
        """Memory of zeros."""
        memory = self.empty(size)
        memory.pointer.memset_async(0, size + PAD, self.stream)
        return memory

    def upload(self, data: AnyArray) -> DeviceMemory:
        """Copy an array to the device; page-locked ones while the host goes on."""
        memory = self.empty(data.nbytes)
        if data.nbytes:
            cupy.cuda.runtime.memcpyAsync(memory.address, data.ctypes.data, data.nbytes, _TO_DEVICE, self.stream.ptr)
            self._sent.append(data)
        return memory

    def load(self, path: str, start: int, end: int) -> DeviceMemory | None:
        """By GPUDirect Storage, which knows no streams: the memory must be there before, and the bytes are there afterwards."""
        skipped = start % direct.PAGE
        memory = self.empty(end - start + skipped)
        self.stream.synchronize()
        if not direct.load(path, start - skipped, memory):
            return None
        return DeviceMemory(memory.pointer + skipped, end - start)

    def download(self, memory: DeviceMemory, size: int, start: int = 0) -> Any:
        """Copy to page-locked memory of the host, and wait for it."""
        if not size:
            return np.empty(0, np.uint8)
        host = page_locked(size)
        cupy.cuda.runtime.memcpyAsync(host.ctypes.data, memory.address + start, size, _TO_HOST, self.stream.ptr)
        self.synchronize()
        return host

    def synchronize(self) -> None:
        """Wait for everything that was asked for."""
        self.stream.synchronize()
        self._sent.clear()

    def launch(self, kernel: Kernel, n: int, args: tuple[int, ...]) -> None:
        """Run a kernel: its parameters are n and the integers of ``args``, 64 bits each."""
        if not n:
            return
        blocks = kernel.grid(n)
        if not kernel.lanes:
            blocks = min(blocks, self._most_blocks)
        with self.stream:
            _function(kernel, self.arch)((blocks,), (kernel.block,), (np.int64(n), *map(np.int64, args)))

    def running_sum(self, memory: DeviceMemory, count: int, width: int) -> None:
        """CUB's inclusive sum, in place."""
        values = cupy.ndarray((count,), {4: np.int32, 8: np.int64}[width], memory.pointer)
        with self.stream:
            cupy.cumsum(values, out=values)

    def inflate(self, kind: int, sources: Int64s, sizes: Int64s, room: Int64s, targets: Int64s) -> tuple[Any, Any]:
        """By nvCOMP."""
        if self._decompressor is None:
            self._decompressor = Decompressor()
        return self._decompressor.run(self, kind, sources, sizes, room, targets)
