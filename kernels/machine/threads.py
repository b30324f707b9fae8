"""What the threads of a GPU know of each other, for kernels: LLVM's names of one instruction each.

Numbers of threads and blocks are 32-bit words that are never negative. What talks to other threads has to be reached by all lanes of the
warp, or by all threads of the block.
"""

from typing import Any

from kolumn.machine_code.deferred import arrayobj, cgutils, intrinsic, ir, register_jitable, types
from kolumn.machine_code.words import load64, store64

_SHARED = 3
"""Address space of a block's shared memory."""


def _register(name: str) -> Any:
    @intrinsic
    def read(typing: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.zext(_call(builder, f"llvm.nvvm.read.ptx.sreg.{name}", 32), ir.IntType(64))

        return types.int64(), emit

    return read


def _call(builder: Any, name: str, width: int, *args: Any) -> Any:
    """Call LLVM's function of a name, which returns an integer; of no width: nothing."""
    returned = ir.IntType(width) if width else ir.VoidType()
    kind = ir.FunctionType(returned, [one.type for one in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


thread_of_block, threads_of_block = _register("tid.x"), _register("ntid.x")
block_of_grid, blocks_of_grid = _register("ctaid.x"), _register("nctaid.x")


def _all_lanes() -> Any:
    return ir.Constant(ir.IntType(32), -1)


@intrinsic
def wait_for_block(typing: Any) -> Any:
    """Go on when all threads of the block are here, and see what they wrote."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _call(builder, "llvm.nvvm.barrier0", 0)
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def wait_for_warp(typing: Any) -> Any:
    """Go on when all lanes of the warp are here, and see what they wrote."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _call(builder, "llvm.nvvm.bar.warp.sync", 0, _all_lanes())
        return context.get_dummy_value()

    return types.void(), emit


def _shuffle(kind: str) -> Any:
    @intrinsic
    def shuffle(typing: Any, value: Any, lane: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(32)
            given = (_all_lanes(), builder.trunc(args[0], word), builder.trunc(args[1], word), ir.Constant(word, 31))
            return builder.sext(_call(builder, f"llvm.nvvm.shfl.sync.{kind}.i32", 32, *given), ir.IntType(64))

        return types.int64(types.int64, types.int64), emit

    return shuffle


from_lane, from_lane_xor = _shuffle("idx"), _shuffle("bfly")


@intrinsic
def votes(typing: Any, vote: Any) -> Any:
    """A bit for each lane of the warp that votes for it."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bit = builder.trunc(args[0], ir.IntType(1))
        return builder.zext(_call(builder, "llvm.nvvm.vote.ballot.sync", 32, _all_lanes(), bit), ir.IntType(64))

    return types.int64(types.boolean), emit


@intrinsic
def ones(typing: Any, word: Any) -> Any:
    """How many bits are set."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.int64), emit


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
        arrayobj.populate_array(
            array,
            data=builder.bitcast(data, item.as_pointer()),
            shape=[one(types.intp, count)],
            strides=[one(types.intp, width)],
            itemsize=one(types.intp, width),
            meminfo=None,
        )
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
