"""Makes the scalar functions of `kolumn.formats` callable from code compiled by Numba, for the CPU and for CUDA.

`scalar` does not change the functions themselves, so the undecorated ones stay the reference. They read and write bytes by two
primitives, which are compiled to one instruction each.
"""

from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

from kolumn.formats import crc, entry, fields, layout, layouts, memory, varint
from kolumn.formats.machine_code.deferred import intrinsic, ir, overload, register_jitable, types

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
    """Store the low byte of ``value`` at address ``buf + at``."""

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


scalar(memory, varint, entry, fields, layout, layouts, layouts, *layouts.FILES)
known(layouts.CHOSEN)
# The backends provide `crc.crc32c`: a CPU has an instruction for it.
register_jitable(crc.crc32)
register_jitable(crc.crc_bytes)
register_jitable(crc.multiply)
