"""Makes the scalar functions of `kolumn.formats` callable from code compiled by Numba, for the CPU and for CUDA.

`scalar` does not change the functions themselves, so the undecorated ones stay the reference. They reach bytes by two primitives, which
are compiled to one instruction each. Kernels and loops reach tables and columns by the words below, one instruction each too. An address
is a multiple of the word's size; in plain Python it is one of this process.
"""

from collections.abc import Callable, Iterable
from ctypes import c_int8, c_int16, c_int32, c_int64, c_uint32
from types import FunctionType, ModuleType
from typing import Any

from kolumn.core.deferred import implement, instruction, intrinsic, ir, register_jitable, types
from kolumn.formats import crc, entry, layout, layouts, memory, varint

_ALL = (1 << 64) - 1
_PRIMITIVES = (memory.load8, memory.store8)


def load64(address: int) -> int:
    """Signed 64-bit integer."""
    return c_int64.from_address(address).value


def load32(address: int) -> int:
    """Signed 32-bit integer."""
    return c_int32.from_address(address).value


def loadu32(address: int) -> int:
    """Unsigned 32-bit integer."""
    return c_uint32.from_address(address).value


def store64(address: int, value: int) -> None:
    """Low 64 bits of ``value``."""
    c_int64.from_address(address).value = value


def store32(address: int, value: int) -> None:
    """Low 32 bits of ``value``."""
    c_int32.from_address(address).value = value


def store16(address: int, value: int) -> None:
    """Low 16 bits of ``value``."""
    c_int16.from_address(address).value = value


def store8(address: int, value: int) -> None:
    """Low 8 bits of ``value``."""
    c_int8.from_address(address).value = value


def shifted(low: int, high: int, bits: int) -> int:
    """64 of the 128 bits of two words, from bit ``bits`` on; 0 to 63."""
    return (((low & _ALL) | ((high & _ALL) << 64)) >> bits) & _ALL


def address_of(array: Any) -> int:
    """Address of the first element of an array in shared memory, good for every load here."""
    return int(array.ctypes.data)


def _load(width: int, signed: bool) -> Any:
    @instruction
    def load(builder: Any, address: Any) -> Any:
        word = builder.load(builder.inttoptr(address, ir.IntType(width).as_pointer()))
        if width == 64:
            return word
        return builder.sext(word, ir.IntType(64)) if signed else builder.zext(word, ir.IntType(64))

    return load


def _store(width: int) -> Any:
    @instruction
    def store(builder: Any, address: Any, value: Any) -> None:
        word = value if width == 64 else builder.trunc(value, ir.IntType(width))
        builder.store(word, builder.inttoptr(address, ir.IntType(width).as_pointer()))

    return store


@instruction
def _shifted(builder: Any, low: Any, high: Any, bits: Any) -> Any:
    # In two steps: a shift by 64, where ``bits`` is 0, is not defined.
    one, most = (ir.Constant(ir.IntType(64), number) for number in (1, 63))
    above = builder.shl(builder.shl(high, one), builder.sub(most, bits))
    return builder.or_(builder.lshr(low, bits), above)


@intrinsic
def _address_of(typing: Any, array: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(context.make_array(signature.args[0])(context, builder, args[0]).data, ir.IntType(64))

    return types.int64(array), emit


@instruction
def _load_byte(builder: Any, buf: Any, at: Any) -> Any:
    return builder.zext(builder.load(builder.inttoptr(builder.add(buf, at), ir.IntType(8).as_pointer())), ir.IntType(64))


@instruction
def _store_byte(builder: Any, buf: Any, at: Any, value: Any) -> None:
    builder.store(builder.trunc(value, ir.IntType(8)), builder.inttoptr(builder.add(buf, at), ir.IntType(8).as_pointer()))


implement(memory.load8, _load_byte)
implement(memory.store8, _store_byte)
for _function, _width, _signed in ((load64, 64, True), (load32, 32, True), (loadu32, 32, False)):
    implement(_function, _load(_width, _signed))
for _store_function, _width in ((store64, 64), (store32, 32), (store16, 16), (store8, 8)):
    implement(_store_function, _store(_width))
implement(shifted, _shifted)
implement(address_of, _address_of)


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


scalar(memory, varint, entry, layout, layouts, *layouts.FILES)
known((*layouts.CHOSEN, crc.crc_eight))
# The backends provide `crc.crc32c`, `crc.crc32c_from` and `crc.crc32c_of_words`: a CPU has an instruction for it.
register_jitable(crc.crc32)
register_jitable(crc.crc_bytes)
register_jitable(crc.multiply)
