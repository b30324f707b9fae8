"""Payloads compressed and framed like those of Kafka's Java producer."""

import gzip
import struct
from collections.abc import Callable

import cramjam
import numpy as np
import pyarrow as pa
import zstandard

from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.core.recycle import take
from kolumn.cpu_fallback.encode.frames import BLOCK, BOUND, END, HEADER, lz4_frames
from kolumn.cpu_fallback.inflate.libraries import liblz4
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.formats.codecs import GZIP, LZ4, NONE, SNAPPY, ZSTD
from kolumn.formats.codecs.known import NAMES
from kolumn.formats.codecs.lz4 import STORED_BIT, xxh32
from kolumn.formats.codecs.snappy import MAGIC_HEAD, MAGIC_TAIL

_LZ4_MAGIC = 0x184D2204
_XERIAL_HEADER, _XERIAL_BLOCK = struct.pack(">IIii", MAGIC_HEAD, MAGIC_TAIL, 1, 1), 32 << 10
_RAW_SNAPPY = pa.Codec("snappy")

_LEVELS = {GZIP: (-1, 0, 9), ZSTD: (3, -131072, 22)}
"""Default, lowest and highest level of each codec that has levels."""


def codec_of(name: str) -> int:
    """Id of a codec; raises `ArgumentError` if there is none of that name."""
    if name not in NAMES:
        raise ArgumentError(f"codec={name!r}: expected one of {', '.join(NAMES)}")
    return NAMES.index(name)


def level_of(codec: int, level: int | None) -> int:
    """The level to use, -1 for codecs without levels; raises `ArgumentError` if the codec does not have this one."""
    default, low, high = _LEVELS.get(codec, (-1, 0, -1))
    if level is None:
        return default
    if not low <= level <= high:
        has = f"levels {low} to {high}" if low <= high else "no levels"
        raise ArgumentError(f"level={level}: {NAMES[codec]} has {has}")
    return level


def compress(codec: int, data: memoryview, level: int, magic: int = 2) -> bytes:
    """Compress a payload in the codec's framing, with a ``level`` from `level_of`.

    In format 0 (``magic``) the header checksum of lz4 frames covers the frame's magic number too (KAFKA-3160).
    """
    return _COMPRESSED[codec](data, level, magic)


def _gzip(data: memoryview, level: int, magic: int) -> bytes:
    return gzip.compress(data, 6 if level < 0 else level, mtime=0)


def _zstd(data: memoryview, level: int, magic: int) -> bytes:
    return zstandard.ZstdCompressor(level=level).compress(data)


def _xerial(data: memoryview, level: int, magic: int) -> bytes:
    """Blocks of 32 KiB, each with its compressed size in front (``SnappyOutputStream``)."""
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = _RAW_SNAPPY.compress(data[at : at + _XERIAL_BLOCK], asbytes=True)
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def compress_all(codec: int, source: Int64s, size: Int64s, gap: Int64s, magic: int) -> tuple[Bytes, Int64s] | None:
    """Compress payloads at addresses in compiled code, as `compress` does with each.

    Returns the compressed payloads, each after ``gap`` free bytes, and their sizes; None if no library can be called for the codec.
    """
    function = liblz4("LZ4_compress_default") if codec == LZ4 else 0
    if not function:
        return None
    made = np.empty(len(size), np.int64)
    most = int((gap + size + HEADER + END + 4 * (size // BLOCK + 1)).sum()) + BOUND + PAD
    room, _ = take(most)
    header = int.from_bytes(_lz4_header(magic), "little")
    total = lz4_frames(source, size, gap, header, function, room.address, made)
    return np.frombuffer(room, np.uint8)[:total], made


def _lz4_header(magic: int) -> bytes:
    head = struct.pack("<IBB", _LZ4_MAGIC, 0x60, 0x40)
    covered = head if magic == 0 else head[4:]
    return head + bytes([xxh32(covered, 0, len(covered)) >> 8 & 0xFF])


def _lz4(data: memoryview, level: int, magic: int) -> bytes:
    """A frame of independent blocks of 64 KiB; only the header has a checksum (``Lz4BlockOutputStream``)."""
    parts = [_lz4_header(magic)]
    for at in range(0, len(data), BLOCK):
        plain = data[at : at + BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        stored = len(block) >= len(plain)
        parts += [struct.pack("<I", len(plain) | STORED_BIT if stored else len(block)), bytes(plain) if stored else block]
    return b"".join([*parts, bytes(4)])


_COMPRESSED: dict[int, Callable[[memoryview, int, int], bytes]] = {
    NONE: lambda data, level, magic: bytes(data), GZIP: _gzip, SNAPPY: _xerial, LZ4: _lz4, ZSTD: _zstd,
}  # fmt: skip
