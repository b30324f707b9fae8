"""Makes the scalar functions of `kolumn.formats` known to Numba's compilers, the one for the CPU and the one for CUDA.

`scalar` makes a plain function callable from compiled code and leaves the function itself as it is, so that the undecorated
one stays the reference. Bytes are reached by two primitives, which become one instruction each.
"""

from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload, register_jitable

from kolumn.formats import crc, entry, fields, inner, layout, layouts, memory, varint

_PRIMITIVES = (memory.load8, memory.store8)


@intrinsic
def _load_byte(typing, buf, at):  # type: ignore[no-untyped-def]
    """One byte at address ``buf + at``, widened to int64."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pointer = builder.inttoptr(builder.add(args[0], args[1]), ir.IntType(8).as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64, types.int64), emit


@overload(memory.load8)
def _load8(buf, at):  # type: ignore[no-untyped-def]
    return lambda buf, at: _load_byte(buf, at)


@intrinsic
def _store_byte(typing, buf, at, value):  # type: ignore[no-untyped-def]
    """The low byte of ``value`` to address ``buf + at``."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pointer = builder.inttoptr(builder.add(args[0], args[1]), ir.IntType(8).as_pointer())
        builder.store(builder.trunc(args[2], ir.IntType(8)), pointer)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


@overload(memory.store8)
def _store8(buf, at, value):  # type: ignore[no-untyped-def]
    return lambda buf, at, value: _store_byte(buf, at, value)


def scalar(*modules: ModuleType) -> None:
    """Make every public function defined in ``modules`` callable from compiled code."""
    for module in modules:
        known(
            function for function in vars(module).values()
            if isinstance(function, FunctionType) and function.__module__ == module.__name__ and function not in _PRIMITIVES
        )  # fmt: skip


def known(functions: Iterable[Callable[..., Any]]) -> None:
    """Make functions callable from compiled code."""
    for function in functions:
        register_jitable(forceinline=True)(function)


scalar(memory, varint, entry, fields, layout, layouts, inner, *layouts.FILES)
known(layouts.CHOSEN)
# `crc.crc32c` is left to the backends: a CPU has an instruction for it.
register_jitable(crc.crc32)
register_jitable(crc.eight_bytes)
register_jitable(crc.crc_bytes)
register_jitable(crc.multiply)
