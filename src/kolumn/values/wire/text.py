"""Bytes of strings: copying them, and whether they are UTF-8.

A backend may replace `copy` and `copy_ascii` by ones that move words.
"""

from kolumn.formats.machine_code.words import load64
from kolumn.formats.memory import load8, store8

_HIGH = -0x7F7F7F7F7F7F7F80
"""The highest bit of each of eight bytes."""


def copy(target: int, source: int, size: int) -> None:
    """Copy ``size`` bytes between addresses."""
    # No `range`: on a GPU its number of turns takes as many instructions as most strings do.
    shift, end = target - source, source + size
    while source < end:
        store8(source, shift, load8(source, 0))
        source += 1


def copy_ascii(target: int, source: int, size: int) -> int:
    """Copy ``size`` bytes; returns their bits, ORed: below 0x80 if all are ASCII."""
    bits = 0
    for k in range(size):
        byte = load8(source, k)
        bits |= byte
        store8(target, k, byte)
    return bits


def is_ascii(source: int, size: int) -> bool:
    """Whether bytes are ASCII, by the aligned words of eight that they are in: for memory that goes on before and after them."""
    if size == 0:
        return True
    place, end = source & -8, source + size
    # Without the bytes before the first one, and those after the last one: there may be none, and no shift is by 64.
    word, bits = load64(place) & (-1 << (8 * (source & 7))), 0
    while place + 8 < end:
        bits |= word
        place += 8
        word = load64(place)
    return (bits | (word & ~(-1 << (8 * (end - place - 1)) << 8))) & _HIGH == 0


def is_utf8(source: int, size: int) -> bool:
    """Whether bytes are well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF."""
    at = 0
    while at < size:
        first = load8(source, at)
        at += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else (2 if first < 0xF0 else 3)
        if size - at < more:
            return False
        low = 0xA0 if first == 0xE0 else (0x90 if first == 0xF0 else 0x80)
        high = 0x9F if first == 0xED else (0x8F if first == 0xF4 else 0xBF)
        second = load8(source, at)
        if second < low or second > high:
            return False
        for k in range(1, more):
            if load8(source, at + k) & 0xC0 != 0x80:
                return False
        at += more
    return True
