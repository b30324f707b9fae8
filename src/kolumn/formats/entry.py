"""The prefix that entries of all formats have in common: where an entry ends and which format it has.

    0        8      12       16      17
    +--------+------+--------+-------+----
    | offset | size | format | magic | ...        size counts the bytes after itself, so an entry has 12 + size
    +--------+------+--------+-------+----

Source: ``FileLogInputStream.nextBatch``, ``Records`` and ``LegacyRecord`` of Kafka.
"""

from kolumn.core.errors import Code
from kolumn.formats.memory import Buffer, i32_at, load8

PREFIX = 17
SIZE_AT = 8
MAGIC_AT = 16
OVERHEAD = 12
SMALLEST = 14

_LEAST_OFFSET, _LARGEST_OFFSET = -(1 << 63), (1 << 63) - 1
_OK = int(Code.OK)
_TRUNCATED = int(Code.TRUNCATED)
_ZERO_TAIL = int(Code.ZERO_TAIL)
_BAD_LENGTH = int(Code.BAD_LENGTH)


def entry(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Frame the entry at ``pos`` of a segment whose bytes end at ``end``; touches 12 bytes.

    Returns
    -------
    code : int
        OK; TRUNCATED if the bytes end before the entry does (Java's clean end: up to 17 left-over bytes, or a size that
        runs past the end); ZERO_TAIL if the size is 0 (preallocation, if the rest is zeros too); BAD_LENGTH if it is below 14.
    size : int
        Bytes of the whole entry if the code is OK or TRUNCATED, else 0. With up to 17 left-over bytes, their number.
    """
    left = end - pos
    if left <= PREFIX:
        return _TRUNCATED, left
    size = i32_at(buf, pos + SIZE_AT)
    if size == 0:
        return _ZERO_TAIL, 0
    if size < SMALLEST:
        return _BAD_LENGTH, 0
    if size > left - OVERHEAD:
        return _TRUNCATED, size + OVERHEAD
    return _OK, size + OVERHEAD


def magic_at(buf: Buffer, pos: int) -> int:
    """Magic of the entry at ``pos``, 0..255. Java reads it as a signed byte; neither reading finds a shipped magic above 2."""
    return load8(buf, pos + MAGIC_AT)


def holds_offset(base: int, delta: int) -> bool:
    """Whether ``base + delta`` fits 64 bits. If it does not, the sum wraps in Java's readers, and the last offset is below the first."""
    return delta <= _LARGEST_OFFSET - base if base >= 0 else delta >= _LEAST_OFFSET - base
