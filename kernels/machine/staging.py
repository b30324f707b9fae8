"""Bytes of the device into ordinary memory of the host, by way of two page-locked blocks in turns.

    device        |  1  |  2  |  3  |  4  | ...
    block A       |  1  |           |  3  | ...            one is filled by the device
    block B             |  2  |           |  4  | ...      while this thread empties the other
    result              |  1  |  2  |  3  | ...

Columns live as long as their owner wants, and page-locked memory is scarce: the system can do nothing else with it. Copies that go
straight into ordinary memory take several times as long.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from kolumn.arrays import Bytes
from kolumn.arrow.recycle import take_locked

STAGE = 4 << 20
"""Bytes of a block."""


class Event(Protocol):
    """Something that happens on the device."""

    def synchronize(self) -> None:
        """Wait for it."""


class _Stage:
    """A block, and where its bytes are to go."""

    def __init__(self, size: int) -> None:
        self._buffer, view = take_locked(size)
        self.bytes = np.frombuffer(view, np.uint8)
        self.address: int = self.bytes.ctypes.data
        self.used = 0
        self.moves: list[tuple[Bytes, int]] = []
        self.filled: Event | None = None

    def empty(self) -> None:
        """Copy the bytes of the block to their place in the memory of the host."""
        if self.filled is not None:
            self.filled.synchronize()
        for target, start in self.moves:
            target[:] = self.bytes[start : start + len(target)]
        self.used, self.filled = 0, None
        self.moves.clear()


def fetch(pieces: Iterable[tuple[int, int]], copy: Callable[[int, int, int], None], mark: Callable[[], Event]) -> list[Bytes]:
    """Copy pieces of device memory to the host.

    Parameters
    ----------
    pieces : sequence of (int, int)
        Device address and size of each.
    copy : callable
        copy(to, source, size) asks for a copy to an address of the host; it need not be done when it returns.
    mark : callable
        Returns the event that everything that was asked for is done.

    Returns
    -------
    list of uint8 arrays
        In ordinary memory.
    """
    pieces = list(pieces)
    found = [np.empty(size, np.uint8) for _, size in pieces]
    total = sum(size for _, size in pieces)
    stages = [_Stage(min(total, STAGE)) for _ in range(min(2, -(-total // STAGE)))]
    number = 0
    for (address, size), target in zip(pieces, found, strict=True):
        done = 0
        while done < size:
            stage = stages[number % len(stages)]
            if stage.used == len(stage.bytes):
                stage.filled = mark()
                number += 1
                stage = stages[number % len(stages)]
                stage.empty()
            some = min(size - done, len(stage.bytes) - stage.used)
            copy(stage.address + stage.used, address + done, some)
            stage.moves.append((target[done : done + some], stage.used))
            stage.used, done = stage.used + some, done + some
    if stages:
        stages[number % len(stages)].filled = mark()
    for k in range(len(stages)):
        stages[(number + 1 + k) % len(stages)].empty()
    return found
