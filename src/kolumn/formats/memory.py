"""How the scalar functions read and write bytes: two primitives, and functions that are built on them.

In plain Python ``buf`` is a NumPy uint8 array, a ``bytes`` object, or the integer address of the first byte. In compiled code it is
always the address: `kolumn.formats.words` replaces `load8` by a load instruction, and `store8` by a store. Bounds are not
checked here: the caller compares every position with its end before it uses a byte.

All arithmetic is int64, written so that Python's unbounded integers and wrapping machine words return the same result.
"""

from ctypes import c_uint8
from typing import Any

Buffer = Any


def load8(buf: Buffer, at: int) -> int:
    """Byte at position ``at`` as 0..255. The formats read bytes only by this function."""
    return c_uint8.from_address(buf + at).value if isinstance(buf, int) else int(buf[at])


def store8(buf: Buffer, at: int, value: int) -> None:
    """Set the byte at position ``at`` to the low eight bits of ``value``. The formats write bytes only by this function."""
    if isinstance(buf, int):
        c_uint8.from_address(buf + at).value = value & 0xFF
    else:
        buf[at] = value & 0xFF


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
    """Unsigned little-endian 32-bit integer (lz4, zstd and gzip framings, Redpanda's headers)."""
    return load8(buf, at) | (load8(buf, at + 1) << 8) | (load8(buf, at + 2) << 16) | (load8(buf, at + 3) << 24)


def i16_little_at(buf: Buffer, at: int) -> int:
    """Signed little-endian 16-bit integer."""
    return load8(buf, at) | (i8_at(buf, at + 1) << 8)


def i32_little_at(buf: Buffer, at: int) -> int:
    """Signed little-endian 32-bit integer."""
    return load8(buf, at) | (load8(buf, at + 1) << 8) | (load8(buf, at + 2) << 16) | (i8_at(buf, at + 3) << 24)


def i64_little_at(buf: Buffer, at: int) -> int:
    """Signed little-endian 64-bit integer."""
    return u32_little_at(buf, at) | (i32_little_at(buf, at + 4) << 32)


def put16(buf: Buffer, at: int, value: int) -> None:
    """Write a big-endian 16-bit integer."""
    store8(buf, at, value >> 8)
    store8(buf, at + 1, value)


def put32(buf: Buffer, at: int, value: int) -> None:
    """Write a big-endian 32-bit integer."""
    put16(buf, at, value >> 16)
    put16(buf, at + 2, value)


def put64(buf: Buffer, at: int, value: int) -> None:
    """Write a big-endian 64-bit integer."""
    put32(buf, at, value >> 32)
    put32(buf, at + 4, value)


def put16_little(buf: Buffer, at: int, value: int) -> None:
    """Write a little-endian 16-bit integer."""
    store8(buf, at, value)
    store8(buf, at + 1, value >> 8)


def put32_little(buf: Buffer, at: int, value: int) -> None:
    """Write a little-endian 32-bit integer."""
    put16_little(buf, at, value)
    put16_little(buf, at + 2, value >> 16)


def put64_little(buf: Buffer, at: int, value: int) -> None:
    """Write a little-endian 64-bit integer."""
    put32_little(buf, at, value)
    put32_little(buf, at + 4, value >> 32)
