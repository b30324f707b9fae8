"""A machine that runs the PTX of kernels on the CPU, and refuses what a GPU would not do, or not reliably.

    PTX ──▶ ptx_ir (instructions; LLVM IR) ──▶ machine code of one thread, by LLVM ──▶ ptx_memory (every access checked)

It stands where the loops of `kit.emulated` stand: ``Emulated(machine.run)``. Blocks of a launch run one after the other, and of a block:

    no synchronisation     thread 0 from begin to end, thread 1, ...
    synchronisations       each thread up to its next one; a warp goes on once all of its lanes wait at the same one (a block likewise)

On a GPU, lanes that arrive at different places, or that have ended, are undefined behaviour for a synchronisation of all lanes, so the
scheduler stops there and says so.
"""

import hashlib
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kit import ptx_ir
from kit import ptx_memory as memory
from kit.emulated import HostMemory, kept, kept_in
from kit.ptx_ir import BALLOT, BARRIER, SHUFFLE, WARP_BARRIER, Text, Translation, parse
from kit.ptx_memory import ASK, COUNTERS, FLAG, GIVE, MASK, SEGMENT, SYNCS, TID, access
from kolumn.core.arrays import Int64s
from kolumn.formats.words import load64, store64
from kolumn.kernels.machine.image import OLDEST, compiled
from kolumn.kernels.machine.kernel import WARP, Kernel
from kolumn.kernels.machine.runtime import PAD

WHOLE, APART, SOME_LANES, STRANDED = range(4)
"""How a block ended: well; lanes of a warp wait at different places; some lanes only; not all threads reach a barrier of the block."""
_FULL = 0xFFFFFFFF
_FILES = (__file__, ptx_ir.__file__, memory.__file__)
_BFLY, _IDX, _UP = SHUFFLE, SHUFFLE + 1, SHUFFLE + 2
_TID, _GIVE, _ASK, _MASK, _FLAG, _COUNTERS, _SYNCS, _SEGMENT = (8 * at for at in (TID, GIVE, ASK, MASK, FLAG, COUNTERS, SYNCS, SEGMENT))


@cache
def _prepared() -> llvm.Target:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.add_symbol("access", access.address)
    return llvm.Target.from_default_triple()


@dataclass
class Code:
    """A kernel as machine code of the CPU."""

    text: Text
    translation: Translation
    address: int  # of the function that runs a thread
    _engine: llvm.ExecutionEngine

    @classmethod
    def of(cls, ptx: str) -> "Code":
        """Compile PTX, or take what another process has compiled."""
        # Not shared: the engine owns it, and takes it along.
        compiler = _prepared().create_target_machine(opt=1)
        place = _kept_at(ptx)
        if place is not None and place.exists():
            translation, code = pickle.loads(place.read_bytes())
        else:
            translation = Translation(parse(ptx))
            code = _compiled(translation.ir, compiler)
            if place is not None:
                _keep(place, pickle.dumps((translation, code)))
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), compiler)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return cls(translation.text, translation, engine.get_function_address("thread"), engine)

    def address_of(self, constant: str) -> int:
        """Where an array that the text holds is in memory."""
        return int(self._engine.get_global_value_address(constant))


def _compiled(text: str, compiler: llvm.TargetMachine) -> bytes:
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = llvm.get_process_triple(), str(compiler.target_data)
    module.verify()
    builder = llvm.create_pass_builder(compiler, llvm.create_pipeline_tuning_options(speed_level=0))
    builder.getModulePassManager().run(module, builder)
    return bytes(compiler.emit_object(module))


def _kept_at(ptx: str) -> Path | None:
    """The file for machine code of a text; None if there is no folder for it."""
    folder = kept_in(*_FILES)
    told = f"{llvmlite.__version__} {llvm.get_process_triple()}\n{ptx}"
    return folder and folder / f"{hashlib.sha256(told.encode()).hexdigest()}.thread"


def _keep(place: Path, data: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, place)


@intrinsic
def _run(typing, address, registers, context, number):
    """Call the function of a thread at an address."""

    def emit(context_, builder, signature, args):
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.IntType(32), [word] * 3)
        found = builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return builder.sext(found, word)

    return types.int64(types.int64, types.int64, types.int64, types.int64), emit


@kept(*_FILES)
def run_apart(code, context, block, threads, visits):
    """Run the threads of a block one after the other; how often each was in each basic block is added to ``visits``."""
    for t in range(threads):
        store64(context + _TID, t)
        store64(context + _COUNTERS, visits[t].ctypes.data)
        _run(code, 0, context, block * threads + t)


@kept(*_FILES)
def run_together(code, context, block, threads, visits, registers, kinds, found):
    """Run the threads of a block, which wait for each other; returns `WHOLE`, or what is wrong.

    ``registers`` are zeros of shape (threads, slots), ``kinds`` those of each synchronisation from the second element on; ``found`` gets
    two threads that are not where they should be together.
    """
    at, give, ask, flag = np.zeros((4, threads), np.int64)
    ready, warps, syncs = np.ones(threads, np.bool_), -(-threads // WARP), load64(context + _SYNCS)
    while True:
        moved = False
        for t in range(threads):
            if ready[t]:
                moved, ready[t] = True, False
                store64(context + _TID, t)
                store64(context + _GIVE, give[t])
                store64(context + _FLAG, flag[t])
                store64(context + _MASK, _FULL)
                store64(context + _COUNTERS, visits[t].ctypes.data)
                at[t] = _run(code, registers[t].ctypes.data, context, block * threads + t)
                give[t], ask[t] = load64(context + _GIVE), load64(context + _ASK)
                kind = kinds[at[t]]
                part = SHUFFLE <= kind < BALLOT and load64(context + _SEGMENT) != (0 if kind == _UP else WARP - 1)
                if part or load64(context + _MASK) & _FULL != _FULL:
                    found[:] = t
                    return SOME_LANES
        if not moved:
            break
        for warp in range(warps):
            first, stop = warp * WARP, min((warp + 1) * WARP, threads)
            place = at[first]
            for t in range(first, stop):
                if at[t] != place:
                    found[0], found[1] = first, t
                    return APART
            if kinds[place] == BALLOT:
                votes = 0
                for t in range(first, stop):
                    votes |= (give[t] & 1) << (t - first)
                give[first:stop], ready[first:stop] = votes, True
            elif kinds[place] >= SHUFFLE:
                given = give[first:stop].copy()
                for t in range(first, stop):
                    lane, kind = t - first, kinds[place]
                    wanted = lane ^ ask[t] if kind == _BFLY else ask[t] if kind == _IDX else lane - ask[t] if kind == _UP else lane + ask[t]
                    flag[t] = 0 <= wanted < WARP
                    give[t] = given[wanted if flag[t] else lane]
                    ready[t] = True
            elif kinds[place] == WARP_BARRIER:
                store64(syncs + 8 * (1 + warp), load64(syncs + 8 * (1 + warp)) + 1)
                ready[first:stop] = True
        if ready.any():
            continue
        # Every thread has ended or waits for the block.
        for t in range(threads):
            if at[t] != at[0]:
                found[0], found[1] = 0, t
                return STRANDED
        if at[0] == 0:
            return WHOLE
        store64(syncs, load64(syncs) + 1)
        ready[:] = True
    return WHOLE


def kinds_of(translation: Translation) -> Int64s:
    """Kinds of the synchronisations of a kernel by their numbers; 0, the end, is like a barrier of the block."""
    return np.array([BARRIER, *(one.kind for one in translation.syncs)], np.int64)


_KINDS = {memory.MISALIGNED: "not aligned", memory.OUTSIDE: "outside of every piece of memory", memory.RACE: "a race with thread"}
_code_of = cache(Code.of)


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
            self._codes[kernel.name] = made = _code_of(self.ptx(kernel))
            for name, data in made.text.constants.items():
                self.pieces.add(made.address_of(name), 0, len(data))
        return self._codes[kernel.name]

    def run(self, kernel: Kernel, n: int, args: Any) -> None:
        """Launch a kernel as `kolumn.kernels.machine.cuda.CudaRuntime.launch` does; a wrong access or synchronisation is a FaultError."""
        code = self.code(kernel)
        self.ran[kernel.name] += 1
        self.launches += 1
        threads, blocks = kernel.block, kernel.grid(n, self.most_blocks)
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
        known = {APART: "threads of a warp wait at different places", SOME_LANES: "a synchronisation of some lanes only"}
        what = known.get(ended, "not all threads of the block reach a barrier")
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
