"""Decompression by `inflate`: whole payloads from other writers, hostile payloads, limits, threads."""

import random
import struct
from concurrent.futures import ThreadPoolExecutor

import lz4.frame
import numpy as np
import pytest

from kit.streams import GZIP, LZ4, SNAPPY, STYLES, ZSTD, compress
from kolumn.core.errors import Code
from kolumn.cpu_fallback.inflate.arena import Inflated, inflate
from kolumn.cpu_fallback.machine.address import PAD

WORDS = [bytes(random.Random(i).choices(b"abcdefghij", k=6)) for i in range(200)]


def text(size: int, seed: int = 0) -> bytes:
    return b" ".join(random.Random(seed).choices(WORDS, k=size // 7 + 1))[:size]


def run(payloads: list[bytes], codecs: list[int] | int, magic: int = 2, max_bytes: int = 2**31 - 1, max_ratio: float = 1032.0) -> Inflated:
    sizes = np.array([len(p) for p in payloads], np.int64)
    buf = np.frombuffer(b"".join(payloads) + bytes(PAD), np.uint8)
    full = np.broadcast_to(np.array(codecs, np.int64), sizes.shape)
    return inflate(buf, np.cumsum(sizes) - sizes, sizes, full, np.full(len(sizes), magic, np.int64), max_bytes, max_ratio)


def taken(result: Inflated, i: int) -> bytes:
    return bytes(result.arena[result.start[i] : result.start[i] + result.size[i]])


def same(payloads: list[bytes], codec: int, expected: list[bytes]) -> None:
    result = run(payloads, codec)
    assert (result.found, [taken(result, i) for i in range(len(payloads))]) == ({}, expected)
    assert len(result.arena) >= sum(map(len, expected)) + PAD


DATA = [b"", b"a", text(100), text(16000, 1), text(70000, 2), random.Random(3).randbytes(200_000), b"not zero" * 400_000]


@pytest.mark.parametrize(("codec", "style"), [(codec, style) for codec in (GZIP, SNAPPY, LZ4, ZSTD) for style in STYLES[codec]])
def test_every_style(codec: int, style: str) -> None:
    same([compress(codec, one, style) for one in DATA], codec, DATA)


def test_payloads_of_several_parts_and_what_follows_them() -> None:
    twice = [one + one for one in DATA]
    same([compress(SNAPPY, one, "xerial-small") + compress(SNAPPY, one) for one in DATA[:5]], SNAPPY, twice[:5])
    same([compress(ZSTD, one) + compress(ZSTD, one, "size") for one in DATA], ZSTD, twice)
    same([compress(GZIP, one) * 2 for one in DATA], GZIP, twice)
    same([compress(GZIP, one) + b"junk" * 20 for one in DATA], GZIP, DATA)
    same([compress(GZIP, b"") * 20_000 + compress(GZIP, DATA[2])], GZIP, [DATA[2]])
    for block_size in (4, 5, 6, 7):
        same([lz4.frame.compress(one, block_size=block_size, block_linked=False) for one in DATA], LZ4, DATA)


def test_streams_that_are_bad() -> None:
    found = run([b"\x00", b"\x80\x00", b"\x00\x08abc", b"\x00\xf0\x00", b""], SNAPPY)
    assert found.code.tolist() == [0, 0, Code.BAD_STREAM, Code.BAD_STREAM, Code.BAD_STREAM]
    assert run([lz4.frame.compress(DATA[4], block_size=4, block_linked=True)], LZ4).code[0] == Code.BAD_STREAM
    broken, member = compress(ZSTD, DATA[3], "checksum")[:-1], compress(GZIP, DATA[3])
    assert run([broken + b"\0", broken + b"\1"], ZSTD).code.tolist() == [Code.BAD_STREAM] * 2
    assert run([member[:-1], member[:-5] + b"x" + member[-4:], member[:-9], b""], GZIP).code.tolist() == [Code.BAD_STREAM] * 4


def test_a_broken_payload_hurts_no_other() -> None:
    payloads, kinds = [], []
    for codec in (SNAPPY, LZ4, ZSTD, GZIP, 0):
        payload = compress(codec, DATA[3])
        payloads += [payload, payload[: len(payload) // 2], payload]
        kinds += [codec] * 3
    result = run([*payloads, b"x"], [*kinds, 5])
    expected = [0, Code.BAD_STREAM, 0] * 4 + [0, 0, 0, Code.BAD_CODEC]
    assert (result.code.tolist(), set(result.found)) == (expected, {1, 4, 7, 10, 15})
    assert all(taken(result, i) == DATA[3] for i in range(15) if i not in (1, 4, 7, 10, 13))
    assert "lz4: a stream that is cut short at byte" in result.found[4]
    # Of a block that does not decode.
    bad = bytes.fromhex("04224d18604082") + struct.pack("<I", 1 << 31 | 3) + b"abc" + struct.pack("<I", 2) + b"\xff\xff" + bytes(4)
    result = run([bad, compress(LZ4, b"good")], LZ4)
    assert (result.code.tolist(), result.size.tolist(), taken(result, 1)) == ([Code.BAD_STREAM, 0], [0, 4], b"good")
    assert int(result.where[0]) == 18


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_limits(codec: int) -> None:
    payload = compress(codec, text(300_000))
    assert run([payload], codec, max_bytes=300_000).code.tolist() == [0]
    result = run([payload, compress(codec, b"abc")], codec, max_bytes=299_999)
    assert (result.code.tolist(), taken(result, 1)) == ([Code.TOO_LARGE, 0], b"abc")


def test_ratio_counts_above_64_mib() -> None:
    bomb = compress(ZSTD, bytes(80 << 20))
    assert (run([bomb], 4).code.tolist(), run([bomb], 4, max_ratio=1e9).size.tolist()) == ([Code.TOO_LARGE], [80 << 20])
    assert run([compress(ZSTD, bytes(60 << 20))], 4).code.tolist() == [0]


def test_mutations_never_crash_and_stay_small() -> None:
    rnd = random.Random(5)
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        valid = [compress(codec, text(900), style) for style in STYLES[codec]] + [compress(codec, text(90)) * 2]
        payloads = []
        for _ in range(1500):
            mutant = bytearray(rnd.choice(valid))
            for _ in range(rnd.randint(1, 4)):
                mutant[rnd.randrange(min(len(mutant), rnd.choice((8, 40, 1000))))] = rnd.choice((0, 255, rnd.randrange(256)))
            payloads.append(bytes(mutant[: rnd.choice((len(mutant), rnd.randrange(len(mutant))))]))
        result = run(payloads, codec)
        assert (result.code != 0).sum() > 500
        assert all((result.code[i] != 0) == (i in result.found) for i in range(len(payloads)))
        assert len(result.arena) < 32 << 20


def test_threads_share_nothing() -> None:
    payloads = [compress(ZSTD, DATA[3]), compress(ZSTD, DATA[4], "size")] * 20
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: run(payloads, 4), range(40)):
            assert [i for i in range(40) if taken(result, i) != DATA[3 + i % 2]] == []


def test_many_tiny_blocks_make_the_table_grow_and_no_payload_needs_none() -> None:
    pieces = [bytes([i % 251]) for i in range(30_000)]
    frame = bytes.fromhex("04224d18604082") + b"".join(struct.pack("<I", 1 | 1 << 31) + p for p in pieces) + bytes(4)
    same([frame, frame], 3, [b"".join(pieces)] * 2)
    assert len(run([], 3).code) == 0
