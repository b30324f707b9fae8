"""lz4 frames as Kafka reads them (``Lz4BlockInputStream``; KAFKA-3160).

    04 22 4D 18 | FLG | BD | [content size u64] | HC | blocks … | 00000000 | [content checksum u32]       little-endian

    FLG  bits 7-6 version 1 · 5 independent blocks · 4 block checksums · 3 content size · 2 content checksum · 1-0 zero
    BD   bits 6-4 largest block: 4 64 KiB, 5 256 KiB, 6 1 MiB, 7 4 MiB · others zero
    HC   second byte of the xxh32 of FLG to the byte before HC
    block  u32 size, bit 31 set: stored | bytes | [xxh32 of the bytes]

The **header checksum of format 0** is wrong in old writers, which hash the frame's magic too: in a format 0 wrapper Java skips the
check, in formats 1 and 2 it makes it. Block checksums are verified, the content checksum and size are not. The first end mark
ends the stream, whatever follows; a missing one is an error. Linked blocks and dictionaries are refused.
"""

from kolumn.codecs.xxh32 import xxh32
from kolumn.formats.memory import Buffer, load8, u32_little_at

FRAME_MAGIC = 0x184D2204
SMALLEST_HEADER = 7
LARGEST_RATIO = 255
BAD = -1

_MALFORMED = (BAD, 0, 0)


def frame(buf: Buffer, at: int, end: int, magic: int) -> tuple[int, int, int]:
    """Header of the frame at ``at`` in an entry of format ``magic``: (first block or BAD, largest block, FLG)."""
    if end - at < SMALLEST_HEADER or u32_little_at(buf, at) != FRAME_MAGIC:
        return _MALFORMED
    flags, sizes = load8(buf, at + 4), load8(buf, at + 5)
    if flags >> 6 != 1 or flags & 0x23 != 0x20 or sizes & 0x8F or sizes >> 4 < 4:
        return _MALFORMED
    checksum_at = at + 6 + (8 if flags & 8 else 0)
    if checksum_at >= end:
        return _MALFORMED
    if magic > 0 and load8(buf, checksum_at) != (xxh32(buf, at + 4, checksum_at) >> 8) & 0xFF:
        return _MALFORMED
    return checksum_at + 1, 1 << (2 * (sizes >> 4) + 8), flags


def block(buf: Buffer, at: int, end: int, largest: int, flags: int) -> tuple[int, int, int, int]:
    """Block at ``at``: (next or BAD, first byte, bytes, 1 if stored); no bytes is the end mark."""
    if end - at < 4:
        return BAD, at, 0, 0
    word = u32_little_at(buf, at)
    size, stored = word & 0x7FFFFFFF, word >> 31
    source = at + 4
    if size == 0:
        return (source, source, 0, 0) if not flags & 4 or end - source >= 4 else (BAD, at, 0, 0)
    checksum = 4 if flags & 16 else 0
    if size > largest or size + checksum > end - source:
        return BAD, at, 0, 0
    if checksum and xxh32(buf, source, source + size) != u32_little_at(buf, source + size):
        return BAD, source + size, 0, 0
    return source + size + checksum, source, size, stored
