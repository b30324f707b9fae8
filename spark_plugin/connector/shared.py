"""Memory that the JVM maps: batches are decoded into it, and cross as a description of their buffers.

Blocks are memfds. They have no names, so nothing is left of them when this process ends, and the limit of /dev/shm does not apply. The
JVM opens them as /proc/PID/fd/N and maps them read-only. It says when nothing refers to a batch any more, and only then is its memory used
again: consumers such as RAPIDS may hold a batch for longer than until they ask for the next.
"""

import mmap
import os
import struct
import weakref
from itertools import count

import numpy as np
import pyarrow as pa

from kolumn.core import recycle
from kolumn.core.arrays import Bytes

_SMALL = 1 << 20
_ARENA = 1 << 24
"""Blocks of less than `_SMALL` bytes share one of `_ARENA` bytes, since a process may not open many files."""
_SMALLEST = 1 << 12
_CONSTANTS = 64
"""Buffers that all batches of a read share, as names of topics, are copied once; so many are remembered."""
_MOST = 1 << 28
"""Bytes of blocks from which on those that wait to be used again are given back: a few small buffers could keep many arenas."""
_UNIT = 64

Location = tuple[int, int, int]
"""Number of a block, first byte in it, and bytes."""


class SharedBlocks:
    """The blocks of this process, and the batches in them that the JVM refers to."""

    def __init__(self) -> None:
        self._numbers, self._batches = count(), count()
        self._blocks: dict[int, tuple[int, int, int]] = {}
        """Address, size and descriptor of each block."""
        self._announced: list[Announced] = []
        self._described = self.announced()
        self._held: dict[int, list[object]] = {}
        self._arena: Bytes | None = None
        self._arena_used = 0
        self._constants: dict[tuple[int, int], tuple[Location, Bytes, pa.Buffer]] = {}
        self._bytes, self._most = 0, _MOST
        self.peak = 0
        """The most bytes that all blocks have had."""

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def size(self) -> int:
        """Bytes of all blocks."""
        return self._bytes

    def use(self) -> None:
        """Let all columns be decoded into such memory."""
        recycle.allocate_by(self.new, _SMALLEST)

    def use_for_uploads(self) -> None:
        """Let what goes to a GPU be read into such memory: the JVM locks its pages. Each worker of an executor has room for two chunks."""
        recycle.lock_by(self.new)
        recycle.share_locked(recycle.MOST_LOCKED // (2 * recycle.LARGEST_LOCKED))

    def new(self, size: int) -> Bytes:
        """Memory for so many bytes; it goes when nothing refers to it."""
        if size >= _SMALL:
            return self._block(size)
        size = -(-max(size, 1) // _UNIT) * _UNIT
        if self._arena is None or self._arena_used + size > len(self._arena):
            self._arena, self._arena_used = self._block(_ARENA), 0
        self._arena_used += size
        return self._arena[self._arena_used - size : self._arena_used]

    def _give_back(self) -> None:
        """Let all blocks go that no batch is in. If batches need so many, twice as many are allowed: blocks are still used again."""
        self._arena = None
        self._constants.clear()
        recycle.give_back()
        self._most = max(_MOST, 2 * self._bytes)

    def _block(self, size: int) -> Bytes:
        if self._bytes + size > self._most:
            self._give_back()
        descriptor = os.memfd_create("kolumn", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            array = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
        except BaseException:
            os.close(descriptor)
            raise
        number = next(self._numbers)
        self._blocks[number] = (array.ctypes.data, size, descriptor)
        self._bytes += size
        self.peak = max(self.peak, self._bytes)
        weakref.finalize(array, self._drop, number)
        return array

    def _drop(self, number: int) -> None:
        _, size, descriptor = self._blocks.pop(number)
        os.close(descriptor)
        self._bytes -= size
        for announced in self._announced:
            announced.drop(number)

    def announced(self) -> "Announced":
        """A new record of the blocks that the JVM is told."""
        self._announced.append(Announced())
        return self._announced[-1]

    def descriptor(self, block: int) -> tuple[int, int]:
        """Descriptor and size of a block."""
        _, size, descriptor = self._blocks[block]
        return descriptor, size

    def release(self, batches: tuple[int, ...]) -> None:
        """Forget batches that nothing in the JVM refers to any more."""
        for number in batches:
            self._held.pop(number, None)

    @property
    def held(self) -> int:
        """How many batches the JVM refers to."""
        return len(self._held)

    def describe(self, batch: pa.RecordBatch, constant: frozenset[str]) -> bytes:
        """A batch as numbers: blocks that were dropped, blocks that are new, nodes and buffers in Arrow's order.

        No array of it begins within its buffers (`from_start`). All batches share the buffers of the ``constant`` columns, mostly.
        """
        keep: list[object] = [batch]
        nodes: list[int] = []
        locations: list[Location] = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            _add_nodes(column, nodes)
            for buffer in column.buffers():
                locations.append((-1, 0, 0) if buffer is None or not buffer.size else self._locate(buffer, keep, name in constant))
        # Only blocks that this batch refers to are announced: others might be gone before the JVM opens them.
        dropped, new = self._described.now({block for block, _, _ in locations} - {-1})
        number = next(self._batches) & 0x7FFFFFFF
        self._held[number] = keep
        text = [struct.pack(f">i{len(dropped)}ii", len(dropped), *dropped, len(new))]
        text += [struct.pack(">iiq", block, *self.descriptor(block)) for block in new]
        text.append(struct.pack(f">iii{len(nodes)}q", number, batch.num_rows, len(nodes) // 2, *nodes))
        text.append(struct.pack(">i" + "iqq" * len(locations), len(locations), *(part for location in locations for part in location)))
        return b"".join(text)

    def _locate(self, buffer: pa.Buffer, keep: list[object], constant: bool) -> Location:
        """Where a buffer lies. One that is elsewhere is copied, one that all batches share only once."""
        location = self.find(buffer.address, buffer.size)
        if location is not None:
            return location
        key = (buffer.address, buffer.size)
        if constant and key in self._constants:
            location, array, _ = self._constants[key]
            # The batch holds it too: the bounded memory of constants may forget it while the batch is on its way.
            keep.append(array)
            return location
        if constant:
            array = self.new(buffer.size)
            keep.append(array)
        else:
            owner, view = recycle.take(max(buffer.size, _SMALLEST))
            keep.append(owner)
            array = np.frombuffer(view, np.uint8)
        array[: buffer.size] = np.frombuffer(buffer, np.uint8)
        location = self.find(array.ctypes.data, buffer.size)
        assert location is not None
        if constant:
            if len(self._constants) >= _CONSTANTS:
                self._constants.clear()
            # The buffer is held so that nothing else gets its address.
            self._constants[key] = location, array, buffer
        return location

    def find(self, address: int, size: int) -> Location | None:
        """Where some bytes of this process lie, if they are in a block."""
        # A block may go meanwhile, when garbage is collected.
        for number, (start, length, _) in list(self._blocks.items()):
            if start <= address and address + size <= start + length:
                return number, address - start, size
        return None


class Announced:
    """Blocks that the JVM has opened."""

    def __init__(self) -> None:
        self._told: set[int] = set()
        self._dropped: list[int] = []

    def now(self, needed: set[int]) -> tuple[list[int], list[int]]:
        """Blocks that are gone since the last call, and those that it needs and has not opened: by this it is told of both."""
        dropped, self._dropped = self._dropped, []
        new = sorted(needed - self._told)
        self._told.update(new)
        return dropped, new

    def drop(self, block: int) -> None:
        """A block is gone."""
        if block in self._told:
            self._told.remove(block)
            self._dropped.append(block)


def probe(secret: bytes) -> int:
    """Descriptor of a block with a secret, by which the JVM finds out whether it can map this process's blocks; -1 without memfds."""
    try:
        descriptor = os.memfd_create("kolumn", os.MFD_CLOEXEC)
        os.write(descriptor, secret)
    except (AttributeError, OSError):
        return -1
    return descriptor


def can_describe(schema: pa.Schema) -> bool:
    """Whether `SharedBlocks.describe` knows all types of a schema; other batches go through the pipe."""
    return all(_is_known(field.type) for field in schema)


def _is_known(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_):
        return type_.num_fields > 0 and all(_is_known(field.type) for field in type_)
    if pa.types.is_map(type_):
        return _is_known(type_.key_type) and _is_known(type_.item_type)
    if pa.types.is_list(type_):
        return _is_known(type_.value_type)
    return not pa.types.is_null(type_) and not pa.types.is_nested(type_) and not pa.types.is_dictionary(type_)


def _children(array: pa.Array) -> list[pa.Array]:
    if pa.types.is_list(array.type) or pa.types.is_map(array.type):
        return [array.values]
    if pa.types.is_struct(array.type):
        return [array.field(i) for i in range(array.type.num_fields)]
    return []


def _add_nodes(array: pa.Array, nodes: list[int]) -> None:
    """Length and number of nulls of an array and of those in it, in the order of Arrow's IPC."""
    nodes += (len(array), array.null_count)
    for child in _children(array):
        _add_nodes(child, nodes)


def from_start(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with no array that begins within its buffers, at any level; copies it if there is one."""
    if not any(_begins_within(column) for column in batch.columns):
        return batch
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def _begins_within(array: pa.Array) -> bool:
    return array.offset != 0 or any(_begins_within(child) for child in _children(array))
