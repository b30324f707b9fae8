"""Primitives of `kolumn.values.wire` for the CPU: words, copies of strings, and varints of which up to eight bytes are looked at at once.

Copies touch nothing outside of source and target: values may end where their memory ends."""

from typing import Any

from kolumn.core.deferred import implement, instruction, intrinsic, ir, register_jitable, types
from kolumn.cpu_fallback.machine.address import STEP, copy16, copy32, load8, load32, load64, store8, store32, store64, trailing_zeros
from kolumn.values.wire import columns, json_numbers, protobuf_wire
from kolumn.values.wire.json_numbers import MORE, number_of_word


@intrinsic
def _product(typing: Any, one: Any, other: Any) -> Any:
    """High and low word of a product of two words without a sign."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        both = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        high = builder.trunc(builder.lshr(both, ir.Constant(wide, 64)), ir.IntType(64))
        return context.make_tuple(builder, signature.return_type, [high, builder.trunc(both, ir.IntType(64))])

    return types.UniTuple(types.int64, 2)(types.int64, types.int64), emit


@instruction
def _leading_zeros(builder: Any, word: Any) -> Any:
    """Zeros above the highest set bit of a word that is not 0."""
    return builder.ctlz(word, ir.IntType(1)(1))


@instruction
def _first_byte(builder: Any, bits: Any) -> Any:
    """Number of the byte with the lowest set bit of a word that is not 0."""
    return builder.lshr(builder.cttz(bits, ir.IntType(1)(1)), ir.Constant(ir.IntType(64), 3))


_HIGH = -0x7F7F7F7F7F7F7F80
"""The highest bit of each of eight bytes."""


@register_jitable
def _copy(target: int, source: int, size: int) -> None:
    if size > 16:
        done = 0
        while done < size - STEP:
            copy32(target + done, source + done)
            done += STEP
        # The last 32 bytes, some of them again; the last two times 16 if there are no 32.
        if size >= STEP:
            copy32(target + size - STEP, source + size - STEP)
        else:
            copy16(target, source)
            copy16(target + size - 16, source + size - 16)
    elif size >= 8:
        store64(target, load64(source))
        store64(target + size - 8, load64(source + size - 8))
    elif size >= 4:
        store32(target, load32(source))
        store32(target + size - 4, load32(source + size - 4))
    else:
        for k in range(size):
            store8(target + k, load8(source + k))


@register_jitable(forceinline=True)
def _copy_ascii(target: int, source: int, size: int) -> int:
    if size >= 8:
        if size <= 16:
            low, high = load64(source), load64(source + size - 8)
            store64(target, low)
            store64(target + size - 8, high)
            return 0x80 if (low | high) & _HIGH != 0 else 0
        return _copy_long(target, source, size)
    if size >= 4:
        low, high = load32(source), load32(source + size - 4)
        store32(target, low)
        store32(target + size - 4, high)
        return 0x80 if (low | high) & 0x80808080 != 0 else 0
    if size == 0:
        return 0
    # One, two or three bytes: the first, the middle and the last one, which may be the same.
    low, middle, high = load8(source), load8(source + (size >> 1)), load8(source + size - 1)
    store8(target, low)
    store8(target + (size >> 1), middle)
    store8(target + size - 1, high)
    return low | middle | high


@register_jitable
def _copy_long(target: int, source: int, size: int) -> int:
    bits = load64(source + size - 8)
    done = 0
    while done < size - 8:
        word = load64(source + done)
        bits |= word
        store64(target + done, word)
        done += 8
    store64(target + size - 8, load64(source + size - 8))
    return 0x80 if bits & _HIGH != 0 else 0


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
def _word(at: int, stop: int) -> int:
    """Eight bytes, of which there is one at least; those from ``stop`` on have bit 7 set, as no last byte of a varint has."""
    left = stop - at
    if left >= 8:
        return load64(at)
    if left >= 4:
        word = load32(at) | load32(stop - 4) << (8 * left - 32)
    else:
        middle = left >> 1
        word = load8(at) | load8(at + middle) << (8 * middle) | load8(stop - 1) << (8 * left - 8)
    return word | -1 << (8 * left)


@register_jitable(forceinline=True)
def uvarint_by_words(at: int, stop: int) -> tuple[int, int]:
    if at < stop:
        byte = load8(at)
        if byte < 0x80:
            return byte, at + 1
    else:
        return 0, protobuf_wire.MALFORMED
    word = _word(at, stop)
    last = ~word & MORE
    if last == 0:
        return _by_bytes(at, stop)
    return number_of_word(word), at + ((trailing_zeros(last) + 1) >> 3)


@register_jitable(forceinline=True)
def after_varint_by_words(at: int, stop: int) -> int:
    if at >= stop:
        return protobuf_wire.MALFORMED
    last = ~_word(at, stop) & MORE
    if last == 0:
        return _by_bytes(at, stop)[1]
    return at + ((trailing_zeros(last) + 1) >> 3)


@register_jitable
def _zigzag(at: int, end: int) -> tuple[int, int]:
    value, at = uvarint_by_words(at, end)
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), at


@register_jitable
def _unchanged(value: int) -> int:
    return value


for _function, _by in (
    (json_numbers.load_word, load64), (json_numbers.put_word8, store64), (json_numbers.wrapped, _unchanged),
    (json_numbers.product, _product), (json_numbers.leading_zeros, _leading_zeros), (json_numbers.first_byte, _first_byte),
    (json_numbers.little64, load64), (json_numbers.little32, load32),
    (json_numbers.after_long, after_varint_by_words), (json_numbers.longer_at, _zigzag),
    (columns.copy, _copy), (columns.copy_ascii, _copy_ascii),
    (protobuf_wire.after_varint, after_varint_by_words), (protobuf_wire.uvarint, uvarint_by_words),
    (protobuf_wire.lowest_bit, trailing_zeros),
):  # fmt: skip
    implement(_function, _by, target="cpu")
