"""Decompresses payloads in compiled code, so that a batch stays in the cache: snappy here, the others by `libraries`.

What is here accepts a subset of the payloads that the libraries accept, with the same result. For other payloads they give up, and
the package decompresses or rejects them (`arena`). They write at most to their stop, look back at most to their target, and copy in
whole steps: source and target need `PAD` bytes after their ends.

A snappy block consists of elements of a few bytes whose kind cannot be predicted. What limits its speed is how long it takes from one
element to know where the next one begins. So two usual elements, literals and a copy, are decoded at once without a branch on
their kinds, and the tag after them is loaded from both positions where it can be, before it is known which one it is.
"""

import numpy as np

from kolumn.core.deferred import register_jitable
from kolumn.cpu_fallback.inflate import blocks  # noqa: F401 (the framings as compiled functions first)
from kolumn.cpu_fallback.inflate.libraries import AVAIL_IN, AVAIL_OUT, NEXT_IN, NEXT_OUT, Decoder, Decoders
from kolumn.cpu_fallback.machine import address
from kolumn.cpu_fallback.machine.address import copy16, copy32, copy_padded, load8, load32, load64, store8, store32, store64
from kolumn.formats import crc
from kolumn.formats.codecs import END, GZIP, LZ4, SNAPPY, STORED, ZSTD, gzip, lz4, snappy, zstd
from kolumn.formats.memory import u32_little_at

GIVEN_UP = -1
"""Returned instead of a size if the payload is malformed, unusual, or does not fit."""
WRONG_CONTENT = -2
"""Returned if an lz4 frame's content checksum is compared and wrong."""

_LAST_TAG = 8
"""Bytes from a tag to the end of a block, so that all that is read at once for what is usual is within the padding."""


@register_jitable
def unpack(codec: int, buf: int, end: int, magic: int, target: int, stop: int, libraries: Decoders) -> int:
    """Decompress a payload of a batch with this codec and ``magic``.

    ``buf`` is the address of its ``end`` bytes; ``target`` and ``stop`` are the addresses of the first byte of the output and of the byte
    after the room for it. Returns the number of decompressed bytes, `GIVEN_UP` or `WRONG_CONTENT`.
    """
    if codec == ZSTD:
        return _zstd_frames(libraries.zstd, buf, end, target, stop)
    if codec == GZIP:
        return _gzip_members(libraries.deflate, buf, end, target, stop)
    if codec == LZ4:
        flaw, at, state = lz4.header(buf, 0, end, magic)
    else:
        flaw, at, state = snappy.header(buf, 0, end, magic)
    to = target
    while flaw == 0:
        if codec == LZ4:
            flaw, at, first, last, bound, kind = lz4.block(buf, at, end, state)
        else:
            flaw, at, first, last, bound, kind = snappy.block(buf, at, end, state)
        if flaw != 0:
            break
        if kind == END:
            if codec == LZ4 and libraries.contents != 0 and not lz4.content_fits(buf, at, state, target, to - target):
                return WRONG_CONTENT
            return to - target
        if to + bound > stop:
            return GIVEN_UP
        if kind == STORED:
            copy_padded(to, buf + first, bound)
            size = bound
        elif codec == LZ4:
            # The function returns an int, which is negative for a malformed block; the upper half of the word is undefined.
            size = address.call(libraries.lz4.function, (buf + first, to, last - first, bound)) & 0xFFFFFFFF
            if size > bound:
                return GIVEN_UP
        else:
            size = snappy_block(buf + first, buf + last, to, to + bound)
        if size == GIVEN_UP:
            return GIVEN_UP
        to += size
        if codec == SNAPPY and state == snappy.RAW:
            return to - target
    return GIVEN_UP


@register_jitable
def _gzip_members(library: Decoder, buf: int, end: int, target: int, stop: int) -> int:
    """Decompress the members of a payload, each by one call."""
    flaw, at, _ = gzip.header(buf, 0, end, 0)
    # Most payloads end with their size, so one that does not fit is usually found before it is decompressed.
    if flaw == 0 and u32_little_at(buf, end - 4) > stop - target:
        return GIVEN_UP
    to = target
    while flaw == 0:
        store64(library.state + NEXT_IN, buf + at)
        store32(library.state + AVAIL_IN, end - at)
        store64(library.state + NEXT_OUT, to)
        store32(library.state + AVAIL_OUT, stop - to)
        # The function returns an int, so the upper half of the word is undefined.
        if address.call(library.function, (library.state,)) & 0xFFFFFFFF != 0:
            return GIVEN_UP
        at = load64(library.state + NEXT_IN) - buf
        size = load64(library.state + NEXT_OUT) - to
        flaw, at = gzip.following(buf, at, end, crc.crc32(to, 0, size), size)
        to += size
        if flaw == 0 and at == end:
            return to - target
    return GIVEN_UP


@register_jitable
def _zstd_frames(library: Decoder, buf: int, end: int, target: int, stop: int) -> int:
    """Decompress the frames of a payload, each by one call. This gives up at a frame that could decompress to more than its window.
    ``ZSTD_decompressDCtx`` looks back into the whole target, and Java's stream into the window, so for such a frame the one could accept an
    offset that the other rejects."""
    at, to = 0, target
    while True:
        flaw, at, first, last, bound, kind = zstd.block(buf, at, end, 0)
        if flaw != 0:
            return GIVEN_UP
        if kind == END:
            return to - target
        _, _, window, _ = zstd.frame_header(buf, first, last)
        if bound > window:
            return GIVEN_UP
        size = address.call(library.function, (library.state, to, min(bound, stop - to), buf + first, last - first))
        # The function returns a size_t, whose largest values are errors; as an int64 they are negative.
        if size < 0:
            return GIVEN_UP
        to += size


def _tags() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the tag of a copy tells: its length; which of the next 16 bits are of its offset; its length less the offset's other bits. A tag
    of any other kind gets a difference that no offset makes up for, so it is found by the comparison that finds overlaps."""
    length, mask, less = np.zeros(256, np.uint8), np.zeros(256, np.uint16), np.full(256, 1 << 20, np.int32)
    for six in range(64):
        short, long = six << 2 | 1, six << 2 | 2
        length[short], mask[short], less[short] = 4 + (six & 7), 0xFF, 4 + (six & 7) - ((six >> 3) << 8)
        length[long], mask[long], less[long] = six + 1, 0xFFFF, six + 1
    return length, mask, less


_LENGTH, _MASK, _LESS = _tags()


@register_jitable
def snappy_block(at: int, end: int, target: int, stop: int) -> int:
    """Decompress the raw snappy block at addresses [at, end) to exactly [target, stop); returns the number of bytes, or `GIVEN_UP`."""
    while load8(at) >= 0x80:
        at += 1
    at += 1
    to = target
    last = end - _LAST_TAG
    tag = load8(at)
    while at <= last:
        # kind 0: literals, length 6 bits | 1: copy, length 3 bits, offset 3 + 8 bits | 2: copy, length 6 bits, offset 16 bits
        six, no_literals = tag >> 2, tag & 3 != 0
        after = at + 2 + six
        copy = address.select(no_literals, at, after)
        literals = address.select(no_literals, 0, six + 1)
        word = load32(copy)
        tag = address.select(word & 2 != 0, address.load8_early(copy + 3), address.load8_early(copy + 2))
        kind = word & 0xFF
        length = _LENGTH[kind]
        apart = ((word >> 8) & _MASK[kind]) - _LESS[kind]
        middle = to + literals
        source = middle - apart - length
        following = copy + 1 + (word & 3)
        past = middle + length
        if literals > 60 or apart < 0 or source < target or following > last or past > stop:
            if literals <= 60 and apart < 0 < apart + length and source >= target and following <= last and past <= stop:
                copy_padded(to, at + 1, literals)
                _repeat(middle, apart + length, length)
                at, to = following, past
                continue
            at, to = _snappy_element(at, end, to, target, stop)
            if at == GIVEN_UP:
                return GIVEN_UP
            tag = load8(at)
            continue
        copy32(to, at + 1)
        if literals > 32:
            copy32(to + 32, at + 33)
        copy32(middle, source)
        if length > 32:
            copy32(middle + 32, source + 32)
        at, to = following, past
    while at < end:
        at, to = _snappy_element(at, end, to, target, stop)
        if at == GIVEN_UP:
            return GIVEN_UP
    return to - target if at == end and to == stop else GIVEN_UP


@register_jitable
def _snappy_element(at: int, end: int, to: int, target: int, stop: int) -> tuple[int, int]:
    """Decompress one element of any kind with all checks: the addresses of the next element and of its output, or `GIVEN_UP` and ``to``."""
    word = load64(at)
    kind, six = word & 3, (word & 0xFF) >> 2
    if kind == 0:
        at += 1
        length = six + 1
        if six >= 60:
            length = ((word >> 8) & ((1 << (8 * (six - 59))) - 1)) + 1
            at += six - 59
        if length > end - at or length > stop - to:
            return GIVEN_UP, to
        copy_padded(to, at, length)
        return at + length, to + length
    if kind == 1:
        length, offset, size = 4 + (six & 7), (six >> 3) << 8 | (word >> 8) & 0xFF, 2
    elif kind == 2:
        length, offset, size = six + 1, (word >> 8) & 0xFFFF, 3
    else:
        length, offset, size = six + 1, (word >> 8) & 0xFFFFFFFF, 5
    if size > end - at or offset == 0 or offset > to - target or length > stop - to:
        return GIVEN_UP, to
    _repeat(to, offset, length)
    return at + size, to + length


@register_jitable
def _repeat(target: int, offset: int, length: int) -> None:
    """Copy ``length`` bytes from ``offset`` bytes before ``target``; the two ranges may overlap."""
    if offset >= 32 or offset >= length:
        copy_padded(target, target - offset, length)
        return
    # After some single bytes the pattern has been repeated over 16 bytes or more, so that whole steps can be copied.
    back = offset
    while back < 16:
        back += offset
    done = 0
    while done < back - offset and done < length:
        store8(target + done, load8(target + done - offset))
        done += 1
    while done < length:
        copy16(target + done, target + done - back)
        done += 16
