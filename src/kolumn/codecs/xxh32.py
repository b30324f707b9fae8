"""xxHash32 with seed 0: the checksum of lz4 frames (header byte, blocks)."""

from kolumn.formats.memory import Buffer, load8, u32_little_at

_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def _multiply(a: int, b: int) -> int:
    """Low 32 bits of a product of 32-bit numbers, without a product of more than 63 bits."""
    return (a * (b & 0xFFFF) + (((a * (b >> 16)) & 0xFFFF) << 16)) & _MASK


def _rotate(word: int, by: int) -> int:
    return ((word << by) | (word >> (32 - by))) & _MASK


def _round(lane: int, word: int) -> int:
    return _multiply(_rotate((lane + _multiply(word, _P2)) & _MASK, 13), _P1)


def xxh32(buf: Buffer, at: int, end: int) -> int:
    """Hash of bytes [at, end), unsigned."""
    size = end - at
    digest = _P5
    if size >= 16:
        a, b, c, d = (_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK
        while at + 16 <= end:
            a = _round(a, u32_little_at(buf, at))
            b = _round(b, u32_little_at(buf, at + 4))
            c = _round(c, u32_little_at(buf, at + 8))
            d = _round(d, u32_little_at(buf, at + 12))
            at += 16
        digest = (_rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)) & _MASK
    digest = (digest + size) & _MASK
    while at + 4 <= end:
        digest = _multiply(_rotate((digest + _multiply(u32_little_at(buf, at), _P3)) & _MASK, 17), _P4)
        at += 4
    while at < end:
        digest = _multiply(_rotate((digest + load8(buf, at) * _P5) & _MASK, 11), _P1)
        at += 1
    digest = _multiply(digest ^ (digest >> 15), _P2)
    digest = _multiply(digest ^ (digest >> 13), _P3)
    return digest ^ (digest >> 16)
