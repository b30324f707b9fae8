"""xxHash-32 with seed 0, the checksum of lz4 frames."""

import struct

_1, _2, _3, _4, _5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def xxh32(data: bytes) -> int:
    """xxHash-32 of ``data``, seed 0."""
    at = len(data) // 16 * 16
    if at:
        lanes = [_1 + _2 & _MASK, _2, 0, -_1 & _MASK]
        for words in struct.iter_unpack("<4I", data[:at]):
            lanes = [_rotate(lane + word * _2, 13) * _1 & _MASK for lane, word in zip(lanes, words, strict=True)]
        total = sum(_rotate(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = _5
    total += len(data)
    words = (len(data) - at) // 4
    for (word,) in struct.iter_unpack("<I", data[at : at + words * 4]):
        total = _rotate(total + word * _3, 17) * _4
    for byte in data[at + words * 4 :]:
        total = _rotate(total + byte * _5, 11) * _1
    total &= _MASK
    total = (total ^ total >> 15) * _2 & _MASK
    total = (total ^ total >> 13) * _3 & _MASK
    return total ^ total >> 16


def _rotate(number: int, turn: int) -> int:
    number &= _MASK
    return (number << turn | number >> (32 - turn)) & _MASK
