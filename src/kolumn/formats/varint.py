"""Zig-zag LEB128 integers, with the exact tolerance of Kafka's ``org.apache.kafka.common.utils.ByteUtils``.

    byte   1 g g g g g g g   low seven bits first; bit 7 set: more follow
    value  (raw >>> 1) ^ -(raw & 1)

A 32-bit varint has at most five bytes and a 64-bit one at most ten; a set bit 7 in the last of those is an error.
Bits of the last byte that do not fit are dropped, and overlong encodings are accepted. (aiokafka reads every field
as 64 bits and so accepts longer ones for 32-bit fields; Java's rule is followed here.)
The drafts have unsigned varints too: `uvarint32` reads the same bytes without the zig-zag.
"""

from kolumn.formats.memory import Buffer, load8, store8

MALFORMED = -1
"""Returned instead of the next position if the varint is too long or runs past its end."""


def varint32(buf: Buffer, at: int, end: int) -> tuple[int, int]:
    """Value of the zig-zag varint at ``at``, -2**31 .. 2**31 - 1, and the position after it; 0 and `MALFORMED`."""
    raw, shift = 0, 0
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
    """A raw varint of one or two bytes at ``at``. There is no check of an end, so two bytes must be readable.

    Returns ``raw``: not decoded from zig-zag. 0 .. 2**14 - 1, if there is no third byte.
    ``next``: position after the bytes that were read.
    ``last``: the second byte, or 0 if there is only one. If it is 0x80 or more, the varint has a third byte, and ``raw`` is not its
        value.
    """
    raw = load8(buf, at)
    if raw < 0x80:
        return raw, at + 1, 0
    last = load8(buf, at + 1)
    return (raw & 0x7F) | (last << 7), at + 2, last


def varint64(buf: Buffer, at: int, end: int) -> tuple[int, int]:
    """Zig-zag varint of up to ten bytes at ``at``; results as `varint32`, but 64 bits wide."""
    raw, shift = 0, 0
    # There are two loops because compilers unroll loops of five steps, and few deltas have more bytes.
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
        # Of the tenth byte only the lowest bit is used, as bit 63.
        raw |= (byte & (0x7F if shift < 63 else 0x01)) << shift
        if byte < 0x80:
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), at
        shift += 7
    return 0, MALFORMED


def zigzag(value: int) -> int:
    """Zig-zag form of an int64, which is small for values near 0. Never negative in Python; machine words have the same 64 bits."""
    return (value << 1) ^ (value >> 63)


def varint_size(value: int) -> int:
    """Bytes of the shortest varint of an int64. A value that fits 32 bits has the size of Java's 32-bit varint."""
    raw, size = zigzag(value), 1
    while raw & ~0x7F:
        raw = (raw >> 7) & 0x01FFFFFFFFFFFFFF
        size += 1
    return size


def put_varint(buf: Buffer, at: int, value: int) -> int:
    """Write the shortest varint of an int64 at ``at``; returns the position after it."""
    raw = zigzag(value)
    while raw & ~0x7F:
        store8(buf, at, (raw & 0x7F) | 0x80)
        raw = (raw >> 7) & 0x01FFFFFFFFFFFFFF
        at += 1
    store8(buf, at, raw)
    return at + 1


def uvarint32(buf: Buffer, at: int, end: int) -> tuple[int, int]:
    """Unsigned varint of up to five bytes at ``at``; results as `varint32`, with values from 0 to 2**31 - 1. Larger ones are malformed."""
    raw, shift = 0, 0
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
    """Write the shortest unsigned varint of a value from 0 to 2**31 - 1; returns the position after it."""
    while value > 0x7F:
        store8(buf, at, (value & 0x7F) | 0x80)
        value >>= 7
        at += 1
    store8(buf, at, value)
    return at + 1
