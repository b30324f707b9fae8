"""Threads of a launch: machine code of one thread by LLVM, and the scheduler that runs those of a block.

    no synchronisation     thread 0 from begin to end, thread 1, ...
    synchronisations       each thread up to its next one; a warp goes on once all of its lanes wait at the same one (a block likewise)

On a GPU, lanes that arrive at different places, or that have ended, are undefined behaviour for a synchronisation of all lanes, so the
scheduler stops there and says so.
"""

import hashlib
import os
import pickle
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from kit import ptx_ir, ptx_memory
from kit.emulated import keeping, kept_in
from kit.ptx_ir import BALLOT, BARRIER, SHUFFLE, WARP_BARRIER, Text, Translation, parse
from kit.ptx_memory import ASK, COUNTERS, FLAG, GIVE, MASK, SEGMENT, SYNCS, TID, access
from kolumn.core.arrays import Int64s
from kolumn.formats.machine_code.words import load64, store64
from kolumn.kernels.machine.kernel import WARP

WHOLE, APART, SOME_LANES, STRANDED = range(4)
"""How a block ended: well; lanes of a warp wait at different places; some lanes only; not all threads reach a barrier of the block."""
_FULL = 0xFFFFFFFF
_FILES = (__file__, ptx_ir.__file__, ptx_memory.__file__)
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
        place = _place(ptx)
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


def _place(ptx: str) -> Path | None:
    """The file for machine code of a text; None if there is no folder for it."""
    folder = kept_in(*_FILES)
    told = f"{llvmlite.__version__} {llvm.get_process_triple()}\n{ptx}"
    return folder and folder / f"{hashlib.sha256(told.encode()).hexdigest()}.thread"


def _keep(place: Path, data: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, place)


def _kept(function):
    with keeping(*_FILES) as possible:
        return njit(cache=possible)(function)


@intrinsic
def _run(typing, address, registers, context, number):
    """Call the function of a thread at an address."""

    def emit(context_, builder, signature, args):
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.IntType(32), [word] * 3)
        found = builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return builder.sext(found, word)

    return types.int64(types.int64, types.int64, types.int64, types.int64), emit


@_kept
def run_apart(code, context, block, threads, visits):
    """Run the threads of a block one after the other; how often each was in each basic block is added to ``visits``."""
    for t in range(threads):
        store64(context + _TID, t)
        store64(context + _COUNTERS, visits[t].ctypes.data)
        _run(code, 0, context, block * threads + t)


@_kept
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
