"""Zig-zag LEB128 integers, with the exact tolerance of Kafka's ``org.apache.kafka.common.utils.ByteUtils``.

    byte   1 g g g g g g g   low seven bits first; bit 7 set: more follow
    value  (raw >>> 1) ^ -(raw & 1)

A 32-bit varint has at most five bytes and a 64-bit one at most ten; a set bit 7 in the last of those is an error.
Bits of the last byte that do not fit are dropped, and overlong encodings are accepted. (aiokafka reads every field
as 64 bits and so accepts longer ones for 32-bit fields; Java's rule is followed here.)
The drafts have unsigned ones too: `uvarint32`, the same bytes without the zig-zag.
"""

from kolumn.formats.memory import Buffer, load8, store8

MALFORMED = -1
"""Returned in place of the next position: the varint is too long or runs past its end."""


def varint32(buf: Buffer, at: int, end: int) -> tuple[int, int]:
    """Zig-zag varint of up to five bytes at ``at``.

    Returns
    -------
    value : int
        -2**31 .. 2**31 - 1.
    next : int
        Position behind the varint, or `MALFORMED` (then ``value`` is 0).
    """
    raw = 0
    shift = 0
    while at < end and shift < 35:
        byte = load8(buf, at)
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, MALFORMED


def short_varint(buf: Buffer, at: int) -> tuple[int, int, int]:
    """A varint of one or two bytes at ``at``, raw; there is no bound, so two bytes must be readable.

    Returns
    -------
    raw : int
        Zig-zag still: 0 .. 2**14 - 1.
    next : int
        Position behind it.
    last : int
        The second byte, 0 where the first is the last. From 0x80 on there is a third one, and ``raw`` is not the varint's.
    """
    raw = load8(buf, at)
    if raw < 0x80:
        return raw, at + 1, 0
    last = load8(buf, at + 1)
    return (raw & 0x7F) | (last << 7), at + 2, last


def varint64(buf: Buffer, at: int, end: int) -> tuple[int, int]:
    """Zig-zag varint of up to ten bytes at ``at``; results as `varint32`, but 64 bits wide."""
    raw = 0
    shift = 0
    # Two loops, because compilers unroll those of five steps, and few deltas have more bytes.
    while at < end and shift < 35:
        byte = load8(buf, at)
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    while at < end and shift < 70:
        byte = load8(buf, at)
        at += 1
        # The tenth byte gives bit 63 alone.
        raw |= (byte & (0x7F if shift < 63 else 0x01)) << shift
        if byte < 0x80:
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), at
        shift += 7
    return 0, MALFORMED


def zigzag(value: int) -> int:
    """The 64 bits of a zig-zag varint: small for values near 0. With Python's integers unsigned, in machine words the same bits."""
    return (value << 1) ^ (value >> 63)


def varint_size(value: int) -> int:
    """Bytes of the shortest varint of an int64; of one that fits 32 bits the same as Java's 32-bit varint."""
    raw = zigzag(value)
    size = 1
    while raw & ~0x7F:
        raw = (raw >> 7) & 0x01FFFFFFFFFFFFFF
        size += 1
    return size


def put_varint(buf: Buffer, at: int, value: int) -> int:
    """Write the shortest varint of an int64 at ``at``; returns the position behind it."""
    raw = zigzag(value)
    while raw & ~0x7F:
        store8(buf, at, (raw & 0x7F) | 0x80)
        raw = (raw >> 7) & 0x01FFFFFFFFFFFFFF
        at += 1
    store8(buf, at, raw)
    return at + 1


def uvarint32(buf: Buffer, at: int, end: int) -> tuple[int, int]:
    """Unsigned varint of up to five bytes at ``at``; results as `varint32`, the value from 0 to 2**31 - 1: more is malformed."""
    raw = 0
    shift = 0
    while at < end and shift < 35:
        byte = load8(buf, at)
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw, at) if raw <= 0x7FFFFFFF else (0, MALFORMED)
        shift += 7
    return 0, MALFORMED


def uvarint_size(value: int) -> int:
    """Bytes of the shortest unsigned varint of a value from 0 to 2**31 - 1."""
    size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


def put_uvarint(buf: Buffer, at: int, value: int) -> int:
    """Write the shortest unsigned varint of a value from 0 to 2**31 - 1; returns the position behind it."""
    while value > 0x7F:
        store8(buf, at, (value & 0x7F) | 0x80)
        value >>= 7
        at += 1
    store8(buf, at, value)
    return at + 1
