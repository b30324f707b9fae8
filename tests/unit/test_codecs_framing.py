"""The framings, byte by byte, as Java reads and writes them; another library reads what is written. Each case also runs compiled."""

import struct
import zlib
from typing import Any

import cramjam
import lz4.frame
import numpy as np
import pytest

from kolumn.cpu_fallback.encode.frames import BLOCK
from kolumn.cpu_fallback.inflate import blocks, libraries
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.formats.codecs import DEFLATE, END, LZ4, LZ4_BLOCK, SNAPPY, SNAPPY_BLOCK, STORED, ZSTD_FRAME, flaws, gzip, snappy, zstd
from kolumn.formats.codecs import lz4 as lz4_frames
from kolumn.formats.codecs.lz4 import xxh32
from kolumn.writers.entries import compress, compress_all

MODULES = {1: gzip, 2: snappy, 3: lz4_frames, 4: zstd}
LZ4_JAVA = bytes.fromhex("04224d18 60 40 82")  # magic, FLG: version 1 and independent blocks, BD: 64 KiB, header checksum
LZ4_V0 = bytes.fromhex("04224d18 60 40 1a")  # the same with the checksum of formats 0 (KAFKA-3160)
END_MARK = bytes(4)
XERIAL = bytes.fromhex("82534e4150505900 00000001 00000001")  # magic, version, least compatible version
ABC = b"\x03\x08abc"  # raw snappy: 3 bytes, a literal of 3, its bytes
GZIP_ABC = bytes.fromhex("1f8b 08 00 00000000 00 ff 4b4c4a0600 c2412435 03000000")  # head, deflate, CRC-32, size
ZSTD_ABC = bytes.fromhex("28b52ffd 00 50 190000") + b"abc"  # magic, descriptor, window 1 MiB, last raw block of 3


def plain(codec: int, payload: bytes, magic: int = 2) -> tuple[int, int, list[tuple[int, bytes, int]]]:
    """Flaw, its position, and (kind, bytes, bound) of each block, by the undecorated functions."""
    module: Any = MODULES[codec]
    flaw, at, state = module.header(payload, 0, len(payload), magic)
    rows = []
    while flaw == 0:
        flaw, at, source, stop, bound, kind = module.block(payload, at, len(payload), state)
        if flaw or kind == END:
            break
        rows.append((kind, payload[source:stop], bound))
        if codec == 1 or (codec == 2 and state == snappy.RAW):
            break
    return flaw, at if flaw else 0, [] if flaw else rows


def walk(codec: int, payload: bytes, magic: int = 2) -> tuple[int, int, list[tuple[int, bytes, int]]]:
    """The result of `plain`, after a comparison with that of the compiled functions."""
    buf = np.frombuffer(payload + bytes(64), np.uint8)
    table, flaw, where, _ = blocks.frame(buf, *(np.array([one], np.int64) for one in (0, len(payload), codec, magic, 1 << 40)))
    rows = [(int(kind), payload[source:stop], int(bound)) for _, kind, source, stop, bound in table.tolist()]
    answer = int(flaw[0]), int(where[0]), rows
    assert answer == plain(codec, payload, magic)
    return answer


def lz4_header(flags: int, descriptor: int = 0x40, middle: bytes = b"") -> bytes:
    body = bytes([flags, descriptor]) + middle
    return LZ4_JAVA[:4] + body + bytes([(xxh32(body, 0, len(body)) >> 8) & 0xFF])


def stored(data: bytes) -> bytes:
    return struct.pack("<I", len(data) | 1 << 31) + data


def test_lz4_header_checksum_is_skipped_for_magic_0_alone() -> None:
    body = stored(b"abc") + END_MARK
    assert walk(3, LZ4_JAVA + body) == walk(3, LZ4_V0 + body, 0) == walk(3, LZ4_JAVA + body, 0) == (0, 0, [(STORED, b"abc", 3)])
    for magic in (1, 2):
        assert walk(3, LZ4_V0 + body, magic)[:2] == (flaws.HEADER_CHECKSUM, 6)


@pytest.mark.parametrize(
    ("flags", "descriptor", "flaw", "at"),
    [
        (0x61, 0x40, flaws.DICTIONARY, 4), (0x62, 0x40, flaws.RESERVED, 4), (0x40, 0x40, flaws.LINKED, 4), (0x20, 0x40, flaws.VERSION, 4),
        (0xA0, 0x40, flaws.VERSION, 4), (0x60, 0x41, flaws.RESERVED, 5), (0x60, 0xC0, flaws.RESERVED, 5),
        (0x60, 0x30, flaws.BLOCK_MAXIMUM, 5),
    ],
)  # fmt: skip
def test_lz4_header_flaws(flags: int, descriptor: int, flaw: int, at: int) -> None:
    assert walk(3, lz4_header(flags, descriptor) + END_MARK)[:2] == (flaw, at)


@pytest.mark.parametrize(("descriptor", "maximum"), [(0x40, 64 << 10), (0x50, 256 << 10), (0x60, 1 << 20), (0x70, 4 << 20)])
def test_lz4_block_maximum(descriptor: int, maximum: int) -> None:
    head = lz4_header(0x60, descriptor)
    flaw, _, rows = walk(3, head + struct.pack("<I", maximum) + bytes(maximum) + END_MARK)
    assert (flaw, rows[0][0], rows[0][2]) == (0, LZ4_BLOCK, maximum)
    assert walk(3, head + struct.pack("<I", maximum + 1) + bytes(maximum + 1) + END_MARK)[:2] == (flaws.BLOCK_LENGTH, 7)


def test_lz4_optional_fields_and_end() -> None:
    abc = (0, 0, [(STORED, b"abc", 3)])
    checksum = struct.pack("<I", xxh32(b"abc", 0, 3))
    assert walk(3, lz4_header(0x68, middle=bytes(8)) + stored(b"abc") + END_MARK) == abc  # content size 0 is ignored
    assert walk(3, lz4_header(0x70) + stored(b"abc") + checksum + END_MARK) == abc
    assert walk(3, lz4_header(0x70) + stored(b"abc") + bytes(4) + END_MARK)[:2] == (flaws.BLOCK_CHECKSUM, 14)
    assert walk(3, lz4_header(0x64) + stored(b"abc") + END_MARK + b"junk") == abc  # the content checksum is there, but is not compared
    assert walk(3, lz4_header(0x64) + stored(b"abc") + END_MARK + b"jun")[0] == flaws.CUT
    assert walk(3, LZ4_JAVA + stored(b"abc") + END_MARK + LZ4_JAVA + stored(b"def") + END_MARK) == abc
    assert walk(3, LZ4_JAVA + stored(b"abc") + b"\x00\x00\x00\x80") == abc  # a stored block of 0 ends the frame too
    assert (walk(3, LZ4_JAVA + stored(b"abc"))[0], walk(3, b"\x05" + LZ4_JAVA[1:] + END_MARK)[:2]) == (flaws.CUT, (flaws.MAGIC, 0))


def test_snappy_framings() -> None:
    chunk = struct.pack(">i", len(ABC)) + ABC
    one, two = [(SNAPPY_BLOCK, ABC, 3)], [(SNAPPY_BLOCK, ABC, 3)] * 2
    assert walk(2, ABC) == walk(2, XERIAL + chunk) == walk(2, XERIAL + chunk + b"123") == (0, 0, one)
    assert walk(2, XERIAL[:8] + b"\x01\0\0\0\x01\0\0\0" + chunk) == (0, 0, one)  # Redpanda's little-endian versions
    assert (walk(2, XERIAL + chunk + XERIAL + chunk), walk(2, XERIAL)) == ((0, 0, two), (0, 0, []))
    assert walk(2, XERIAL[:15])[0] == flaws.PREAMBLE  # a raw block that claims 10,626 bytes
    assert walk(2, b"")[:2] == (flaws.EMPTY, 0)


@pytest.mark.parametrize(
    ("tail", "flaw", "at"),
    [
        (XERIAL[:8] + bytes(8), flaws.INNER_HEADER, 16),  # version 0
        (XERIAL[:9], flaws.INNER_HEADER, 16),
        *((length + ABC, flaws.BLOCK_LENGTH, 16) for length in (b"\xff\xff\xff\xff", bytes(4), struct.pack(">i", (512 << 20) + 1))),
        (struct.pack(">i", 6) + ABC, flaws.CUT, 25),
        (struct.pack(">i", 5) + b"\xff\xff\xff\xff\x0f", flaws.PREAMBLE, 20),
        (struct.pack(">i", 6) + b"\x80\x80\x80\x80\x80\x00", flaws.PREAMBLE, 20),  # six bytes
        (struct.pack(">i", 6) + b"\x80\x80\x80\x80\x10\x00", flaws.PREAMBLE, 20),  # 33 bits
    ],
)
def test_snappy_flaws(tail: bytes, flaw: int, at: int) -> None:
    assert walk(2, XERIAL + tail)[:2] == (flaw, at)


def test_zstd_frames() -> None:
    frame = [(ZSTD_FRAME, ZSTD_ABC, 3)]
    skip = bytes.fromhex("5a2a4d18 04000000") + b"skip"
    assert walk(4, b"") == walk(4, skip) == (0, 0, [])
    assert walk(4, ZSTD_ABC) == walk(4, skip + ZSTD_ABC + skip) == (0, 0, frame)
    assert walk(4, ZSTD_ABC * 2) == (0, 0, frame * 2)
    repeated = bytes.fromhex("28b52ffd 00 50 0300 10 72")  # a last block: one byte, 131072 times
    assert walk(4, repeated) == (0, 0, [(ZSTD_FRAME, repeated, 131072)])
    sized = bytes.fromhex("28b52ffd 20 03 190000") + b"abc"  # single segment, content size 3
    assert walk(4, sized) == (0, 0, [(ZSTD_FRAME, sized, 3)])
    compressed = bytes.fromhex("28b52ffd 00 00 0d0000 00")  # window 1 KiB, a compressed block of 1
    assert walk(4, compressed)[2][0][2] == 1024
    assert walk(4, bytes.fromhex("28b52ffd 01 50 00 190000") + b"abc")[0] == 0  # dictionary id 0
    assert [walk(4, ZSTD_ABC[:5] + bytes([window]) + ZSTD_ABC[6:])[0] for window in (0x88, 0x87, 0x00)] == [0] * 3  # up to 128 MiB


@pytest.mark.parametrize(
    ("payload", "flaw"),
    [
        *((payload, flaws.CUT) for payload in (ZSTD_ABC[:-1], ZSTD_ABC[:3], ZSTD_ABC + ZSTD_ABC[:-1])),
        *((ZSTD_ABC + tail, flaws.MAGIC) for tail in (b"x", b"garbage!")),
        (bytes.fromhex("5a2a4d18 05000000") + b"skip", flaws.CUT),
        (bytes.fromhex("28b52ffd 01 50 01 190000") + b"abc", flaws.DICTIONARY),
        (bytes.fromhex("28b52ffd 08 50 190000") + b"abc", flaws.RESERVED),
        (bytes.fromhex("28b52ffd 00 89 190000") + b"abc", flaws.WINDOW),  # 144 MiB
        (bytes.fromhex("28b52ffd e0 ffffffffffffffff 190000") + b"abc", flaws.WINDOW),
        (bytes.fromhex("28b52ffd c0 50 ffffffffffffffff 190000") + b"abc", flaws.CONTENT_SIZE),
        (bytes.fromhex("28b52ffd 80 50 04000000 190000") + b"abc", flaws.CONTENT_SIZE),
        (bytes.fromhex("28b52ffd 00 50 070000"), flaws.BLOCK_TYPE),
        (bytes.fromhex("28b52ffd 00 00 0b2000 72"), flaws.BLOCK_LENGTH),  # 1025 in a window of 1024
        (bytes.fromhex("28b52ffd 04 50 190000") + b"abc" + bytes(3), flaws.CUT),  # content checksum
    ],
)
def test_zstd_flaws(payload: bytes, flaw: int) -> None:
    assert walk(4, payload)[0] == flaw


def gzip_head(flags: int, optional: bytes) -> bytes:
    return GZIP_ABC[:3] + bytes([flags]) + GZIP_ABC[4:10] + optional


@pytest.mark.parametrize(
    ("head", "flaw"),
    [
        (gzip_head(0x00, b""), 0),
        (gzip_head(0xE1, b""), 0),  # reserved flags and "text"
        (gzip_head(0x04, b"\x02\x00ab"), 0),
        (gzip_head(0x08, b"name\0"), 0),
        (gzip_head(0x18, b"name\0comment\0"), 0),
        (gzip_head(0x02, b"\xff\xff"), flaws.HEADER_CHECKSUM),
        (gzip_head(0x02, b""), None),  # its right checksum is set below
        (b"\x1f\x8c" + GZIP_ABC[2:10], flaws.MAGIC),
        (GZIP_ABC[:2] + b"\x09" + GZIP_ABC[3:10], flaws.METHOD),
        (gzip_head(0x04, b"\xff\xff"), flaws.CUT),
    ],
)
def test_gzip_header(head: bytes, flaw: int | None) -> None:
    if flaw is None:
        head = head[:10] + struct.pack("<H", zlib.crc32(head[:10]) & 0xFFFF)
    found, _, rows = walk(1, head + GZIP_ABC[10:])
    assert (found, rows) == (flaw or 0, ([] if flaw else [(DEFLATE, GZIP_ABC[10:], 1032 * len(GZIP_ABC[10:]))]))


def test_gzip_trailer_and_what_follows() -> None:
    crc, size = 0x352441C2, 3
    for tail, expected in [
        (b"", (0, 8)),
        (b"junk" * 10, (0, 48)),
        (GZIP_ABC[:18], (0, 26)),  # too few bytes, which Java ignores
        (GZIP_ABC, (0, 18)),  # the next deflate stream
    ]:
        payload = GZIP_ABC[15:] + tail
        buf = np.frombuffer(payload, np.uint8)
        assert gzip.following(payload, 0, len(payload), crc, size) == expected
        assert blocks.member_end(buf.ctypes.data, 0, len(payload), crc, size) == expected
    assert gzip.following(GZIP_ABC[15:], 0, 8, crc, 4) == (flaws.TRAILER, 0)
    assert gzip.following(GZIP_ABC[15:], 0, 8, crc + 1, size) == (flaws.TRAILER, 0)
    assert gzip.following(GZIP_ABC[15:], 0, 7, crc, size) == (flaws.CUT, 7)


# Payloads that compiled code compresses.
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


LARGEST = 32 << 10
SNAPPY_PAYLOADS = [
    *(NOISE[:size] for size in (0, 1, 60, 61, 257, LARGEST - 1, LARGEST, LARGEST + 1, 100_000)), bytes(1), bytes(LARGEST + 1),
    b"abc" * 40_000,
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
