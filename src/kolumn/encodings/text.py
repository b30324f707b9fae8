"""Bytes of strings: copying them, and whether they are UTF-8.

A backend may replace `copy` and `copy_ascii` by ones that move words.
"""

from kolumn.formats.memory import load8, store8


def copy(target: int, source: int, size: int) -> None:
    """Copy ``size`` bytes between addresses."""
    for k in range(size):
        store8(target, k, load8(source, k))


def copy_ascii(target: int, source: int, size: int) -> int:
    """Copy ``size`` bytes; returns their bits, ORed: below 0x80 if all are ASCII."""
    bits = 0
    for k in range(size):
        byte = load8(source, k)
        bits |= byte
        store8(target, k, byte)
    return bits


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
