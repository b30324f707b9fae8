"""What a kernel is: a body, the arguments that it takes, and how threads share its items.

A body is a scalar function like those of the formats. It does the work of one thread for item ``i`` of ``n``:

    thread_per_item   body(i, args)                      thread t does item t; with ``staged`` tables body(i, tables, args)
    warp_per_item     body(i, lane, lanes, args)         ``lanes`` neighbouring threads, at most a warp, do an item together
    blocks            body(args)                         the kernel assigns items to its threads itself

Two things run a body: `shell` under the compiler for CUDA, whose PTX tests run on the CPU too, and a plain loop on the CPU. What talks to
other threads has to be reached by all lanes of the warp, or by all threads of the block. Numbers of threads are never negative.
"""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kolumn.core.deferred import arrayobj, cgutils, instruction, intrinsic, ir, register_jitable, types
from kolumn.formats import table
from kolumn.formats.words import address_of, load64, store64

_SHARED = 3  # the address space of a block's shared memory


def _register(name: str) -> Any:
    @instruction
    def read(builder: Any) -> Any:
        return builder.zext(_call(builder, f"llvm.nvvm.read.ptx.sreg.{name}", 32), ir.IntType(64))

    return read


def _call(builder: Any, name: str, width: int, *args: Any) -> Any:
    """Call LLVM's function of a name, which returns an integer; of no width: nothing."""
    returned = ir.IntType(width) if width else ir.VoidType()
    function = ir.FunctionType(returned, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), args)


thread_of_block, threads_of_block = _register("tid.x"), _register("ntid.x")
block_of_grid, blocks_of_grid = _register("ctaid.x"), _register("nctaid.x")


@instruction
def wait_for_block(builder: Any) -> None:
    """Go on when all threads of the block are here, and see what they wrote."""
    _call(builder, "llvm.nvvm.barrier0", 0)


@instruction
def wait_for_warp(builder: Any) -> None:
    """Go on when all lanes of the warp are here, and see what they wrote."""
    _call(builder, "llvm.nvvm.bar.warp.sync", 0, ir.IntType(32)(-1))


def _shuffle(kind: str) -> Any:
    @instruction
    def shuffle(builder: Any, value: Any, lane: Any) -> Any:
        word = ir.IntType(32)
        given = (ir.IntType(32)(-1), builder.trunc(value, word), builder.trunc(lane, word), ir.Constant(word, 31))
        return builder.sext(_call(builder, f"llvm.nvvm.shfl.sync.{kind}.i32", 32, *given), ir.IntType(64))

    return shuffle


from_lane, from_lane_xor = _shuffle("idx"), _shuffle("bfly")


@intrinsic
def votes(typing: Any, vote: Any) -> Any:
    """A bit for each lane of the warp that votes for it."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bit = builder.trunc(args[0], ir.IntType(1))
        return builder.zext(_call(builder, "llvm.nvvm.vote.ballot.sync", 32, ir.IntType(32)(-1), bit), ir.IntType(64))

    return types.int64(types.boolean), emit


@instruction
def ones(builder: Any, word: Any) -> Any:
    """How many bits are set."""
    return builder.ctpop(word)


@intrinsic
def shared_array(typing: Any, size: Any, kind: Any) -> Any:
    """An array that the threads of a block share, at a multiple of 8; each call has its own, which holds anything."""
    if not isinstance(size, types.IntegerLiteral):
        return None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item, count = context.get_data_type(kind.dtype), size.literal_value
        held = ir.ArrayType(item, count)
        room = cgutils.add_global_variable(builder.module, held, "shared", _SHARED)
        room.linkage, room.align, room.initializer = "internal", 8, ir.Constant(held, ir.Undefined)
        data = builder.addrspacecast(room, held.as_pointer())
        array = context.make_array(signature.return_type)(context, builder)
        width, one = context.get_abi_sizeof(item), context.get_constant
        bytes = one(types.intp, width)
        data = builder.bitcast(data, item.as_pointer())
        arrayobj.populate_array(array, data=data, shape=[one(types.intp, count)], strides=[bytes], itemsize=bytes, meminfo=None)
        return array._getvalue()

    return types.Array(kind.dtype, 1, "C")(size, kind), emit


@register_jitable
def thread_of_grid() -> int:
    """Number of the thread in the launch."""
    return int(block_of_grid() * threads_of_block() + thread_of_block())


@register_jitable
def threads_of_grid() -> int:
    """How many threads the launch has."""
    return int(blocks_of_grid() * threads_of_block())


@register_jitable
def stage(room: int, most: int, source: int, size: int) -> int:
    """Copy ``size`` bytes, words of eight, to shared memory at ``room``: returns that, or ``source`` if ``most`` are fewer."""
    if size > most:
        return source
    at = 8 * thread_of_block()
    while at < size:
        store64(room + at, load64(source + at))
        at += 8 * threads_of_block()
    wait_for_block()
    return room


WARP = 32
CONCURRENT = 32
"""Most blocks for each multiprocessor, of a kernel that assigns items to threads itself: more would wait."""
Arguments = Any
"""A named tuple that `arguments` makes: its fields are not known to mypy."""


def arguments(module: str, name: str, *parts: Arguments) -> Arguments:
    """A named tuple of integers by the module that defines it under this name: with the fields of other ones, and of these names. What has
    an address stands for it, and None for 0."""
    fields = [field for part in parts for field in (part.split() if isinstance(part, str) else part._fields)]
    plain: Any = namedtuple(name, fields, module=module)  # type: ignore[misc]

    def new(cls: Any, *given: Any) -> Any:
        return plain.__new__(cls, *(0 if one is None else getattr(one, "address", one) for one in given))

    return type(name, (plain,), {"__slots__": (), "__module__": module, "__new__": new})


@dataclass(frozen=True)
class Kernel:
    """A kernel.

    ``args``: a named tuple of integers; the launch passes ``n`` and its fields, in order.
    ``lanes``: threads for each item; 0 if the body assigns items to threads itself.
    ``block``: threads in a block.
    ``registers``: registers that a thread may use on sm_90: 65,536 / (block * blocks that should fit).
    ``staged``: bytes of shared memory for a copy of tables, 0 without one. The arguments have ``tables`` and ``table_bytes``, their
        address and size; the body takes after the number of the item where to look: at the copy, or at the tables themselves if they do
        not fit.
    """

    name: str
    body: Callable[..., None]
    args: Any
    lanes: int
    block: int
    registers: int
    staged: int = 0

    def grid(self, n: int, most: int) -> int:
        """Blocks for ``n`` items. A kernel that assigns items itself takes a warp for each, and no more than ``most`` blocks."""
        blocks = max(1, -(-n * (self.lanes or WARP) // self.block))
        return blocks if self.lanes else min(blocks, most)

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


Batches = arguments(__name__, "Batches", "rows payload size first base bad format")
"""A run of batches on the device; addresses of int64 columns with a row for each batch.

The arguments of `count`, `hop` and `fields` begin with these.

``rows``: the batch table, of shape (n, `table.WIDTH`).
``payload``, ``size``: address and bytes of the records or messages, inflated.
``first``: n + 1 row numbers: where each batch's rows begin.
``base``: what is added to inner offsets.
``bad``: int32, initially zeros: 1 if something in the batch is wrong. The CPU finds out which record it is, and why.
``format``: of `layouts`.
"""


@register_jitable
def field(a: Any, b: int, column: int) -> int:
    """A field of a row of the batch table: ``a`` is a kernel's arguments, of which ``rows`` is its address."""
    return load64(a.rows + 8 * (table.WIDTH * b + column))
