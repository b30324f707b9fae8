"""The memory into which the streamed paths decompress payloads."""

from kolumn.arrow.recycle import take
from kolumn.cpu_fallback.inflate.arena import Share
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.options import Options

INFLATED, MOST_INFLATED = 4 << 20, 16 << 20
"""Bytes of the arena unless views keep them: at first, and after a batch that does not fit. Larger batches are left to a library."""


_NO_ROOM = take(PAD)
"""Memory of an arena before it has a payload: nothing is written to it."""


class StreamArena:
    """The memory that decompressed payloads are in while their records are read, and for good if views point into it.

    Parameters
    ----------
    keep : bool
        Whether views point into it: the columns of each part then have an arena of their own.
    options : Options
    share : Share

    Attributes
    ----------
    buffer : pa.Buffer
    room : int
        Bytes that payloads may have; 0 before the first compressed one.
    most : int
        Largest arena that views do not keep.
    """

    def __init__(self, keep: bool, options: Options, share: Share) -> None:
        self._keep, self._largest = keep, options.max_batch_bytes
        self.buffer, self._bytes = _NO_ROOM
        self.room, self.most = 0, max(INFLATED, min(MOST_INFLATED, share.bytes // 16))

    def begin(self, payload_bytes: int, used: int, ready: int) -> None:
        """Serve new columns. The ``ready`` bytes after the ``used`` ones of the old columns are a payload for the new ones."""
        if self._keep:
            # Views of the old columns point into the old arena.
            waiting = self._bytes[used : used + ready]
            self.buffer, self._bytes = take((payload_bytes if ready else 0) + PAD)
            self._bytes[:ready] = waiting
            self.room = min(payload_bytes, self._largest) if ready else 0

    def likely(self, largest: int) -> int:
        """Bytes for payloads of a file whose largest one so far has ``largest``, unless views keep them."""
        return INFLATED if max(self.room, largest) < INFLATED else self.most

    def grow(self, size: int) -> bool:
        """Make the first arena, or a larger one; False if that is not allowed."""
        size = min(size, self._largest)
        if size <= self.room:
            return False
        self.buffer, self._bytes = take(size + PAD)
        self.room = size
        return True
