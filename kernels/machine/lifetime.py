"""Device memory is freed after everything that was asked of it, on whichever stream.

    own stream        | allocate | write ... |           |
    other libraries                          | read ............ |
    freeing                                                      | free |

Memory goes back to the pool in the order of a stream: whoever takes it next may write as soon as that stream gets there. A thread's own
stream does not wait for the one on which cuDF works, nor the other way round, and cuDF's calls return before their work is done. So as
soon as another library has been shown a piece of memory, it is freed on a stream that does nothing else. That one waits for both,
and none waits for it. What no other library has seen is freed in the order of its own stream.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Stream = TypeVar("Stream")


@dataclass(frozen=True)
class Streams(Generic[Stream]):
    """The streams that a piece of memory meets.

    Attributes
    ----------
    own : stream
        Of the thread that allocated it.
    others : stream
        On which other libraries work.
    freeing : stream
        On which nothing happens but the freeing of memory that others were shown.
    order : callable
        order(before, after): what is asked of ``after`` from now on waits for what was asked of ``before`` until now. The host does
        not wait.
    """

    own: Stream
    others: Stream
    freeing: Stream
    order: Callable[[Stream, Stream], None]


class Block(Generic[Stream]):
    """An allocation, freed with the object.

    Parameters
    ----------
    streams : Streams
    address, size : int
    free : callable
        Returns the memory in the order of the stream that it is passed.
    """

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
        if not self._shared:
            self._free(streams.own)
            return
        streams.order(streams.own, streams.freeing)
        streams.order(streams.others, streams.freeing)
        self._free(streams.freeing)
