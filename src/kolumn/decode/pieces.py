"""Pieces of one large segment in several threads. Each thread walks and decodes its own piece, as one thread does with a whole segment.

Where a piece begins is a guess (`kolumn.plan.borders`). It is confirmed when the piece before it ends there. If that one ends elsewhere,
the pieces after it are dropped, and others are cut from there on.
"""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from kolumn.decode.result import Decoded
from kolumn.decode.workers import Workers
from kolumn.errors import Code
from kolumn.options import AHEAD, Options
from kolumn.plan.borders import is_packed, next_border
from kolumn.plan.chunks import Chunk, Stop
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range

InOrder = Generator[tuple[Chunk, Decoded], None, Stop]
Begin = Callable[[int, int], InOrder]

SHARED = 8 << 20
"""Bytes of a range from which on threads share it, and of small ranges that one thread gets at a time, if chunks are not smaller."""
LEARNT_FROM = 1 << 16
"""Bytes from which it is learnt how far a segment is compressed."""


@dataclass
class _Piece:
    """A piece as far as a thread has decoded it.

    Attributes
    ----------
    done : list of (Chunk, Decoded)
    rest : generator
        Decodes the other chunks.
    stop : Stop, optional
        How the piece ended, if nothing is left.
    failed : BaseException, optional
        What ended it.
    """

    done: list[tuple[Chunk, Decoded]]
    rest: InOrder
    stop: Stop | None = None
    failed: BaseException | None = None


def in_pieces(file: SegmentFile, one: Range, options: Options, pool: Workers, begin: Begin, otherwise: Begin) -> InOrder:
    """Decode a range in several threads; yields chunks in order.

    Parameters
    ----------
    file : SegmentFile
    one : Range
    options : Options
    pool : Workers
    begin : callable
        Decodes the entries between two positions in the thread that asks for the next chunk.
    otherwise : callable
        The same for a place where no format 2 batch begins, from where nothing is cut into pieces.
    """
    pending = deque[tuple[int, int, Future[_Piece]]]()
    position = planned = one.start
    cut = 0
    if not file.density and is_packed(file, one.start, one.end):
        _learn(begin(one.start, min(one.start + LEARNT_FROM, one.end)))
    try:
        while True:
            while planned < one.end and len(pending) < AHEAD * options.threads:
                border = next_border(file, planned, one.end, options.chunk_bytes, options.threads, cut)
                if border is None:
                    break
                pending.append((planned, border, pool.submit(_decoded, begin(planned, border), options.inflated_bytes)))
                planned, cut = border, cut + 1
            if not pending:
                return (yield from otherwise(position, one.end)) if position < one.end else Stop(position, Code.OK, 0)
            _, border, future = pending.popleft()
            stop = yield from _finished(future.result())
            position = stop.position
            if stop.code != Code.OK:
                return stop
            if position != border:
                _drop(pending)
                planned, cut = position, 0
    finally:
        _drop(pending)


def _learn(first: InOrder) -> None:
    """Decode a few batches once more than needed, since pieces of equal size can be cut only if it is known how far they are compressed."""
    # What is wrong with them is told when they are decoded in a piece.
    with suppress(Exception):
        next(first)


def _drop(pending: deque[tuple[int, int, Future[_Piece]]]) -> None:
    for _, _, future in pending:
        future.cancel()
    pending.clear()


def _decoded(rest: InOrder, most: int) -> _Piece:
    """Decode a piece up to its end, to an error, or until its batches have ``most`` bytes."""
    piece, size = _Piece([], rest), 0
    try:
        while size < most:
            chunk, decoded = next(rest)
            piece.done.append((chunk, decoded))
            if decoded.trouble is not None or decoded.undecided:
                break
            size += sum(batch.nbytes for batch in decoded.batches)
    except StopIteration as end:
        piece.stop = end.value
    except BaseException as error:
        piece.failed = error
    try:
        return piece
    finally:
        # The error's traceback references this frame, which would keep the data read in memory until a garbage collection.
        del piece


def _finished(piece: _Piece) -> InOrder:
    piece.done.reverse()
    while piece.done:
        yield piece.done.pop()
    if piece.failed is not None:
        try:
            raise piece.failed
        finally:
            del piece
    return piece.stop if piece.stop is not None else (yield from piece.rest)
