"""When memory of the device is freed, its bytes by way of a page-locked block to the host, and bytes of files to it.

    own stream        | allocate | write ... |           |             memory goes back to the pool in the order of a stream
    other libraries                          | read ............ |     cuDF's calls return before their work is done
    freeing                                                      | free |

A thread's own stream does not wait for the one on which cuDF works, nor the other way round. So as soon as another library has been shown a
piece of memory, it is freed on a stream that does nothing else: it waits for both, and none waits for it.

    device  ──▶  page-locked block  ──▶  ordinary memory     page-locked memory is scarce, and straight copies into ordinary memory
             PCIe                    this thread             take five times as long (`bench/results/gpu-h200.json`)

GPUDirect Storage, by kvikio, reads pages of 4 KiB: from the page of the first byte to the last byte.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, Generic, TypeVar

import numpy as np

from kolumn.core.arrays import Bytes
from kolumn.core.recycle import take_array, take_locked

Stream = TypeVar("Stream")


@dataclass(frozen=True)
class Streams(Generic[Stream]):
    """The streams that a piece of memory meets.

    ``own``: of the thread that allocated it.
    ``others``: on which other libraries work.
    ``freeing``: on which nothing happens but the freeing of memory that others were shown.
    ``order``: order(before, after): what is asked of ``after`` from now on waits for what was asked of ``before`` until now. The host
        does not wait.
    """

    own: Stream
    others: Stream
    freeing: Stream
    order: Callable[[Stream, Stream], None]


class Block(Generic[Stream]):
    """An allocation, freed with the object. ``free``: returns the memory in the order of the stream that it is passed."""

    def __init__(self, streams: Streams[Stream], address: int, size: int, free: Callable[[Stream], None]) -> None:
        self.streams, self.address, self.size, self._free, self._shared = streams, address, size, free, False

    def share(self) -> None:
        """Show the memory to other libraries: what they do from now on comes after what its own stream has been asked for."""
        self._shared = True
        self.streams.order(self.streams.own, self.streams.others)

    def __del__(self) -> None:
        # At the end of the process the driver frees everything, and the packages that this needs may be gone.
        if sys is None or sys.is_finalizing():
            return
        streams = self.streams
        if self._shared:
            streams.order(streams.own, streams.freeing)
            streams.order(streams.others, streams.freeing)
        self._free(streams.freeing if self._shared else streams.own)


class Staged:
    """A page-locked block for pieces of some sizes, in bytes. ``places``: address and size of each piece in the block."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._buffer, view = take_locked(max(sum(sizes), 1))
        block = np.frombuffer(view, np.uint8)
        self._pieces = [block[end - size : end] for end, size in zip(accumulate(sizes), sizes, strict=True)]
        self.places = [(piece.ctypes.data, len(piece)) for piece in self._pieces]

    def arrays(self) -> list[Bytes]:
        """The pieces in ordinary memory: uint8 arrays."""
        arrays: list[Bytes] = [take_array(len(piece), np.uint8) for piece in self._pieces]
        for array, piece in zip(arrays, self._pieces, strict=True):
            array[:] = piece
        return arrays


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
