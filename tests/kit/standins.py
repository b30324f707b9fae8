"""CUDA without a GPU: stand-ins for calls of CuPy, RMM and nvCOMP over host memory. Kolumn's CUDA runtime runs on them whole.

A stream does what it was asked for as late as CUDA may: when somebody waits for it. Memory is freed as early as CUDA may: as soon as what
comes before it in its stream is done. What is wrong is noted in `Standins.faults`, since threads and destructors hide errors.

    asked of a stream   | copy | kernel | free | copy | wait for an event of another |
                        ▲ done so far                                                ▲ done when the host waits for the stream
"""

import ctypes
import gc
import threading
import time
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import cupy
import numpy as np
import pytest
import rmm.mr
from cupy.cuda import cub

from kit.emulated import FILLS, FREED, Emulated, run_loops
from kolumn.core import recycle
from kolumn.core.errors import MissingError
from kolumn.kernels.build import load_all
from kolumn.kernels.machine import cuda, device, nvcomp
from kolumn.kernels.machine.kernel import WARP

GUARD = 256
PROCESSORS = 2
MEMORY = 8 << 30
QUARANTINE = 64 << 20
"""Bytes of freed memory that are kept, to see who still uses it."""
LEGACY = cupy.cuda.runtime.streamLegacy


def real() -> bool:
    """Whether CUDA has a device here."""
    try:
        return device.count() > 0
    except MissingError:
        return False


def _array(address: int, count: int, dtype: Any) -> Any:
    return np.frombuffer((ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address), dtype)


@dataclass
class Step:
    """Something asked of a stream. Steps that are ``early`` are done as soon as they are first and ``ready``."""

    do: Callable[[], None]
    early: bool = False
    ready: Callable[[], bool] = lambda: True


@dataclass
class Queue:
    """What a stream was asked for and has not done, and how many steps it was asked for and has done."""

    waiting: deque[Step] = field(default_factory=deque)
    asked: int = 0
    done: int = 0
    alive: bool = True


class Piece:
    def __init__(self, size: int) -> None:
        self.size, self.freed, self.fill = size, False, next(FILLS)
        self.whole = np.full(size + 3 * GUARD, self.fill, np.uint8)
        begin = GUARD + -self.whole.ctypes.data % GUARD
        self.address = self.whole.ctypes.data + begin
        self.bytes = self.whole[begin : begin + size]
        self._around = self.whole[:begin], self.whole[begin + size :]

    def overrun(self) -> bool:
        return any((side != self.fill).any() for side in self._around)


class Standins:
    """A device; ``faults`` are what CUDA would have answered with an error, or with wrong bytes now and then."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.fault = self.faults.append
        self.lock = threading.RLock()
        self.queues: dict[int, Queue] = {LEGACY: Queue()}
        self.pieces: dict[int, Piece] = {}
        self.events: dict[int, tuple[Queue, int] | None] = {}
        self.resource: Any = None
        self.open = True
        self._begins: list[int] = []
        self._freed: deque[Piece] = deque()
        self._locked: list[Any] = []
        self._numbers = count(1000)
        self._running = False
        self._current = threading.local()

    # Streams and events.

    def ask(self, stream: int, do: Callable[[], None], **how: Any) -> None:
        """The last step of a stream from now on."""
        with self.lock:
            queue = self.queues[stream]
            queue.waiting.append(Step(do, **how))
            queue.asked += 1
            self._advance()

    def asked_by_kolumn(self, stream: int, do: Callable[[], None]) -> None:
        queue = self.queues.get(stream)
        if stream == LEGACY or queue is None or not queue.alive:
            self.fault(f"work for stream {stream}, which is none of Kolumn's")
        else:
            self.ask(stream, do)

    def run(self, queue: Queue, until: int) -> None:
        """Do the first ``until`` steps of a stream; the lock is held."""
        while queue.done < until and queue.waiting:
            self._step(queue)

    def wait(self, stream: int) -> None:
        with self.lock:
            queue = self.queues[stream]
            self.run(queue, queue.asked)
            self._advance()

    def _step(self, queue: Queue) -> None:
        step, before = queue.waiting.popleft(), self._running
        self._running = True
        try:
            step.do()
        finally:
            self._running = before
            queue.done += 1

    def _advance(self) -> None:
        """Do early steps. Not within another one: collections of garbage free memory at any time."""
        moved = not self._running
        while moved:
            moved = False
            for queue in list(self.queues.values()):
                while queue.waiting and queue.waiting[0].early and queue.waiting[0].ready():
                    self._step(queue)
                    moved = True

    def create_event(self, flags: int) -> int:
        event = next(self._numbers)
        self.events[event] = None
        return event

    def record(self, event: int, stream: int) -> None:
        with self.lock:
            self.events[event] = self.queues[stream], self.queues[stream].asked

    def wait_event(self, stream: int, event: int) -> None:
        recorded = self.events[event]
        if recorded is None:
            self.fault("a stream waits for an event that no stream was asked for")
            return
        queue, until = recorded
        self.ask(stream, lambda: self.run(queue, until), early=True, ready=lambda: queue.done >= until)

    def current(self) -> int:
        """The stream on which this thread has CuPy work."""
        streams = self._current.__dict__.get("streams")
        return streams[-1] if streams else LEGACY

    # Memory.

    def piece(self, address: int) -> Piece | None:
        """The allocation, freed or not, that has an address."""
        with self.lock:
            at = bisect_right(self._begins, address) - 1
            piece = self.pieces[self._begins[at]] if at >= 0 else None
        return piece if piece is not None and address < piece.address + max(piece.size, 1) else None

    def there(self, address: int, size: int, what: str) -> bool:
        """Whether some bytes are in an allocation; else that is a fault."""
        piece = self.piece(address)
        wrong = piece is None or piece.freed or address + size > piece.address + piece.size
        if wrong:
            self.fault(f"{what}: {size} bytes at {address:#x} are {'freed' if piece and piece.freed else 'outside of an allocation'}")
        return not wrong

    def allocate(self, size: int, stream: Any) -> int:
        queue = self.queues.get(stream.__cuda_stream__()[1])
        if queue is None or not queue.alive:
            self.fault("memory allocated on a stream that is none")
        piece = Piece(size)
        with self.lock:
            self.pieces[piece.address] = piece
            insort(self._begins, piece.address)
        return piece.address

    def deallocate(self, address: int, size: int, stream: Any) -> None:
        queue = self.queues.get(stream.__cuda_stream__()[1])
        if queue is None or not queue.alive:
            self.fault("memory freed on a stream that is destroyed")
            return
        self.ask(stream.__cuda_stream__()[1], lambda: self._free(address, size), early=True)

    def _free(self, address: int, size: int) -> None:
        piece = self.pieces.get(address)
        if piece is None or piece.freed:
            self.fault(f"freed twice, or never allocated: {address:#x}")
            return
        if piece.size != size or piece.overrun():
            self.fault(f"{piece.size} bytes, freed as {size}, {'written outside' if piece.overrun() else 'of another size'}")
        piece.freed = True
        piece.whole[:] = FREED
        self._freed.append(piece)
        while sum(one.size for one in self._freed) > QUARANTINE:
            self._forget(self._freed.popleft())

    def _forget(self, piece: Piece) -> None:
        if (piece.whole != FREED).any():
            self.fault(f"{piece.size} bytes were written after they were freed")
        del self.pieces[piece.address]
        self._begins.remove(piece.address)

    def in_use(self) -> int:
        return sum(piece.size for piece in list(self.pieces.values()) if not piece.freed)

    def page_locked(self, size: int, flags: int) -> Any:
        # Kept to the end: a copy that nobody waited for must not end the process.
        self._locked.append(np.full(size, 0xC3, np.uint8))
        return self._locked[-1]

    # Work.

    def copy(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        kinds = (cupy.cuda.runtime.memcpyHostToDevice, cupy.cuda.runtime.memcpyDeviceToHost)

        def do() -> None:
            if kind == cupy.cuda.runtime.memcpyDeviceToDevice:
                if self.there(to, size, "copy") and self.there(source, size, "copy"):
                    ctypes.memmove(to, source, size)
                return
            on_device = to if kind == kinds[0] else source
            on_host = source if kind == kinds[0] else to
            if kind not in kinds or self.piece(on_host) is not None:
                self.fault(f"a copy of kind {kind} has the wrong addresses")
            elif any(0 <= on_host - one.ctypes.data < len(one) < on_host - one.ctypes.data + size for one in self._locked):
                self.fault(f"a copy of {size} bytes goes past the end of page-locked memory")
            elif self.there(on_device, size, "copy"):
                ctypes.memmove(to, source, size)

        self.asked_by_kolumn(stream, do)

    def fill(self, to: int, value: int, size: int, stream: int) -> None:
        self.asked_by_kolumn(stream, lambda: self.there(to, size, "memset") and ctypes.memset(to, value, size))

    def function(self, entry: str, path: str) -> Callable[..., None]:
        kernel = load_all()[entry.removeprefix("kolumn_")]
        if entry != kernel.entry or Path(path).stem != kernel.name:
            self.fault(f"{entry} is not in {path}")

        def launch(grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
            n, fields = int(args[0]), tuple(map(int, args[1:]))
            blocks = -(-n * (kernel.lanes or WARP) // kernel.block)
            blocks = blocks if kernel.lanes else min(blocks, 32 * PROCESSORS)
            if (grid, block) != ((blocks,), (kernel.block,)):
                self.fault(f"{kernel.name} for {n} items: {grid} blocks of {block} threads")
                return
            if len(fields) != len(kernel.args._fields) or any(type(one) is not np.int64 for one in args):
                self.fault(f"{kernel.name}: parameters {args}")
                return
            # An address may be biased by a position in a file: what is freed shows by its poison.
            self.asked_by_kolumn(self.current(), lambda: run_loops(kernel, n, kernel.args(*fields)))

        launch.attributes = {  # type: ignore[attr-defined]
            "num_regs": 0, "local_size_bytes": 0, "shared_size_bytes": 0, "max_threads_per_block": kernel.block,
        }  # fmt: skip
        return launch

    def scan(self, values: Any, operation: int) -> None:
        address, size, dtype = values.data.ptr, values.size, values.dtype

        def do() -> None:
            if self.there(address, size * dtype.itemsize, "sum"):
                found = _array(address, size, dtype)
                found[:] = np.cumsum(found, dtype=np.int64)

        if operation != cub.CUPY_CUB_CUMSUM:
            self.fault(f"operation {operation} of CUB")
        self.asked_by_kolumn(self.current(), do)

    def library(self) -> Any:
        """In place of nvCOMP."""
        functions = {}
        for kind, name in nvcomp.NAMES.items():
            begin = f"nvcompBatched{name}Decompress"

            def temporary(blocks: int, largest: int, how: Any, found: Any, total: int) -> int:
                found._obj.value = 64 * blocks + 1
                return 0

            functions[f"{begin}GetTempSizeAsync"] = temporary
            functions[f"{begin}Async"] = lambda *given, kind=kind: self._inflate(kind, *given)
        return SimpleNamespace(**functions)

    def _inflate(
        self, kind: int, sources: int, sizes: int, room: int, out: int, n: int, temporary: int, need: int, targets: int, how: Any,
        statuses: int, stream: int,
    ) -> int:  # fmt: skip
        def do() -> None:
            whole = ((sources, 8), (sizes, 8), (room, 8), (out, 8), (targets, 8), (statuses, 4))
            if not all([self.there(temporary, need, "nvCOMP"), *(self.there(address, width * n, "nvCOMP") for address, width in whole)]):
                return
            ctypes.memset(temporary, 0xEE, need)
            given = [_array(address, n, np.int64) for address in (sources, sizes, room, targets)]
            places = [*zip(given[0], given[1], strict=True), *zip(given[3], given[2], strict=True)]
            if all(self.there(int(address), int(size), "a block for nvCOMP") for address, size in places if size):
                found, fine = Emulated(run_loops).inflate(kind, *given)
                _array(out, n, np.int64)[:] = found
                _array(statuses, n, np.int32)[:] = ~fine

        self.asked_by_kolumn(stream, do)
        return 0

    # In place of the packages.

    def install(self, patch: pytest.MonkeyPatch) -> None:
        standins = self

        class Stream:
            def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
                self.ptr = next(standins._numbers)
                standins.queues[self.ptr] = self._queue = Queue()

            def __del__(self) -> None:
                self._queue.alive = False
                if standins.open:
                    standins.fault("a stream is destroyed: memory may be freed in its order yet")

            def __cuda_stream__(self) -> tuple[int, int]:
                return 0, self.ptr

            def __enter__(self) -> None:
                standins._current.__dict__.setdefault("streams", []).append(self.ptr)

            def __exit__(self, *_: object) -> None:
                standins._current.streams.pop()

            def synchronize(self) -> None:
                standins.wait(self.ptr)

        class Event:
            """With the time at which its stream gets there."""

            def __init__(self) -> None:
                self.at, self._stream = 0.0, LEGACY

            def record(self, stream: Stream) -> None:
                self._stream = stream.ptr
                standins.ask(stream.ptr, lambda: setattr(self, "at", time.perf_counter()), early=True)

            def synchronize(self) -> None:
                standins.wait(self._stream)

        class Device(nullcontext[None]):
            compute_capability = "90"
            attributes: ClassVar = {"MultiProcessorCount": PROCESSORS}

            def __init__(self, id: int = 0) -> None:
                super().__init__()
                self.id = id

            def use(self) -> None:
                """It is current: there is one."""

        class Resource:
            deallocate = staticmethod(standins.deallocate)

            def __init__(self, upstream: Any = None, limit: int = MEMORY) -> None:
                self.limit = limit

            def allocate(self, size: int, stream: Any) -> int:
                if standins.in_use() + size > self.limit:
                    raise MemoryError("out_of_memory: maximum pool size exceeded")
                return standins.allocate(size, stream)

        self.resource = Resource()
        for name, stands_in in {
            "getDeviceCount": lambda: 1, "driverGetVersion": lambda: 13000, "getDevice": lambda: 0, "memGetInfo": lambda: (MEMORY, MEMORY),
            "memcpyAsync": self.copy, "memsetAsync": self.fill, "eventCreateWithFlags": self.create_event, "eventRecord": self.record,
            "streamWaitEvent": self.wait_event, "eventDestroy": self.events.pop,
            "getDeviceProperties": lambda number: {"name": b"stand-in", "multiProcessorCount": PROCESSORS},
        }.items():  # fmt: skip
            patch.setattr(cupy.cuda.runtime, name, stands_in)
        kinds: dict[str, Any] = {
            "Stream": Stream, "Device": Device, "Event": Event, "PinnedMemory": self.page_locked,
            "PinnedMemoryPointer": lambda memory, at: memory,
            "set_allocator": lambda allocator: None, "get_elapsed_time": lambda begin, end: 1e3 * (end.at - begin.at),
        }  # fmt: skip
        for name, stands_in in kinds.items():
            patch.setattr(cupy.cuda, name, stands_in)
        for name in ("CudaMemoryResource", "CudaAsyncMemoryResource", "LimitingResourceAdaptor"):
            patch.setattr(rmm.mr, name, Resource)
        patch.setattr(rmm.mr, "get_per_device_resource", lambda number: self.resource)
        patch.setattr(rmm.mr, "get_current_device_resource", lambda: self.resource)
        patch.setattr(rmm.mr, "set_per_device_resource", lambda number, resource: setattr(self, "resource", resource))
        patch.setattr(cub, "device_scan", self.scan)
        patch.setattr(cupy, "RawModule", lambda path: SimpleNamespace(get_function=lambda entry: self.function(entry, path)))
        patch.setattr(cuda, "image", lambda kernel, arch: Path(f"{kernel.name}.ptx"))
        patch.setattr(cuda, "_used", set())
        patch.setattr(nvcomp, "load", self.library)
        patch.setattr(device, "_local", threading.local())
        for name in ("_idle", "_opened", "_limit", "_pinned"):
            patch.setattr(device, name, [])

    def end(self) -> None:
        """Look for what is left, apart from what runtimes keep."""
        gc.collect()
        self.open = False
        lent = getattr(device._local, "lent", None)
        for runtime in [*device._idle, *([lent.runtime] if lent else [])]:
            runtime.kept.clear()
        del lent
        gc.collect()
        # The stream that Kolumn may not wait for goes first.
        for stream in list(self.queues):
            self.wait(stream)
        for piece in list(self.pieces.values()):
            if piece.freed:
                self._forget(piece)
            else:
                self.fault(f"{piece.size} bytes are left")
        if self.events:
            self.fault(f"{len(self.events)} events are left")


def _forget_caches() -> None:
    cuda._function.cache_clear()
    cuda._freeing.cache_clear()
    recycle.lock_by(None)


@contextmanager
def standing_in() -> Iterator[Standins]:
    """Stand-ins for a device within a context, at the end of which faults are an error."""
    found = Standins()
    with pytest.MonkeyPatch.context() as patch:
        found.install(patch)
        _forget_caches()
        try:
            yield found
            found.end()
        finally:
            _forget_caches()
    assert not found.faults, found.faults[:5]
