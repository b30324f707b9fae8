"""Compresses payloads as snappy blocks in xerial's framing, without a call of Python for each.

No package exports snappy's C functions, so the compressor is our own. It looks for repetitions as libsnappy does, and so finds the same
ones: a table has the last position of each hash of four bytes. Where nothing repeats it takes larger and larger steps.

A raw block is its size before compression as a varint, and then elements:

    length - 1 << 2 | 0                     that many bytes follow; 60 and 61 instead of the length: it is in the next 1 or 2 bytes
    length - 4 << 2 | 1 | high << 5, low    copy of 4 to 11 bytes from less than 2,048 bytes before
    length - 1 << 2 | 2, u16                copy of 1 to 64 bytes
"""

from kolumn.codecs.snappy import HEADER_SIZE, MAGIC_HEAD, MAGIC_TAIL
from kolumn.cpu_fallback.machine.address import (
    copy32,
    copy_padded,
    load8,
    load16,
    load32,
    load64,
    select,
    store8,
    store16,
    store32,
    store64,
    trailing_zeros,
)
from kolumn.cpu_fallback.machine.arrays import Int64s
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import memory
from kolumn.machine_code.deferred import register_jitable

BLOCK = 32 << 10
"""Bytes of a block before compression, as in ``SnappyOutputStream``. Positions in it have 16 bits."""
BITS = 14
"""Of a hash at most; the table has 16 bits for each."""

_BLOCK, _BITS, _HEADER, _HEAD, _TAIL = BLOCK, BITS, HEADER_SIZE, MAGIC_HEAD, MAGIC_TAIL
_FEWEST_BITS = 8
_SMALLEST = 16
"""A block with fewer bytes is not searched for repetitions."""
_LAST = 15
"""Bytes at the end of a block in which no repetition begins: eight bytes are loaded at once, from one byte after a position on."""


def most_xerial(size: Int64s) -> Int64s:
    """Most bytes that payloads of some sizes become.

    A literal element of more than 60 bytes costs one byte more than the copy after it saves; no shorter one does. A block has one literal
    element without a copy after it, and its size in front.
    """
    return HEADER_SIZE + size + size // 60 + 16 * (size // BLOCK + 1)


@compiled
def xerial(source: Int64s, size: Int64s, gap: Int64s, table: int, target: int, made: Int64s) -> int:
    """Write payloads in blocks, each with its compressed size in front (``SnappyOutputStream``).

    Parameters
    ----------
    source, size : int64 arrays of n
        Addresses and sizes of the payloads, with padding.
    gap : int64 array of n
        Bytes that are left free before each.
    table : int
        Address of room for 1 << `BITS` numbers of 16 bits.
    target : int
        Address for the first gap. Memory for all gaps and for `most_xerial` bytes of each payload, and padding.
    made : int64 array of n
        Out: compressed sizes.

    Returns
    -------
    int
        Bytes from ``target`` on.
    """
    to = target
    for b in range(source.shape[0]):
        to += gap[b]
        start = to
        memory.put32(0, to, _HEAD)
        memory.put32(0, to + 4, _TAIL)
        memory.put32(0, to + 8, 1)
        memory.put32(0, to + 12, 1)
        to += _HEADER
        done = 0
        while done < size[b]:
            plain = min(size[b] - done, _BLOCK)
            end = _put_block(source[b] + done, plain, to + 4, table)
            memory.put32(0, to, end - to - 4)
            to = end
            done += plain
        made[b] = to - start
    return to - target


@register_jitable
def _put_block(source: int, size: int, to: int, table: int) -> int:
    """Write a raw block; returns the address after it."""
    left = size
    while left >= 0x80:
        store8(to, left & 0x7F | 0x80)
        to += 1
        left >>= 7
    store8(to, left)
    to += 1
    stop = source + size
    pending = source
    if size >= _SMALLEST:
        bits = _FEWEST_BITS
        while bits < _BITS and (1 << bits) < size:
            bits += 1
        for at in range(table, table + (2 << bits), 32):
            store64(at, 0)
            store64(at + 8, 0)
            store64(at + 16, 0)
            store64(at + 24, 0)
        to, pending = _put_copies(source, stop, to, table, 32 - bits)
    return to if pending == stop else _put_literals(pending, stop - pending, to)


@register_jitable
def _put_copies(source: int, stop: int, to: int, table: int, shift: int) -> tuple[int, int]:
    """Write all elements up to the last copy; returns the address after them, and that of the first byte that is left over.

    A slot that was not written names the first byte, which is as good a guess as any: what it names is always compared.
    """
    limit = stop - _LAST
    pending, at = source, source + 1
    while at <= limit:
        # The step is the number of bytes that were looked at in vain, a thirty-second of it.
        word, found, tried = load64(at), source, 32
        while True:
            slot = table + 2 * _hash(word, shift)
            found = source + load16(slot)
            store16(slot, at - source)
            if load32(found) == word & 0xFFFFFFFF:
                break
            at += tried >> 5
            tried += tried >> 5
            if at > limit:
                return to, pending
            word = load64(at)
        to = _put_literals(pending, at - pending, to)
        while True:
            length = 4 + _same(at + 4, found + 4, stop)
            to = _put_copy(at - found, length, to)
            at += length
            pending = at
            if at > limit:
                return to, pending
            word = load64(at - 1)
            store16(table + 2 * _hash(word, shift), at - 1 - source)
            slot = table + 2 * _hash(word >> 8, shift)
            found = source + load16(slot)
            store16(slot, at - source)
            if load32(found) != (word >> 8) & 0xFFFFFFFF:
                break
        at += 1
    return to, pending


@register_jitable(forceinline=True)
def _hash(word: int, shift: int) -> int:
    """Of the low four bytes of a word."""
    return (((word & 0xFFFFFFFF) * 0x1E35A7BD) & 0xFFFFFFFF) >> shift


@register_jitable(forceinline=True)
def _same(at: int, found: int, stop: int) -> int:
    """How many bytes from ``at`` up to ``stop`` are those at ``found``."""
    start = at
    while at + 8 <= stop:
        unlike = load64(at) ^ load64(found)
        if unlike != 0:
            return at - start + (trailing_zeros(unlike) >> 3)
        at += 8
        found += 8
    while at < stop and load8(at) == load8(found):
        at += 1
        found += 1
    return at - start


@register_jitable(forceinline=True)
def _put_literals(source: int, length: int, to: int) -> int:
    """Write a literal element of at least one byte; returns the address after it."""
    count = length - 1
    if count < 60:
        store8(to, count << 2)
        to += 1
    elif count < 256:
        store32(to, 60 << 2 | count << 8)
        to += 2
    else:
        store32(to, 61 << 2 | count << 8)
        to += 3
    # Most have no more than one step.
    copy32(to, source)
    if length > 32:
        copy_padded(to + 32, source + 32, length - 32)
    return to + length


@register_jitable(forceinline=True)
def _put_copy(offset: int, length: int, to: int) -> int:
    """Write copy elements for at least four bytes, none of them for fewer; returns the address after them."""
    while length >= 68:
        store32(to, 63 << 2 | 2 | offset << 8)
        to += 3
        length -= 64
    if length > 64:
        store32(to, 59 << 2 | 2 | offset << 8)
        to += 3
        length -= 60
    short = length < 12 and offset < 2048
    near = 1 | length - 4 << 2 | offset >> 8 << 5 | (offset & 0xFF) << 8
    store32(to, select(short, near, 2 | length - 1 << 2 | offset << 8))
    return to + select(short, 2, 3)
