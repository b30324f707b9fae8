"""Numbers among the bytes of a value, at addresses. A backend may replace `longer_at`, `little32` and `little64` by faster ones."""

from kolumn.formats.memory import i8_at, load8
from kolumn.formats.varint import varint64

MORE = -0x7F7F7F7F7F7F7F80
"""The highest bit of each of eight bytes, which says that there is another byte."""


def number_of_word(word: int) -> int:
    """The number of a varint that begins a word and ends in it; of the whole word if it does not end there."""
    last = ~word & MORE
    # The bytes up to the last one; then sevens become fourteens, twenty-eights, and one number.
    word &= last ^ (last - 1)
    word = (word & 0x007F007F007F007F) | ((word & 0x7F007F007F007F00) >> 1)
    word = (word & 0x00003FFF00003FFF) | ((word & 0x3FFF00003FFF0000) >> 2)
    return (word & 0x000000000FFFFFFF) | ((word & 0x0FFFFFFF00000000) >> 4)


def long_at(at: int, end: int) -> tuple[int, int]:
    """Zig-zag varint of up to ten bytes, and the address after it; -1 if it is longer or does not end before ``end``."""
    if at < end:
        byte = load8(at, 0)
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
    return longer_at(at, end)


def size_at(at: int, end: int) -> tuple[int, int]:
    """As `long_at`, faster for numbers from 0 to 63: what comes after a length waits for it."""
    if at < end:
        byte = load8(at, 0)
        if byte & 0x81 == 0:
            return byte >> 1, at + 1
    return longer_at(at, end)


def longer_at(at: int, end: int) -> tuple[int, int]:
    """As `long_at`."""
    return varint64(0, at, end)


def after_long(at: int, end: int) -> int:
    """As `long_at` without the value. A backend may have a faster one."""
    return long_at(at, end)[1]


def little32(at: int) -> int:
    """Four bytes, unsigned, at any address."""
    return load8(at, 0) | (load8(at, 1) << 8) | (load8(at, 2) << 16) | (load8(at, 3) << 24)


def little64(at: int) -> int:
    """Eight bytes, signed, at any address."""
    high = load8(at, 4) | (load8(at, 5) << 8) | (load8(at, 6) << 16) | (i8_at(at, 7) << 24)
    return little32(at) | (high << 32)


def big_endian(at: int, size: int, word: int) -> int:
    """64 bits of a big-endian two's complement number of ``size`` bytes, at least one; word 0 is the lowest one."""
    sign = i8_at(at, 0) >> 7
    value = 0
    for k in range(8):
        place = size - 1 - 8 * word - k
        byte = i8_at(at, place) if place >= 0 else sign
        value |= (byte if k == 7 else byte & 0xFF) << (8 * k)
    return value
