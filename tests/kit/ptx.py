"""A machine that runs the PTX of kernels on the CPU, and refuses what a GPU would not do, or not reliably.

    PTX ──▶ ptx_ir (instructions; LLVM IR) ──▶ ptx_threads (machine code; threads, warps, blocks) ──▶ ptx_memory (every access checked)

It stands where the loops of `kit.emulated` stand: ``Emulated(machine.run)``. The blocks of a launch run one after the other.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kit import ptx_memory as memory
from kit.emulated import HostMemory
from kit.ptx_threads import APART, SOME_LANES, WHOLE, Code, kinds_of, run_apart, run_together
from kolumn.core.arrays import Int64s
from kolumn.kernels.machine.image import OLDEST, compiled
from kolumn.kernels.machine.kernel import WARP, Kernel
from kolumn.kernels.machine.runtime import PAD

_KINDS = {memory.MISALIGNED: "not aligned", memory.OUTSIDE: "outside of every piece of memory", memory.RACE: "a race with thread"}
_APART = "threads of a warp wait at different places"


class FaultError(AssertionError):
    """A kernel did what a GPU would not do, or not reliably; the text names the kernel, the thread and the line of PTX."""


def shipped(kernel: Kernel) -> str:
    """The PTX that is built for a kernel, from the cache folder of machine code."""
    return compiled(kernel, OLDEST).read_text()


@dataclass
class Launch:
    """A launch that is over."""

    kernel: Kernel
    n: int
    issued: Int64s  # instructions of each warp, int64 array
    trace: Int64s  # of each access, if `Machine.trace` has room; else empty, int64 array of shape (accesses, kit.ptx_memory.TRACE_COLUMNS)
    shared: tuple[int, int]  # where the shared memory of the blocks was


@dataclass
class Machine:
    """Runs launches."""

    ptx: Callable[[Kernel], str] = shipped  # returns the text of a kernel
    races: bool = False  # whether to look for races between threads
    most_blocks: int = 3  # of kernels that assign items to threads themselves: few, so that their loops go around
    after: list[Callable[[Launch], None]] = field(default_factory=list)  # each is called with every `Launch`
    trace: Int64s | None = None  # room for the accesses of a launch, int64 array of shape (room, kit.ptx_memory.TRACE_COLUMNS)
    ran: Counter[str] = field(default_factory=Counter)  # how often each kernel has run

    def __post_init__(self) -> None:
        self.pieces = memory.Pieces(self.races)
        self.launches = 0
        self._codes: dict[str, Code] = {}

    def code(self, kernel: Kernel) -> Code:
        """Machine code of a kernel."""
        if kernel.name not in self._codes:
            self._codes[kernel.name] = made = _code(self.ptx(kernel))
            for name, data in made.text.constants.items():
                self.pieces.add(made.address_of(name), 0, len(data))
        return self._codes[kernel.name]

    def run(self, kernel: Kernel, n: int, args: Any) -> None:
        """Launch a kernel as `kolumn.kernels.machine.cuda.CudaRuntime.launch` does; a wrong access or synchronisation is a FaultError."""
        code = self.code(kernel)
        self.ran[kernel.name] += 1
        self.launches += 1
        threads, blocks = kernel.block, kernel.grid(n) if kernel.lanes else min(kernel.grid(n), self.most_blocks)
        params, syncs = np.array([n, *args], np.int64), np.zeros(1 + -(-threads // WARP), np.int64)
        room = np.zeros(code.text.shared_bytes // 8 + 4, np.int64)
        shared = -(-room.ctypes.data // 16) * 16
        self.pieces.add(shared, code.text.shared_bytes, code.text.shared_bytes)
        context = np.zeros(memory.CONTEXT, np.int64)
        context[memory.NTID], context[memory.NCTAID], context[memory.LAUNCH] = threads, blocks, self.launches
        context[memory.PARAMS], context[memory.SHARED], context[memory.SYNCS] = params.ctypes.data, shared, syncs.ctypes.data
        if self.trace is not None:
            context[memory.TRACE], context[memory.TRACE_ROOM] = self.trace.ctypes.data, len(self.trace)
        self.pieces.update(context)
        visits = np.zeros((threads, len(code.translation.sizes)), np.int64)
        issued = np.zeros((blocks, -(-threads // WARP)), np.int64)
        for block in range(blocks):
            context[memory.CTAID] = block
            # Each block has shared memory of its own.
            room[:] = 0
            self.pieces.forget_accesses(shared)
            self._block(kernel, code, context, block, visits)
            if self.after:
                issued[block] = _issued(visits, code.translation.sizes)
                visits[:] = 0
        self.pieces.remove(shared)
        self._report(kernel, code, context)
        used = int(context[memory.TRACED])
        trace = np.zeros((0, memory.TRACE_COLUMNS), np.int64) if self.trace is None else self.trace[:used]
        assert self.trace is None or used < len(self.trace), f"{kernel.name}: no room for all accesses"
        for one in self.after:
            one(Launch(kernel, n, issued.reshape(-1), trace, (shared, shared + code.text.shared_bytes)))

    def _block(self, kernel: Kernel, code: Code, context: Int64s, block: int, visits: Int64s) -> None:
        if not code.translation.talks:
            run_apart(code.address, context.ctypes.data, block, kernel.block, visits)
            return
        registers, found = np.zeros((kernel.block, len(code.translation.slots) + 1), np.int64), np.zeros(2, np.int64)
        kinds = kinds_of(code.translation)
        ended = run_together(code.address, context.ctypes.data, block, kernel.block, visits, registers, kinds, found)
        if ended == WHOLE:
            return
        self._report(kernel, code, context)
        where = [(block * kernel.block + int(t), int(registers[int(t), 0])) for t in dict.fromkeys(found)]
        places = " and ".join(f"thread {thread} {_place(code, number)}" for thread, number in where)
        some = "a synchronisation of some lanes only"
        what = {APART: _APART, SOME_LANES: some}.get(ended, "not all threads of the block reach a barrier")
        raise FaultError(f"{kernel.name}: {what}: {places}")

    def _report(self, kernel: Kernel, code: Code, context: Int64s) -> None:
        errors = int(context[memory.ERRORS])
        if not errors:
            return
        wrong = memory.Wrong(*(int(one) for one in context[memory.ERROR : memory.ERROR + 6]))
        text = f"{kernel.name}, thread {wrong.thread}, PTX line {wrong.line} `{code.text.at(wrong.line)}`: "
        text += f"{wrong.width} bytes at {wrong.address:#x}: {_KINDS[wrong.kind]}"
        if wrong.kind == memory.RACE:
            line = wrong.other >> 32
            text += f" {wrong.other & 0xFFFFFFFF}, line {line} `{code.text.at(line)}`"
        raise FaultError(f"{text}; {errors} such accesses")

    @contextmanager
    def watching(self) -> Iterator["Machine"]:
        """Know the memory that emulated devices take while the context lasts."""
        begin, end = HostMemory.__init__, HostMemory.__del__

        def made(memory: Any, size: int, data: bytes = b"") -> None:
            begin(memory, size, data)
            memory.first = memory.address + size - max(size, len(data))
            self.pieces.add(memory.first, max(size, len(data)), max(size, len(data)) + PAD)

        def gone(memory: Any) -> None:
            # Memory that was taken earlier may be freed now.
            if hasattr(memory, "first"):
                self.pieces.remove(memory.first)
            end(memory)

        HostMemory.__init__, HostMemory.__del__ = made, gone  # type: ignore[assignment]
        try:
            yield self
        finally:
            HostMemory.__init__, HostMemory.__del__ = begin, end


_CODES: dict[str, Code] = {}


def _code(ptx: str) -> Code:
    if ptx not in _CODES:
        _CODES[ptx] = Code.of(ptx)
    return _CODES[ptx]


def _issued(visits: Int64s, sizes: list[int]) -> Int64s:
    """Instructions of each warp: its lanes are in a basic block together, as often as the lane that is there most often."""
    padded = np.zeros((-(-len(visits) // WARP) * WARP, len(sizes)), np.int64)
    padded[: len(visits)] = visits
    most: Int64s = padded.reshape(-1, WARP, len(sizes)).max(1) @ np.array(sizes, np.int64)
    return most


def _place(code: Code, number: int) -> str:
    if number == 0:
        return "has ended"
    line = code.translation.syncs[number - 1].line
    return f"waits at PTX line {line} `{code.text.at(line)}`"
