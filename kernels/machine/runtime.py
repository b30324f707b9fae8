"""What the pipeline needs of a device: memory, copies, launches, running sums. `kolumn.kernels.machine.cuda` implements it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from kolumn.core.arrays import AnyArray, Bytes, Flags, Int64s
from kolumn.kernels.machine.kernel import Kernel

PAD = 256
"""Spare bytes after every piece of device memory. Each piece begins at a multiple of this number."""


def layout(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where pieces begin in one allocation, and the bytes of all."""
    *starts, total = accumulate((-(-(size + PAD) // PAD) * PAD for size in sizes), initial=0)
    return starts, total


class Memory(Protocol):
    """A piece of device memory, freed with the object."""

    @property
    def address(self) -> int:
        """Address of the first byte."""

    @property
    def size(self) -> int:
        """Bytes that were asked for."""


@dataclass(frozen=True)
class View:
    """Some bytes of a memory, which lasts as long: ``size`` of them from ``start`` on."""

    memory: Memory
    start: int
    size: int

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return self.memory.address + self.start


class Runtime(Protocol):
    """A device as one thread sees it: everything happens in the order of the calls, and downloads wait for it. ``memory``: bytes of the
    pool at most. ``reads_files``: whether `load` bypasses the host's memory. If not, the host reads the bytes."""

    memory: int
    reads_files: bool

    @property
    def kept(self) -> dict[str, Memory]:
        """What this thread keeps on the device for calls to come, by name."""

    def empty(self, size: int) -> Memory:
        """Memory, not initialised."""

    def zeros(self, size: int) -> Memory:
        """Memory of zeros."""

    def pieces(self, sizes: Sequence[int], zeros: bool = False) -> Sequence[Memory]:
        """Several pieces by one allocation, which lasts as long as any of them: not initialised, or zeros."""

    def upload(self, data: AnyArray) -> Memory:
        """Copy a C-contiguous NumPy array to the device."""

    def load(self, path: str, start: int, end: int) -> Memory | None:
        """Copy bytes [start, end) of a file to the device; they need not begin where its memory does. None if that did not work."""

    def download(self, memory: Memory, size: int, start: int = 0) -> Bytes:
        """Copy bytes to the host: uint8 array of ``size``."""

    def downloads(self, wanted: Sequence[tuple[Memory, int, int]]) -> list[Bytes]:
        """Copy several pieces to the host, each a memory, a size and a start, and wait once."""

    def collected(self, wanted: Sequence[tuple[Memory, int, int]]) -> Callable[[], list[Bytes]]:
        """As `downloads`, of which the last step needs the device no more: the function that is returned does it."""

    def launch(self, kernel: Kernel, n: int, args: tuple[int, ...]) -> None:
        """Run a kernel for ``n`` items, if there are any."""

    def synchronize(self) -> None:
        """Wait for everything that was asked for."""

    def rest(self) -> None:
        """The host works for a while, and asks for nothing: others may have the device."""

    def running_sum(self, memory: Memory, count: int, width: int) -> None:
        """Replace ``count`` integers of ``width`` bytes, 4 or 8, by their running sum."""

    def inflate(self, kind: int, sources: Int64s, sizes: Int64s, room: Int64s, targets: Int64s) -> tuple[Int64s, Flags]:
        """Decompress blocks of a kind of `kolumn.formats.codecs`.

        ``sources``, ``sizes``, ``room``, ``targets``: int64 arrays of n, device addresses and bytes of the blocks, room for and device
            address of what they inflate to.
        Returns ``sizes``: int64 array of n, bytes that came out.
        ``fine``: bool array of n, whether the block was inflated whole, as far as the library can tell.
        """
