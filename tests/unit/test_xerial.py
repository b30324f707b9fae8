"""What the compiled snappy compressor makes: another decompressor returns what went in, the framing is Java's, the size libsnappy's."""

import struct

import cramjam
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kit.guarded import ending_at_a_page
from kolumn.codecs import SNAPPY
from kolumn.cpu_fallback.encode.xerial import BITS, BLOCK, most_xerial, xerial
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.encode.compress import compress, compress_all

HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
RANDOM = np.random.default_rng(7)
NOISE = RANDOM.bytes(100_000)
WORDS = [RANDOM.bytes(size) for size in RANDOM.integers(3, 12, 400)]
TEXT = b"".join(WORDS[i] for i in RANDOM.integers(0, len(WORDS), 20_000))
GREEDY = b"".join(NOISE[61 * i : 61 * i + 61] + NOISE[:4] for i in range(500))
"""Literals of one byte more than the shortest tag can say, and the shortest copies: what grows most."""
PAYLOADS = [
    *(NOISE[:size] for size in (0, 1, 14, 15, 16, 17, 60, 61, 256, 257, BLOCK - 1, BLOCK, BLOCK + 1)), NOISE,
    *(bytes(size) for size in (1, 15, 16, 17, 64, 67, 68, 69, 131, 132, 133, BLOCK, BLOCK + 1)),
    b"ab" * 50, b"abc" * 20_000, TEXT, TEXT[:16_384], GREEDY, NOISE[:2047] * 2, NOISE[:2048] * 2, NOISE[:BLOCK // 2] * 2,
]  # fmt: skip


def together(payloads: list[bytes], gap: int = 0) -> list[bytes]:
    source = np.frombuffer(b"".join(payloads) + bytes(PAD), np.uint8)
    size = np.array([len(one) for one in payloads], np.int64)
    start = source.ctypes.data + np.cumsum(size) - size
    found = compress_all(SNAPPY, start, size, np.full(len(size), gap, np.int64), 2)
    assert found is not None
    data, made = found
    stops = np.cumsum(made + gap)
    assert len(data) == stops[-1]
    assert (made <= most_xerial(size)).all()
    return [data[stop - length : stop].tobytes() for stop, length in zip(stops.tolist(), made.tolist(), strict=True)]


def blocks(payload: bytes) -> list[bytes]:
    """The raw blocks in xerial's framing."""
    assert payload[:16] == HEADER
    found, at = list[bytes](), 16
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        found.append(payload[at + 4 : at + 4 + size])
        at += 4 + size
    assert at == len(payload)
    return found


def raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@pytest.mark.parametrize("gap", [0, 61])
def test_another_decompressor_returns_what_went_in(gap: int) -> None:
    for made, payload in zip(together(PAYLOADS, gap), PAYLOADS, strict=True):
        parts = [bytes(cramjam.snappy.decompress_raw(block)) for block in blocks(made)]
        assert b"".join(parts) == payload
        assert all(len(part) == BLOCK for part in parts[:-1])


def test_it_is_as_small_as_by_libsnappy() -> None:
    for made, payload in zip(together(PAYLOADS), PAYLOADS, strict=True):
        own, theirs = blocks(made), [raw(payload[at : at + BLOCK]) for at in range(0, len(payload), BLOCK)]
        assert len(own) == len(theirs)
        for one, other in zip(own, theirs, strict=True):
            assert len(one) <= 1.01 * len(other) + 4


def test_the_shortest_elements_are_chosen() -> None:
    """Copies of up to 11 bytes from near take two bytes, all others three; none is for fewer than four bytes."""
    for length, elements in ((15, 3), (63, 3), (64, 3), (65, 3 + 2), (67, 3 + 2), (68, 3 + 2), (75, 3 + 2), (76, 3 + 3), (132, 3 + 3 + 2)):
        (block,) = blocks(together([bytes(1 + length)])[0])
        # The size, one literal, and copies of what is left, from one byte before.
        assert len(block) == (1 if length < 127 else 2) + 2 + elements, length


def test_one_payload_has_the_same_bytes_as_with_others() -> None:
    assert [compress(SNAPPY, memoryview(payload), -1) for payload in PAYLOADS] == together(PAYLOADS)


def test_nothing_is_left_of_the_block_before() -> None:
    """The table of positions is used again: what a block becomes depends on it alone."""
    assert together([TEXT, TEXT[5:600]])[1] == together([TEXT[5:600]])[0] == together([NOISE, b"", TEXT[5:600]])[2]


_PIECES = st.one_of(
    st.binary(max_size=80),
    st.tuples(st.binary(min_size=1, max_size=12), st.integers(1, 90)).map(lambda one: one[0] * one[1]),
    st.tuples(st.integers(0, 90_000), st.integers(1, 3000)).map(lambda one: NOISE[one[0] : one[0] + one[1]]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(_PIECES, max_size=30).map(lambda parts: b"".join(parts + parts[::2])), min_size=1, max_size=4))
@example([b"", b"x"])
def test_any_payload(payloads: list[bytes]) -> None:
    for made, payload in zip(together(payloads), payloads, strict=True):
        assert b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks(made)) == payload


@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
def test_no_access_outside(payload: bytes) -> None:
    """Pages that nobody may touch begin where the padding of the source, of the output and of the table ends."""
    source, table = ending_at_a_page(len(payload) + PAD), ending_at_a_page(2 << BITS)
    source[: len(payload)] = np.frombuffer(payload, np.uint8)
    size, made = np.array([len(payload)], np.int64), np.zeros(1, np.int64)
    target = ending_at_a_page(int(most_xerial(size)[0]) + PAD)
    total = xerial(source.ctypes.data + 0 * size, size, 0 * size, table.ctypes.data, target.ctypes.data, made)
    assert total == made[0]
    assert target[:total].tobytes() == together([payload])[0]
