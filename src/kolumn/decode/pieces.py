"""Pieces of one large segment in several threads. Each thread walks and decodes its own piece, as one thread does with a whole segment.

Where a piece begins is a guess (`kolumn.log.chunks`). It is confirmed when the piece before it ends there. If that one ends elsewhere,
the pieces after it are dropped, and others are cut from there on.
"""

import sys
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress

from kolumn.core.errors import Code
from kolumn.core.threads import RunAhead, Workers
from kolumn.decode.result import Decoded
from kolumn.log.chunks import Chunk, Stop, is_packed, next_border
from kolumn.options import AHEAD, Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range

InOrder = Generator[tuple[Chunk, Decoded], None, Stop]
Begin = Callable[[int, int], InOrder]
_Piece = RunAhead[tuple[Chunk, Decoded], Stop]

SHARED = 8 << 20
"""Bytes of a range from which on threads share it, and of small ranges that one thread gets at a time, if chunks are not smaller."""
LEARNT_FROM = 1 << 16
"""Bytes from which it is learnt how far a segment is compressed."""


def in_pieces(file: SegmentFile, one: Range, options: Options, pool: Workers, begin: Begin, otherwise: Begin) -> InOrder:
    """Decode a range in several threads; yields chunks in order.

    ``begin`` decodes the entries between two positions in the thread that asks for the next chunk; ``otherwise`` does from a position
    where no format 2 batch begins, from where nothing is cut into pieces.
    """
    pending = deque[tuple[int, _Piece]]()
    position = planned = one.start
    cut = 0
    if not file.sizes.density and is_packed(file, one.start, one.end):
        # Pieces of equal size can be cut only if it is known how far they are compressed, so a few batches are decoded once more.
        # What is wrong with them is reported when they are decoded in a piece.
        with suppress(Exception):
            next(begin(one.start, min(one.start + LEARNT_FROM, one.end)))
    try:
        while True:
            while planned < one.end and len(pending) < AHEAD * options.threads:
                border = next_border(file, planned, one.end, options.chunk_bytes, options.threads, cut)
                if border is None:
                    break
                piece = RunAhead(begin(planned, border))
                piece.begin(pool, _bytes_of, options.inflated_bytes)
                pending.append((border, piece))
                planned, cut = border, cut + 1
            if not pending:
                return (yield from otherwise(position, one.end)) if position < one.end else Stop(position, Code.OK, 0)
            border, piece = pending.popleft()
            stop = yield from piece.items()
            position = stop.position
            if stop.code != Code.OK:
                return stop
            if position != border:
                _drop(pending)
                planned, cut = position, 0
    finally:
        _drop(pending)


def _drop(pending: deque[tuple[int, _Piece]]) -> None:
    for _, piece in pending:
        piece.cancel()
    pending.clear()


def _bytes_of(item: tuple[Chunk, Decoded]) -> int:
    """Bytes of a chunk's batches; nothing is decoded ahead after trouble."""
    _, decoded = item
    return sys.maxsize if decoded.trouble is not None or decoded.undecided else sum([batch.nbytes for batch in decoded.batches])
