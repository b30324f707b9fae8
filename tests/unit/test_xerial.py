"""What snappy payloads are written as: another decompressor returns what went in, and the framing is Java's."""

import struct

import cramjam
import numpy as np
import pytest

from kolumn.formats.codecs import SNAPPY
from kolumn.writers.compress import compress

HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
BLOCK = 32 << 10
NOISE = np.random.default_rng(7).bytes(100_000)
PAYLOADS = [
    *(NOISE[:size] for size in (0, 1, 60, 61, 257, BLOCK - 1, BLOCK, BLOCK + 1)),
    NOISE,
    bytes(1),
    bytes(BLOCK + 1),
    b"abc" * 40_000,
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
def test_another_decompressor_returns_what_went_in(payload: bytes) -> None:
    made = compress(SNAPPY, memoryview(payload), -1)
    assert made[:16] == HEADER
    parts, at = list[bytes](), 16
    while at < len(made):
        (size,) = struct.unpack_from(">i", made, at)
        parts.append(bytes(cramjam.snappy.decompress_raw(made[at + 4 : at + 4 + size])))
        at += 4 + size
    assert at == len(made)
    assert b"".join(parts) == payload
    assert all(len(part) == BLOCK for part in parts[:-1])
