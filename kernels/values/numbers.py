"""Numbers among the bytes of a value by words, on a GPU: its loads are of aligned words, and a warp's lanes stay together without loops.

bytes     ....xxxx|xxxxxx..          a number of up to eight bytes is in one aligned word, or in two
words     low      high              the second one may be past the value: a piece of device memory has PAD bytes more
"""

from kolumn.formats.machine_code.deferred import overload, register_jitable
from kolumn.formats.machine_code.words import load64, loadu32, shifted
from kolumn.formats.memory import load8
from kolumn.kernels.machine.kernel import ones
from kolumn.values.wire import json_numbers, protobuf_wire

_MALFORMED = protobuf_wire.MALFORMED


@register_jitable
def _word(at: int) -> int:
    """Eight bytes from ``at`` on."""
    low = at & -8
    return shifted(load64(low), load64(low + 8), 8 * (at & 7))


@register_jitable
def _uvarint(at: int, stop: int) -> tuple[int, int]:
    if at >= stop:
        return 0, _MALFORMED
    byte = load8(at, 0)
    return (byte, at + 1) if byte < 0x80 else _longer(at, stop)


@register_jitable
def _longer(at: int, stop: int) -> tuple[int, int]:
    """A varint of which one byte is there at least."""
    word = _word(at)
    value, last = json_numbers.number_of_word(word), ~word & json_numbers.MORE
    size = ones(last ^ (last - 1)) >> 3 if last != 0 else 9
    if size > stop - at:
        return 0, _MALFORMED
    if size < 9:
        return value, at + size
    byte = load8(at, 8)
    value |= (byte & 0x7F) << 56
    if byte < 0x80:
        return value, at + 9
    if stop - at < 10 or load8(at, 9) >= 0x80:
        return 0, _MALFORMED
    return value | (load8(at, 9) & 1) << 63, at + 10


@register_jitable
def _zigzag(at: int, end: int) -> tuple[int, int]:
    value, at = _longer(at, end) if at < end else (0, _MALFORMED)
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), at


@overload(json_numbers.longer_at, target="gpu")
def _longer_at(at, end):  # type: ignore[no-untyped-def]
    return lambda at, end: _zigzag(at, end)


@overload(json_numbers.little64, target="gpu")
def _little64(at):  # type: ignore[no-untyped-def]
    return lambda at: _word(at)


@overload(json_numbers.little32, target="gpu")
def _little32(at):  # type: ignore[no-untyped-def]
    return lambda at: (loadu32(at & -4) | (loadu32((at + 3) & -4) << 32)) >> (8 * (at & 3)) & 0xFFFFFFFF


@overload(protobuf_wire.uvarint, target="gpu")
def _of_words(at, stop):  # type: ignore[no-untyped-def]
    return lambda at, stop: _uvarint(at, stop)


@overload(protobuf_wire.lowest_bit, target="gpu")
def _lowest_bit(bits):  # type: ignore[no-untyped-def]
    return lambda bits: ones(~bits & (bits - 1))
