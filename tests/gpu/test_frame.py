"""The device lists the blocks of compressed payloads, and leaves to the CPU what is broken, what is large, and what nvCOMP can't do."""

import gzip
import random
import zlib
from collections import Counter
from itertools import product

import cramjam
import lz4.frame
import numpy as np
import zstandard

from kit.emulated import Emulated
from kolumn.formats.codecs import END, GZIP, LZ4, SNAPPY, ZSTD, known
from kolumn.kernels.frame import SLOT_BYTES, Framing

XERIAL = bytes.fromhex("82534e4150505900 00000001 00000001")
Payload = tuple[int, bytes]
"""Codec and bytes."""


def stream(rng: random.Random) -> Payload:
    """A payload as one of the clients writes it, of words that repeat."""
    text = b" ".join(rng.choice([b"alpha", b"beta", b"gamma", b"\x1f\x8b\x08"]) for _ in range(rng.choice([0, 1, 30, 3000])))
    codec = rng.choice([GZIP, SNAPPY, LZ4, ZSTD])
    if codec == GZIP:
        flags = rng.choice([0, 8, 2])
        head = bytes([0x1F, 0x8B, 8, flags, *bytes(6)]) + (b"a name\0" if flags == 8 else b"")
        head += (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little") if flags == 2 else b""
        whole = gzip.compress(text, mtime=0)
        return codec, head + whole[10:] + (whole if rng.random() < 0.2 else b"")
    if codec == SNAPPY:
        raw = bytes(cramjam.snappy.compress_raw(text))
        return codec, raw if rng.random() < 0.3 else XERIAL + 2 * (len(raw).to_bytes(4, "big") + raw)
    if codec == LZ4:
        size, checks = rng.choice([lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX256KB]), rng.random() < 0.3
        return codec, lz4.frame.compress(text * 20, block_size=size, block_linked=False, block_checksum=checks)
    how = zstandard.ZstdCompressor(write_content_size=rng.random() < 0.5, write_checksum=rng.random() < 0.2)
    return codec, b"".join(how.compress(text * n) for n in rng.choice([(1,), (1, 3), (2, 0, 1)]))


def damaged(rng: random.Random, payload: Payload) -> Payload:
    codec, data = payload
    if data and rng.random() < 0.5:
        at = rng.randrange(min(len(data), 40))
        data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    return codec, data[: rng.randrange(len(data) + 1)] if rng.random() < 0.2 else data


def expected(codec: int, data: bytes, limit: int, magic: int = 2) -> list[list[int]] | None:
    """Blocks without the number of their payload, by the functions that are not compiled; None if that is for the CPU."""
    rows, total = list[list[int]](), 0
    flaw, at, state = known.header(codec, data, 0, len(data), magic)
    while not flaw:
        flaw, at, source, stop, bound, kind = known.block(codec, data, at, len(data), state)
        if flaw or kind == END:
            break
        total, more = total + bound, 0
        if codec == GZIP:
            more, bound = (int.from_bytes(data[k : k + 4], "little") for k in (len(data) - 8, len(data) - 4))
            if len(data) <= 18 or b"\x1f\x8b\x08" in data[3:] or not 4 <= bound <= limit:
                return None
            source = 0
        if codec == ZSTD:
            more = data[source + 4] & 0xE0
            if data[source + 4] & 0x04:
                return None
        if total > limit or len(rows) == 2 + len(data) // SLOT_BYTES:
            return None
        rows.append([kind, source, stop, bound, more])
        if known.is_whole(codec, state):
            break
    return None if flaw else rows


def framed(device: Emulated, payloads: list[Payload], limit: int, magic: int = 2) -> list[list[list[int]] | None]:
    # A payload may begin anywhere.
    text = np.frombuffer(b"?" + b"".join(data for _, data in payloads) + bytes(8), np.uint8)
    size = np.array([len(data) for _, data in payloads], np.int64)
    there, begins = device.upload(text), 1 + np.cumsum(size) - size
    codec, magics, limits = np.array([codec for codec, _ in payloads], np.int64), np.full(len(size), magic), np.full(len(size), limit)
    begun = Framing.begin(device, there.address + begins, size, codec, magics, limits)
    found, on_cpu = begun.finish(*device.downloads(begun.wanted))
    assert not on_cpu[found["payload"]].any()
    assert (np.diff(found["payload"]) >= 0).all()
    for name in ("source", "stop"):
        found[name] -= there.address + begins[found["payload"]]
    return [None if on_cpu[i] else [list(row)[1:] for row in found[found["payload"] == i].tolist()] for i in range(len(payloads))]


def test_blocks(emulated: Emulated) -> None:
    rng, limit = random.Random(3), 3 << 20
    payloads = [damaged(rng, stream(rng)) for _ in range(500)]
    found, wanted = framed(emulated, payloads, limit), [expected(*one, limit) for one in payloads]
    for one, given, right in zip(payloads, found, wanted, strict=True):
        assert given == right, one
    seen = Counter((codec, right is None) for (codec, _), right in zip(payloads, wanted, strict=True))
    assert min(seen[codec, left] for codec in (GZIP, SNAPPY, LZ4, ZSTD) for left in (False, True)) > 5, seen


def test_limits(emulated: Emulated) -> None:
    """One byte more or less: all that a payload may decompress to, what a gzip member needs, and the slots that a payload has."""
    frames = 2 * zstandard.ZstdCompressor().compress(bytes(1000))
    for limit, fits in ((1999, False), (2000, True)):
        assert framed(emulated, [(ZSTD, frames)], limit) == [expected(ZSTD, frames, limit)]
        assert (expected(ZSTD, frames, limit) is not None) is fits
    whole = gzip.compress(bytes(4), mtime=0)
    members = [whole[:10] + (bytes(10) + whole[-8:])[28 - size :] for size in (10, 11, 17, 18, 19)]
    members += [whole[:-4] + size.to_bytes(4, "little") for size in (3, 4, 1 << 20, (1 << 20) + 1)]
    blocks = [XERIAL + count * bytes.fromhex("00000003 01003f") for count in (2, 3)]
    given = [*((GZIP, member) for member in members), *((SNAPPY, one) for one in blocks for _ in range(2))]
    for one in (given, *([alone] for alone in given)):
        assert framed(emulated, one, 1 << 20) == [expected(*payload, 1 << 20) for payload in one]
    assert [expected(SNAPPY, one, 1 << 20) is not None for one in blocks] == [True, False]


def test_old_checksums_of_lz4_headers(emulated: Emulated) -> None:
    """KAFKA-3160: in format 0 the header's checksum is not compared."""
    data = bytes.fromhex("04224d18 60 40 1a 03000080 616263 00000000")
    for magic in range(3):
        assert framed(emulated, [(LZ4, data)], 1 << 20, magic) == [expected(LZ4, data, 1 << 20, magic)]
        assert (expected(LZ4, data, 1 << 20, magic) is None) is (magic > 0)


def test_a_header_at_the_end_of_gzip(emulated: Emulated) -> None:
    data = gzip.compress(b"words", mtime=0)[:-3] + b"\x1f\x8b\x08"
    assert expected(GZIP, data, 1 << 30) is None
    assert framed(emulated, [(GZIP, data)], 1 << 30) == [None]
    # What follows in memory is not of the payload.
    cut, other = data[:-1], (SNAPPY, b"\x08\x1cwordwords")
    assert framed(emulated, [(GZIP, cut), other], 1 << 40) == [expected(GZIP, cut, 1 << 40), expected(*other, 1 << 40)]
    assert expected(GZIP, cut, 1 << 40) is not None


def test_headers_inside_of_gzip(emulated: Emulated) -> None:
    """At any place of a word and of a warp's words, or cut by the end."""
    whole = gzip.compress(bytes(range(256)) * 4, mtime=0)
    for before, after in product(range(8), (0, 1, 2, 300, 700)):
        inner = bytes(before) + b"\x1f\x8b\x08"[: 3 if after else 2] + bytes(after)
        data = whole[:10] + inner + whole[-8:]
        assert framed(emulated, [(GZIP, data)] * 3, 1 << 20) == 3 * [None if after else expected(GZIP, data, 1 << 20)]
