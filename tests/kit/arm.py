"""An emulated processor of AArch64 that runs the machine code of loops in this process's own memory.

LLVM links the object code, as it does for this processor. Unicorn executes it: pages of this process appear in the emulated machine at
their own addresses when they are first used, and C functions that the code calls (``pread``, ``memcpy``, decompressors) run as they are.

    x0 = words of the arguments, x1 = words of the results  ──▶  entry of a loop  ──▶  x0 = 0, or the code of an exception
"""

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import binding
from unicorn import Uc, UcError, arm64_const, unicorn_const

from kolumn.cpu_fallback.machine import loops
from kolumn.cpu_fallback.machine.processor import ARM_TRIPLE

_WINDOW = 16 << 20
"""Bytes that are mapped at most for one access."""
_STACK = 1 << 20
_RETURN = 1 << 12
"""Address that a loop returns to; nothing is there."""
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, *8 * [ctypes.c_int64])
"""Any C function of at most eight integers: the other registers are not looked at."""


def use(folder: Path) -> None:
    """Let an emulated processor run all loops of this process that are not loaded yet, by their machine code in a folder."""
    loops.load, loops.shipped = Processor().load, cache(lambda: folder)


class Processor:
    """One emulated processor; threads take turns."""

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._machine = Uc(unicorn_const.UC_ARCH_ARM64, unicorn_const.UC_MODE_ARM)
        self._machine.hook_add(unicorn_const.UC_HOOK_MEM_READ_UNMAPPED | unicorn_const.UC_HOOK_MEM_WRITE_UNMAPPED, self._map)
        self._stack = ctypes.create_string_buffer(_STACK)
        self._code, self._data = list[tuple[int, int]](), list[tuple[int, int]]()
        """What is mapped."""
        self._known, self._places = b"", list[tuple[int, int]]()

    def load(self, code: bytes, entry: str) -> Callable[[bytes, Any], int]:
        """As `kolumn.cpu_fallback.machine.loops.load`, of object code for AArch64."""
        with self._turn:
            engine = _engine()
            engine.add_object_file(binding.ObjectFileRef.from_data(code))
            engine.finalize_object()
            address = engine.get_function_address(entry)
            if not any(start <= address < end for start, end in self._code):
                self._look()
                self._appear(address, unicorn_const.UC_PROT_READ | unicorn_const.UC_PROT_EXEC, self._code)
        return lambda words, results: self._run(address, words, results)

    def _run(self, entry: int, words: bytes, results: Any) -> int:
        with self._turn:
            machine, place = self._machine, entry
            machine.reg_write(arm64_const.UC_ARM64_REG_X0, ctypes.cast(words, ctypes.c_void_p).value)
            machine.reg_write(arm64_const.UC_ARM64_REG_X1, ctypes.addressof(results))
            machine.reg_write(arm64_const.UC_ARM64_REG_SP, (ctypes.addressof(self._stack) + _STACK) & -16)
            machine.reg_write(arm64_const.UC_ARM64_REG_LR, _RETURN)
            self._look()
            while place != _RETURN:
                place = self._until_call(place)
            return int(ctypes.c_int32(machine.reg_read(arm64_const.UC_ARM64_REG_X0)).value)

    def _until_call(self, place: int) -> int:
        """Run until the loop returns, or through a call of a C function; returns where it goes on."""
        machine = self._machine
        try:
            machine.emu_start(place, _RETURN)
        except UcError as error:
            if error.errno not in (unicorn_const.UC_ERR_FETCH_PROT, unicorn_const.UC_ERR_FETCH_UNMAPPED):
                raise
            function = _FUNCTION(machine.reg_read(arm64_const.UC_ARM64_REG_PC))
            given = [machine.reg_read(arm64_const.UC_ARM64_REG_X0 + number) for number in range(8)]
            machine.reg_write(arm64_const.UC_ARM64_REG_X0, function(*map(_signed, given)))
            return int(machine.reg_read(arm64_const.UC_ARM64_REG_LR))
        return _RETURN

    def _look(self) -> bool:
        """Look which memory this process has, and forget what it has no longer; whether anything is different."""
        known = Path("/proc/self/maps").read_bytes()
        if known == self._known:
            return False
        self._known, self._places = known, []
        for line in known.decode().splitlines():
            place, rights = line.split(maxsplit=2)[:2]
            start, end = (int(bound, 16) for bound in place.split("-"))
            if rights[0] == "r":
                self._places.append((start, end))
        for start, end in [one for one in self._data if not any(place[0] <= one[0] and one[1] <= place[1] for place in self._places)]:
            self._machine.mem_unmap(start, end - start)
            self._data.remove((start, end))
        return True

    def _map(self, machine: Uc, access: int, address: int, size: int, value: int, data: object) -> bool:
        """Let the memory that a loop uses appear."""
        return self._appear(address, unicorn_const.UC_PROT_READ | unicorn_const.UC_PROT_WRITE, self._data)

    def _appear(self, address: int, rights: int, mapped: list[tuple[int, int]]) -> bool:
        """Map pages of this process around an address; False if it has none there."""
        place = next((one for one in self._places if one[0] <= address < one[1]), None)
        if place is None and self._look():
            place = next((one for one in self._places if one[0] <= address < one[1]), None)
        if place is None:
            return False
        start, end = max(place[0], address & -_WINDOW), min(place[1], (address & -_WINDOW) + _WINDOW)
        for other_start, other_end in (*self._code, *self._data):
            start = max(start, other_end) if other_end <= address else start
            end = min(end, other_start) if other_start > address else end
        self._machine.mem_map_ptr(start, end - start, rights, start)
        mapped.append((start, end))
        return True


def _signed(word: int) -> int:
    return ctypes.c_int64(word).value


@cache
def _engine() -> Any:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    module = binding.parse_assembly("")
    module.triple = ARM_TRIPLE
    return binding.create_mcjit_compiler(module, binding.Target.from_triple(ARM_TRIPLE).create_target_machine(jit=True))
