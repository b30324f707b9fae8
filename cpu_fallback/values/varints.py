"""Varints of Protobuf by words, for the CPU: eight bytes are loaded at once where there are as many. And bits by an instruction."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload, register_jitable

from kolumn.cpu_fallback.machine.address import load8, load64
from kolumn.encodings import protobuf_wire

_MORE = -0x7F7F7F7F7F7F7F80
"""The highest bit of each of eight bytes, which says that there is another byte."""


@intrinsic
def _trailing_zeros(typing: Any, word: Any) -> Any:
    """Number of zeros below the lowest set bit of a word that is not 0."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.int64), emit


@register_jitable
def _by_bytes(at: int, stop: int) -> tuple[int, int]:
    value, shift = 0, 0
    while at < stop and shift < 63:
        byte = load8(at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    if at < stop and load8(at) < 0x80:
        return value | ((load8(at) & 1) << 63), at + 1
    return 0, protobuf_wire.MALFORMED


@register_jitable(forceinline=True)
def _uvarint(at: int, stop: int) -> tuple[int, int]:
    if at < stop:
        byte = load8(at)
        if byte < 0x80:
            return byte, at + 1
    if stop - at < 8:
        return _by_bytes(at, stop)
    word = load64(at)
    last = ~word & _MORE
    if last == 0:
        return _by_bytes(at, stop)
    # The bytes up to the last one; then sevens become fourteens, twenty-eights, and one number.
    word &= last ^ (last - 1)
    word = (word & 0x007F007F007F007F) | ((word & 0x7F007F007F007F00) >> 1)
    word = (word & 0x00003FFF00003FFF) | ((word & 0x3FFF00003FFF0000) >> 2)
    word = (word & 0x000000000FFFFFFF) | ((word & 0x0FFFFFFF00000000) >> 4)
    return word, at + ((_trailing_zeros(last) + 1) >> 3)


@overload(protobuf_wire.uvarint, target="cpu")
def _of_words(at, stop):  # type: ignore[no-untyped-def]
    return lambda at, stop: _uvarint(at, stop)


@overload(protobuf_wire.lowest_bit, target="cpu")
def _lowest_bit(bits):  # type: ignore[no-untyped-def]
    return lambda bits: _trailing_zeros(bits)
