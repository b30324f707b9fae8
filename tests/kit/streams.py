"""Compressed streams as the clients of Kafka write them, with every legal variation, and xxHash-32, the checksum of lz4 frames."""

import gzip
import struct
import zlib

import cramjam
import lz4.frame
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
# The first broker of Redpanda's line wrote the two versions in the other byte order.
XERIAL_LITTLE = b"\x82SNAPPY\x00" + struct.pack("<ii", 1, 1)
STYLES = {
    NONE: ("plain",),
    GZIP: ("one", "members", "named"),
    SNAPPY: ("xerial", "raw", "xerial-small", "xerial-little", "xerial-twice"),
    LZ4: ("java", "size", "block-checksum", "content-checksum", "everything", "large-blocks", "stored"),
    ZSTD: ("streaming", "size", "checksum", "frames", "skippable"),
}
"""Ways in which each codec's stream can be framed; the first is Java's."""


def compress(codec: int, data: bytes, style: str = "", magic: int = 2) -> bytes:
    """Compress ``data``; ``style`` is one of `STYLES`, and ``magic`` 0 gives lz4 its historic header checksum."""
    style = style or STYLES[codec][0]
    if codec == GZIP:
        return _gzip(data, style)
    if codec == SNAPPY:
        return _snappy(data, style)
    if codec == LZ4:
        return _lz4(data, style, magic)
    return _zstd(data, style) if codec == ZSTD else data


def _halves(data: bytes) -> tuple[bytes, bytes]:
    return data[: len(data) // 2], data[len(data) // 2 :]


def _gzip(data: bytes, style: str) -> bytes:
    if style == "members":
        return b"".join(gzip.compress(half, mtime=0) for half in _halves(data))
    if style == "named":
        head = struct.pack("<HBBIBB", 0x8B1F, 8, 0x08 | 0x04, 0, 0, 255) + struct.pack("<H", 3) + b"abc" + b"name\x00"
        raw = zlib.compressobj(wbits=-15)
        return head + raw.compress(data) + raw.flush() + struct.pack("<II", zlib.crc32(data), len(data))
    return gzip.compress(data, mtime=0)


def _snappy(data: bytes, style: str) -> bytes:
    if style == "raw":
        return bytes(cramjam.snappy.compress_raw(data))
    if style == "xerial-twice":
        return b"".join(_xerial(half, XERIAL, 32 << 10) for half in _halves(data))
    return _xerial(data, XERIAL_LITTLE if style == "xerial-little" else XERIAL, 64 if style == "xerial-small" else 32 << 10)


def _xerial(data: bytes, header: bytes, block: int) -> bytes:
    chunks = (bytes(cramjam.snappy.compress_raw(data[at : at + block])) for at in range(0, len(data), block))
    return header + b"".join(struct.pack(">i", len(chunk)) + chunk for chunk in chunks)


def _lz4(data: bytes, style: str, magic: int) -> bytes:
    every = style == "everything"
    if style == "stored":
        frame = struct.pack("<IBBB", 0x184D2204, 0x60, 0x40, 0x82)
        blocks = (data[at : at + 65536] for at in range(0, len(data), 65536))
        frame += b"".join(struct.pack("<I", len(block) | 1 << 31) + block for block in blocks) + bytes(4)
    else:
        frame = lz4.frame.compress(
            data, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB if style == "large-blocks" else lz4.frame.BLOCKSIZE_MAX64KB,
            content_checksum=every or style == "content-checksum", block_checksum=every or style == "block-checksum",
            store_size=every or style == "size",
        )  # fmt: skip
    return historic_checksum(frame) if magic == 0 else frame


def historic_checksum(frame: bytes) -> bytes:
    """The same lz4 frame with the header checksum of KAFKA-3160, which covers the frame's magic number too."""
    at = 14 if frame[4] & 0x08 else 6
    return frame[:at] + bytes([xxh32(frame[:at]) >> 8 & 0xFF]) + frame[at + 1 :]


def _zstd(data: bytes, style: str) -> bytes:
    if style == "frames":
        return b"".join(_zstd(half, kind) for half, kind in zip(_halves(data), ("streaming", "size"), strict=True))
    if style == "skippable":
        skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
        return skippable + _zstd(data, "size") + skippable
    writer = zstandard.ZstdCompressor(write_content_size=style != "streaming", write_checksum=style == "checksum")
    if style == "streaming":
        stream = writer.compressobj()
        return stream.compress(data) + stream.flush()
    return writer.compress(data)


def xxh32(data: bytes) -> int:
    """xxHash-32, which the reference library of lz4 writes at the end of a frame that asks for a checksum of its content."""
    return int.from_bytes(lz4.frame.compress(data, content_checksum=True)[-4:], "little")
