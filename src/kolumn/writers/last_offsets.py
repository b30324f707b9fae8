"""The last offset of each key: for a compaction, the state of a compacted topic, and the comparison of two."""

import os
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import AnyArray, Flags, Int64s
from kolumn.core.recycle import take_array
from kolumn.cpu_fallback.encode.key_map import AHEAD, LAST, START, WORDS, KeyMap, add_keys, find_keys, place_keys
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.writers.entries import payloads_of

_KEYS, _BYTES = 1 << 12, 1 << 16  # distinct keys, and bytes of them, that there is room for at first
_MANY = 1 << 20  # keys up to which there is then room for four times as many: less has to be done again
_LARGEST_TABLE = 1 << 30  # bytes of keys in one batch of `LatestOffsets.table`, whose offsets have 32 bits


class LatestOffsets:
    """Last offset of each key of the records that were added. Memory: the distinct keys and 32 to 64 bytes for each, of less than a million
    up to 128; twice while it grows. Offsets are unique, so a record is the last of its key if its offset is in the set of last offsets."""

    def __init__(self) -> None:
        self._seeds = [int.from_bytes(os.urandom(8), "little", signed=True) | 1 for _ in range(2)]
        self._used = np.zeros(2 + AHEAD, np.int64)
        self._keys, self._bytes, self._slots = np.zeros(WORDS, np.int64), np.empty(PAD, np.uint8), np.zeros(1, np.int64)
        self._offsets: Int64s | None = None
        self._marks: tuple[int, Flags] | None = None

    @classmethod
    def of(cls, offsets: Int64s) -> "LatestOffsets":
        made = cls()
        made._offsets = offsets
        return made

    @property
    def nbytes(self) -> int:
        """Memory that its keys take, at most about; there may be room for more of them."""
        return 64 * int(self._used[0]) + int(self._used[1])

    def add(self, keys: pa.Array, offsets: pa.Array) -> None:
        """Add records that are neither control records nor of aborted transactions; those without a key have no effect."""
        self._offsets = self._marks = None
        alive, each, row = list[Any](), np.ascontiguousarray(offsets.to_numpy(zero_copy_only=False)), 0
        column = payloads_of(keys, alive)
        while row < len(each):
            room = len(self._keys) // WORDS - 1, len(self._bytes) - PAD
            row = add_keys(self._map(), column, each.ctypes.data, row, len(each), *room, self._used)
            if row < len(each):
                self._grow(len(keys[row].as_buffer()))

    def _map(self) -> KeyMap:
        addresses = (array.ctypes.data for array in (self._keys, self._bytes))
        return KeyMap(self._slots.ctypes.data, len(self._slots).bit_length() - 1, *addresses, *self._seeds)

    def _grow(self, more: int) -> None:
        """Make room for more keys, and for a key of ``more`` bytes. Memory that was used before is written faster than fresh memory."""
        count, size = map(int, self._used[:2])
        if (count + 1) * WORDS == len(self._keys):
            keys = max((4 if count < _MANY else 2) * count, _KEYS)
            self._keys = _longer(self._keys, (keys + 1) * WORDS, np.int64)
            self._slots = take_array(2 * keys, np.int64)
            self._slots[:] = 0
            place_keys(self._map(), count)
        if size + more > len(self._bytes) - PAD:
            self._bytes = _longer(self._bytes[:size], max(2 * size, size + more, _BYTES) + PAD, np.uint8)

    def _column(self, word: int, count: int) -> Int64s:
        return self._keys[: count * WORDS].reshape(-1, WORDS)[:, word]

    def table(self) -> pa.Table:
        count = int(self._used[0])
        bounds, starts = [0], self._column(START, count + 1)
        while bounds[-1] < count:
            bounds.append(max(bounds[-1] + 1, int(np.searchsorted(starts, starts[bounds[-1]] + _LARGEST_TABLE, side="right")) - 1))
        parts = []
        for start, stop in pairwise(bounds):
            ends = starts[start : stop + 1]
            data, offsets = self._bytes[ends[0] : ends[-1]].tobytes(), (ends - ends[0]).astype(np.int32)
            parts.append(pa.Array.from_buffers(pa.binary(), stop - start, [None, pa.py_buffer(offsets), pa.py_buffer(data)]))
        return pa.table({"key": pa.chunked_array(parts, pa.binary()), "offset": pa.array(self._column(LAST, count))})

    def offsets(self) -> Int64s:
        if self._offsets is None:
            self._offsets = np.sort(self._column(LAST, int(self._used[0])))
        return self._offsets

    def last(self, keys: pa.Array) -> Int64s:
        """The last offset of each key, -1 for those that were not added and for nulls."""
        alive, offsets = list[Any](), np.empty(len(keys), np.int64)
        find_keys(self._map(), payloads_of(keys, alive), len(keys), offsets.ctypes.data)
        return offsets

    def known(self, keys: pa.Array) -> Flags:
        """Whether each key was added; false for nulls."""
        return self.last(keys) >= 0

    def is_latest(self, offset: Int64s) -> Flags:
        lowest, marks = self.marks()
        if not len(marks):
            known = self.offsets()
            if not len(known):
                return np.zeros(len(offset), bool)
            row = np.searchsorted(known, offset)
            return (row < len(known)) & (known[np.minimum(row, len(known) - 1)] == offset)
        inside = (offset >= lowest) & (offset < lowest + len(marks))
        return inside & marks[np.where(inside, offset - lowest, 0)]

    def marks(self) -> tuple[int, Flags]:
        """An offset, and for it and each one after it whether it is the last one of a key; no flags if that takes too much memory."""
        if self._marks is None:
            known = self._column(LAST, int(self._used[0])) if self._offsets is None else self._offsets
            lowest, highest = (int(known.min()), int(known.max())) if len(known) else (0, -1)
            # As many bytes as the offsets themselves at most.
            dense = highest - lowest < 8 * len(known)
            self._marks = lowest, np.zeros(highest - lowest + 1 if dense else 0, bool)
            self._marks[1][known - lowest if dense else slice(0)] = True
        return self._marks


def _longer(array: AnyArray, size: int, type: type[np.generic]) -> AnyArray:
    made = take_array(size, type)
    made[: len(array)] = array
    return made
