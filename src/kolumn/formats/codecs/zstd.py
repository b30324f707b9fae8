"""Zstandard frames (RFC 8878), as zstd-jni's ``ZstdInputStream`` reads them. All integers are little-endian.

    u32  magic 0xFD2FB528            28 B5 2F FD
    u8   descriptor   bits 7-6 size of the content size | 5 single segment | 4 unused | 3 reserved
                      | 2 content checksum | 1-0 size of the dictionary id
    u8   window, unless single segment: 2^(10 + bits 7-3) * (1 + bits 2-0 / 8)
    0, 1, 2 or 4 bytes of dictionary id; 0, 1, 2, 4 or 8 bytes of content size (one of two bytes counts from 256)
    blocks: u24  bit 0 last | 2-1 type: 0 raw, 1 one byte repeated, 2 compressed | 23-3 size
    u32  content checksum, if flagged (the library compares it)

    skippable frame: u32 0x184D2A50 .. 5F, u32 size, bytes

Java and librdkafka write no content size; kafka-python, aiokafka and franz-go write one. A payload has any number of frames; an empty
payload is an empty stream. A dictionary id other than 0 is an error, and so is a window above 128 MiB.

Two rules are stricter here than in zstd-jni, which accepts some malformed streams: a frame that is cut short is an error even if
another one ended shortly before it, and a content size has to be right even if the last block is empty.
"""

from kolumn.formats.codecs import END, ZSTD_FRAME
from kolumn.formats.codecs.flaws import BLOCK_LENGTH, BLOCK_TYPE, CONTENT_SIZE, CUT, DICTIONARY, MAGIC, RESERVED, WINDOW
from kolumn.formats.memory import Buffer, load8, u32_little_at

FRAME_MAGIC, SKIPPABLE_MAGIC = 0xFD2FB528, 0x184D2A50
MOST_IN_BLOCK, MOST_IN_WINDOW, UNKNOWN = 128 << 10, 128 << 20, -1
RAW, REPEATED, COMPRESSED = 0, 1, 2


def header(buf: Buffer, at: int, end: int, magic: int) -> tuple[int, int, int]:
    """Position of the first frame; there is no header before it."""
    return 0, at, 0


def block(buf: Buffer, at: int, end: int, state: int) -> tuple[int, int, int, int, int, int]:
    """Frame at ``at``, after skippable ones; ``bound`` is its content size, or if it has none, the most bytes that its blocks can hold."""
    while end - at >= 8 and u32_little_at(buf, at) & 0xFFFFFFF0 == SKIPPABLE_MAGIC:
        size = u32_little_at(buf, at + 4)
        if size > end - at - 8:
            return CUT, end, 0, 0, 0, END
        at += 8 + size
    if at >= end:
        return 0, end, 0, 0, 0, END
    flaw, following, window, content = frame_header(buf, at, end)
    if flaw != 0:
        return flaw, following, 0, 0, 0, END
    flaw, stop, bound = frame_blocks(buf, following, end, min(window, MOST_IN_BLOCK))
    if flaw != 0:
        return flaw, stop, 0, 0, 0, END
    if load8(buf, at + 4) & 0x04:
        stop += 4
        if stop > end:
            return CUT, end, 0, 0, 0, END
    if content > bound:
        return CONTENT_SIZE, at, 0, 0, 0, END
    return 0, stop, at, stop, (content if content >= 0 else bound), ZSTD_FRAME


def frame_header(buf: Buffer, at: int, end: int) -> tuple[int, int, int, int]:
    """Frame header at ``at``: flaw, next, window in bytes, content size or `UNKNOWN`."""
    if end - at < 5:
        # Like libzstd, compare fewer than four bytes with the beginning of the magic.
        for k in range(min(4, end - at)):
            if load8(buf, at + k) != (FRAME_MAGIC >> (8 * k)) & 0xFF:
                return MAGIC, at, 0, 0
        return CUT, end, 0, 0
    if u32_little_at(buf, at) != FRAME_MAGIC:
        return MAGIC, at, 0, 0
    descriptor = load8(buf, at + 4)
    single = (descriptor >> 5) & 1
    size_bytes = (single, 2, 4, 8)[descriptor >> 6]
    id_bytes = (0, 1, 2, 4)[descriptor & 3]
    place = at + 5 + (1 - single)
    if end - place < id_bytes + size_bytes:
        return CUT, end, 0, 0
    if descriptor & 0x08:
        return RESERVED, at + 4, 0, 0
    if little_at(buf, place, id_bytes) != 0:
        return DICTIONARY, place, 0, 0
    place += id_bytes
    content = UNKNOWN
    if size_bytes > 0:
        # An int64 holds 63 bits. A larger size becomes the largest int64, which is above every limit.
        content = little_at(buf, place, size_bytes) & 0x7FFFFFFFFFFFFFFF
        content += 256 if size_bytes == 2 else 0
        if size_bytes == 8 and load8(buf, place + 7) & 0x80:
            content = 0x7FFFFFFFFFFFFFFF
    window = content
    if single == 0:
        exponent = load8(buf, at + 5)
        window = (1 << (10 + (exponent >> 3))) + (1 << (7 + (exponent >> 3))) * (exponent & 7)
    if window > MOST_IN_WINDOW:
        return WINDOW, at + 5, 0, 0
    return 0, place + size_bytes, window, content


def frame_blocks(buf: Buffer, at: int, end: int, maximum: int) -> tuple[int, int, int]:
    """Walk the blocks of a frame: flaw, position after the last one, the most bytes that they can decompress to."""
    bound = 0
    while True:
        if end - at < 3:
            return CUT, end, 0
        word = load8(buf, at) | (load8(buf, at + 1) << 8) | (load8(buf, at + 2) << 16)
        kind, size = (word >> 1) & 3, word >> 3
        if kind > COMPRESSED:
            return BLOCK_TYPE, at, 0
        if size > maximum:
            return BLOCK_LENGTH, at, 0
        following = at + 3 + (1 if kind == REPEATED else size)
        if following > end:
            return CUT, end, 0
        bound += maximum if kind == COMPRESSED else size
        at = following
        if word & 1:
            return 0, at, bound


def little_at(buf: Buffer, at: int, size: int) -> int:
    """Little-endian integer of ``size`` bytes. With eight bytes compiled code wraps to a negative int64, so the caller masks the result."""
    value = 0
    for k in range(size):
        value |= load8(buf, at + k) << (8 * k)
    return value
