"""The pipeline: ranges of segments in, Arrow record batches out, in order, with a bounded number of chunks in progress."""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa

from kolumn.backend import RESIDENT, choose, require
from kolumn.damage.findings import Damage, Trouble, damage_of_fault
from kolumn.decode.backends import opened
from kolumn.decode.chain import Floor
from kolumn.decode.chunk import decode_chunk
from kolumn.decode.opened_early import OpenedEarly
from kolumn.decode.pieces import SHARED, InOrder, in_pieces
from kolumn.decode.result import Decoded, Tally
from kolumn.decode.resume import resumed
from kolumn.decode.segment_end import at_stop, compare_start
from kolumn.decode.small_segments import Found, SmallSegments
from kolumn.decode.tasks import tasks_of
from kolumn.decode.workers import Workers, in_process, workers
from kolumn.errors import NoMemoryError
from kolumn.options import AHEAD, Options
from kolumn.plan.chunks import Chunk, Reached, Stop, chunks
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range
from kolumn.transactions.states import Transactions, settle, to_decode
from kolumn.values.columns.stage import finished

_SHORT = 2 * AHEAD
"""Tasks of small ranges for each thread that are short, so that one thread does not wait for the last one of another for long."""

OnDamage = Callable[[Damage], None]
OnTally = Callable[[Range, Tally], None]


def scan_ranges(
    ranges: Iterable[Range], options: Options, damage: OnDamage | None = None, tally: OnTally | None = None
) -> Iterator[pa.RecordBatch]:
    """Decode ranges in order.

    Parameters
    ----------
    ranges : iterable of Range
        Small ranges are decoded in parallel, large ones chunk by chunk, and tiny ones some together by one thread.
    options : Options
    damage : callable, optional
        Called with every damaged part that ``errors="skip"`` leaves out.
    tally : callable, optional
        Called with each range and its tally, when the range is done.

    Raises
    ------
    MissingError
        A GPU was requested, and there is none. Raised by the call itself.
    CorruptBatchError
        An entry is damaged, with ``errors="raise"``. All records before it have been yielded.
    PayloadError
        A value or key is not valid, with ``value_errors`` or ``key_errors`` "raise". All records before it have been yielded.
    KolumnError
        The process was forked after the first batch, and this is the new one.
    NoMemoryError
        There is no memory for a chunk of entries. (If a single entry decompresses to too much, LimitError is reported.)
    """
    require(options.backend)
    if not options.typed:
        return _within_memory(in_process(_scan(iter(ranges), options, damage, tally)))
    found = _within_memory(in_process(_scan(iter(ranges), options.watched, damage, tally)))
    return finished(found, options.columns, options.binary, options.typed)


def _within_memory(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replace an error about missing memory for a chunk or a thread by one that tells the user what to change."""
    try:
        yield from batches
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "new thread" not in str(error):
            raise
        raise NoMemoryError(f"out of memory: {error}: read with fewer threads, or a smaller chunk_bytes or memory_bytes") from error


def _scan(
    source: Iterator[Range], options: Options, damage: OnDamage | None, tally: OnTally | None
) -> Generator[pa.RecordBatch, None, None]:
    early, small, turn = OpenedEarly(), SmallSegments(options), threading.Lock()
    together = _together(options)
    tasks = early.with_following(tasks_of(source, together, options.chunk_bytes, _SHORT * options.threads))
    if options.threads == 1:
        try:
            for task in tasks:
                if len(task) == 1:
                    yield from _finish(task[0], Tally(), options, None, damage, tally, early)
                else:
                    yield from _parts(task, _begin(task, options, small, turn, early), options, damage, tally, early)
                early.settle(wait=False)
            early.settle(wait=True)
        finally:
            early.close()
        return
    with workers(options.threads, are_kept=not opened(options.backend).on_gpu) as pool:
        pending: deque[tuple[list[Range], Future[tuple[list[_Part], BaseException | None]] | None]] = deque()

        def submit(task: list[Range]) -> None:
            alone = task[0].end - task[0].start > together
            pending.append((task, None if alone else pool.submit(_begin, task, options, small, turn, early)))

        try:
            for task in islice(tasks, AHEAD * options.threads):
                submit(task)
            while pending:
                task, future = pending.popleft()
                if future is None:
                    yield from _finish(task[0], Tally(), options, pool, damage, tally, early)
                else:
                    yield from _parts(task, future.result(), options, damage, tally, early)
                early.settle(wait=False)
                for following in islice(tasks, 1):
                    submit(following)
            early.settle(wait=True)
        finally:
            early.close()
            for _, future in pending:
                if future is not None:
                    future.cancel()


def _together(options: Options) -> int:
    """Bytes that one thread gets at a time of what is not cut into equal pieces."""
    return options.chunk_bytes if options.threads == 1 or choose(options.backend) == "gpu" else min(options.chunk_bytes, SHARED)


@dataclass
class _Part:
    """A range, or several small ones, as far as a thread has decoded it: batches, and an iterator that decodes the rest later."""

    found: Tally | Found
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rest: Iterator[pa.RecordBatch] = field(default_factory=lambda: iter(()))


def _begin(
    task: list[Range], options: Options, small: SmallSegments, turn: threading.Lock, early: OpenedEarly
) -> tuple[list[_Part], BaseException | None]:
    """Decode ranges up to a chunk's share of memory, or up to an error.

    Returns the ranges that were begun, of which the last one can be unfinished, and the error that ended it.
    """
    parts, done, size, failed = list[_Part](), 0, 0, None
    try:
        while done < len(task) and size < options.inflated_bytes:
            found = small.decode(task[done:]) if len(task) > 1 else None
            if found is not None:
                parts.append(_Part(found, [] if found.batch is None else [found.batch]))
                done += len(found.rows)
                size += 0 if found.batch is None else found.batch.nbytes
                continue
            tally = Tally()
            part = _Part(tally, rest=_range(task[done], options, None, tally, early))
            parts.append(part)
            done += 1
            # Threads take turns at small segments that are decoded alone: nearly all is Python, for which they would wait at every call.
            with turn if len(task) > 1 else nullcontext():
                size += _decode(part, options.inflated_bytes - size)
    except BaseException as error:
        failed = error
    try:
        return parts, failed
    finally:
        # The error's traceback references this frame, which would keep the data read in memory until a garbage collection.
        del parts, failed


def _decode(part: _Part, most: int) -> int:
    """Decode a range up to its end, or until its batches have ``most`` bytes; returns how many they have."""
    size = 0
    for batch in part.rest:
        part.batches.append(batch)
        # Batches on a GPU take memory there.
        size += batch.nbytes
        if size >= most:
            break
    return size


def _parts(
    task: list[Range],
    begun: tuple[list[_Part], BaseException | None],
    options: Options,
    damage: OnDamage | None,
    tally: OnTally | None,
    early: OpenedEarly,
) -> Iterator[pa.RecordBatch]:
    parts, failed = begun
    del begun
    parts.reverse()
    done = 0
    while done < len(task):
        if not parts:
            yield from _finish(task[done], Tally(), options, None, damage, tally, early)
            done += 1
            continue
        part = parts.pop()
        yield from part.batches
        if failed is not None and not parts:
            try:
                raise failed
            finally:
                del failed, part
        yield from part.rest
        if isinstance(part.found, Tally):
            _report(task[done], part.found, damage, tally)
            done += 1
            continue
        some = task[done : done + len(part.found.rows)]
        done += len(some)
        if tally is not None:
            # They have no damage.
            for one, found in zip(some, part.found.tallies(some), strict=True):
                tally(one, found)


def _finish(
    one: Range,
    found: Tally,
    options: Options,
    pool: Workers | None,
    damage: OnDamage | None,
    tally: OnTally | None,
    early: OpenedEarly,
) -> Iterator[pa.RecordBatch]:
    yield from _range(one, options, pool, found, early)
    _report(one, found, damage, tally)


def _report(one: Range, found: Tally, damage: OnDamage | None, tally: OnTally | None) -> None:
    if damage is not None:
        for piece in found.damage:
            damage(piece)
    if tally is not None:
        if found.observations is not None:
            found.remarks += found.observations.remarks(one.segment)
        tally(one, found)


def _range(one: Range, options: Options, pool: Workers | None, found: Tally, early: OpenedEarly) -> Iterator[pa.RecordBatch]:
    """Decode one range from start to end, continuing after damage if the options allow it."""
    if one.fault is not None:
        if options.errors == "raise":
            raise one.fault
        found.damage.append(damage_of_fault(one))
        return
    if one.is_bounded:
        options = options.within(one.start_offset, one.end_offset)
    inner, transactions = to_decode(options, one.transactions), one.transactions
    if options.backend == RESIDENT:
        from kolumn.decode.device.resident import ResidentOptions

        assert isinstance(options, ResidentOptions)
        # These are settled on the GPU, where the columns are.
        inner, transactions = options.of_partition(transactions), None
    with early.open(one) as file:

        def until_trouble(rest: Range) -> Generator[pa.RecordBatch, None, Trouble | None]:
            decoded = _until_trouble(file, rest, inner, pool, found)
            return decoded if transactions is None else _settled(decoded, options, transactions)

        yield from resumed(file, one, options.errors, found, until_trouble)


def _settled(
    batches: Generator[pa.RecordBatch, None, Trouble | None], options: Options, transactions: Transactions
) -> Generator[pa.RecordBatch, None, Trouble | None]:
    while True:
        try:
            batch = settle(next(batches), options, transactions)
        except StopIteration as end:
            trouble: Trouble | None = end.value
            return trouble
        if batch.num_rows:
            yield batch


def _until_trouble(
    file: SegmentFile, one: Range, options: Options, pool: Workers | None, found: Tally
) -> Generator[pa.RecordBatch, None, Trouble | None]:
    """Decode up to the end or to the place where the chain of entries is lost."""
    floor = one.floor
    backend = opened(options.backend)
    on_gpu = backend.on_gpu

    def work(chunk: Chunk) -> Decoded:
        # With threads, a chunk is started before the chunks in front of it are done.
        return decode_chunk(file, chunk, options, Floor.NOT_YET_KNOWN if pool else floor, alone=pool is None, backend=backend)

    def plan(start: int, end: int, ahead: bool, size: int) -> _Plan:
        return chunks(file, start, end, size, streamed=True, ahead=ahead, check_crcs=options.check_crcs, as_stored=on_gpu)

    def piece(start: int, end: int) -> InOrder:
        # A piece that is somewhat larger than it should be is still one chunk.
        return _one_by_one(plan(start, end, False, options.chunk_bytes * 5 // 4), work)

    def threaded(start: int, end: int) -> InOrder:
        assert pool is not None
        return _ahead(plan(start, end, True, _together(options)), work, pool, options.threads)

    if pool is None:
        in_order = _one_by_one(plan(one.start, one.end, on_gpu, options.chunk_bytes), work)
    else:
        in_order = threaded(one.start, one.end) if on_gpu else in_pieces(file, one, options, pool, piece, threaded)
    while True:
        try:
            chunk, decoded = next(in_order)
        except StopIteration as end:
            stop: Stop = end.value
            break
        if one.start == chunk.origin == 0:
            compare_start(file, chunk.entries[0], options.errors, found)
        rest: Chunk | None = chunk
        while rest is not None:
            if decoded.undecided:
                decoded = decode_chunk(file, rest, options, floor, alone=True)
            yield from decoded.batches
            if decoded.trouble is not None and decoded.trouble.floor < 0:
                decoded.trouble.floor = floor
            found.add(decoded)
            options.progress(decoded.valid_bytes)
            if decoded.trouble is not None:
                return decoded.trouble
            floor = decoded.last_offset if decoded.last_offset >= 0 else floor
            rest = decoded.rest
            if rest is not None:
                decoded = decode_chunk(file, rest, options, floor, alone=True)
        # They would be in memory together with the next ones.
        del chunk, decoded
    return at_stop(file, stop, floor, found)


_Plan = Generator[Chunk, Reached | None, Stop]
_Work = Callable[[Chunk], Decoded]


def _one_by_one(plan: _Plan, work: _Work) -> InOrder:
    """Decode chunks in this thread; the plan continues where the decoder stopped."""
    reached: Reached | None = None

    def done(chunk: Chunk) -> tuple[Chunk, Decoded]:
        nonlocal reached
        decoded = work(chunk)
        reached = decoded.reached
        return chunk, decoded

    while True:
        try:
            # Without local variables, which would keep the bytes and the batches alive while the next ones are made.
            yield done(plan.send(reached))
        except StopIteration as end:
            stop: Stop = end.value
            return stop


def _ahead(plan: _Plan, work: _Work, pool: Workers, threads: int) -> InOrder:
    """Decode chunks in parallel; the plan runs ahead of their decoders."""
    pending: deque[tuple[Chunk, Future[Decoded]]] = deque()

    def first() -> tuple[Chunk, Decoded]:
        chunk, future = pending.popleft()
        return chunk, future.result()

    try:
        while True:
            try:
                chunk = next(plan)
            except StopIteration as end:
                stop: Stop = end.value
                break
            pending.append((chunk, pool.submit(work, chunk)))
            if len(pending) >= AHEAD * threads:
                yield first()
        while pending:
            yield first()
        return stop
    finally:
        for _, future in pending:
            future.cancel()
