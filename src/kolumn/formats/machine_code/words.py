"""How kernels and loops reach tables and columns: aligned words at an address. Bytes are reached by `kolumn.formats.memory`.

In plain Python an address is one of this process; under the compilers each of these is one instruction. An address is a multiple of
the word's size.
"""

from ctypes import c_int8, c_int16, c_int32, c_int64, c_uint32
from typing import Any

from kolumn.formats.machine_code.deferred import intrinsic, ir, overload, types

_ALL = (1 << 64) - 1


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
    @intrinsic
    def load(typing: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = builder.load(builder.inttoptr(args[0], ir.IntType(width).as_pointer()))
            if width == 64:
                return word
            return builder.sext(word, ir.IntType(64)) if signed else builder.zext(word, ir.IntType(64))

        return types.int64(types.int64), emit

    return load


def _store(width: int) -> Any:
    @intrinsic
    def store(typing: Any, address: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(width)
            word = args[1] if width == 64 else builder.trunc(args[1], kind)
            builder.store(word, builder.inttoptr(args[0], kind.as_pointer()))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return store


_load64, _load32, _loadu32 = _load(64, True), _load(32, True), _load(32, False)
_store64, _store32, _store16, _store8 = _store(64), _store(32), _store(16), _store(8)


@intrinsic
def _shifted(typing: Any, low: Any, high: Any, bits: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # In two steps: a shift by 64, where ``bits`` is 0, is not defined.
        one, most = (ir.Constant(ir.IntType(64), number) for number in (1, 63))
        above = builder.shl(builder.shl(args[1], one), builder.sub(most, args[2]))
        return builder.or_(builder.lshr(args[0], args[2]), above)

    return types.int64(types.int64, types.int64, types.int64), emit


@overload(shifted)
def _(low, high, bits):  # type: ignore[no-untyped-def]
    return lambda low, high, bits: _shifted(low, high, bits)


@overload(load64)
def _(address):  # type: ignore[no-untyped-def]
    return lambda address: _load64(address)


@overload(load32)
def _(address):  # type: ignore[no-untyped-def]
    return lambda address: _load32(address)


@overload(loadu32)
def _(address):  # type: ignore[no-untyped-def]
    return lambda address: _loadu32(address)


@overload(store64)
def _(address, value):  # type: ignore[no-untyped-def]
    return lambda address, value: _store64(address, value)


@overload(store32)
def _(address, value):  # type: ignore[no-untyped-def]
    return lambda address, value: _store32(address, value)


@overload(store16)
def _(address, value):  # type: ignore[no-untyped-def]
    return lambda address, value: _store16(address, value)


@overload(store8)
def _(address, value):  # type: ignore[no-untyped-def]
    return lambda address, value: _store8(address, value)


@intrinsic
def _address_of(typing: Any, array: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), emit


@overload(address_of)
def _(array):  # type: ignore[no-untyped-def]
    return lambda array: _address_of(array)
