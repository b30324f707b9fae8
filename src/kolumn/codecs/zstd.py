"""Zstandard frames (RFC 8878) as Kafka reads them (zstd-jni's ``ZstdInputStream``): any number, skippable ones between.

    28 B5 2F FD | descriptor | [window] | [dictionary id] | [content size] | blocks … | [checksum u32]        little-endian
    block  u24: bit 0 last · bits 1-2 raw, RLE, compressed · bits 3-23 size

Java and librdkafka write no content size. Then the blocks bound it: raw and RLE blocks say theirs, a compressed one gives at most
128 KiB and no more than the window. Bytes behind the last frame that begin none are an error.
"""

from kolumn.formats.memory import Buffer, load8, u32_little_at

FRAME_MAGIC = 0xFD2FB528
SKIPPABLE = 0x184D2A50
LARGEST_BLOCK = 1 << 17
BAD = -1

_MALFORMED = (BAD, 0, 0)


def frame(buf: Buffer, at: int, end: int) -> tuple[int, int, int]:
    """Frame at ``at``: (next or BAD, most bytes it inflates to, 1 if there is something to inflate)."""
    if end - at < 8:
        return _MALFORMED
    word = u32_little_at(buf, at)
    if word & 0xFFFFFFF0 == SKIPPABLE:
        size = u32_little_at(buf, at + 4)
        return (at + 8 + size, 0, 0) if size <= end - at - 8 else _MALFORMED
    if word != FRAME_MAGIC:
        return _MALFORMED
    descriptor = load8(buf, at + 4)
    single, dictionary = (descriptor >> 5) & 1, descriptor & 3
    size_bytes = (single, 2, 4, 8)[descriptor >> 6]
    at += 5
    if dictionary or end - at < (1 - single) + size_bytes:
        return _MALFORMED
    window = LARGEST_BLOCK
    if not single:
        exponent = load8(buf, at)
        base = 1 << (10 + (exponent >> 3))
        window = base + (base >> 3) * (exponent & 7)
        at += 1
    content = 0
    for i in range(size_bytes):
        content |= load8(buf, at + i) << (8 * i)
    if size_bytes == 2:
        content += 256
    if content < 0:
        return _MALFORMED
    if single:
        window = content
    following, bound = _blocks(buf, at + size_bytes, end, min(window, LARGEST_BLOCK))
    if following < 0 or end - following < (descriptor & 4):
        return _MALFORMED
    if size_bytes:
        if content > bound:
            return _MALFORMED
        bound = content
    return following + (descriptor & 4), bound, 1


def _blocks(buf: Buffer, at: int, end: int, largest: int) -> tuple[int, int]:
    """Walk the blocks of a frame: (next or BAD, most bytes they inflate to)."""
    bound = 0
    while end - at >= 3:
        word = load8(buf, at) | (load8(buf, at + 1) << 8) | (load8(buf, at + 2) << 16)
        last, kind, size = word & 1, (word >> 1) & 3, word >> 3
        at += 3
        stored = 1 if kind == 1 else size
        if kind == 3 or stored > end - at:
            return BAD, 0
        bound += largest if kind == 2 else size
        at += stored
        if last:
            return at, bound
    return BAD, 0
