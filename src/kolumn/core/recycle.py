"""Blocks of memory that are reused: fresh pages cost more time than the writes into them.

`take` returns an Arrow buffer, `take_array` a NumPy array. When these, every slice of them and every array over them are freed, their
memory is reused by the next call of about that size. `take_locked` returns page-locked memory, which is copied to a GPU at full speed. The
number of bytes kept for reuse is bounded; for page-locked memory, so is the number of bytes in use. `allocate_by` says where new blocks of
`take` come from.
"""

import ctypes
import mmap
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import AnyArray, Bytes

SMALLEST = 1 << 17
LARGEST = 1 << 25
"""Sizes in bytes between which blocks are kept for reuse; smaller ones come from Arrow's memory pool, and larger ones from malloc."""
KEPT = 128 << 20  # maximum total bytes that are kept for reuse
HUGE = 64 << 20  # A block of this many bytes or more is for a batch of that size. What waits is freed first: it would add to the peak.
LARGEST_LOCKED = 160 << 20  # the largest page-locked block, bytes: a chunk for a GPU
MOST_LOCKED = 2 << 30
"""Maximum page-locked bytes of all processes that share a GPU, in use and kept: the system cannot use them for anything else. Beyond this,
ordinary memory is returned."""
KEPT_LOCKED = 1 << 30
"""Page-locked bytes of a process that are kept when none are in use: to lock 64 MiB takes 25 ms, in which a GPU decodes a gigabyte."""
INTO_PAGE = 256
"""Where blocks begin, in bytes after the start of a page.

Linux copies from the page cache with ``rep movsb``, which takes two to four times as long on AMD's Zen 3 if the target is a few bytes
further into a page than the source: 1 to 31 bytes on EPYC, others report 0 to 15 (apache/opendal #3665). A file begins where a page does,
and large blocks of malloc 16 bytes after it.
"""
_LOOKED_AT = 16  # sizes whose blocks may have to go for one that comes


class _Block(NamedTuple):
    """A uint8 array and its address, kept because asking NumPy for the address is slow."""

    array: Any
    address: int


class _Waiting:
    """Blocks that are not in use, by size class (sixteenths of a power of two); ``most`` bytes of them are kept."""

    def __init__(self, most: int) -> None:
        self.most, self.bytes = most, 0
        self.blocks = OrderedDict[int, deque[_Block]]()  # in the order in which sizes were asked for last

    def take(self, size: int, step: int) -> _Block | None:
        """A block of ``size`` bytes or a few ``step`` more, if one waits; sizes are size classes."""
        for larger in range(size, size + 4 * step, step):
            try:
                block = self.blocks[larger].pop()
            except (KeyError, IndexError):
                continue
            self.bytes -= larger
            self.blocks.move_to_end(larger)
            return block
        self.blocks.setdefault(size, deque())
        self.blocks.move_to_end(size)
        return None

    def give(self, block: _Block) -> None:
        """Keep a block for reuse, or free it if enough bytes are kept, and none of a size that nobody has asked for since."""
        size = len(block.array)
        if self.bytes + size > self.most:
            self._make_room(size)
        if self.bytes + size <= self.most:
            self.bytes += size
            self.blocks.setdefault(size, deque()).append(block)

    def _make_room(self, size: int) -> None:
        """Free blocks of the sizes that were asked for before this size was, those that nobody uses any longer first. Only a few sizes are
        looked at, since each block comes here once enough bytes are kept. Those without blocks go to the end, so the next block comes to
        others."""
        for _ in range(_LOOKED_AT):
            try:
                other = next(iter(self.blocks))
            except (StopIteration, RuntimeError):
                # Another thread asked for a block.
                return
            if other == size:
                return
            with suppress(IndexError):
                while self.bytes + size > self.most:
                    self.blocks[other].popleft()
                    self.bytes -= other
                return
            self.blocks.move_to_end(other)

    def clear(self) -> None:
        """Let all blocks go. Other threads may take and give meanwhile, so each is counted by itself."""
        for size, blocks in list(self.blocks.items()):
            with suppress(IndexError):
                while True:
                    blocks.pop()
                    self.bytes -= size


class _Locked:
    """Page-locked blocks."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.new: Callable[[int], Bytes] | None = None
        self.processes = 1
        self.waiting = _Waiting(MOST_LOCKED)
        self.used: dict[int, int] = {}  # sizes of the blocks in use, by address

    @property
    def bytes(self) -> int:
        return self.waiting.bytes + sum(self.used.values())

    def take(self, size: int) -> _Block | None:
        size, step = _class_of(size)
        with self.lock:
            block = self.waiting.take(size, step)
            if block is None and self.new is not None:
                most = MOST_LOCKED // self.processes
                if self.bytes + size > most:
                    self.waiting.clear()
                if self.bytes + size <= most:
                    with suppress(MemoryError):
                        array = self.new(size)
                        block = _Block(array, array.ctypes.data)
            if block is not None:
                self.used[block.address] = len(block.array)
            return block

    def give(self, block: _Block) -> None:
        with self.lock:
            del self.used[block.address]
            self.waiting.give(block)
            if not self.used:
                # Large blocks first.
                for size in sorted(self.waiting.blocks, reverse=True):
                    while self.waiting.blocks[size] and self.waiting.bytes > KEPT_LOCKED:
                        self.waiting.blocks[size].pop()
                        self.waiting.bytes -= size


_waiting = _Waiting(KEPT)
_locked = _Locked()


def _fresh(size: int) -> Bytes:
    """Memory that begins `INTO_PAGE` bytes into a page."""
    array = np.empty(size + mmap.PAGESIZE, np.uint8)
    start = (INTO_PAGE - array.ctypes.data) % mmap.PAGESIZE
    return array[start : start + size]


class _Ordinary(NamedTuple):
    """Where blocks of `take` come from, and the size in bytes from which on they are blocks."""

    new: Callable[[int], Bytes] = _fresh
    smallest: int = SMALLEST


_ordinary = _Ordinary()


def allocate_by(new: Callable[[int], Bytes] | None, smallest: int = SMALLEST) -> None:
    """Let `take` allocate with ``new`` what has ``smallest`` bytes or more; None is ordinary memory. Blocks kept for reuse are freed. For a
    process whose buffers another one maps: what is decoded into such blocks need not be copied to hand it over."""
    global _ordinary
    _ordinary = _Ordinary() if new is None else _Ordinary(new, smallest)
    _waiting.clear()


def give_back() -> None:
    _waiting.clear()


def lock_by(new: Callable[[int], Bytes] | None) -> None:
    """Let `take_locked` allocate with ``new``, which raises MemoryError if there is no memory; blocks kept for reuse are freed."""
    with _locked.lock:
        _locked.new = new
        _locked.waiting.clear()


def share_locked(processes: int) -> None:
    """Say that so many processes share the machine's GPU: each may lock its part of `MOST_LOCKED`."""
    _locked.processes = processes


def locked_bytes() -> int:
    """Page-locked bytes, in use and kept for reuse."""
    with _locked.lock:
        return _locked.bytes


class _Lease:
    """Owner of a block for as long as an Arrow buffer refers to it."""

    def __init__(self, block: _Block, give: Callable[[_Block], None]) -> None:
        self.block, self.give = block, give

    def __del__(self) -> None:
        self.give(self.block)


def _class_of(size: int) -> tuple[int, int]:
    """Size class of a size, and the distance to the next one."""
    step = (1 << (size - 1).bit_length()) // 16
    return (size + step - 1) // step * step, step


def take(size: int) -> tuple[pa.Buffer, memoryview]:
    """Uninitialised memory for ``size`` bytes: an Arrow buffer, and a writable view that is valid as long as the buffer."""
    if size > LARGEST:
        if size >= HUGE:
            _waiting.clear()
            # Of blocks up to 32 MiB malloc keeps what is not at the end of its heap.
            with suppress(AttributeError):
                ctypes.CDLL(None).malloc_trim(0)
        # Allocated by malloc, which returns such blocks to the system when they are freed; Arrow's pool would keep their addresses.
        array = _ordinary.new(size)
        return pa.foreign_buffer(array.ctypes.data, size, array), array.data
    if size < _ordinary.smallest:
        buffer = pa.allocate_buffer(size)
        return buffer, memoryview(buffer).cast("B")
    block = _block(size)
    return pa.foreign_buffer(block.address, size, _Lease(block, _waiting.give)), memoryview(block.array)[:size]


def memory(size: int) -> pa.Buffer:
    """As `take`, but without a view: for what compiled code writes."""
    if size < _ordinary.smallest:
        return pa.allocate_buffer(size)
    if size > LARGEST:
        return take(size)[0]
    block = _block(size)
    return pa.foreign_buffer(block.address, size, _Lease(block, _waiting.give))


def _block(size: int) -> _Block:
    size_class, step = _class_of(size)
    block = _waiting.take(size_class, step)
    if block is None:
        array = _ordinary.new(size_class)
        block = _Block(array, array.ctypes.data)
    return block


class _Memory:
    """Memory of `take` for NumPy: its arrays keep this object alive, and with it the memory."""

    def __init__(self, count: int, dtype: np.dtype[np.generic]) -> None:
        self._block, _ = take(max(count * dtype.itemsize, 1))
        self.__array_interface__ = {"version": 3, "shape": (count,), "typestr": dtype.str, "data": (self._block.address, False)}


def take_array(count: int, dtype: type[np.generic]) -> AnyArray:
    """An uninitialised array over memory of `take`, which is used again when no array and no buffer over it is left."""
    return np.asarray(_Memory(count, np.dtype(dtype)))


def take_locked(size: int) -> tuple[pa.Buffer, memoryview]:
    """The same, page-locked if there is a GPU and if that much may be; nobody should keep it, so it is for what is on its way."""
    block = _locked.take(max(size, SMALLEST)) if size <= LARGEST_LOCKED else None
    if block is None:
        return take(size)
    return pa.foreign_buffer(block.address, size, _Lease(block, _locked.give)), memoryview(block.array)[:size]
