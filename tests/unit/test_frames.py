"""Payloads that compiled code compresses mean the same to another library, and are framed as Java frames them."""

import struct

import cramjam
import lz4.frame
import numpy as np
import pytest

from kolumn.cpu_fallback.encode.frames import BLOCK
from kolumn.cpu_fallback.inflate import libraries
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.formats.codecs import LZ4, SNAPPY
from kolumn.writers.entries import compress, compress_all

NOISE = np.random.default_rng(7).bytes(200_000)
PAYLOADS = [
    b"", b"a", b"abc" * 5000, NOISE[:1], NOISE[:BLOCK], bytes(BLOCK), bytes(BLOCK + 1), NOISE, NOISE[:70_000] + bytes(100_000),
    b"words and " * 30_000,
]  # fmt: skip


def together(payloads: list[bytes], gap: int, magic: int) -> list[bytes]:
    source = np.frombuffer(b"".join(payloads) + bytes(PAD), np.uint8)
    size = np.array([len(one) for one in payloads], np.int64)
    start = source.ctypes.data + np.cumsum(size) - size
    made = compress_all(LZ4, start, size, np.full(len(size), gap, np.int64), magic)
    assert made is not None
    data, packed = made
    stops = np.cumsum(packed + gap)
    assert len(data) == stops[-1]
    return [data[stop - length : stop].tobytes() for stop, length in zip(stops.tolist(), packed.tolist(), strict=True)]


@pytest.mark.parametrize("gap", [0, 61])
def test_frames_mean_the_payloads(gap: int) -> None:
    frames = together(PAYLOADS, gap, 2)
    assert [lz4.frame.decompress(frame) for frame in frames] == PAYLOADS
    for frame, payload in zip(frames, PAYLOADS, strict=True):
        one = compress(LZ4, memoryview(payload), -1)
        assert frame[:7] == one[:7]
        # Stored blocks have no freedom at all; the others may differ by the version of the library.
        assert len(frame) <= len(payload) + 7 + 4 + 4 * (len(payload) // BLOCK + 1)
        assert abs(len(frame) - len(one)) <= 0.05 * len(one) + 16


def test_the_header_checksum_of_format_0() -> None:
    """KAFKA-3160."""
    (frame,) = together([b"abc" * 100], 0, 0)
    assert frame[:7] == compress(LZ4, memoryview(b"abc" * 100), -1, 0)[:7] != compress(LZ4, memoryview(b"abc" * 100), -1, 1)[:7]


def test_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "LZ4_PLACES", ("no.such.module", "libnone.so.0"))
    libraries.liblz4.cache_clear()
    one = np.zeros(1, np.int64)
    assert compress_all(LZ4, one, one, one, 2) is None
    libraries.liblz4.cache_clear()


XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
LARGEST = 32 << 10
NOISY = np.random.default_rng(7).bytes(100_000)
SNAPPY_PAYLOADS = [
    *(NOISY[:size] for size in (0, 1, 60, 61, 257, LARGEST - 1, LARGEST, LARGEST + 1)), NOISY, bytes(1),
    bytes(LARGEST + 1), b"abc" * 40_000,
]  # fmt: skip


@pytest.mark.parametrize("payload", SNAPPY_PAYLOADS, ids=len)
def test_another_decompressor_returns_what_went_in(payload: bytes) -> None:
    made = compress(SNAPPY, memoryview(payload), -1)
    assert made[:16] == XERIAL
    parts, at = list[bytes](), 16
    while at < len(made):
        (size,) = struct.unpack_from(">i", made, at)
        parts.append(bytes(cramjam.snappy.decompress_raw(made[at + 4 : at + 4 + size])))
        at += 4 + size
    assert (at, b"".join(parts)) == (len(made), payload)
    assert all(len(part) == LARGEST for part in parts[:-1])
