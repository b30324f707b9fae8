"""Keys and values of erased records and of their headers, and where they still are: as whole keys and values, and as bytes of anything.

Bytes are searched for one window of 8 bytes of each needle, the one that fewest needles have, by a table over hashes of all windows of the
data; then other windows are compared, and then the whole needle.
"""

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.writers.last_offsets import LatestOffsets

LONGEST = 1 << 20
"""Bytes of a needle that are searched for; of a longer one the first."""
_WINDOW, _PLACES = 8, 16
_NUMBER = 24
"""Bytes that a needle with a byte 0 or 255 must have: shorter ones may be numbers, which stand in headers of batches and in indexes too."""
Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def can_be_searched(needle: bytes) -> bool:
    """Whether a needle says something where it is found among any bytes; others are compared with whole keys and values alone."""
    return len(needle) >= (_NUMBER if 0 in needle or 0xFF in needle else _WINDOW)


class Needles:
    """The distinct keys and values of records, and those of headers that are not short, each in memory."""

    def __init__(self) -> None:
        self.keys, self.values, self.headers = LatestOffsets(), LatestOffsets(), LatestOffsets()

    def add(self, records: pa.RecordBatch) -> None:
        """Add the keys and values of some records, and the values of their headers."""
        headers = records["headers"].flatten().field(1)
        headers = headers.filter(pc.greater_equal(pc.binary_length(headers), _WINDOW)).cast(pa.binary())
        self.headers.add(headers, pa.array(np.zeros(len(headers), np.int64)))
        self.keys.add(records["key"], records["offset"])
        self.values.add(records["value"], records["offset"])

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return self.keys.nbytes + self.values.nbytes + self.headers.nbytes

    def known(self, records: pa.RecordBatch) -> Flags:
        """Flags of the records that have one of the keys as key, or one of the values as value."""
        return self.keys.known(records["key"]) | self.values.known(records["value"])

    @cached_property
    def all(self) -> list[bytes]:
        """Each needle once."""
        headers = filter(can_be_searched, self.headers.table()["key"].to_pylist())
        return sorted({*self.keys.table()["key"].to_pylist(), *self.values.table()["key"].to_pylist(), *headers})

    @cached_property
    def pattern(self) -> "Pattern":
        """What finds the needles among bytes that say something there."""
        return Pattern([needle[:LONGEST] for needle in self.all if can_be_searched(needle)])


class Pattern:
    """Finds some needles of at least 8 bytes, each of which is given once."""

    def __init__(self, needles: list[bytes]) -> None:
        self.longest = max(map(len, needles), default=0)
        self._size = np.array([len(needle) for needle in needles], np.int64)
        self._data, self._start = np.frombuffer(b"".join(needles), np.uint8), np.cumsum(self._size) - self._size
        rows = np.arange(len(needles))
        often = [_how_often(_words_at(self._data, self._start + self._place(rows, place))) for place in range(_PLACES)]
        self._at = self._place(rows, np.argmin(np.stack(often, axis=1), axis=1))
        word = _words_at(self._data, self._start + self._at)
        self._order = np.argsort(word, kind="stable")
        self._word = word[self._order]
        self._shift = np.uint64(64 - min(max(len(needles).bit_length() + 4, 12), 24))
        self._is_there = np.zeros(1 << (64 - int(self._shift)), np.bool_)
        self._is_there[self._hash(word)] = True

    def _place(self, needles: Int64s, place: Int64s | int) -> Int64s:
        """Where a needle's windows begin, some of which overlap."""
        return (self._size[needles] - _WINDOW) * place // (_PLACES - 1)

    def _hash(self, words: Words) -> Words:
        return (words * _FACTOR) >> self._shift

    def find(self, data: Bytes) -> tuple[Int64s, Int64s]:
        """Where needles begin in some bytes, in order, and where they end."""
        found = [self._from(data, shift) for shift in range(_WINDOW)] if len(self._size) else []
        both = np.concatenate([np.zeros((0, 2), np.int64), *found])
        start, stop = both[np.lexsort((both[:, 1], both[:, 0]))].T
        return start, stop

    def _from(self, data: Bytes, shift: int) -> Int64s:
        """Begin and end of the needles whose rarest window is at ``shift`` more than a multiple of 8."""
        words = data[shift : shift + (len(data) - shift) // _WINDOW * _WINDOW].view(np.uint64)
        rows = np.flatnonzero(self._is_there[self._hash(words)])
        low, high = (np.searchsorted(self._word, words[rows], side=side) for side in ("left", "right"))
        count = high - low
        needle = self._order[np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count - low, count)]
        start = np.repeat(rows * _WINDOW + shift, count) - self._at[needle]
        good = (start >= 0) & (start + self._size[needle] <= len(data))
        for place in reversed(range(_PLACES)):
            start, needle = start[good], needle[good]
            at = self._place(needle, place)
            good = _words_at(data, start + at) == _words_at(self._data, self._start[needle] + at)
        start, needle = start[good], needle[good]
        whole = zip(start.tolist(), self._start[needle].tolist(), self._size[needle].tolist(), strict=True)
        good = np.array([np.array_equal(data[at : at + size], self._data[own : own + size]) for at, own, size in whole], np.bool_)
        return np.stack([start, start + self._size[needle]], axis=1)[good]


def _words_at(data: Bytes, start: Int64s) -> Words:
    if not len(start):
        return np.zeros(0, np.uint64)
    return np.ascontiguousarray(data[start[:, None] + np.arange(_WINDOW)]).view(np.uint64)[:, 0]


def _how_often(words: Words) -> Int64s:
    """How often each word is among them."""
    _, group, count = np.unique(words, return_inverse=True, return_counts=True)
    return count[group]
