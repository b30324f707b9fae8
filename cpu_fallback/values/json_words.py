"""Words of text for the CPU: loads, stores and arithmetic by instructions."""

from typing import Any

from kolumn.cpu_fallback.machine import address
from kolumn.formats.machine_code.deferred import intrinsic, ir, overload, types
from kolumn.values.wire import json_numbers


@intrinsic
def _product(typing: Any, one: Any, other: Any) -> Any:
    """High and low word of a product of two words without a sign."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        both = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        high = builder.trunc(builder.lshr(both, ir.Constant(wide, 64)), ir.IntType(64))
        return context.make_tuple(builder, signature.return_type, [high, builder.trunc(both, ir.IntType(64))])

    return types.UniTuple(types.int64, 2)(types.int64, types.int64), emit


@intrinsic
def _leading_zeros(typing: Any, word: Any) -> Any:
    """Zeros above the highest set bit of a word that is not 0."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.IntType(1)(1))

    return types.int64(types.int64), emit


@intrinsic
def _first_byte(typing: Any, bits: Any) -> Any:
    """Number of the byte with the lowest set bit of a word that is not 0."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.lshr(builder.cttz(args[0], ir.IntType(1)(1)), ir.Constant(ir.IntType(64), 3))

    return types.int64(types.int64), emit


@overload(json_numbers.load_word, target="cpu")
def _load_word(at):  # type: ignore[no-untyped-def]
    return lambda at: address.load64(at)


@overload(json_numbers.put_word8, target="cpu")
def _put_word8(at, value):  # type: ignore[no-untyped-def]
    return lambda at, value: address.store64(at, value)


@overload(json_numbers.wrapped, target="cpu")
def _wrapped(value):  # type: ignore[no-untyped-def]
    return lambda value: value


@overload(json_numbers.product, target="cpu")
def _multiplied(one, other):  # type: ignore[no-untyped-def]
    return lambda one, other: _product(one, other)


@overload(json_numbers.leading_zeros, target="cpu")
def _zeros(word):  # type: ignore[no-untyped-def]
    return lambda word: _leading_zeros(word)


@overload(json_numbers.first_byte, target="cpu")
def _byte(bits):  # type: ignore[no-untyped-def]
    return lambda bits: _first_byte(bits)
