"""A launch by the machine must leave in memory what the loops of `kit.emulated` leave; if not, who wrote the first wrong byte?

Results that differ are found at the launch that made them, and not rows later by a read that returns something else.
"""

import ctypes
from typing import Any

import numpy as np

from kit.emulated import run_loops
from kit.ptx import FaultError, Machine
from kolumn.kernels.machine.kernel import Kernel


def run_both(machine: Machine, kernel: Kernel, n: int, args: Any) -> None:
    """Launch a kernel twice on the same memory, by the loops and by the machine, which has to look for races.

    If a byte differs, the FaultError names who wrote it last, or who wrote the nearest byte before it in the same piece of memory.
    """
    before = [(address, ctypes.string_at(address, size)) for address, size in machine.pieces.writable()]
    run_loops(kernel, n, args)
    expected = [(address, ctypes.string_at(address, len(data))) for address, data in before]
    for address, data in before:
        ctypes.memmove(address, data, len(data))
    machine.run(kernel, n, args)
    for address, right in expected:
        found = ctypes.string_at(address, len(right))
        if found != right:
            wrong = np.frombuffer(found, np.uint8) != np.frombuffer(right, np.uint8)
            raise FaultError(f"{kernel.name}: {_blame(machine, kernel, address, int(wrong.argmax()), int(wrong.sum()))}")


def _blame(machine: Machine, kernel: Kernel, address: int, at: int, count: int) -> str:
    text, what = machine.code(kernel).text, f"byte {at} of the memory at {address:#x} is wrong, and {count - 1} more"
    writer = machine.pieces.writer(address + at)
    if writer is not None and writer[0] == machine.launches:
        return f"{what}; thread {writer[1]} wrote it, PTX line {writer[2]} `{text.at(writer[2])}`"
    for before in range(at - 1, -1, -1):
        writer = machine.pieces.writer(address + before)
        if writer is not None and writer[0] == machine.launches:
            return f"{what}; nobody wrote it. Thread {writer[1]} wrote byte {before}, PTX line {writer[2]} `{text.at(writer[2])}`"
    return f"{what}; nobody wrote it or a byte before it"
