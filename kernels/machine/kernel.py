"""What a kernel is: a body, the arguments that it takes, and how threads share its items.

A body is a scalar function like those of the formats. It does the work of one thread for item ``i`` of ``n``, and takes its
arguments as a named tuple of 64-bit integers, addresses mostly, so that a kernel is launched with plain numbers:

    thread_per_item   body(i, args)                      thread t does item t; with ``staged`` tables body(i, tables, args)
    warp_per_item     body(i, lane, lanes, args)         ``lanes`` neighbouring threads, at most a warp, do an item together
    blocks            body(args)                         the kernel assigns items to its threads itself
Two things run a body: `shell` under the compiler for CUDA, whose PTX tests run on the CPU too, and a plain loop on the CPU.
"""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import kolumn.machine_code.scalar  # noqa: F401 (the formats as compiled functions first)
from kolumn.kernels.machine.threads import shared_array, stage, thread_of_grid
from kolumn.machine_code.deferred import register_jitable
from kolumn.machine_code.words import address_of

WARP = 32
Arguments = Any
"""A named tuple that `arguments` makes: its fields are not known to mypy."""


def arguments(module: str, name: str, *parts: Arguments) -> Arguments:
    """A named tuple with the fields of others, and fields of these names, by the module that defines it under this name."""
    return namedtuple(name, [field for part in parts for field in ([part] if isinstance(part, str) else part._fields)], module=module)


@dataclass(frozen=True)
class Kernel:
    """A kernel.

    Attributes
    ----------
    name : str
    body : callable
    args : type
        A named tuple of integers; the launch passes ``n`` and its fields, in order.
    lanes : int
        Threads for each item; 0 if the body assigns items to threads itself.
    block : int
        Threads in a block.
    registers : int
        Registers that a thread may use on sm_90: 65,536 / (block * blocks that should fit).
    staged : int
        Bytes of shared memory for a copy of tables, 0 without one. The arguments have ``tables`` and ``table_bytes``, their address and
        size; the body takes after the number of the item where to look: at the copy, or at the tables themselves if they do not fit.
    """

    name: str
    body: Callable[..., None]
    args: Any
    lanes: int
    block: int
    registers: int
    staged: int = 0

    def grid(self, n: int) -> int:
        """Blocks for ``n`` items; a kernel that assigns items itself takes a warp for each."""
        return max(1, -(-n * (self.lanes or WARP) // self.block))

    @property
    def entry(self) -> str:
        """Name in compiled code."""
        return f"kolumn_{self.name}"

    def shell(self) -> Callable[..., None]:
        """The function to compile for CUDA: finds the item, and calls the body."""
        body, lanes = self.body, self.lanes
        shift, last, room = lanes.bit_length() - 1, lanes - 1, self.staged // 8

        def whole(n: int, args: Any) -> None:
            body(n, args)

        def one_thread(n: int, args: Any) -> None:
            i = thread_of_grid()
            if i < n:
                body(i, args)

        def staged_thread(n: int, args: Any) -> None:
            tables = stage(address_of(shared_array(room, np.int64)), 8 * room, args.tables, args.table_bytes)
            i = thread_of_grid()
            if i < n:
                body(i, tables, args)

        def some_lanes(n: int, args: Any) -> None:
            # No division: Python's rounds down, and the compiler does not know that the number is not negative.
            at = thread_of_grid()
            i = at >> shift
            if i < n:
                body(i, at & last, lanes, args)

        return staged_thread if self.staged else (whole, one_thread, some_lanes)[min(lanes, 2)]


KERNELS: dict[str, Kernel] = {}
"""All kernels, by name, once the modules that define them are imported."""


def _define(function: Callable[..., None], args: Any, lanes: int, block: int, registers: int, staged: int = 0) -> Kernel:
    if lanes & (lanes - 1):
        raise ValueError(f"{function.__name__}: {lanes} lanes: a warp is shared by a power of two")
    kernel = Kernel(function.__name__, function, args, lanes, block, registers, staged)
    if kernel.name in KERNELS:
        raise ValueError(f"two kernels are called {kernel.name}: their machine code is kept under this name")
    KERNELS[kernel.name] = kernel
    register_jitable(function)
    return kernel


def thread_per_item(args: Any, block: int = 256, registers: int = 128, staged: int = 0) -> Callable[[Callable[..., None]], Kernel]:
    """Define a kernel with a thread for each item."""
    return lambda function: _define(function, args, 1, block, registers, staged)


def warp_per_item(args: Any, lanes: int = WARP, block: int = 256, registers: int = 64) -> Callable[[Callable[..., None]], Kernel]:
    """Define a kernel in which neighbouring threads share an item and need nothing from each other."""
    return lambda function: _define(function, args, lanes, block, registers)


def blocks(args: Any, block: int = 256, registers: int = 64) -> Callable[[Callable[..., None]], Kernel]:
    """Define a kernel that finds its items itself."""
    return lambda function: _define(function, args, 0, block, registers)
