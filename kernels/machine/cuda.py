"""A CUDA device by CuPy: memory from the pool that all libraries share, kernels by plain pointers, running sums by CUB."""

from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from typing import Any
from weakref import finalize

import cupy
import numpy as np
import rmm.mr
from cupy.cuda import cub
from rmm.pylibrmm.stream import LEGACY_DEFAULT_STREAM, Stream

from kolumn.core.arrays import AnyArray, Bytes, Flags, Int64s
from kolumn.core.errors import KolumnError
from kolumn.core.recycle import LARGEST_LOCKED, take_locked
from kolumn.kernels.machine import staging
from kolumn.kernels.machine.image import image
from kolumn.kernels.machine.kernel import CONCURRENT, Kernel
from kolumn.kernels.machine.nvcomp import Decompressor
from kolumn.kernels.machine.runtime import layout
from kolumn.kernels.machine.staging import Block, Staged, Streams

_OUT_OF_MEMORY = (cupy.cuda.memory.OutOfMemoryError, MemoryError)
_TO_HOST = cupy.cuda.runtime.memcpyDeviceToHost
_TO_DEVICE = cupy.cuda.runtime.memcpyHostToDevice


def page_locked(size: int) -> Bytes:
    """Host memory that copies to and from the device can run beside: uint8 array of ``size``, unlocked and freed with the array. Raises
    `MemoryError`: the system locks no more memory."""
    # It belongs to a context, and would make one on this thread's current device if that is another.
    assert cupy.cuda.runtime.getDevice() in _used, "page-locked memory before the device was chosen"
    try:
        memory = cupy.cuda.PinnedMemory(size, cupy.cuda.runtime.hostAllocPortable)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MemoryError(f"cannot get {size} bytes of page-locked memory: {error}") from error
    found = np.frombuffer(cupy.cuda.PinnedMemoryPointer(memory, 0), np.uint8, size)
    address = found.ctypes.data
    _page_locked[address] = size
    finalize(found, _page_locked.pop, address, None).atexit = False
    return found


_page_locked: dict[int, int] = {}
"""Sizes of what `page_locked` has returned and is there still, by address."""


def is_page_locked(address: int) -> bool:
    """Whether memory of the host is what `page_locked` has returned, or a part of it."""
    return any(begin <= address < begin + size for begin, size in _page_locked.copy().items())


_SUMMED = 2**31 - 1
"""Most items of one sum: CUB is given an int."""
_used: set[int] = set()
"""Devices that were chosen in this process."""


def use(device: int) -> None:
    cupy.cuda.Device(device).use()
    _used.add(device)


class DeviceMemory:
    """Memory of the device: some bytes of a block, which goes back to the pool with the last object that has bytes of it."""

    def __init__(self, block: Block[Stream], size: int, start: int = 0) -> None:
        self.block, self.size, self.address = block, size, block.address + start

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For libraries that work on the stream that cuDF works on, as pylibcudf does: they come after what was asked for here."""
        self.block.share()
        return _interface(self)


class _AtRest:
    """The same memory for a library that is called when nothing is under way, and returns when it is done: kvikio."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory, self.size = memory, memory.size

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return _interface(self.memory)


def _interface(memory: DeviceMemory) -> dict[str, Any]:
    return {"shape": (memory.size,), "strides": None, "typestr": "|u1", "data": (memory.address, False), "version": 3}


_OTHERS = LEGACY_DEFAULT_STREAM
"""The stream on which cuDF works (``pylibcudf/utils.pyx``, CUDF_DEFAULT_STREAM), or which waits for it and which it waits for: with
CUDF_PER_THREAD_STREAM each thread has a stream, and the one that frees memory need not be the one that used it. The legacy default stream
is ordered with those of all threads (CUDA, "Stream synchronization behavior")."""


@cache
def _freeing(device: int) -> Stream:
    """A stream of each device for freeing."""
    return Stream(cupy.cuda.Stream(non_blocking=True))


def _order(device: int, before: Stream, after: Stream) -> None:
    """As `Streams` says, by an event. A thread that frees may have another current device."""
    runtime = cupy.cuda.runtime
    with cupy.cuda.Device(device):
        event = runtime.eventCreateWithFlags(runtime.eventDisableTiming)
        try:
            runtime.eventRecord(event, before.__cuda_stream__()[1])
            runtime.streamWaitEvent(after.__cuda_stream__()[1], event)
        finally:
            # The driver keeps it until the stream got there.
            runtime.eventDestroy(event)


@cache
def _function(kernel: Kernel, arch: int) -> Any:
    """A kernel's code, loaded once for all threads."""
    return cupy.RawModule(path=str(image(kernel, arch))).get_function(kernel.entry)


class CudaRuntime:
    """The current device for one thread, with a stream of its own. Copies in, kernels and copies out of different threads overlap; those of
    one follow each other. ``memory``: most bytes of the pool."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.stream = cupy.cuda.Stream(non_blocking=True)
        device = cupy.cuda.Device()
        self._device = int(device.id)
        self._streams = Streams(Stream(self.stream), _OTHERS, _freeing(self._device), partial(_order, self._device))
        self.arch = int(device.compute_capability)
        self._most_blocks = CONCURRENT * device.attributes["MultiProcessorCount"]
        self.kept: dict[str, Any] = {}
        self.reads_files = staging.available()
        self._sent: list[object] = []

    def empty(self, size: int) -> DeviceMemory:
        return self.pieces([size])[0]

    def zeros(self, size: int) -> DeviceMemory:
        return self.pieces([size], zeros=True)[0]

    def pieces(self, sizes: Sequence[int], zeros: bool = False) -> list[DeviceMemory]:
        starts, total = layout(sizes)
        pool, own = rmm.mr.get_current_device_resource(), self._streams.own
        try:
            address = pool.allocate(total, own)
        except _OUT_OF_MEMORY as error:
            raise KolumnError(f"the GPU has no room for {total} bytes: {error}; try a smaller chunk_bytes, or backend='cpu'") from error
        block = Block(self._streams, address, total, partial(pool.deallocate, address, total))
        if zeros:
            cupy.cuda.runtime.memsetAsync(address, 0, total, self.stream.ptr)
        return [DeviceMemory(block, size, start) for size, start in zip(sizes, starts, strict=True)]

    def upload(self, data: AnyArray) -> DeviceMemory:
        """Copy an array to the device while the host goes on, by way of page-locked memory unless it is there."""
        memory = self.empty(data.nbytes)
        if data.nbytes:
            source: object = data
            address = data.ctypes.data
            if data.nbytes <= LARGEST_LOCKED and not is_page_locked(address):
                source, view = take_locked(data.nbytes)
                locked = np.frombuffer(view, np.uint8)
                locked[:] = data.reshape(-1).view(np.uint8)
                address = locked.ctypes.data
            self._sent.append(source)
            cupy.cuda.runtime.memcpyAsync(memory.address, address, data.nbytes, _TO_DEVICE, self.stream.ptr)
        return memory

    def load(self, path: str, start: int, end: int) -> DeviceMemory | None:
        """By GPUDirect Storage, which knows no streams: the memory must be there before, and the bytes are there afterwards."""
        skipped = start % staging.PAGE
        memory = self.empty(end - start + skipped)
        self.stream.synchronize()
        if not staging.load(path, start - skipped, _AtRest(memory)):
            return None
        return DeviceMemory(memory.block, end - start, skipped)

    def download(self, memory: DeviceMemory, size: int, start: int = 0) -> Bytes:
        return self.downloads([(memory, size, start)])[0]

    def downloads(self, wanted: Sequence[tuple[DeviceMemory, int, int]]) -> list[Bytes]:
        return self.collected(wanted)()

    def collected(self, wanted: Sequence[tuple[DeviceMemory, int, int]]) -> Callable[[], list[Bytes]]:
        """By `staging`, up to the page-locked block."""
        staged = Staged([size for _, size, _ in wanted])
        try:
            for (memory, _, start), (to, size) in zip(wanted, staged.places, strict=True):
                if size:
                    cupy.cuda.runtime.memcpyAsync(to, memory.address + start, size, _TO_HOST, self.stream.ptr)
        finally:
            # An interrupt too has to wait: the device may be writing to memory that would be used again.
            self.synchronize()
        return staged.arrays

    def synchronize(self) -> None:
        self.stream.synchronize()
        self._sent.clear()

    def rest(self) -> None:
        """Kernels of other threads do not wait for those of this one."""

    def launch(self, kernel: Kernel, n: int, args: tuple[int, ...]) -> None:
        """Run a kernel: its parameters are n and the integers of ``args``, 64 bits each."""
        if not n:
            return
        with self.stream:
            _function(kernel, self.arch)((kernel.grid(n, self._most_blocks),), (kernel.block,), (np.int64(n), *map(np.int64, args)))

    def running_sum(self, memory: DeviceMemory, count: int, width: int) -> None:
        """CUB's inclusive sum, in place."""
        whole = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(memory.address, count * width, memory, self._device), 0)
        with self.stream:
            # Each sum after the first one goes on from the last item before.
            for start in range(0, max(count - 1, 1), _SUMMED - 1):
                values = cupy.ndarray((min(count - start, _SUMMED),), {4: np.int32, 8: np.int64}[width], whole + start * width)
                # Not cupy.cumsum, which copies by a kernel that it compiles first.
                cub.device_scan(values, cub.CUPY_CUB_CUMSUM)

    @cached_property
    def decompressor(self) -> Decompressor:
        """nvCOMP, loaded on first use."""
        return Decompressor(self.memory)

    def inflate(self, kind: int, sources: Int64s, sizes: Int64s, room: Int64s, targets: Int64s) -> tuple[Int64s, Flags]:
        return self.decompressor.run(self, kind, sources, sizes, room, targets)
