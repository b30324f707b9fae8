"""Decompresses streams with the rules of Kafka's Java reader. A stream that its classes reject is a `BadStreamError`."""

import struct
import zlib

import cramjam
import lz4.block
import zstandard

from kit.streams import xxh32


class BadStreamError(Exception):
    """Kafka's reader would raise an error for this stream."""


def inflate(codec: int, data: bytes, magic: int) -> bytes:
    """Decompress a whole stream: 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    try:
        return (gzip, snappy, lambda stream: lz4_frame(stream, magic), zstd)[codec - 1](data)
    except (struct.error, IndexError) as error:
        raise BadStreamError("ends too early") from error


def gzip(data: bytes) -> bytes:
    """``java.util.zip.GZIPInputStream``: further members are read, other bytes after the first one are ignored."""
    out, at = b"", 0
    while True:
        try:
            at = _gzip_header(data, at)
        except (BadStreamError, IndexError, struct.error):
            if not out and at == 0:
                raise
            return out
        stream = zlib.decompressobj(-15)
        try:
            member = stream.decompress(data[at:])
        except zlib.error as error:
            raise BadStreamError(str(error)) from error
        if not stream.eof:
            raise BadStreamError("ends too early")
        out += member
        at = len(data) - len(stream.unused_data)
        if struct.unpack_from("<II", data, at) != (zlib.crc32(member), len(member) & 0xFFFFFFFF):
            raise BadStreamError("Corrupt GZIP trailer")
        at += 8
        # It looks for another member only where more bytes are left than the smallest one has.
        if len(data) - at <= 18:
            return out


def _gzip_header(data: bytes, start: int) -> int:
    if data[start : start + 2] != b"\x1f\x8b" or data[start + 2] != 8:
        raise BadStreamError("Not in GZIP format")
    flags = data[start + 3]
    at = start + 10
    if flags & 4:
        at += 2 + struct.unpack_from("<H", data, at)[0]
    for flag in (8, 16):
        if flags & flag:
            at = data.find(b"\0", at) + 1
            if at == 0:
                raise BadStreamError("ends too early")
    if at > len(data):
        raise BadStreamError("ends too early")
    if flags & 2:
        if struct.unpack_from("<H", data, at)[0] != zlib.crc32(data[start:at]) & 0xFFFF:
            raise BadStreamError("Corrupt GZIP header")
        at += 2
    return at


def snappy(data: bytes) -> bytes:
    """``SnappyInputStream`` of snappy-java: xerial's chunks, or one raw block where its header is missing."""
    magic = b"\x82SNAPPY\x00"
    if not data:
        raise BadStreamError("Cannot decompress empty stream")
    if len(data) < 16 or data[:8] != magic:
        return _snappy_block(data)
    out, at = b"", 16
    while len(data) - at >= 4:
        (size,) = struct.unpack_from(">i", data, at)
        if data[at : at + 4] == magic[:4]:
            again = data[at : at + 16]
            if len(again) < 16:
                raise BadStreamError("Insufficient header size in a concatenated block")
            # snappy-java takes this for the end or goes on after it, depending on where its caller's buffer ends.
            if again[:8] != magic:
                raise BadStreamError("header of a concatenated block")
            if struct.unpack_from(">i", again, 8)[0] < 1:
                raise BadStreamError("incompatible version")
            at += 16
            continue
        at += 4
        if not 0 <= size <= min(len(data) - at, 512 << 20):
            raise BadStreamError("failed to read chunk")
        out += _snappy_block(data[at : at + size])
        at += size
    return out


def _snappy_block(block: bytes) -> bytes:
    # The library allocates what the preamble says: no element makes more than 64 bytes out of less than 3.
    length = shift = 0
    for count, byte in enumerate(block[:6]):  # noqa: B007 - used after the loop
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise BadStreamError("no length")
    if count > 4 or length >= 1 << 31 or length > len(block) * 32:
        raise BadStreamError("length")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise BadStreamError(str(error)) from error


def lz4_frame(data: bytes, magic: int) -> bytes:
    """``Lz4BlockInputStream`` of Kafka: stops at the first end mark, needs it, and reads no content checksum."""
    if len(data) < 6 or data[:4] != b"\x04\x22\x4d\x18":
        raise BadStreamError("no lz4 frame")
    flags, descriptor = data[4], data[5]
    if flags >> 6 != 1 or not flags & 0x20 or flags & 0x03:
        raise BadStreamError("version, block independence or reserved bits")
    if descriptor & 0x8F or descriptor >> 4 < 4:
        raise BadStreamError("block size or reserved bits")
    largest = 1 << (8 + 2 * (descriptor >> 4))
    at = 14 if flags & 0x08 else 6
    if data[at] != xxh32(data[4:at]) >> 8 & 0xFF and magic > 0:
        raise BadStreamError("header checksum")
    at += 1
    out = b""
    while True:
        (word,) = struct.unpack_from("<I", data, at)
        size = word & 0x7FFFFFFF
        at += 4
        if size == 0:
            if flags & 0x04 and len(data) - at < 4:
                raise BadStreamError("ends too early")
            return out
        block = data[at : at + size]
        if size > largest or len(block) < size:
            raise BadStreamError("block size")
        at += size
        out += block if word >> 31 else _lz4_block(block, largest)
        if flags & 0x10:
            if struct.unpack_from("<I", data, at)[0] != xxh32(block):
                raise BadStreamError("block checksum")
            at += 4


def _lz4_block(block: bytes, largest: int) -> bytes:
    try:
        return lz4.block.decompress(block, uncompressed_size=largest)
    except lz4.block.LZ4BlockError as error:
        raise BadStreamError(str(error)) from error


def zstd(data: bytes) -> bytes:
    """``ZstdInputStream`` of zstd-jni: any number of frames, skippable ones too, and nothing else."""
    out = b""
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            out += frame.decompress(data)
        except zstandard.ZstdError as error:
            raise BadStreamError(str(error)) from error
        if not frame.eof:
            raise BadStreamError("Truncated source")
        data = frame.unused_data
    return out
