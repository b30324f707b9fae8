"""A device of another process, which executes what this one says: the GPU of a Spark executor, whose JVM has the RAPIDS Accelerator.

    this process: plan, read, steer                          the JVM: a task's thread, in the accelerator's context
    ───────────────────────────────                          ──────────────────────────────────────────────────────────────
    pieces, upload, launch, running_sum, inflate  ─ frames ▶ its memory pool, our kernels, its nvCOMP, on the thread's default stream
    pieces, downloads, synchronize                ◀ answers ─
    bytes of files, in memory that both map       ─ PCIe ──▶ page-locked by the JVM, so that they cross once

So this process never touches CUDA, and a second context, a second pool and a way back for the columns are not needed. A frame is one
byte that says what to do, an int32 length, and the rest; numbers are big-endian:

    A  allocate     int64 size, bool zeros                            answer: int64 address
    F  free         int64 address
    M  map          int32 block, int32 descriptor, int64 size
    D  drop         int32 block
    U  upload       int64 target, the bytes
    C  copy         int64 target, int32 block, int64 offset, int64 size
    G  get          int32 count, then int64 address and size of each  answer: the bytes
    K  kernel       int32 number, int32 length, its entry, its image
    L  launch       int32 kernel, int32 grid, int32 block, int64 arguments
    R  running sum  int64 address, int64 count, int32 width
    Y  synchronize                                                    answer: nothing
    N  nvCOMP       path of the library
    W  wait         nothing is asked for until this process has worked for a while
    T  temporary    int32 kind, int64 count, largest, total           answer: int64 bytes
    I  inflate      int32 kind, int64 count, then int64 each of the   answer: int32 status
                    fields of `Request` in order
    B  table        see `kolumn.spark_plugin.connector.resident.described`
    E  end          JSON of what was counted
    X  end          JSON with the error

An answer begins with "O", or is "S": the JVM wants no more. What needs no answer waits until something does.
"""

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import numpy as np

from kolumn.core.arrays import AnyArray, Bytes, Flags, Int64s
from kolumn.core.recycle import take_locked
from kolumn.kernels.machine.image import image
from kolumn.kernels.machine.kernel import CONCURRENT, Kernel
from kolumn.kernels.machine.nvcomp import NAMES, Decompressor, Request, demand, missing, places
from kolumn.kernels.machine.runtime import Memory, layout

_INLINE = 1 << 16
"""Bytes up to which an upload goes through the pipe: for a few a block would be more work."""
_SMALL, _SLAB = 2 << 20, 8 << 20
"""Pieces of so many bytes are taken from a slab of so many, zeros before. Each allocation is answered, which takes 20 microseconds: all
columns of a split of 60 MB were 84 allocations without slabs, and are 29 with them."""
_WAITING = 1 << 18
"""Bytes of frames that wait for something that needs an answer."""


_NO_LIBRARY = -(2**63)


class Stopped(Exception):  # noqa: N818 (it is no error that the JVM has enough)
    """The JVM wants no more of this task."""


class Connection(Protocol):
    """To the other process."""

    def send(self, data: bytes) -> None:
        """Send bytes."""

    def receive(self, size: int) -> bytearray:
        """Wait for so many bytes."""


class Blocks(Protocol):
    """Memory that both processes map: `kolumn.spark_plugin.connector.shared.SharedBlocks`."""

    def find(self, address: int, size: int) -> tuple[int, int, int] | None:
        """Block, offset and size of some bytes of this process, if they are in a block."""

    def descriptor(self, block: int) -> tuple[int, int]:
        """Descriptor and size of a block."""


class Mapped(Protocol):
    """Blocks that the other process has mapped."""

    def now(self, needed: set[int]) -> tuple[list[int], list[int]]:
        """Blocks that are gone since the last call, and those of the needed ones that are not mapped."""


@dataclass(frozen=True)
class Told:
    """What the other process keeps from one device to the next: blocks, if there is memory that both map, and numbers of kernels."""

    blocks: Blocks | None
    mapped: Mapped | None
    kernels: dict[str, int] = field(default_factory=dict)


class _Allocation:
    """Memory that the JVM has allocated; it is told when nothing here refers to it any more."""

    def __init__(self, address: int, freed: list[int]) -> None:
        self.address, self._freed = address, freed

    def __del__(self) -> None:
        # A garbage collection may come in the middle of a frame, so it only takes a note.
        self._freed.append(self.address)


class RemoteMemory:
    """Some bytes of an allocation."""

    def __init__(self, allocation: _Allocation, size: int, start: int) -> None:
        self.allocation, self.size, self.address = allocation, size, allocation.address + start


class ExecutorDevice:
    """A `kernels.machine.runtime.Runtime` in the other process, for one task.

    Parameters
    ----------
    connection : Connection
        To the JVM, which executes frames until the task's end.
    told : Told
        Of the devices before.
    arch, multiprocessors, memory : int
        The device: 90 for sm_90, and bytes of the JVM's pool.
    """

    reads_files = False

    def __init__(self, connection: Connection, told: Told, arch: int, multiprocessors: int, memory: int) -> None:
        self.connection, self.told, self.arch, self.memory = connection, told, arch, memory
        self.kept: dict[str, Any] = {}
        self._most_blocks = CONCURRENT * multiprocessors
        self._freed: list[int] = []
        self._sent: list[object] = []
        self._slab: _Allocation | None = None
        self._used = 0
        self._waiting = bytearray()
        self._stopped = False
        self._decompressor = Decompressor(memory, _Nvcomp())

    def empty(self, size: int) -> RemoteMemory:
        return self.pieces([size])[0]

    def zeros(self, size: int) -> RemoteMemory:
        return self.pieces([size], zeros=True)[0]

    def pieces(self, sizes: Sequence[int], zeros: bool = False) -> list[RemoteMemory]:
        starts, total = layout(sizes)
        if total > _SMALL:
            allocation, first = self._allocated(total, zeros), 0
        else:
            if self._slab is None or self._used + total > _SLAB:
                self._slab, self._used = self._allocated(_SLAB, True), 0
            allocation, first = self._slab, self._used
            self._used += total
        return [RemoteMemory(allocation, size, first + start) for size, start in zip(sizes, starts, strict=True)]

    def _allocated(self, size: int, zeros: bool) -> _Allocation:
        (address,) = struct.unpack(">q", self.ask(b"A", struct.pack(">q?", size, zeros), 8))
        return _Allocation(address, self._freed)

    def upload(self, data: AnyArray) -> RemoteMemory:
        memory, bytes = self.empty(data.nbytes), data.reshape(-1).view(np.uint8)
        if data.nbytes > _INLINE and self.told.blocks is not None:
            self._copy(memory.address, bytes, self.told.blocks)
            return memory
        for start in range(0, data.nbytes, _INLINE):
            self.tell(b"U", struct.pack(">q", memory.address + start), bytes[start : start + _INLINE].tobytes())
        return memory

    def _copy(self, target: int, data: Bytes, blocks: Blocks) -> None:
        source: object = data
        found = blocks.find(data.ctypes.data, data.nbytes)
        if found is None:
            source, view = take_locked(data.nbytes)
            copied = np.frombuffer(view, np.uint8)
            copied[:] = data
            found = blocks.find(copied.ctypes.data, data.nbytes)
            assert found is not None, "memory that this process shares is not in a block"
        # The JVM copies later, so the bytes have to stay.
        self._sent.append(source)
        self._announce(found[0], blocks)
        self.tell(b"C", struct.pack(">qiqq", target, *found))

    def _announce(self, block: int, blocks: Blocks) -> None:
        assert self.told.mapped is not None
        dropped, new = self.told.mapped.now({block})
        for one in dropped:
            self.tell(b"D", struct.pack(">i", one))
        for one in new:
            self.tell(b"M", struct.pack(">iiq", one, *blocks.descriptor(one)))

    def load(self, path: str, start: int, end: int) -> None:
        """Nothing bypasses this process."""

    def download(self, memory: Memory, size: int, start: int = 0) -> Bytes:
        return self.downloads([(memory, size, start)])[0]

    def downloads(self, wanted: Sequence[tuple[Memory, int, int]]) -> list[Bytes]:
        asked = [(memory.address + start, size) for memory, size, start in wanted]
        text = struct.pack(f">i{2 * len(asked)}q", len(asked), *(number for pair in asked for number in pair))
        answer = np.frombuffer(self.ask(b"G", text, sum(size for _, size in asked)), np.uint8)
        self._sent.clear()
        return np.split(answer, np.cumsum([size for _, size in asked])[:-1]) if asked else []

    def collected(self, wanted: Sequence[tuple[Memory, int, int]]) -> Callable[[], list[Bytes]]:
        found = self.downloads(wanted)
        return lambda: found

    def synchronize(self) -> None:
        self.ask(b"Y", b"", 0)
        self._sent.clear()

    def rest(self) -> None:
        """The task gives its turn on the GPU to another one, and waits for one when it asks for something."""
        self.tell(b"W")
        self.flush()

    def launch(self, kernel: Kernel, n: int, args: tuple[int, ...]) -> None:
        if not n:
            return
        known = self.told.kernels
        number = known.get(kernel.name)
        if number is None:
            number = known[kernel.name] = len(known)
            name = kernel.entry.encode()
            self.tell(b"K", struct.pack(">ii", number, len(name)), name, _image(kernel, self.arch))
        numbers = (n, *map(int, args))
        self.tell(b"L", struct.pack(f">iii{len(numbers)}q", number, kernel.grid(n, self._most_blocks), kernel.block, *numbers))

    def running_sum(self, memory: Memory, count: int, width: int) -> None:
        self.tell(b"R", struct.pack(">qqi", memory.address, count, width))

    def inflate(self, kind: int, sources: Int64s, sizes: Int64s, room: Int64s, targets: Int64s) -> tuple[Int64s, Flags]:
        return self._decompressor.run(self, kind, sources, sizes, room, targets)

    def hand_over(self, table: bytes) -> None:
        """Give the other process a table, as numbers: it keeps the memory of the columns."""
        self.tell(b"B", table)

    def finish(self) -> None:
        """Free what is left; afterwards the JVM reads nothing of this process."""
        if self._sent:
            self.synchronize()
        self.kept.clear()
        self._slab = None
        self._free()

    def flush(self) -> None:
        """Send what waits still. Also after an error: the JVM keeps what it is told of blocks and kernels."""
        waiting, self._waiting = self._waiting, bytearray()
        self.connection.send(bytes(waiting))

    def _free(self) -> None:
        while self._freed:
            self._waiting += _frame(b"F", struct.pack(">q", self._freed.pop()))

    def tell(self, what: bytes, *parts: bytes) -> None:
        """Send a frame that has no answer, some time."""
        self._waiting += _frame(what, *parts)
        if len(self._waiting) > _WAITING:
            self.flush()

    def ask(self, what: bytes, text: bytes, size: int) -> bytearray:
        """Send a frame, and wait for the ``size`` bytes of its answer."""
        if self._stopped:
            raise Stopped
        self._free()
        self._waiting += _frame(what, text)
        self.flush()
        if self.connection.receive(1) != b"O":
            # Nothing is answered any more, not even what an error's end asks for.
            self._stopped = True
            raise Stopped
        return self.connection.receive(size)


class _Nvcomp:
    """The library in the other process, as `kernels.machine.nvcomp.Library`. RAPIDS has its nvCOMP inside of libcudf, where nobody else can
    call it, and its Java class for it has no status for each block: so it is that of this environment."""

    def __init__(self) -> None:
        self._is_named = False

    def temporary(self, device: ExecutorDevice, kind: int, blocks: int, largest: int, total: int) -> int:
        if not self._is_named:
            self._is_named = True
            for path in places()[:1]:
                device.tell(b"N", os.fsencode(path))
        (found,) = struct.unpack(">q", device.ask(b"T", struct.pack(">iqqq", kind, blocks, largest, total), 8))
        if found == _NO_LIBRARY:
            raise missing("on the machine of the executor; or leave trusted out, and the CPU decompresses")
        demand(min(found, 0), f"temporary memory of {NAMES[kind]} in the executor")
        return int(found)

    @staticmethod
    def inflate(device: ExecutorDevice, kind: int, request: Request) -> None:
        count, others = request.blocks, (*request[:4], *request[5:])
        (status,) = struct.unpack(">i", device.ask(b"I", struct.pack(">iq8q", kind, count, *others), 4))
        demand(status, f"decompressing {count} blocks of {NAMES[kind]} in the executor")


def _frame(what: bytes, *parts: bytes) -> bytes:
    return b"".join((what, struct.pack(">i", sum(map(len, parts))), *parts))


@cache
def _image(kernel: Kernel, arch: int) -> bytes:
    return image(kernel, arch).read_bytes()
