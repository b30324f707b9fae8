"""Snappy as Kafka reads it (snappy-java's ``SnappyInputStream``): xerial chunks, or one raw block.

    82 53 4E 41 50 50 59 00 | i32 version | i32 compatible | chunks: i32 length | raw block …        big-endian

Fewer than 16 bytes, or another beginning, is one raw block (librdkafka and franz-go write that). Version and compatible version are
not looked at in the first header (Redpanda wrote them little-endian); a length word of 82534E41 is a concatenated header, whose
version must be 1 or more. Fewer than four bytes behind a chunk end the stream.
"""

from kolumn.formats.memory import Buffer, i32_at, load8, u32_at

HEADER = 16
LARGEST_CHUNK = 512 << 20
LARGEST_RATIO = 64
BAD = -1
END = -2


def is_xerial(buf: Buffer, at: int, end: int) -> bool:
    """Whether the payload has xerial's header."""
    return end - at >= HEADER and u32_at(buf, at) == 0x82534E41 and u32_at(buf, at + 4) == 0x50505900


def chunk(buf: Buffer, at: int, end: int) -> tuple[int, int, int]:
    """Chunk at ``at`` behind the header: (next, first byte, bytes); END or BAD in place of next."""
    while end - at >= 4:
        size = i32_at(buf, at)
        if u32_at(buf, at) == 0x82534E41:
            if end - at < HEADER or i32_at(buf, at + 8) < 1:
                return BAD, at, 0
            at += HEADER
            continue
        if size <= 0 or size > LARGEST_CHUNK or size > end - at - 4:
            return BAD, at, 0
        return at + 4 + size, at + 4, size
    return END, at, 0


def inflated_size(buf: Buffer, at: int, end: int) -> int:
    """Size that the raw block at ``at`` inflates to, from its preamble (a varint of up to 32 bits); BAD without one."""
    size = 0
    shift = 0
    while at < end and shift < 35:
        byte = load8(buf, at)
        if shift == 28 and byte > 15:
            return BAD
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
        at += 1
        shift += 7
    return BAD
