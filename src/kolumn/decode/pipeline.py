"""The pipeline: ranges of segments in, Arrow record batches out, in order, with a bounded number of chunks under way."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import pyarrow as pa

from kolumn.backend import choose, require
from kolumn.damage.findings import Damage, Trouble, damage_of_fault
from kolumn.decode.chain import Floor
from kolumn.decode.chunk import decode_chunk
from kolumn.decode.device.resident import ResidentOptions
from kolumn.decode.result import Decoded, Tally
from kolumn.decode.resume import resumed
from kolumn.decode.segment_end import at_stop, compare_start
from kolumn.errors import NoMemoryError
from kolumn.options import AHEAD, Options
from kolumn.plan.chunks import Chunk, Stop, chunks
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range
from kolumn.transactions.states import Transactions, settle, to_decode

OnDamage = Callable[[Damage], None]
OnTally = Callable[[Range, Tally], None]
_Begun = tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch]]


def scan_ranges(
    ranges: Iterable[Range], options: Options, damage: OnDamage | None = None, tally: OnTally | None = None
) -> Iterator[pa.RecordBatch]:
    """Decode ranges in order.

    Parameters
    ----------
    ranges : iterable of Range
        Small ones are decoded side by side, large ones chunk by chunk.
    options : Options
    damage : callable, optional
        Is given every piece of damage that ``errors="skip"`` leaves out.
    tally : callable, optional
        Is given each range and what was found in it, when it is done.

    Raises
    ------
    MissingError
        At the call: a GPU was asked for, and there is none.
    CorruptBatchError
        Damage, with ``errors="raise"``; everything before it has been given by then.
    NoMemoryError
        There is no memory for a chunk of entries. (For what a single one inflates to: LimitError.)
    """
    require(options.backend)
    return _within_memory(_scan(iter(ranges), options, damage, tally))


def _within_memory(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Name what to do where there is no memory for a chunk, or for a thread."""
    try:
        yield from batches
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "new thread" not in str(error):
            raise
        raise NoMemoryError(f"out of memory: {error}: read with fewer threads, or a smaller chunk_bytes or memory_bytes") from error


def _scan(source: Iterator[Range], options: Options, damage: OnDamage | None, tally: OnTally | None) -> Iterator[pa.RecordBatch]:
    if options.threads == 1:
        for one in source:
            yield from _finish(one, Tally(), options, None, damage, tally)
        return
    with ThreadPoolExecutor(options.threads, thread_name_prefix="kolumn") as pool:
        pending: deque[tuple[Range, Tally, Future[_Begun] | None]] = deque()

        def submit(one: Range) -> None:
            found = Tally()
            small = one.end - one.start <= options.chunk_bytes
            pending.append((one, found, pool.submit(_begin, one, found, options) if small else None))

        try:
            for one in islice(source, AHEAD * options.threads):
                submit(one)
            while pending:
                one, found, future = pending.popleft()
                if future is None:
                    yield from _finish(one, found, options, pool, damage, tally)
                else:
                    for batches in future.result():
                        yield from batches
                    _report(one, found, damage, tally)
                for one in islice(source, 1):
                    submit(one)
        finally:
            for _, _, future in pending:
                if future is not None:
                    future.cancel()


def _begin(one: Range, found: Tally, options: Options) -> _Begun:
    """Decode a range as far as its share of memory goes, and what decodes the rest when nothing before it is left."""
    source = _range(one, options, None, found)
    batches, size = [], 0
    for batch in source:
        batches.append(batch)
        # On a GPU, of the memory there.
        size += batch.nbytes
        if size >= options.inflated_bytes:
            return batches, source
    return batches, iter(())


def _finish(
    one: Range, found: Tally, options: Options, pool: ThreadPoolExecutor | None, damage: OnDamage | None, tally: OnTally | None
) -> Iterator[pa.RecordBatch]:
    yield from _range(one, options, pool, found)
    _report(one, found, damage, tally)


def _report(one: Range, found: Tally, damage: OnDamage | None, tally: OnTally | None) -> None:
    if damage is not None:
        for piece in found.damage:
            damage(piece)
    if tally is not None:
        tally(one, found)


def _range(one: Range, options: Options, pool: ThreadPoolExecutor | None, found: Tally) -> Iterator[pa.RecordBatch]:
    """Decode one range, start to end, going on behind damage where the options say so."""
    if one.fault is not None:
        if options.errors == "raise":
            raise one.fault
        found.damage.append(damage_of_fault(one))
        return
    if one.is_bounded:
        options = options.within(one.first, one.behind)
    inner, transactions = to_decode(options, one.transactions), one.transactions
    if isinstance(options, ResidentOptions):
        # Settled where the columns are.
        inner, transactions = options.of_partition(transactions), None
    with SegmentFile(one.segment) as file:

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
    file: SegmentFile, one: Range, options: Options, pool: ThreadPoolExecutor | None, found: Tally
) -> Generator[pa.RecordBatch, None, Trouble | None]:
    """Decode up to the end or to where the chain of entries is lost."""
    floor = one.floor
    streamed, ahead = _reads_itself(options), pool is not None or choose(options.backend) == "gpu"
    plan = chunks(file, one.start, one.end, options.chunk_bytes, streamed=streamed, ahead=ahead, check_crcs=options.check_crcs)

    def work(chunk: Chunk) -> Decoded:
        # With threads a chunk is begun before those in front of it are done.
        return decode_chunk(file, chunk, options, Floor.NOT_YET_KNOWN if pool else floor, pool is None)

    in_order = _one_by_one(plan, work) if pool is None else _ahead(plan, work, pool, options.threads)
    while True:
        try:
            chunk, decoded = next(in_order)
        except StopIteration as end:
            stop: Stop = end.value
            break
        if one.start == 0:
            compare_start(file, chunk.rows[0], options.errors, found)
        rest: Chunk | None = chunk
        while rest is not None:
            if decoded.undecided:
                decoded = decode_chunk(file, rest, options, floor, True)
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
                decoded = decode_chunk(file, rest, options, floor, True)
    return at_stop(file, stop, floor, found)


def _reads_itself(options: Options) -> bool:
    """Whether the backend reads runs of format 2 batches in a way of its own."""
    if choose(options.backend) == "cpu":
        return "headers" not in options.columns
    from kolumn.kernels.machine.device import runtime

    return runtime().reads_files


_Plan = Generator[Chunk, int | None, Stop]
_Work = Callable[[Chunk], Decoded]
_InOrder = Generator[tuple[Chunk, Decoded], None, Stop]


def _one_by_one(plan: _Plan, work: _Work) -> _InOrder:
    """Decode chunks in this thread; the plan goes on where the decoder got to."""
    reached: int | None = None

    def done(chunk: Chunk) -> tuple[Chunk, Decoded]:
        nonlocal reached
        decoded = work(chunk)
        reached = decoded.reached
        return chunk, decoded

    while True:
        try:
            chunk = plan.send(reached)
        except StopIteration as end:
            stop: Stop = end.value
            return stop
        # By no name of this frame, which would keep the batches after the caller has passed them on.
        yield done(chunk)


def _ahead(plan: _Plan, work: _Work, pool: ThreadPoolExecutor, threads: int) -> _InOrder:
    """Decode chunks side by side; the plan goes ahead of their decoders."""
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
