"""Varints by words, for the CPU: up to eight bytes are looked at at once."""

from kolumn.cpu_fallback.machine.address import load8, load32, load64, trailing_zeros
from kolumn.formats.machine_code.deferred import overload, register_jitable
from kolumn.values.wire import protobuf_wire
from kolumn.values.wire.json_numbers import MORE, number_of_word


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


@overload(protobuf_wire.after_varint, target="cpu")
def _passed(at, stop):  # type: ignore[no-untyped-def]
    return lambda at, stop: after_varint_by_words(at, stop)


@overload(protobuf_wire.uvarint, target="cpu")
def _of_words(at, stop):  # type: ignore[no-untyped-def]
    return lambda at, stop: uvarint_by_words(at, stop)


@overload(protobuf_wire.lowest_bit, target="cpu")
def _lowest_bit(bits):  # type: ignore[no-untyped-def]
    return lambda bits: trailing_zeros(bits)
