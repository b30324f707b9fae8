"""Snappy in its two framings, as snappy-java's ``SnappyInputStream`` reads them.

    xerial (Java, kafka-python, aiokafka, sarama):
        8 bytes  82 53 4E 41 50 50 59 00
        i32      version, i32 least compatible version: big-endian, not checked (Redpanda wrote them little-endian)
        chunks:  i32 length, big-endian, 1 .. 512 MiB; one raw block
    raw (librdkafka, franz-go): one raw block, without a header

A payload of fewer than 16 bytes, or with another magic, is one raw block. If a chunk's length is 82 53 4E 41, another header is
between two chunks, whose version has to be 1 or more. One to three bytes after the last chunk are ignored. (If such an inner header
has the length word but not the rest of the magic, snappy-java continues or stops, depending on how many bytes its caller requests at
a time; it is an error here.)

A raw block begins with its decompressed size: a varint of at most five bytes, 32 bits.
"""

from kolumn.formats.codecs import END, SNAPPY_BLOCK
from kolumn.formats.codecs.flaws import BLOCK_LENGTH, CUT, EMPTY, INNER_HEADER, PREAMBLE
from kolumn.formats.memory import Buffer, i32_at, load8, u32_at

MAGIC_HEAD, MAGIC_TAIL = 0x82534E41, 0x50505900
HEADER_SIZE, MOST_IN_CHUNK = 16, 512 << 20
RAW, XERIAL, DONE = 0, 1, 2


def header(buf: Buffer, at: int, end: int, magic: int) -> tuple[int, int, int]:
    """Framing of the payload at ``at``: ``state`` is `XERIAL` or `RAW`."""
    if at >= end:
        return EMPTY, at, 0
    if end - at >= HEADER_SIZE and u32_at(buf, at) == MAGIC_HEAD and u32_at(buf, at + 4) == MAGIC_TAIL:
        return 0, at + HEADER_SIZE, XERIAL
    return 0, at, RAW


def block(buf: Buffer, at: int, end: int, state: int) -> tuple[int, int, int, int, int, int]:
    """Chunk whose length is at ``at``, or the raw block at ``at``; ``bound`` is its exact decompressed size."""
    if state == RAW:
        if at >= end:
            return 0, end, 0, 0, 0, END
        source, stop = at, end
    else:
        while end - at >= 4 and u32_at(buf, at) == MAGIC_HEAD:
            if end - at < HEADER_SIZE or u32_at(buf, at + 4) != MAGIC_TAIL or i32_at(buf, at + 8) < 1:
                return INNER_HEADER, at, 0, 0, 0, END
            at += HEADER_SIZE
        if end - at < 4:
            return 0, end, 0, 0, 0, END
        size = i32_at(buf, at)
        if size <= 0 or size > MOST_IN_CHUNK:
            return BLOCK_LENGTH, at, 0, 0, 0, END
        source = at + 4
        stop = source + size
        if stop > end:
            return CUT, end, 0, 0, 0, END
    flaw, inflated = inflated_size(buf, source, stop)
    if flaw != 0:
        return flaw, source, 0, 0, 0, END
    return 0, stop, source, stop, inflated, SNAPPY_BLOCK


def inflated_size(buf: Buffer, at: int, end: int) -> tuple[int, int]:
    """Decompressed size in the preamble of the raw block [at, end); a flaw if its elements cannot produce so many bytes. The densest
    element is a copy of three bytes that produces 64."""
    size, shift = 0, 0
    while at < end and shift < 35:
        byte = load8(buf, at)
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (PREAMBLE, 0) if size > 0xFFFFFFFF or 3 * size > 64 * (end - at) else (0, size)
        shift += 7
    return PREAMBLE, 0
