"""XxHash32 of short texts, in plain Python: `kolumn.formats.codecs.lz4` has the one for bytes of frames, which is compiled."""

import struct

_ONE, _TWO, _THREE, _FOUR, _FIVE = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def _rotated(word: int, by: int) -> int:
    word &= _MASK
    return ((word << by) | (word >> (32 - by))) & _MASK


def xxh32(data: bytes) -> int:
    """XxHash32 of some bytes, seed 0, unsigned."""
    lanes, stop = [_ONE + _TWO, _TWO, 0, -_ONE], len(data) & ~15
    for words in struct.iter_unpack("<4I", data[:stop]):
        lanes = [_rotated(lane + word * _TWO, 13) * _ONE for lane, word in zip(lanes, words, strict=True)]
    digest = sum(map(_rotated, lanes, (1, 7, 12, 18))) if stop else _FIVE
    digest += len(data)
    rest = data[stop:]
    whole = len(rest) & ~3
    for (word,) in struct.iter_unpack("<I", rest[:whole]):
        digest = _rotated(digest + word * _THREE, 17) * _FOUR
    for byte in rest[whole:]:
        digest = _rotated(digest + byte * _FIVE, 11) * _ONE
    digest &= _MASK
    digest = (digest ^ digest >> 15) * _TWO & _MASK
    digest = (digest ^ digest >> 13) * _THREE & _MASK
    return digest ^ digest >> 16
