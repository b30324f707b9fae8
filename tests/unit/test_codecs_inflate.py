"""Decompression by `inflate`: whole payloads from other writers, hostile payloads, limits, threads."""

import gzip as stdlib_gzip
import random
import struct
import threading
from collections.abc import Callable
from itertools import product

import cramjam
import lz4.frame
import numpy as np
import pytest
import zstandard

from kolumn.core.errors import Code
from kolumn.cpu_fallback.inflate.arena import Inflated, inflate
from kolumn.cpu_fallback.machine.address import PAD

XERIAL = bytes.fromhex("82534e4150505900 00000001 00000001")
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


def chunked(data: bytes, size: int = 32768) -> bytes:
    pieces = [bytes(cramjam.snappy.compress_raw(data[i : i + size])) for i in range(0, len(data), size)]
    return XERIAL + b"".join(struct.pack(">i", len(p)) + p for p in pieces)


def streamed(data: bytes, level: int = 3, **options: bool) -> bytes:
    writer = zstandard.ZstdCompressor(level, write_content_size=False, **options).compressobj()
    return writer.compress(data) + writer.flush()


DATA = [b"", b"a", text(100), text(16000, 1), text(70000, 2), random.Random(3).randbytes(200_000), b"not zero" * 400_000]


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_lz4_of_every_kind(block_size: int) -> None:
    for flags in product((False, True), repeat=3):
        kinds = dict(zip(("block_checksum", "content_checksum", "store_size"), flags, strict=True))
        payloads = [lz4.frame.compress(d, block_size=block_size, block_linked=False, **kinds) for d in DATA]
        same(payloads, 3, DATA)
    assert run([lz4.frame.compress(DATA[4], block_size=4, block_linked=True)], 3).code[0] == Code.BAD_STREAM


def test_snappy_chunked_and_raw() -> None:
    same([chunked(d) for d in DATA], 2, DATA)
    same([bytes(cramjam.snappy.compress_raw(d)) for d in DATA], 2, DATA)
    same([chunked(d, 1024) + chunked(d) for d in DATA[:5]], 2, [d + d for d in DATA[:5]])
    empty = run([b"\x00", b"\x80\x00", b"\x00\x08abc", b"\x00\xf0\x00", b""], 2)
    assert empty.code.tolist() == [0, 0, Code.BAD_STREAM, Code.BAD_STREAM, Code.BAD_STREAM]


def test_zstd_with_and_without_size() -> None:
    same([streamed(d) for d in DATA], 4, DATA)
    same([streamed(d, write_checksum=True) for d in DATA], 4, DATA)
    same([zstandard.ZstdCompressor(write_checksum=True).compress(d) for d in DATA], 4, DATA)
    same([streamed(d) + zstandard.ZstdCompressor().compress(d) for d in DATA], 4, [d + d for d in DATA])
    broken = streamed(DATA[3], write_checksum=True)[:-1]
    assert run([broken + b"\0", broken + b"\1"], 4).code.tolist() == [Code.BAD_STREAM] * 2


def test_gzip_members() -> None:
    members = [stdlib_gzip.compress(d, 6, mtime=0) for d in DATA]
    same(members, 1, DATA)
    same([m + m for m in members], 1, [d + d for d in DATA])
    same([m + b"junk" * 20 for m in members], 1, DATA)
    assert run([members[3][:-1], members[3][:-5] + b"x" + members[3][-4:], members[3][:-9], b""], 1).code.tolist() == [Code.BAD_STREAM] * 4
    many = stdlib_gzip.compress(b"", mtime=0) * 20_000 + members[2]
    same([many], 1, [DATA[2]])


def test_a_broken_payload_hurts_no_other() -> None:
    good = [chunked(DATA[3]), lz4.frame.compress(DATA[3], block_linked=False), streamed(DATA[3]), stdlib_gzip.compress(DATA[3]), DATA[3]]
    codecs = [2, 3, 4, 1, 0]
    payloads, kinds = [], []
    for p, c in zip(good, codecs, strict=True):
        payloads += [p, p[: len(p) // 2], p]
        kinds += [c, c, c]
    result = run([*payloads, b"x"], [*kinds, 5])
    expected = [0, Code.BAD_STREAM, 0] * 4 + [0, 0, 0, Code.BAD_CODEC]
    assert (result.code.tolist(), set(result.found)) == (expected, {1, 4, 7, 10, 15})
    assert all(taken(result, i) == DATA[3] for i in range(15) if i not in (1, 4, 7, 10, 13))
    assert "lz4: a stream that is cut short at byte" in result.found[4]
    # Of a block that does not decode.
    bad = bytes.fromhex("04224d18604082") + struct.pack("<I", 1 << 31 | 3) + b"abc" + struct.pack("<I", 2) + b"\xff\xff" + bytes(4)
    result = run([bad, lz4.frame.compress(b"good", block_linked=False)], 3)
    assert (result.code.tolist(), result.size.tolist(), taken(result, 1)) == ([Code.BAD_STREAM, 0], [0, 4], b"good")
    assert int(result.where[0]) == 18


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_limits(codec: int) -> None:
    writers: list[Callable[[bytes], bytes]] = [
        bytes, stdlib_gzip.compress, chunked, lambda d: lz4.frame.compress(d, block_linked=False), streamed,
    ]  # fmt: skip
    write = writers[codec]
    data = text(300_000)
    payload = write(data)
    assert run([payload], codec, max_bytes=300_000).code.tolist() == [0]
    result = run([payload, write(b"abc")], codec, max_bytes=299_999)
    assert (result.code.tolist(), taken(result, 1)) == ([Code.TOO_LARGE, 0], b"abc")


def test_ratio_counts_above_64_mib() -> None:
    bomb = streamed(bytes(80 << 20))
    assert (run([bomb], 4).code.tolist(), run([bomb], 4, max_ratio=1e9).size.tolist()) == ([Code.TOO_LARGE], [80 << 20])
    assert run([streamed(bytes(60 << 20))], 4).code.tolist() == [0]


def test_mutations_never_crash_and_stay_small() -> None:
    rnd = random.Random(5)
    seeds = {
        1: [stdlib_gzip.compress(text(900)), stdlib_gzip.compress(b"abc") * 3],
        2: [chunked(text(900), 200), bytes(cramjam.snappy.compress_raw(text(900)))],
        3: [lz4.frame.compress(text(900), block_linked=False, block_checksum=True), lz4.frame.compress(text(90), block_linked=False)],
        4: [streamed(text(900)), zstandard.ZstdCompressor(write_checksum=True).compress(text(900)) * 2],
    }
    for codec, valid in seeds.items():
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


def test_many_tiny_blocks_make_the_table_grow() -> None:
    pieces = [bytes([i % 251]) for i in range(30_000)]
    frame = bytes.fromhex("04224d18604082") + b"".join(struct.pack("<I", 1 | 1 << 31) + p for p in pieces) + bytes(4)
    same([frame, frame], 3, [b"".join(pieces)] * 2)


def test_threads_share_nothing() -> None:
    payloads = [streamed(DATA[3]), zstandard.ZstdCompressor().compress(DATA[4])] * 20
    wrong: list[int] = []

    def work() -> None:
        for _ in range(10):
            result = run(payloads, 4)
            wrong.extend(i for i in range(40) if taken(result, i) != DATA[3 + i % 2])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_no_payloads() -> None:
    assert len(run([], 3).code) == 0
