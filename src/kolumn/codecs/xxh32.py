"""xxHash32 with seed 0, the checksum of lz4 frames: four lanes of 32 bits, each of which takes every fourth little-endian word."""

from kolumn.formats.memory import Buffer, load8, u32_little_at

PRIME_1 = 0x9E3779B1
PRIME_2 = 0x85EBCA77
PRIME_3 = 0xC2B2AE3D
PRIME_4 = 0x27D4EB2F
PRIME_5 = 0x165667B1
MASK = 0xFFFFFFFF


def rotated(word: int, by: int) -> int:
    """``word`` (32 bits, unsigned) rotated left."""
    return ((word << by) | (word >> (32 - by))) & MASK


def mixed(lane: int, word: int) -> int:
    """A lane after one more word."""
    return (rotated((lane + word * PRIME_2) & MASK, 13) * PRIME_1) & MASK


def xxh32(buf: Buffer, at: int, end: int) -> int:
    """XxHash32 of bytes [at, end), seed 0, unsigned."""
    size = end - at
    if size >= 16:
        one = (PRIME_1 + PRIME_2) & MASK
        two = PRIME_2
        three = 0
        four = (-PRIME_1) & MASK
        while at + 16 <= end:
            one = mixed(one, u32_little_at(buf, at))
            two = mixed(two, u32_little_at(buf, at + 4))
            three = mixed(three, u32_little_at(buf, at + 8))
            four = mixed(four, u32_little_at(buf, at + 12))
            at += 16
        digest = rotated(one, 1) + rotated(two, 7) + rotated(three, 12) + rotated(four, 18)
    else:
        digest = PRIME_5
    digest = (digest + size) & MASK
    while at + 4 <= end:
        digest = (rotated((digest + u32_little_at(buf, at) * PRIME_3) & MASK, 17) * PRIME_4) & MASK
        at += 4
    while at < end:
        digest = (rotated((digest + load8(buf, at) * PRIME_5) & MASK, 11) * PRIME_1) & MASK
        at += 1
    digest = ((digest ^ (digest >> 15)) * PRIME_2) & MASK
    digest = ((digest ^ (digest >> 13)) * PRIME_3) & MASK
    return digest ^ (digest >> 16)
