"""Blocks of memory that are reused: fresh pages cost more time than the writes into them.

`take` returns an Arrow buffer. When the buffer, every slice of it and every array over it are freed, its memory is reused by the next
call of about that size. The number of bytes kept for reuse is bounded.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

SMALLEST = 1 << 17
LARGEST = 1 << 25
"""Sizes in bytes between which blocks are kept for reuse; smaller ones come from Arrow's memory pool, and larger ones from malloc."""
KEPT = 128 << 20
"""Maximum total bytes that are kept for reuse."""


class _Block(NamedTuple):
    """A uint8 array and its address, kept because asking NumPy for the address is slow."""

    array: Any
    address: int


class _Waiting:
    """Blocks that are not in use, by size class (sixteenths of a power of two)."""

    def __init__(self) -> None:
        self.bytes = 0
        self.blocks: dict[int, deque[_Block]] = {}
        self.new: Callable[[int], Any] = lambda size: np.empty(size, np.uint8)

    def take(self, size: int, step: int) -> _Block:
        """A block of ``size`` bytes or a few ``step`` more; sizes are size classes."""
        for larger in range(size, size + 4 * step, step):
            try:
                block = self.blocks[larger].pop()
            except (KeyError, IndexError):
                continue
            self.bytes -= larger
            return block
        array = self.new(size)
        return _Block(array, array.ctypes.data)

    def give(self, block: _Block) -> None:
        """Keep a block for reuse, or free it if enough bytes are kept."""
        size = len(block.array)
        if self.bytes + size <= KEPT:
            self.bytes += size
            self.blocks.setdefault(size, deque()).append(block)


_waiting = _Waiting()


def allocate_by(new: Callable[[int], Any]) -> None:
    """Allocate new blocks with another function, for example page-locked memory for copies to a GPU. Unused blocks are freed."""
    _waiting.new = new
    _waiting.blocks.clear()
    _waiting.bytes = 0


class _Lease:
    """Owner of a block for as long as an Arrow buffer refers to it."""

    def __init__(self, block: _Block) -> None:
        self.block = block

    def __del__(self) -> None:
        _waiting.give(self.block)


def take(size: int) -> tuple[pa.Buffer, memoryview]:
    """Uninitialised memory for ``size`` bytes: an Arrow buffer, and a writable view that is valid as long as the buffer."""
    if size > LARGEST:
        # Allocated by malloc, which returns such blocks to the system when they are freed; Arrow's pool would keep their addresses.
        array = np.empty(size, np.uint8)
        return pa.foreign_buffer(array.ctypes.data, size, array), array.data
    if size < SMALLEST:
        buffer = pa.allocate_buffer(size)
        return buffer, memoryview(buffer).cast("B")
    step = (1 << (size - 1).bit_length()) // 16
    block = _waiting.take((size + step - 1) // step * step, step)
    return pa.foreign_buffer(block.address, size, _Lease(block)), memoryview(block.array)[:size]
