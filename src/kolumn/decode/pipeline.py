"""The pipeline: ranges of segments in, batches of records out, in order, with a bounded number of chunks in progress.

    ranges -> tasks (a range, or some small ones) -> decoded ahead by threads, up to their share of memory -> in order to the caller

A range that is large is not decoded ahead: threads share it, once it is its turn, chunk by chunk, or in pieces. A thread walks and decodes
its piece as one thread does with a whole segment. Where a piece begins is a guess (`kolumn.decode.host.chunks`), which is confirmed when
the piece before it ends there. If that one ends elsewhere, the pieces after it are dropped, and others are cut from there on.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from kolumn.backend import RESIDENT
from kolumn.core.buffers import first_rows, int64s, keep
from kolumn.core.errors import Code, NoMemoryError
from kolumn.core.lost import LostValues
from kolumn.core.threads import DECODE, RunAhead, Workers, forked, keep_forever, workers
from kolumn.damage.findings import OnDamage, Tally, Trouble, damage_of_fault, lost_of, tell_stops
from kolumn.damage.search import Floor
from kolumn.damage.segment_end import at_stop, compare_start, rest_after
from kolumn.decode.chunk import Batch, Decoded, Decoder, decode_chunk, decoder_of
from kolumn.decode.host.aborted import may_stop, settle
from kolumn.decode.host.chunks import Chunk, Reached, Stop, chunks, header_rows, is_packed, next_border
from kolumn.decode.observed import Observations
from kolumn.decode.opened_early import OpenedEarly
from kolumn.decode.predicate import Predicate
from kolumn.decode.raw_offsets import Deltas
from kolumn.decode.small_segments import SmallSegments, tasks_of
from kolumn.decode.stops import stops
from kolumn.formats.entries import Entries
from kolumn.options import AHEAD, Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range
from kolumn.values.typed import counted_in, finished

SHARED = 8 << 20
"""Bytes of a range from which on threads share it, and of small ranges that one thread gets at a time, if chunks are not smaller."""
LEARNT_FROM = 1 << 16  # bytes from which it is learnt how far a segment is compressed
_SHORT = 2 * AHEAD
"""Tasks of small ranges for each thread that are short, so that one thread does not wait for the last one of another for long."""

OnTally = Callable[[Range, Tally], None]
InOrder = Generator[tuple[Chunk, Decoded], None, Stop]
_Pieces = deque[tuple[int, RunAhead[tuple[Chunk, Decoded], Stop]]]


def scan_ranges(
    ranges: Iterable[Range],
    options: Options,
    damage: OnDamage | None = None,
    tally: OnTally | None = None,
    decoder: "Decoder | None" = None,
    predicate: Predicate | None = None,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode ranges in order; batches of `chunk.Batch`, in host memory unless the options are for columns on a device.

    ``damage`` is called with every damaged part that ``errors="skip"`` leaves out; a `Skipped` counts what is lost of values too,
    and has the open transactions at which the read stops; these are logged otherwise. ``tally``
    is called with each range and its tally when the range is done. ``decoder`` is that of the options, if it is known. With a
    ``predicate`` only records that match are returned; nothing is typed then. At most ``limit`` records are returned, and what others lost
    is not told. The call itself raises `MissingError` if a GPU was
    requested, and there is none. After the records before it come:
    `CorruptBatchError` for a damaged entry, with ``errors="raise"``; `PayloadError` for a value or key that is not valid, with
    ``value_errors`` or ``key_errors`` "raise"; `NoMemoryError` if there is no memory for a chunk (`LimitError` if a single entry
    decompresses to too much); `KolumnError` in a process that was forked after the first batch.
    """
    watched = options.watched if options.typed else options
    scan = _Scan(watched, damage, tally, decoder or decoder_of(options.backend), predicate)
    if options.isolation_level == "read_committed":
        batches: Iterator[Batch] = _up_to_stops(scan, list(ranges))
    else:
        batches = scan.batches(ranges)
    if options.backend == RESIDENT:
        return _counted(batches, lost_of(damage))
    if limit is not None:
        batches = first_rows(batches, limit)
    if not options.typed:
        return batches
    return finished(batches, options.columns, options.binary, options.typed, lost_of(damage))


def _up_to_stops(scan: "_Scan", ranges: list[Range]) -> Iterator[Batch]:
    """The batches of a scan, which tells at its end where it has stopped before the end of a log."""
    yield from scan.batches(ranges)
    if may_stop(scan.options):
        tell_stops(stops(ranges, scan.options), scan.on_damage)


def _counted(tables: Iterable[Any], lost: LostValues | None) -> Iterator[Any]:
    """Tables on a device, each with what it lost of typed values."""
    with counted_in(lost) as counted:
        for table in tables:
            counted.update(table.lost)
            yield table


class _Done(NamedTuple):
    """Between batches of a task: these ranges are done. What was found in them is told in the thread that asks for batches."""

    ranges: list[Range]
    tallies: Iterable[Tally]


_Item: TypeAlias = "Batch | _Done"


class _Scan:
    """One read of ranges: what all of them share."""

    def __init__(
        self, options: Options, on_damage: OnDamage | None, on_tally: OnTally | None, decoder: Decoder, predicate: Predicate | None
    ) -> None:
        self.options, self.on_damage, self.on_tally, self.decoder, self.predicate = options, on_damage, on_tally, decoder, predicate
        self.together = options.chunk_bytes if options.threads == 1 or self.decoder.on_gpu else min(options.chunk_bytes, SHARED)
        """Bytes that one thread gets at a time of what is not cut into equal pieces."""
        self._files: OpenedEarly | None = None
        self._small: SmallSegments | None = None

    def batches(self, ranges: Iterable[Range]) -> Generator[Batch, None, None]:
        """Decode ranges in order. An error about missing memory for a chunk or a thread says what to change."""
        options, process = self.options, os.getpid()
        if isinstance(ranges, list) and len(ranges) == 1 and ranges[0].segment.manifest is None and "://" not in ranges[0].segment.path:
            # Nothing is opened ahead, and no small segments are decoded together.
            tasks = iter([ranges])
        else:
            self._files = OpenedEarly()
            every = options if self.predicate is None else self.predicate.everything(options)
            self._small = SmallSegments(every, on_gpu=self.decoder.on_gpu, wants_remarks=self.on_tally is not None)
            several = tasks_of(iter(ranges), self.together, options.chunk_bytes, _SHORT * options.threads)
            tasks = self._files.with_following(several)
        items: Iterator[_Item] = chain.from_iterable(map(self._task, tasks)) if options.threads == 1 else self._by_threads(tasks)
        try:
            for item in items:
                if isinstance(item, _Done):
                    self._report(item)
                    continue
                yield item
                if os.getpid() != process:
                    raise forked(process)
            if self._files is not None:
                self._files.settle(wait=True)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "new thread" not in str(error):
                raise
            raise NoMemoryError(f"out of memory: {error}: read with fewer threads, or a smaller chunk_bytes or memory_bytes") from error
        finally:
            if os.getpid() != process:
                keep_forever((self, items))
            elif self._files is not None:
                self._files.close()
            # An error's traceback references this frame, which would keep the data read in memory until a garbage collection.
            del items

    def _by_threads(self, tasks: Iterator[list[Range]]) -> Generator[_Item, None, None]:
        with workers(DECODE, self.options.threads, are_kept=not self.decoder.on_gpu) as pool:
            pending = deque[RunAhead[_Item, None]]()
            try:
                while True:
                    for task in islice(tasks, 1 if pending else AHEAD * self.options.threads):
                        if task[0].end - task[0].start > self.together:
                            pending.append(RunAhead(self._task(task, pool)))
                        else:
                            pending.append(RunAhead(self._task(task)))
                            pending[-1].begin(pool, _bytes_of, self.options.inflated_bytes)
                    if not pending:
                        return
                    yield from pending.popleft().items()
            finally:
                for ahead in pending:
                    ahead.cancel()

    def _task(self, task: list[Range], pool: Workers | None = None) -> Generator[_Item, None, None]:
        """Decode the ranges of a task; threads of the ``pool`` share it, if there is one."""
        done, reports = 0, self.on_damage is not None or self.on_tally is not None
        while done < len(task):
            together = self._small.decode(task[done:]) if self._small is not None and len(task) > 1 else None
            if together is not None:
                some = task[done : done + len(together.rows)]
                if together.batch is not None:
                    yield together.batch if self.predicate is None else self.predicate.of(together.batch, self.options)
                if reports:
                    yield _Done(some, together.tallies(some))
                done += len(some)
                continue
            part, tally = task[done], Tally()
            if part.fault is None:
                with SegmentFile(part.segment) if self._files is None else self._files.open(part) as file:
                    scan = _RangeScan(self, part, file, tally, pool)
                    rest: Range | None = part
                    while rest is not None:
                        rest = rest_after((yield from scan.until_trouble(rest)), file, part, self.options.errors, tally)
                    if scan.matching:
                        yield from scan.matching_records()
                if scan.observations is not None:
                    tally.remarks += scan.observations.remarks(part.segment)
                if scan.deltas is not None:
                    tally.remarks += scan.deltas.remarks(part)
                del scan
            elif self.options.errors == "raise":
                raise part.fault
            else:
                tally.damage.append(damage_of_fault(part))
            if reports:
                yield _Done([part], (tally,))
            done += 1

    def _report(self, done: _Done) -> None:
        for part, tally in zip(done.ranges, done.tallies, strict=True):
            if self.on_damage is not None:
                for piece in tally.damage:
                    self.on_damage(piece)
            if self.on_tally is not None:
                self.on_tally(part, tally)


def _bytes_of(item: _Item) -> int:
    # Batches on a GPU take memory there.
    return 0 if isinstance(item, _Done) else item.nbytes


class _RangeScan:
    """One range of a scan, decoded from start to end; what is found in it is added to a tally. Threads of ``pool`` share it."""

    def __init__(self, scan: _Scan, part: Range, file: SegmentFile, tally: Tally, pool: Workers | None) -> None:
        self.scan, self.file, self.tally, self.pool, self.floor = scan, file, tally, pool, part.floor
        self.options = scan.options
        self.deltas: Deltas | None = None
        if part.offsets is not None:
            # The bounds of the range have those of the options.
            self.options = replace(self.options, start_offset=None, end_offset=None)
            if "offset" in self.options.columns or scan.on_tally is not None:
                delta = part.offsets if isinstance(part.offsets, int) else part.offsets.before(part)
                self.deltas = Deltas(delta, watched=scan.on_tally is not None)
        if part.start_offset is not None or part.end_offset is not None:
            self.options = self.options.within(part.start_offset, part.end_offset)
        self.columns, self.without = list(self.options.columns), part.without
        if part.without is not None:
            self.options = replace(self.options, columns=tuple(dict.fromkeys((*self.columns, "offset"))))
        self.inner, self.transactions = self.options, None
        if part.transactions is not None:
            self.inner, self.transactions = scan.decoder.settled(self.options, part.transactions)
        self.settles = self.transactions is not None or self.without is not None or self.deltas is not None
        self.observations: Observations | None = None
        self.matching = list[Entries]()

    def until_trouble(self, rest: Range) -> Generator[Batch, None, Trouble | None]:
        """Decode up to the end or to the place where the chain of entries is lost."""
        self.floor, on_gpu = rest.floor, self.scan.decoder.on_gpu
        plan, in_order = self._plan(rest.start, rest.end, on_gpu, self.inner.chunk_bytes), None
        reached: Reached | None = None
        if self.pool is not None:
            in_order = self._shared(rest.start, rest.end) if on_gpu else self._in_pieces(rest, self.pool)
        while True:
            try:
                if in_order is not None:
                    chunk, decoded = next(in_order)
                else:
                    chunk = plan.send(reached)
                    decoded = self._decoded(chunk)
                    reached = decoded.reached
            except StopIteration as end:
                stop: Stop = end.value
                return at_stop(self.file, stop, self.floor, self.tally, self.scan.on_tally is not None)
            if rest.start == chunk.origin == 0:
                compare_start(self.file, chunk.entries, self.options.errors, self.tally)
            left: Chunk | None = chunk
            while left is not None:
                if decoded.undecided:
                    decoded = self._decoded_again(left)
                # Before its batches: who takes no more of them has read the chunk.
                self._add(decoded)
                for batch in decoded.batches:
                    settled = self._settled(batch) if self.settles else batch
                    if settled.num_rows:
                        yield settled
                    del batch, settled
                if decoded.trouble is not None and decoded.trouble.floor < 0:
                    decoded.trouble.floor = self.floor
                if decoded.trouble is not None:
                    if self.deltas is not None and decoded.trouble.row is not None:
                        self.deltas.add(Entries(decoded.trouble.row.array.reshape(1, -1)))
                    return decoded.trouble
                self.floor = decoded.last_offset if decoded.last_offset >= 0 else self.floor
                left = decoded.rest
                if left is not None:
                    decoded = self._decoded_again(left)
            # They would be in memory together with the next ones.
            del chunk, decoded

    def _settled(self, batch: Batch) -> Batch:
        settled = batch if self.transactions is None else settle(batch, self.options, self.transactions)
        if self.without is not None:
            # Such ranges are not decoded to columns on a device.
            assert isinstance(settled, pa.RecordBatch)
            settled = keep(settled, ~np.isin(int64s(settled["offset"]), self.without)).select(self.columns)
        if self.deltas is not None:
            assert isinstance(settled, pa.RecordBatch)
            settled = self.deltas.translated(settled)
        return settled

    def matching_records(self) -> Iterator[Batch]:
        """The records of entries with matching ones, which were not decoded as a whole before."""
        if self.scan.predicate is not None:
            yield from map(self._settled, self.scan.predicate.records(self.file, self.matching, self.inner, self.pool))

    def _add(self, decoded: Decoded) -> None:
        """Add the counts and the damage of a chunk, and the entries that have matching records."""
        tally = self.tally
        if decoded.matching is not None and len(decoded.matching):
            first, last = int(decoded.matching[0]), int(decoded.matching[-1])
            known = [decoded.entries] if decoded.entries is not None else [*header_rows(self.file, first, last + 1)]
            self.matching += [entries[np.isin(entries.position, decoded.matching)] for entries in known]
        tally.batches += decoded.intact
        tally.records += decoded.records
        tally.valid_bytes += decoded.valid_bytes
        tally.inflated_by_cpu += decoded.inflated_by_cpu
        tally.damage += decoded.damage
        if self.deltas is not None and decoded.framed is not None:
            self.deltas.add(decoded.framed)
        for observed in decoded.observed:
            self.observations = self.observations or Observations()
            self.observations.add(observed)
        if self.options.on_progress is not None:
            self.options.on_progress(decoded.valid_bytes)

    def _piece(self, start: int, end: int, size: int) -> InOrder:
        """Decode the chunks of a piece; the plan continues where the decoder stopped."""
        plan, reached = self._plan(start, end, False, size), None
        while True:
            try:
                chunk = plan.send(reached)
            except StopIteration as stop:
                end_of_plan: Stop = stop.value
                return end_of_plan
            decoded = self._decoded(chunk)
            reached = decoded.reached
            yield chunk, decoded
            # They would keep the bytes and the batches in memory while the next ones are made.
            del chunk, decoded

    def _shared(self, start: int, end: int) -> InOrder:
        """Decode chunks in parallel; the plan runs ahead of their decoders."""
        assert self.pool is not None
        plan = self._plan(start, end, True, self.scan.together)
        return self.pool.ahead(lambda chunk: (chunk, self._decoded(chunk)), plan, AHEAD * self.inner.threads)

    def _in_pieces(self, rest: Range, pool: Workers) -> InOrder:
        """Decode a range in several threads, a piece each; from where no format 2 batch begins nothing is cut into pieces."""
        file, options, pending = self.file, self.inner, _Pieces()
        position = planned = rest.start
        cut = 0
        # A piece that is somewhat larger than it should be is still one chunk.
        size = options.chunk_bytes * 5 // 4
        if not file.sizes.density and is_packed(file, rest.start, rest.end):
            # Pieces of equal size can be cut only if it is known how far they are compressed, so a few batches are decoded once more.
            # What is wrong with them is reported when they are decoded in a piece.
            with suppress(Exception):
                next(self._piece(rest.start, min(rest.start + LEARNT_FROM, rest.end), size))
        try:
            while True:
                while planned < rest.end and len(pending) < AHEAD * options.threads:
                    border = next_border(file, planned, rest.end, options.chunk_bytes, options.threads, cut)
                    if border is None:
                        break
                    pending.append((border, RunAhead(self._piece(planned, border, size))))
                    pending[-1][1].begin(pool, _bytes_ahead, options.inflated_bytes)
                    planned, cut = border, cut + 1
                if not pending:
                    return (yield from self._shared(position, rest.end)) if position < rest.end else Stop(position, Code.OK, 0)
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

    def _plan(self, start: int, end: int, ahead: bool, size: int) -> Generator[Chunk, Reached | None, Stop]:
        as_stored = self.scan.decoder.on_gpu
        return chunks(self.file, start, end, size, streamed=True, ahead=ahead, check_crcs=self.inner.check_crcs, as_stored=as_stored)

    def _decoded(self, chunk: Chunk) -> Decoded:
        # With threads, a chunk is started before the chunks in front of it are done.
        floor, alone = self.floor if self.pool is None else Floor.NOT_YET_KNOWN, self.pool is None
        if self.scan.predicate is not None:
            return self.scan.predicate.decoded(self.inner, partial(self._with_columns, chunk, floor, alone))
        return decode_chunk(self.file, chunk, self.inner, floor, alone=alone, backend=self.scan.decoder)

    def _decoded_again(self, chunk: Chunk) -> Decoded:
        if self.scan.predicate is not None:
            return self.scan.predicate.decoded(self.inner, partial(self._with_columns, chunk, self.floor, True))
        return self._with_columns(chunk, self.floor, True, self.inner)

    def _with_columns(self, chunk: Chunk, floor: int | Floor, alone: bool, options: Options) -> Decoded:
        return decode_chunk(self.file, chunk, options, floor, alone=alone, backend=self.scan.decoder)


def _drop(pending: _Pieces) -> None:
    for _, piece in pending:
        piece.cancel()
    pending.clear()


def _bytes_ahead(item: tuple[Chunk, Decoded]) -> int:
    """Bytes of a chunk's batches; nothing is decoded ahead after trouble."""
    decoded = item[1]
    return sys.maxsize if decoded.trouble is not None or decoded.undecided else sum([batch.nbytes for batch in decoded.batches])
