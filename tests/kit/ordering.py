"""Streams and events that do nothing but note what comes after what, and the uses of memory that nothing keeps from its next owner.

Each stream counts what it is asked for, and knows how far the others are when it gets there (a vector clock). An event hands this
knowledge from one stream to another; waiting hands it to the host, and from there to everything that is asked for afterwards.
"""

import threading
from bisect import bisect_right
from collections import Counter

from kolumn.kernels.machine.staging import Block, Streams

OTHERS, FREEING = "others", "freeing"
Clock = Counter[str]


class Ordering:
    """Notes what streams are asked for.

    ``faults`` are pieces of memory that were freed before a use of them was over, or used before they were written, for all that streams
    know. ``shared`` counts those that other libraries were shown and that are freed.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.shared = 0
        self._clocks: dict[str, Clock] = {}
        self._host = Clock()
        self._uses: dict[int, dict[str, int]] = {}
        self._ends: dict[int, int] = {}
        self._lock = threading.RLock()

    @staticmethod
    def _own() -> str:
        return f"thread {threading.get_ident()}"

    def _asked(self, stream: str) -> int:
        """Something more is asked of a stream, after all that the host has waited for."""
        clock = self._clocks.setdefault(stream, Clock())
        clock |= self._host
        clock[stream] += 1
        return clock[stream]

    def allocated(self, address: int, size: int) -> Block[str]:
        """Memory that is allocated on this thread's stream."""
        with self._lock:
            self._uses[address] = {self._own(): self._asked(self._own())}
            self._ends[address] = address + size
        streams = Streams(self._own(), OTHERS, FREEING, self.order)
        return Block(streams, address, size, lambda stream: self._freed(address, stream))

    def used_by_kernel(self, addresses: tuple[int, ...]) -> None:
        """A kernel of this thread gets addresses, or numbers that are none."""
        with self._lock:
            begins = sorted(self._uses)
            for one in addresses:
                at = bisect_right(begins, one) - 1
                if at >= 0 and one < self._ends[begins[at]]:
                    self.used(begins[at], self._own())

    def used(self, address: int, stream: str = OTHERS) -> None:
        """A stream is asked to read or write the memory that begins at an address."""
        with self._lock:
            now = self._asked(stream)
            self._compare(address, stream, "used")
            self._uses[address][stream] = now

    def order(self, before: str, after: str) -> None:
        """As `Streams` has it."""
        with self._lock:
            self._asked(before)
            self._asked(after)
            self._clocks[after] |= self._clocks[before]

    def waited(self) -> None:
        """The host waits for this thread's stream."""
        with self._lock:
            self._asked(self._own())
            self._host |= self._clocks[self._own()]

    def _freed(self, address: int, stream: str) -> None:
        with self._lock:
            self._asked(stream)
            self._compare(address, stream, "freed")
            self.shared += stream == FREEING
            del self._uses[address], self._ends[address]

    def _compare(self, address: int, stream: str, what: str) -> None:
        for other, count in self._uses[address].items():
            if self._clocks[stream][other] < count:
                self.faults.append(f"memory at {address:#x}: {what} on {stream} while {other} may be using it")
