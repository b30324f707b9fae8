"""Bytes of the device into ordinary memory of the host, by way of a page-locked block.

    device  ──▶  page-locked block  ──▶  ordinary memory
             PCIe                    this thread

Columns live as long as their owner wants, and page-locked memory is scarce: the system can do nothing else with it. Copies that go
straight into ordinary memory take five times as long as those into a block (`bench/results/gpu-h200.json`). The second step needs the
device no more: another chunk may have it.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from kolumn.arrays import Bytes
from kolumn.arrow.recycle import take_array, take_locked


class Staged:
    """A page-locked block for pieces of some sizes, in bytes.

    Attributes
    ----------
    places : iterator of (int, int)
        Address and size of each piece in the block.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._buffer, view = take_locked(max(sum(sizes), 1))
        self._bytes = np.frombuffer(view, np.uint8)
        self._starts, self._sizes = [0, *accumulate(sizes)], sizes

    @property
    def places(self) -> Iterator[tuple[int, int]]:
        begin: int = self._bytes.ctypes.data
        return ((begin + start, size) for start, size in zip(self._starts, self._sizes, strict=False))

    def arrays(self) -> list[Bytes]:
        """The pieces in ordinary memory: uint8 arrays."""
        found = []
        for start, size in zip(self._starts, self._sizes, strict=False):
            array: Bytes = take_array(size, np.uint8)
            array[:] = self._bytes[start : start + size]
            found.append(array)
        return found
