"""Which records are the last of their key; the result is that of the offset map of Kafka's cleaner (``Cleaner.buildOffsetMap``)."""

import os
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import AnyArray, Flags, Int64s
from kolumn.core.recycle import take_array
from kolumn.cpu_fallback.encode.key_map import AHEAD, LAST, START, WORDS, KeyMap, add_keys, find_keys, place_keys
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.writers.table import payloads_of

_KEYS, _BYTES = 1 << 12, 1 << 16
"""Distinct keys, and bytes of them, that there is room for at first."""
_MANY = 1 << 20
"""Keys up to which there is then room for four times as many: less has to be done again."""
_LARGEST_TABLE = 1 << 30
"""Bytes of keys in one batch of `LatestOffsets.table`, whose offsets have 32 bits."""


class LatestOffsets:
    """Last offset of each key of the records that were added.

    Memory: the distinct keys and 32 to 64 bytes for each, of less than a million up to 128; twice while it grows. Offsets are unique, so a
    record is the last of its key if its offset is in the set of last offsets.
    """

    def __init__(self) -> None:
        self._seeds = [int.from_bytes(os.urandom(8), "little", signed=True) | 1 for _ in range(2)]
        self._used = np.zeros(2 + AHEAD, np.int64)
        self._keys, self._bytes, self._slots = np.zeros(WORDS, np.int64), np.empty(PAD, np.uint8), np.zeros(1, np.int64)
        self._offsets: Int64s | None = None
        self._marks: tuple[int, Flags] | None = None

    @classmethod
    def of(cls, offsets: Int64s) -> "LatestOffsets":
        """From last offsets that are already known, sorted."""
        made = cls()
        made._offsets = offsets
        return made

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
        places = (array.ctypes.data for array in (self._keys, self._bytes))
        return KeyMap(self._slots.ctypes.data, len(self._slots).bit_length() - 1, *places, *self._seeds)

    def _grow(self, more: int) -> None:
        """Make room for more keys, and for a key of ``more`` bytes. Memory that was used before is written faster than fresh memory."""
        count, size = self._counts
        if (count + 1) * WORDS == len(self._keys):
            keys = max((4 if count < _MANY else 2) * count, _KEYS)
            self._keys = _longer(self._keys, (keys + 1) * WORDS, np.int64)
            self._slots = take_array(2 * keys, np.int64)
            self._slots[:] = 0
            place_keys(self._map(), count)
        if size + more > len(self._bytes) - PAD:
            self._bytes = _longer(self._bytes[:size], max(2 * size, size + more, _BYTES) + PAD, np.uint8)

    @property
    def _counts(self) -> tuple[int, int]:
        return int(self._used[0]), int(self._used[1])

    def _column(self, word: int, count: int) -> Int64s:
        """One word of each of the first ``count`` keys."""
        return self._keys[: count * WORDS].reshape(-1, WORDS)[:, word]

    def table(self) -> pa.Table:
        """Keys and their last offsets."""
        count, _ = self._counts
        bounds, starts = [0], self._column(START, count + 1)
        while bounds[-1] < count:
            bounds.append(max(bounds[-1] + 1, int(np.searchsorted(starts, starts[bounds[-1]] + _LARGEST_TABLE, side="right")) - 1))
        parts = [self._some_keys(start, stop) for start, stop in pairwise(bounds)]
        return pa.table({"key": pa.chunked_array(parts, pa.binary()), "offset": pa.array(self._column(LAST, count))})

    def _some_keys(self, start: int, stop: int) -> pa.Array:
        ends = self._column(START, stop + 1)[start:]
        data = self._bytes[ends[0] : ends[-1]].tobytes()
        return pa.Array.from_buffers(pa.binary(), stop - start, [None, pa.py_buffer((ends - ends[0]).astype(np.int32)), pa.py_buffer(data)])

    def offsets(self) -> Int64s:
        """Last offsets, sorted: int64 array."""
        if self._offsets is None:
            self._offsets = np.sort(self._column(LAST, self._counts[0]))
        return self._offsets

    def known(self, keys: pa.Array) -> Flags:
        """Flags of the keys that have been added."""
        alive, flags = list[Any](), np.empty(len(keys), np.bool_)
        find_keys(self._map(), payloads_of(keys, alive), len(keys), flags.ctypes.data)
        return flags

    def is_latest(self, offset: Int64s) -> Flags:
        """Flags of the offsets that are the last ones of a key."""
        lowest, marks = self.marks()
        if not len(marks):
            known = self.offsets()
            if not len(known):
                return np.zeros(len(offset), bool)
            at = np.searchsorted(known, offset)
            return (at < len(known)) & (known[np.minimum(at, len(known) - 1)] == offset)
        inside = (offset >= lowest) & (offset < lowest + len(marks))
        return inside & marks[np.where(inside, offset - lowest, 0)]

    def marks(self) -> tuple[int, Flags]:
        """An offset, and for it and each one after it whether it is the last one of a key; no flags if that takes too much memory."""
        if self._marks is None:
            known = self._column(LAST, self._counts[0]) if self._offsets is None else self._offsets
            lowest, highest = (int(known.min()), int(known.max())) if len(known) else (0, -1)
            # As many bytes as the offsets themselves at most.
            dense = highest - lowest < 8 * len(known)
            self._marks = lowest, np.zeros(highest - lowest + 1 if dense else 0, bool)
            self._marks[1][known - lowest if dense else slice(0)] = True
        return self._marks


def _longer(array: AnyArray, size: int, kind: type[np.generic]) -> AnyArray:
    made = take_array(size, kind)
    made[: len(array)] = array
    return made
