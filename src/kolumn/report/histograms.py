"""Counts over time, and by powers of two, in bounded memory."""

from collections.abc import Iterable
from copy import copy
from typing import NamedTuple

import numpy as np

from kolumn.arrays import Int64s

MOST_BINS = 1 << 15
_FIRST_WIDTH_MS = 1000


class Timeline:
    """Records and bytes by time. Only times that occur have a bin; where there are too many bins, each becomes twice as wide.

    Bin ``i`` begins at ``i * width_ms``. ``numbers`` are the bins that have records, ascending, ``sums`` (2, n) their records and bytes.
    """

    def __init__(self) -> None:
        self.width_ms: int = _FIRST_WIDTH_MS
        self.numbers: Int64s = np.zeros(0, np.int64)
        self.sums: Int64s = np.zeros((2, 0), np.int64)

    def add(self, times_ms: Int64s, sizes: Int64s) -> None:
        """Add records by their times in ms since 1970, and their sizes in bytes."""
        self._group(
            np.concatenate([self.numbers, times_ms // self.width_ms]),
            np.concatenate([self.sums, np.stack([np.ones(len(sizes), np.int64), sizes])], axis=1),
        )
        while len(self.numbers) > MOST_BINS:
            self._widen()

    @classmethod
    def together(cls, parts: "Iterable[Timeline]") -> "Timeline":
        """The sums of several, which stay as they are."""
        found = cls()
        for one in parts:
            other = copy(one)
            while other.width_ms < found.width_ms:
                other._widen()
            while found.width_ms < other.width_ms:
                found._widen()
            found._group(np.concatenate([found.numbers, other.numbers]), np.concatenate([found.sums, other.sums], axis=1))
            while len(found.numbers) > MOST_BINS:
                found._widen()
        return found

    def _widen(self) -> None:
        self.width_ms *= 2
        self._group(self.numbers // 2, self.sums)

    def _group(self, numbers: Int64s, sums: Int64s) -> None:
        self.numbers, places = np.unique(numbers, return_inverse=True)
        # Sums in float64 are exact up to 2**53.
        self.sums = np.stack([np.bincount(places, weights=row, minlength=len(self.numbers)).astype(np.int64) for row in sums])

    def drawn(self, most: int) -> "Drawn":
        """At most ``most`` bins of equal width over the times of nearly all records: a few strange times would hide all others."""
        sums = self.sums[0].cumsum()
        edge = sums[-1] // 100
        low = int(self.numbers[np.searchsorted(sums, edge, "right")])
        high = int(self.numbers[np.searchsorted(sums, sums[-1] - edge, "left")])
        # Times near the others are drawn too.
        reach = max(high - low, 1) // 20
        low, high = max(int(self.numbers[0]), low - reach), min(int(self.numbers[-1]), high + reach)
        step = -(-(high - low + 1) // most)
        within = (self.numbers >= low) & (self.numbers <= high)
        places = (self.numbers[within] - low) // step
        count = -(-(high - low + 1) // step)
        made = [np.bincount(places, weights=row[within], minlength=count).astype(np.int64) for row in self.sums]
        return Drawn(low * self.width_ms, step * self.width_ms, made[0], made[1], int(self.sums[0][~within].sum()))


class Drawn(NamedTuple):
    """Bins of equal width; ``outside`` counts the records whose times are before or after them."""

    start_ms: int
    width_ms: int
    records: Int64s
    bytes: Int64s
    outside: int


class Powers:
    """How many numbers lie in each power of two, and the sum of a weight of them: place ``i`` of 64 is for 2^(i-1) up to 2^i, 0 for 0."""

    def __init__(self) -> None:
        self.counts: Int64s = np.zeros(64, np.int64)
        self.weights: Int64s = np.zeros(64, np.int64)

    def add(self, numbers: Int64s, weights: Int64s) -> None:
        """Add numbers that are not negative."""
        # frexp is exact below 2**53; the numbers are sizes and counts.
        places = np.frexp(numbers.astype(np.float64))[1]
        self.counts += np.bincount(places, minlength=64)
        self.weights += np.bincount(places, weights=weights, minlength=64).astype(np.int64)

    @property
    def span(self) -> range:
        """The places from the first number on to the last."""
        found = np.flatnonzero(self.counts)
        return range(int(found[0]), int(found[-1]) + 1) if len(found) else range(0)
