"""Pieces of one large segment in several threads. Each thread walks and decodes its own piece, as one thread does with a whole segment.

Where a piece begins is a guess (`kolumn.plan.borders`). It is confirmed when the piece before it ends there. If that one ends elsewhere,
the pieces after it are dropped, and others are cut from there on.
"""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from kolumn.decode.result import Decoded
from kolumn.errors import Code
from kolumn.options import AHEAD, Options
from kolumn.plan.borders import next_border
from kolumn.plan.chunks import Chunk, Stop
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range

InOrder = Generator[tuple[Chunk, Decoded], None, Stop]
Begin = Callable[[int, int], InOrder]


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


def in_pieces(file: SegmentFile, one: Range, options: Options, pool: ThreadPoolExecutor, begin: Begin, otherwise: Begin) -> InOrder:
    """Decode a range in several threads; yields chunks in order.

    Parameters
    ----------
    file : SegmentFile
    one : Range
    options : Options
    pool : ThreadPoolExecutor
    begin : callable
        Decodes the entries between two positions in the thread that asks for the next chunk.
    otherwise : callable
        The same for a place where no format 2 batch begins, from where nothing is cut into pieces.
    """
    pending = deque[tuple[int, int, Future[_Piece]]]()
    position = planned = one.start
    try:
        while True:
            while planned < one.end and len(pending) < AHEAD * options.threads:
                border = next_border(file, planned, one.end, options.chunk_bytes)
                if border is None:
                    break
                pending.append((planned, border, pool.submit(_decoded, begin(planned, border), options.inflated_bytes)))
                planned = border
            if not pending:
                return (yield from otherwise(position, one.end)) if position < one.end else Stop(position, Code.OK, 0)
            _, border, future = pending.popleft()
            stop = yield from _finished(future.result())
            position = stop.position
            if stop.code != Code.OK:
                return stop
            if position != border:
                _drop(pending)
                planned = position
    finally:
        _drop(pending)


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
