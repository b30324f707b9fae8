"""Decompression in compiled code: it accepts only payloads that the libraries accept, and all payloads that clients write."""

import ctypes
import random
import struct
import threading
import zlib
from collections.abc import Iterator

import cramjam
import numpy as np
import pytest
import zstandard

from kit import fuzz
from kit.guarded import ending_at_a_page
from kit.streams import STYLES, compress
from kolumn.cpu_fallback.inflate import libraries, unpack
from kolumn.cpu_fallback.inflate.arena import inflate
from kolumn.cpu_fallback.inflate.libraries import Decoders
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.cpu_fallback.machine.compile import compiled

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MUTANTS = 20_000
ROOM = 1 << 17
SOURCE, TARGET = ending_at_a_page(ROOM), ending_at_a_page(ROOM + 2 * PAD)
"""Memory for blocks and their output, which end with their padding: whatever touches a byte after it ends the process."""
GZIP_HEADER = bytes.fromhex("1f8b 0800 00000000 00ff")


@compiled
def _snappy(at: int, end: int, to: int, stop: int) -> int:
    return unpack.snappy_block(at, end, to, stop)


@compiled
def _unpack(codec: int, at: int, size: int, to: int, stop: int, libraries: Decoders) -> int:
    return unpack.unpack(codec, at, size, 2, to, stop, libraries)


def contents(seed: int) -> bytes:
    """Text, runs, noise and mixtures: elements of every kind and length."""
    rng = random.Random(seed)
    pieces = [rng.randbytes(rng.choice((1, 7, 40, 300, 5000))) for _ in range(rng.randrange(1, 6))]
    pieces += [rng.randbytes(period) * rng.randrange(1, 4000 // period + 2) for period in (1, 2, 3, 15, 16, 17, 31, 33, 64)]
    pieces += [b"".join(rng.choice((b"kafka ", b"log ", b"segment ", b"\n")) for _ in range(rng.randrange(400)))]
    return b"".join(rng.choice(pieces) for _ in range(rng.randrange(1, 30)))[:65000]


def blocks(seed: int) -> tuple[bytes, bytes]:
    """Contents and their snappy block."""
    data = contents(seed)
    return data, bytes(cramjam.snappy.compress_raw(data))


def mutants(block: bytes, rng: random.Random) -> Iterator[bytes]:
    for _ in range(20):
        changed = bytearray(block)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 255, rng.randrange(256)))
        yield bytes(changed[: rng.choice((len(changed), rng.randrange(1, len(changed) + 1)))])


def ours(block: bytes, size: int) -> bytes | None:
    """Output of the compiled decoder for a block, with room for ``size`` bytes; None if it gives up."""
    source, target = SOURCE[SOURCE.size - len(block) - PAD :], TARGET[TARGET.size - size - PAD :]
    source[:] = np.frombuffer(block + bytes(PAD), np.uint8)
    TARGET[:] = 0xA5
    at, to = source.ctypes.data, target.ctypes.data
    count = _snappy(at, at + len(block), to, to + size)
    assert (TARGET[: TARGET.size - target.size] == 0xA5).all(), "wrote before its target"
    return None if count == unpack.GIVEN_UP else target[:count].tobytes()


def library(block: bytes, size: int) -> bytes | None:
    target = np.empty(size, np.uint8)
    try:
        return target[: cramjam.snappy.decompress_raw_into(block, memoryview(target))].tobytes()
    except cramjam.DecompressionError:
        return None


def claimed(block: bytes) -> int | None:
    """Size in a snappy block's preamble, or None if it exceeds `ROOM` or `codecs.snappy` rejects it."""
    size = 0
    for shift, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return size if size <= ROOM and 3 * size <= 64 * len(block) else None
    return None


def test_takes_what_libraries_write() -> None:
    """Blocks of any size too: each ends at another place of an element, and of what is read and written at once."""
    for seed in range(300):
        data, block = blocks(seed)
        assert ours(block, len(data)) == data, seed
    for seed in range(8):
        whole = contents(seed)
        for size in range(1, min(400, len(whole)) + 1):
            data = whole[-size:]
            assert ours(bytes(cramjam.snappy.compress_raw(data)), size) == data, (seed, size)


def test_takes_nothing_that_libraries_refuse() -> None:
    taken = 0
    for seed in range(MUTANTS // 20):
        _, block = blocks(seed)
        for mutant in mutants(block, random.Random(seed)):
            size = claimed(mutant)
            if size is not None and (found := ours(mutant, size)) is not None:
                taken += 1
                assert found == library(mutant, size), (seed, mutant.hex())
    assert taken > MUTANTS // 100


def test_unsound_snappy() -> None:
    for why, block in {
        "an element too many": b"\x04\x0cABCD\x00", "an element too few": b"\x05\x0cABCD", "an offset of 0": b"\x08\x0cABCD\x01\x00",
        "an offset beyond the beginning": b"\x08\x0cABCD\x01\x05", "an offset that is cut": b"\x08\x0cABCD\x0f\x04\x00",
        "literals that are not there": b"\x08\xfc\xff\xff\xff\xffABCDEFGH",
    }.items():  # fmt: skip
        assert ours(block, block[0]) is library(block, block[0]) is None, why


def unpacked(codec: int, payload: bytes, size: int) -> bytes | None:
    """Output of the compiled decoder for a payload, with room for ``size`` bytes; None if it gives up."""
    source = np.frombuffer(payload + bytes(PAD), np.uint8)
    target = np.full(size + PAD, 0xA5, np.uint8)
    at, to = source.ctypes.data, target.ctypes.data
    count = _unpack(codec, at, len(payload), to, to + size, libraries.decoders())
    assert (target[size:] == 0xA5).all(), "wrote beyond its room"
    return None if count == unpack.GIVEN_UP else target[:count].tobytes()


def by_the_package(codec: int, payload: bytes) -> bytes | None:
    source = np.frombuffer(payload + bytes(PAD), np.uint8)
    one = (np.array([number]) for number in (0, len(payload), codec, 2))
    found = inflate(source, *one, max_bytes=1 << 30, max_ratio=1032.0)
    return None if found.code[0] else found.arena[: found.size[0]].tobytes()


@pytest.fixture(params=libraries.PLACES)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each place on this machine that has a libzstd which is new enough."""
    monkeypatch.setattr(libraries, "PLACES", (request.param,))
    monkeypatch.setattr(libraries, "_local", threading.local())
    libraries._libzstd_library.cache_clear()
    try:
        if not libraries.name():
            assert request.param != "zstandard._cffi", "every installation has this one"
            pytest.skip("not here, or too old")
        yield request.param
    finally:
        libraries._libzstd_library.cache_clear()


def test_libzstd_is_found(place: str) -> None:
    """Without it everything works, only slower, so no other test would fail."""
    assert all(libraries.decoders().zstd)
    assert libraries.name().endswith(f"of {place}")


def test_what_is_too_old_or_has_another_state_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(ctypes.Structure):
        _fields_ = (("new", ctypes.c_uint64), ("total_in", ctypes.c_uint64), *libraries.Head._fields_)

    assert all(libraries.decoders().deflate)
    library = libraries._library()
    assert libraries._as_told(library)
    monkeypatch.setattr(libraries, "Head", Other)
    assert not libraries._as_told(library)
    monkeypatch.setattr(libraries, "_OLDEST", 99_99_99)
    assert [libraries._load(place) for place in libraries.PLACES] == [None] * len(libraries.PLACES)


@pytest.mark.parametrize("style", STYLES[GZIP])
def test_gzip_as_written(style: str) -> None:
    for seed in range(min(100, fuzz.MUTANTS // 15)):
        data = contents(seed)
        as_written(GZIP, compress(GZIP, data, style), compress(GZIP, data[::-1]), data)
    assert unpacked(GZIP, compress(GZIP, b"", style), 0) == b""
    assert unpacked(GZIP, b"", 0) is None


@pytest.mark.parametrize("style", STYLES[ZSTD])
def test_zstd_as_written(style: str, place: str) -> None:
    for seed in range(100):
        data = contents(seed)
        as_written(ZSTD, compress(ZSTD, data, style), compress(ZSTD, data[::-1], "skippable"), data)
    assert (unpacked(ZSTD, compress(ZSTD, b"", style), 0), unpacked(ZSTD, b"", 0)) == (b"", b"")


def as_written(codec: int, payload: bytes, reverse: bytes, data: bytes) -> None:
    assert (unpacked(codec, payload, len(data)), unpacked(codec, payload + reverse, 2 * len(data))) == (data, data + data[::-1])
    assert unpacked(codec, payload, len(data) - 1) is None, "no room"


def test_zstd_beyond_its_window_is_left_to_the_package(place: str) -> None:
    data = bytes(300_000)
    for window_log, expected in ((12, None), (20, data)):
        parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log, write_content_size=False)
        writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        assert unpacked(ZSTD, writer.compress(data) + writer.flush(), len(data)) == expected


def test_what_java_ignores_after_gzip_members() -> None:
    data = contents(3)
    for junk in (bytes(18), b"\x1f" + bytes(17), b"no member" * 3 + bytes(4)):
        assert unpacked(GZIP, compress(GZIP, data) + junk, ROOM) == by_the_package(GZIP, compress(GZIP, data) + junk) == data


def test_gzip_takes_what_zlib_takes() -> None:
    """Damaged streams get the right checksum here, so that the decoder itself has to find the damage."""
    taken = 0
    for seed in range(MUTANTS // 20):
        deflate = zlib.compressobj(wbits=-15, strategy=zlib.Z_FIXED if seed % 4 == 0 else zlib.Z_DEFAULT_STRATEGY)
        for mutant in mutants(deflate.compress(contents(seed)) + deflate.flush(), random.Random(seed)):
            stream = zlib.decompressobj(wbits=-15)
            try:
                data = stream.decompress(mutant)
            except zlib.error:
                data = b""
            member = GZIP_HEADER + mutant[: len(mutant) - len(stream.unused_data)] + struct.pack("<II", zlib.crc32(data), len(data))
            assert unpacked(GZIP, member, len(data)) == (data if stream.eof else None), (seed, mutant.hex())
            taken += stream.eof
    assert taken > MUTANTS // 100


def test_zstd_takes_nothing_that_the_package_refuses(place: str) -> None:
    taken = 0
    for seed in range(MUTANTS // 20):
        whole = compress(ZSTD, contents(seed), STYLES[ZSTD][seed % len(STYLES[ZSTD])])
        for mutant in mutants(whole, random.Random(seed)):
            if (found := unpacked(ZSTD, mutant, ROOM)) is not None:
                taken += 1
                assert found == by_the_package(ZSTD, mutant), (seed, mutant.hex())
    assert taken > MUTANTS // 100
