"""Bytes of the device into ordinary memory of the host, by way of a page-locked block.

    device  ──▶  page-locked block  ──▶  ordinary memory
             PCIe                    this thread

Columns live as long as their owner wants, and page-locked memory is scarce: the system can do nothing else with it. Copies that go
straight into ordinary memory take five times as long as those into a block (`bench/results/gpu-h200.json`). The second step needs the
device no more: another chunk may have it.

Bytes of a file into memory of the device, bypassing the host's: GPUDirect Storage, by kvikio.

file     |--------|--xxxxxx|xxxxxxxx|xxx-----|     pages of 4 KiB: what the storage moves by itself
read              |<--------------------->|        from the page of the first byte to the last byte
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

from kolumn.core.arrays import Bytes
from kolumn.core.recycle import take_array, take_locked


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


PAGE = 4096


@cache
def available() -> bool:
    """Whether kvikio is installed and can bypass the host. Otherwise it would copy by way of the host, which Kolumn does itself."""
    try:
        import kvikio.defaults
        from kvikio import cufile_driver
    except ImportError:
        return False
    return not kvikio.defaults.is_compat_mode_preferred() and bool(cufile_driver.get("is_gds_available"))


def load(path: str, start: int, memory: Any) -> bool:
    """Fill ``memory``, device memory, with the bytes of a file from ``start`` on; returns whether that worked."""
    from kvikio import CuFile

    try:
        with CuFile(path) as file:
            return bool(file.read(memory, memory.size, start) == memory.size)
    except (OSError, RuntimeError):
        return False
