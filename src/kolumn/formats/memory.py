"""How the scalar functions reach bytes: one primitive, and what is built on it.

``buf`` is whatever the backend calls a buffer. In plain Python it is a NumPy uint8 array or a ``bytes`` object;
under the compilers it is the integer address of the first byte (``cpu_fallback/compile.py`` replaces `load8` by a
load instruction). Nothing here checks bounds: the caller compares every position with its end before it trusts a byte.

All arithmetic is int64 in a form that gives the same result with Python's unbounded integers and with wrapping
machine words.
"""

from typing import Any

Buffer = Any


def load8(buf: Buffer, at: int) -> int:
    """Byte at position ``at`` as 0..255; the only memory access of the formats."""
    return int(buf[at])


def i8_at(buf: Buffer, at: int) -> int:
    """Signed byte."""
    return (load8(buf, at) ^ 0x80) - 0x80


def i16_at(buf: Buffer, at: int) -> int:
    """Signed big-endian 16-bit integer."""
    return (i8_at(buf, at) << 8) | load8(buf, at + 1)


def i32_at(buf: Buffer, at: int) -> int:
    """Signed big-endian 32-bit integer."""
    return (i8_at(buf, at) << 24) | (load8(buf, at + 1) << 16) | (load8(buf, at + 2) << 8) | load8(buf, at + 3)


def u32_at(buf: Buffer, at: int) -> int:
    """Unsigned big-endian 32-bit integer."""
    return (load8(buf, at) << 24) | (load8(buf, at + 1) << 16) | (load8(buf, at + 2) << 8) | load8(buf, at + 3)


def i64_at(buf: Buffer, at: int) -> int:
    """Signed big-endian 64-bit integer."""
    return (i32_at(buf, at) << 32) | u32_at(buf, at + 4)


def u32_little_at(buf: Buffer, at: int) -> int:
    """Unsigned little-endian 32-bit integer (lz4, zstd and gzip framings)."""
    return load8(buf, at) | (load8(buf, at + 1) << 8) | (load8(buf, at + 2) << 16) | (load8(buf, at + 3) << 24)
