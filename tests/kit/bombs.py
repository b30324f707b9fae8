"""Streams that decompress to a given number of zeros, made without having them in memory."""

import struct
import zlib
from pathlib import Path

import cramjam
from lz4.block import compress as lz4_block

from kit.encoder import Record, overlong, raw_batch, record_body, varint
from kit.streams import XERIAL, xxh32

BLOCK = 4 << 20
CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


def zeros(codec: int, size: int, head: bytes = b"") -> bytes:
    """``head`` and then zeros, of ``size`` bytes together, compressed; ``size`` is a multiple of `BLOCK`, and ``head`` is less than one."""
    first, count = head + bytes(BLOCK - len(head)), size // BLOCK - 1
    return (_gzip, _snappy, _lz4, _zstd)[codec - 1](first, count)


def _gzip(first: bytes, count: int) -> bytes:
    crc, rest = zlib.crc32(first), bytes(BLOCK)
    for _ in range(count):
        crc = zlib.crc32(rest, crc)
    deflate = zlib.compressobj(9, wbits=-15)
    begin = deflate.compress(first) + deflate.flush(zlib.Z_FULL_FLUSH)
    block = deflate.compress(rest) + deflate.flush(zlib.Z_FULL_FLUSH)
    end = deflate.flush()
    size = BLOCK * (count + 1)
    head = struct.pack("<HBBIBB", 0x8B1F, 8, 0, 0, 0, 255)
    return head + begin + block * count + end + struct.pack("<II", crc, size & 0xFFFFFFFF)


def _snappy(first: bytes, count: int) -> bytes:
    blocks = [bytes(cramjam.snappy.compress_raw(block)) for block in (first, bytes(BLOCK))]
    begin, rest = (struct.pack(">i", len(block)) + block for block in blocks)
    return XERIAL + begin + rest * count


def _lz4(first: bytes, count: int) -> bytes:
    flags = b"\x60\x70"
    head = struct.pack("<I", 0x184D2204) + flags + bytes([xxh32(flags) >> 8 & 0xFF])
    blocks = [lz4_block(block, store_size=False) for block in (first, bytes(BLOCK))]
    begin, rest = (struct.pack("<I", len(block)) + block for block in blocks)
    return head + begin + rest * count + bytes(4)


def _zstd(first: bytes, count: int) -> bytes:
    """A frame whose size is not told: the first bytes as they are, the rest as runs of one byte."""
    largest = 128 << 10
    head = struct.pack("<IBB", 0xFD2FB528, 0x00, 0x58)
    raw = [first[at : at + largest] for at in range(0, BLOCK, largest)]
    blocks = [_block(0, len(part)) + part if any(part) else _block(1, len(part)) + b"\0" for part in raw]
    run = _block(1, largest) + b"\0"
    return head + b"".join(blocks) + run * (count * (BLOCK // largest) - (count > 0)) + _block(1, largest if count else 0, True) + b"\0"


def _block(kind: int, size: int, last: bool = False) -> bytes:
    return (size << 3 | kind << 1 | last).to_bytes(3, "little")


def large_record(codec: int, size: int, offset: int = 0) -> bytes:
    """A batch of format 2 whose payload of ``size`` bytes is one record with a value of zeros."""
    # length | attributes, deltas, key -1 | value length | value | headers 0: the lengths have five bytes each, whatever they are.
    body = record_body(Record(offset), offset, -1)
    front = body[: -len(varint(-1)) - 1]
    length = size - 5
    value = length - len(front) - 5 - 1
    head = overlong(varint(length), 5) + front + overlong(varint(value), 5)
    return raw_batch(zeros(codec, size, head), 1, attributes=codec, base_offset=offset)


def bomb(codec: int, size: int, offset: int = 0) -> bytes:
    """A batch of format 2 that claims one record and inflates to ``size`` zeros."""
    return raw_batch(zeros(codec, size), 1, attributes=codec, base_offset=offset)


def write(path: Path, *entries: bytes) -> Path:
    with path.open("wb") as file:
        file.writelines(entries)
    return path
