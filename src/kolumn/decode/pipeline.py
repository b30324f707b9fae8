"""The pipeline: ranges of segments in, batches of records out, in order, with a bounded number of chunks in progress.

    ranges -> tasks (a range, or some small ones) -> decoded ahead by threads, up to their share of memory -> in order to the caller

A range that is large is not decoded ahead: threads share its chunks, or its pieces (`pieces`), once it is its turn.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from kolumn.backend import require
from kolumn.core.errors import NoMemoryError
from kolumn.core.threads import DECODE, RunAhead, Workers, in_process, workers
from kolumn.damage.chain import Floor
from kolumn.damage.findings import Damage, Trouble, damage_of_fault
from kolumn.damage.segment_end import at_stop, compare_start, resumed
from kolumn.decode.chunk import decode_chunk
from kolumn.decode.decoder import Batch, opened
from kolumn.decode.opened_early import OpenedEarly
from kolumn.decode.pieces import SHARED, InOrder, in_pieces
from kolumn.decode.result import Decoded, Tally
from kolumn.decode.small_segments import SmallSegments, tasks_of
from kolumn.log.aborted import settle
from kolumn.log.chunks import Chunk, Reached, Stop, chunks
from kolumn.options import AHEAD, Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range
from kolumn.values.stage import finished

_SHORT = 2 * AHEAD
"""Tasks of small ranges for each thread that are short, so that one thread does not wait for the last one of another for long."""

OnDamage = Callable[[Damage], None]
OnTally = Callable[[Range, Tally], None]


def scan_ranges(
    ranges: Iterable[Range], options: Options, damage: OnDamage | None = None, tally: OnTally | None = None
) -> Iterator[pa.RecordBatch]:
    """Decode ranges in order; batches of `decoder.Batch`, in host memory unless the options are for columns on a device.

    ``damage`` is called with every damaged part that ``errors="skip"`` leaves out, ``tally`` with each range and its tally when the range
    is done.

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
    scan = Scan(options.watched if options.typed else options, damage, tally)
    found = in_process(scan.batches(ranges))
    return finished(found, options.columns, options.binary, options.typed) if options.typed else found


class _Done(NamedTuple):
    """Between batches of a task: these ranges are done. What was found in them is told in the thread that asks for batches."""

    ranges: list[Range]
    tallies: Iterable[Tally]


_Item: TypeAlias = "Batch | _Done"


class Scan:
    """One read of ranges: what all of them share."""

    def __init__(self, options: Options, damage: OnDamage | None = None, tally: OnTally | None = None) -> None:
        self.options, self.on_damage, self.on_tally = options, damage, tally
        self.decoder = opened(options.backend, require(options.backend))
        self.files = OpenedEarly()
        self.wants_remarks = tally is not None
        self._small = SmallSegments(options, on_gpu=self.decoder.on_gpu, wants_remarks=self.wants_remarks)
        self._reports = damage is not None or tally is not None
        self.together = options.chunk_bytes if options.threads == 1 or self.decoder.on_gpu else min(options.chunk_bytes, SHARED)
        """Bytes that one thread gets at a time of what is not cut into equal pieces."""

    def batches(self, ranges: Iterable[Range]) -> Generator[Batch, None, None]:
        """Decode ranges in order. An error about missing memory for a chunk or a thread says what to change."""
        options, files = self.options, self.files
        tasks = files.with_following(tasks_of(iter(ranges), self.together, options.chunk_bytes, _SHORT * options.threads))
        try:
            for item in chain.from_iterable(map(self._task, tasks)) if options.threads == 1 else self._by_threads(tasks):
                if isinstance(item, _Done):
                    self._report(item)
                else:
                    yield item
            files.settle(wait=True)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "new thread" not in str(error):
                raise
            raise NoMemoryError(f"out of memory: {error}: read with fewer threads, or a smaller chunk_bytes or memory_bytes") from error
        finally:
            files.close()

    def _by_threads(self, tasks: Iterator[list[Range]]) -> Generator[_Item, None, None]:
        with workers(DECODE, self.options.threads, are_kept=not self.decoder.on_gpu) as pool:
            pending = deque[RunAhead[_Item, None]]()
            try:
                while True:
                    for task in islice(tasks, 1 if pending else AHEAD * self.options.threads):
                        pending.append(self._begun(task, pool))
                    if not pending:
                        return
                    yield from pending.popleft().items()
            finally:
                for one in pending:
                    one.cancel()

    def _begun(self, task: list[Range], pool: Workers) -> RunAhead[_Item, None]:
        if task[0].end - task[0].start > self.together:
            return RunAhead(self._task(task, pool))
        begun = RunAhead(self._task(task))
        begun.begin(pool, _bytes_of, self.options.inflated_bytes)
        return begun

    def _task(self, task: list[Range], pool: Workers | None = None) -> Generator[_Item, None, None]:
        """Decode the ranges of a task; threads of the ``pool`` share it, if there is one."""
        done = 0
        while done < len(task):
            found = self._small.decode(task[done:]) if len(task) > 1 else None
            if found is None:
                one, tally = task[done], Tally()
                if one.fault is None:
                    with self.files.open(one) as file:
                        yield from RangeScan(self, one, file, tally, pool).batches()
                elif self.options.errors == "raise":
                    raise one.fault
                else:
                    tally.damage.append(damage_of_fault(one))
                if self._reports:
                    yield _Done([one], (tally,))
                done += 1
                continue
            some = task[done : done + len(found.rows)]
            if found.batch is not None:
                yield found.batch
            if self._reports:
                yield _Done(some, found.tallies(some))
            done += len(some)

    def _report(self, done: _Done) -> None:
        for one, found in zip(done.ranges, done.tallies, strict=True):
            if self.on_damage is not None:
                for piece in found.damage:
                    self.on_damage(piece)
            if self.on_tally is not None:
                if found.observations is not None:
                    found.remarks += found.observations.remarks(one.segment)
                self.on_tally(one, found)


def _bytes_of(item: _Item) -> int:
    # Batches on a GPU take memory there.
    return 0 if isinstance(item, _Done) else item.nbytes


class RangeScan:
    """One range of a scan, decoded from start to end; what is found in it is added to a tally. Threads of ``pool`` share it."""

    def __init__(self, scan: Scan, one: Range, file: SegmentFile, tally: Tally, pool: Workers | None) -> None:
        self.scan, self.range, self.file, self.tally, self.pool = scan, one, file, tally, pool
        self.options = scan.options
        if one.start_offset is not None or one.end_offset is not None:
            self.options = self.options.within(one.start_offset, one.end_offset)
        self.inner, self.transactions = scan.decoder.settled(self.options, one.transactions)
        self.floor = one.floor

    def batches(self) -> Iterator[Batch]:
        """Decode the range, continuing after damage if the options allow it."""
        return resumed(self.file, self.range, self.options.errors, self.tally, self._until_trouble)

    def _until_trouble(self, rest: Range) -> Generator[Batch, None, Trouble | None]:
        """Decode up to the end or to the place where the chain of entries is lost."""
        self.floor, in_order = rest.floor, self._in_order(rest)
        while True:
            try:
                chunk, decoded = next(in_order)
            except StopIteration as end:
                stop: Stop = end.value
                return at_stop(self.file, stop, self.floor, self.tally, self.scan.wants_remarks)
            if rest.start == chunk.origin == 0:
                compare_start(self.file, chunk.entries[0], self.options.errors, self.tally)
            left: Chunk | None = chunk
            while left is not None:
                if decoded.undecided:
                    decoded = self._decoded_again(left)
                yield from decoded.batches if self.transactions is None else self._settled(decoded)
                if decoded.trouble is not None and decoded.trouble.floor < 0:
                    decoded.trouble.floor = self.floor
                self.tally.add(decoded)
                if self.options.on_progress is not None:
                    self.options.on_progress(decoded.valid_bytes)
                if decoded.trouble is not None:
                    return decoded.trouble
                self.floor = decoded.last_offset if decoded.last_offset >= 0 else self.floor
                left = decoded.rest
                if left is not None:
                    decoded = self._decoded_again(left)
            # They would be in memory together with the next ones.
            del chunk, decoded

    def _settled(self, decoded: Decoded) -> Iterator[Batch]:
        for batch in decoded.batches:
            settled = settle(batch, self.options, self.transactions)
            if settled.num_rows:
                yield settled

    def _in_order(self, rest: Range) -> InOrder:
        on_gpu = self.scan.decoder.on_gpu
        if self.pool is None:
            return self._one_by_one(rest.start, rest.end, on_gpu, self.inner.chunk_bytes)
        if on_gpu:
            return self._shared(rest.start, rest.end)
        return in_pieces(self.file, rest, self.inner, self.pool, self._piece, self._shared)

    def _plan(self, start: int, end: int, ahead: bool, size: int) -> Generator[Chunk, Reached | None, Stop]:
        inner = self.inner
        return chunks(
            self.file, start, end, size, streamed=True, ahead=ahead, check_crcs=inner.check_crcs, as_stored=self.scan.decoder.on_gpu
        )

    def _piece(self, start: int, end: int) -> InOrder:
        # A piece that is somewhat larger than it should be is still one chunk.
        return self._one_by_one(start, end, False, self.inner.chunk_bytes * 5 // 4)

    def _shared(self, start: int, end: int) -> InOrder:
        """Decode chunks in parallel; the plan runs ahead of their decoders."""
        assert self.pool is not None
        return self.pool.ahead(self._decoded, self._plan(start, end, True, self.scan.together), AHEAD * self.inner.threads)

    def _one_by_one(self, start: int, end: int, ahead: bool, size: int) -> InOrder:
        """Decode chunks in this thread; the plan continues where the decoder stopped."""
        plan, reached = self._plan(start, end, ahead, size), None
        while True:
            try:
                decoded = self._decoded(plan.send(reached))
            except StopIteration as stop:
                end_of_plan: Stop = stop.value
                return end_of_plan
            reached = decoded[1].reached
            yield decoded
            # It would keep the bytes and the batches in memory while the next ones are made.
            del decoded

    def _decoded(self, chunk: Chunk) -> tuple[Chunk, Decoded]:
        # With threads, a chunk is started before the chunks in front of it are done.
        floor = self.floor if self.pool is None else Floor.NOT_YET_KNOWN
        return chunk, decode_chunk(self.file, chunk, self.inner, floor, alone=self.pool is None, backend=self.scan.decoder)

    def _decoded_again(self, chunk: Chunk) -> Decoded:
        return decode_chunk(self.file, chunk, self.inner, self.floor, alone=True, backend=self.scan.decoder)
