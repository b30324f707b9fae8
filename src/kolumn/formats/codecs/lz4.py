"""The lz4 frame, as Kafka's ``Lz4BlockInputStream`` reads it. All integers are little-endian.

    u32  magic 0x184D2204            04 22 4D 18
    u8   FLG    bits 7-6 version 1 | 5 independent blocks | 4 block checksums | 3 content size | 2 content checksum
                | 1 reserved | 0 dictionary id                         Java writes 60
    u8   BD     bit 7 reserved | 6-4 maximal block size, 4..7 = 64 KiB, 256 KiB, 1 MiB, 4 MiB | 3-0 reserved
    u64  content size, if flagged
    u8   header checksum: bits 15-8 of xxh32(FLG .. content size)      Java writes 60 40 82
    blocks: u32 length (bit 31: stored), bytes, u32 xxh32 of these bytes if flagged
    u32  0, the end mark; u32 content checksum if flagged

In a wrapper of format 0 the header checksum covers the frame's magic too (KAFKA-3160: 60 40 1A), so it is compared only from magic 1
on. The content size is ignored. The content checksum has to be there but is not compared (other clients compare it; `kolumn.verify`
makes a remark). Bytes after the first end mark are ignored (other clients read a second frame there). A missing end mark is an error;
so are linked blocks and dictionaries, which the lz4 library itself accepts.

xxHash32 with seed 0, the checksum of lz4 frames: four lanes of 32 bits, each of which takes every fourth little-endian word.
"""

from kolumn.formats.codecs import END, LZ4_BLOCK, STORED, flaws
from kolumn.formats.memory import Buffer, load8, u32_little_at

PRIME_1, PRIME_2, PRIME_3, PRIME_4, PRIME_5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
MASK = 0xFFFFFFFF


def rotated(word: int, by: int) -> int:
    """``word`` (32 bits, unsigned) rotated left."""
    return ((word << by) | (word >> (32 - by))) & MASK


def mixed(lane: int, word: int) -> int:
    """A lane after one more word."""
    return (rotated((lane + word * PRIME_2) & MASK, 13) * PRIME_1) & MASK


def xxh32(buf: Buffer, at: int, end: int) -> int:
    """XxHash32 of bytes [at, end), seed 0, unsigned."""
    size = end - at
    if size >= 16:
        a, b, c, d = (PRIME_1 + PRIME_2) & MASK, PRIME_2, 0, (-PRIME_1) & MASK
        while at + 16 <= end:
            a, b = mixed(a, u32_little_at(buf, at)), mixed(b, u32_little_at(buf, at + 4))
            c, d = mixed(c, u32_little_at(buf, at + 8)), mixed(d, u32_little_at(buf, at + 12))
            at += 16
        digest = rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18)
    else:
        digest = PRIME_5
    digest = (digest + size) & MASK
    while at + 4 <= end:
        digest = (rotated((digest + u32_little_at(buf, at) * PRIME_3) & MASK, 17) * PRIME_4) & MASK
        at += 4
    while at < end:
        digest = (rotated((digest + load8(buf, at) * PRIME_5) & MASK, 11) * PRIME_1) & MASK
        at += 1
    digest = ((digest ^ (digest >> 15)) * PRIME_2) & MASK
    digest = ((digest ^ (digest >> 13)) * PRIME_3) & MASK
    return digest ^ (digest >> 16)


FRAME_MAGIC = 0x184D2204
FLAGS_AT = 4
BLOCK_CHECKSUMS, CONTENT_SIZE, CONTENT_CHECKSUM = 0x10, 0x08, 0x04
STORED_BIT = 0x80000000
MOST_PER_BYTE = 255
"""Most bytes that one byte of a compressed block can decompress to."""
SLACK = 64
"""Extra bytes of a block's bound, so that the decoder's rules for the end of its target apply only if Java's do."""


def header(buf: Buffer, at: int, end: int, magic: int) -> tuple[int, int, int]:
    """Frame header at ``at``, in an entry of format ``magic``. Returns the flaw and the next position, as for every codec, and a
    state: FLG in bits 0-7, the maximal block size in the bits above."""
    if end - at < 7:
        return flaws.CUT, end, 0
    if u32_little_at(buf, at) != FRAME_MAGIC:
        return flaws.MAGIC, at, 0
    first = at + 4
    flags, descriptor = load8(buf, first), load8(buf, first + 1)
    if flags & 0x01:
        return flaws.DICTIONARY, first, 0
    if flags & 0x02:
        return flaws.RESERVED, first, 0
    if flags & 0x20 == 0:
        return flaws.LINKED, first, 0
    if flags >> 6 != 1:
        return flaws.VERSION, first, 0
    if descriptor & 0x8F:
        return flaws.RESERVED, first + 1, 0
    if descriptor >> 4 < 4:
        return flaws.BLOCK_MAXIMUM, first + 1, 0
    check = first + 2 + (8 if flags & CONTENT_SIZE else 0)
    if check >= end:
        return flaws.CUT, end, 0
    if magic > 0 and load8(buf, check) != (xxh32(buf, first, check) >> 8) & 0xFF:
        return flaws.HEADER_CHECKSUM, check, 0
    return 0, check + 1, flags | (1 << (2 * (descriptor >> 4) + 8)) << 8


def block(buf: Buffer, at: int, end: int, state: int) -> tuple[int, int, int, int, int, int]:
    """Block whose length is at ``at``; kind `END` at the end mark."""
    flags, maximum = state & 0xFF, state >> 8
    if end - at < 4:
        return flaws.CUT, end, 0, 0, 0, END
    word, source = u32_little_at(buf, at), at + 4
    size = word & 0x7FFFFFFF
    if size == 0:
        stop = source + (4 if flags & CONTENT_CHECKSUM else 0)
        return (flaws.CUT if stop > end else 0), min(stop, end), 0, 0, 0, END
    if size > maximum:
        return flaws.BLOCK_LENGTH, at, 0, 0, 0, END
    stop = source + size
    following = stop + (4 if flags & BLOCK_CHECKSUMS else 0)
    if following > end:
        return flaws.CUT, end, 0, 0, 0, END
    if flags & BLOCK_CHECKSUMS and u32_little_at(buf, stop) != xxh32(buf, source, stop):
        return flaws.BLOCK_CHECKSUM, stop, 0, 0, 0, END
    if word & STORED_BIT:
        return 0, following, source, stop, size, STORED
    return 0, following, source, stop, min(maximum, MOST_PER_BYTE * size + SLACK), LZ4_BLOCK


def content_fits(buf: Buffer, stop: int, state: int, out: Buffer, size: int) -> bool:
    """Whether the content checksum that ends at ``stop``, if the frame has one, is that of the ``size`` bytes at ``out``."""
    return state & CONTENT_CHECKSUM == 0 or u32_little_at(buf, stop - 4) == xxh32(out, 0, size)
