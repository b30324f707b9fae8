"""Small segments some together: their records become one record batch, and they cost one call of compiled code.

What is read of a segment, and what is compared, is the same as in `kolumn.decode.pipeline`. A segment with anything unusual is left to it.
"""

import ctypes
import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.errors import Code, KolumnError
from kolumn.core.paths import TOGETHER, is_on
from kolumn.core.recycle import take, take_array
from kolumn.cpu_fallback.columns.memory import RecordMemory
from kolumn.cpu_fallback.fields.put import COPY
from kolumn.cpu_fallback.fields.target import HEADER_KEY, HEADER_VALUE, HEADERS, KEY, ROWS, VALUE
from kolumn.cpu_fallback.inflate.libraries import decoders
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.cpu_fallback.stream import ARENA, LARGEST, PACKED, PLAIN, SLOTS, UNTIMED, Room, Source, Span
from kolumn.cpu_fallback.stream_files import (
    BORN,
    BORN_NS,
    DEVICE,
    INODE,
    LOOK_BYTES,
    MODIFIED,
    MODIFIED_NS,
    PATH,
    SIZE,
    TAIL,
    TAIL_BYTES,
    WIDTH,
    Calls,
    stream_files,
)
from kolumn.damage.segment_end import at_stop, compare_start
from kolumn.decode.host.record_batch import record_batch
from kolumn.decode.host.run import Run, in_microseconds, limits, memory_for, modes
from kolumn.decode.host.streamed import BLOCK, INFLATED, SLACK
from kolumn.decode.result import Tally
from kolumn.formats import table
from kolumn.formats.entries import Entries, Entry
from kolumn.formats.v2 import SMALLEST_RECORD
from kolumn.log.chunks import MOST_ENTRIES, Stop
from kolumn.options import Options
from kolumn.source import storage
from kolumn.source.segment_file import SegmentFile, SizeEstimate
from kolumn.source.segments import HIGHEST, Range, Segment
from kolumn.values.stage import typed_batch

SMALL = 1 << 18
"""Bytes of a segment that is decoded together with its neighbours: it takes less time in loops than in Python."""
MOST_SEGMENTS = 256
_MOST_SKIPPED = 64
_MARGIN = 1.2
_NS = 1_000_000_000


class Found(NamedTuple):
    """Segments that were decoded: of each the number of its entries, and of their records; and the records of all, if they have any.

    ``judged`` has by the numbers of segments what was found at their beginning or end that names alone do not tell.
    """

    entries: list[int]
    rows: list[int]
    judged: dict[int, Tally]
    batch: pa.RecordBatch | None

    def tallies(self, ranges: Sequence[Range]) -> Iterator[Tally]:
        """The tally of each of these segments, for those who ask."""
        for i, (one, entries, rows) in enumerate(zip(ranges, self.entries, self.rows, strict=True)):
            tally = self.judged.get(i) or Tally()
            tally.batches, tally.records, tally.valid_bytes = entries, rows, one.segment.size
            yield tally


def tasks_of(source: Iterator[Range], chunk_bytes: int, more_bytes: int = 0, after: int = 0) -> Iterator[list[Range]]:
    """Ranges for a thread each: one, or several small ones. If the source fails, those that it named before come first.

    Several have about ``chunk_bytes``. If that is little, so that threads share the small ranges of a short source too, ``more_bytes``
    are for those of a long one, after so many of the first ones: each task costs waits for Python's lock.
    """
    held: list[Range] = []
    size, begun, failed = 0, 0, None
    while True:
        try:
            one = next(source)
        except StopIteration:
            break
        except BaseException as error:
            failed = error
            break
        own = one.end - one.start
        if held and (own > SMALL or size + own > chunk_bytes or len(held) == MOST_SEGMENTS):
            yield held
            held, size, begun = [], 0, begun + 1
            if begun >= after:
                chunk_bytes = max(chunk_bytes, more_bytes)
        if own > SMALL:
            yield [one]
        else:
            held.append(one)
            size += own
    if held:
        yield held
    if failed is not None:
        try:
            raise failed
        finally:
            del failed


class SmallSegments:
    """Decodes the small segments of one read; several threads may call it."""

    def __init__(self, options: Options, on_gpu: bool, wants_remarks: bool) -> None:
        self.options, self.stored, self.wants_remarks = options, options.stored if options.typed else options, wants_remarks
        self.sizes = SizeEstimate(1.0, 1 / 50, shares=(1.0, 1.0, 1 / 8, 1 / 4))
        is_usual = options.binary == "contiguous" and not options.remarks
        self.is_possible = is_usual and not on_gpu and is_on(TOGETHER) and _calls() is not None
        self._unusual = self._to_skip = 0

    def decode(self, ranges: Sequence[Range]) -> Found | None:
        """Decode the first ones of some ranges; None if the first one has to be decoded alone."""
        if self._to_skip:
            self._to_skip -= 1
            return None
        if not self.is_possible or len(ranges) < 2:
            return None
        some = ranges[: _simple(ranges)]
        if len(some) < 2:
            return None
        found = self._decoded(some)
        # Where one is unusual, others are: formats 0 and 1, or damage.
        self._unusual = min(2 * self._unusual + 1, _MOST_SKIPPED) if found is None else 0
        self._to_skip = self._unusual
        return found

    def _decoded(self, ranges: Sequence[Range]) -> Found | None:
        segments = [one.segment for one in ranges]
        memory, room = self._memory(sum([segment.size for segment in segments]))
        entries, records = (
            Entries(take_array(MOST_ENTRIES * table.WIDTH, np.int64).reshape(-1, table.WIDTH)),
            take_array(MOST_ENTRIES, np.int64),
        )
        ends, written = (np.zeros(shape, np.int64) for shape in (len(segments), (len(segments), SLOTS)))
        done = self._stream(segments, entries, records, ends, written, memory, room)
        if not done:
            sizes = self.sizes
            sizes.inflates, sizes.density = min(2 * sizes.inflates, 64.0), min(2 * sizes.density, 1 / SMALLEST_RECORD)
            sizes.largest = 0
            return None
        bounds, ends = [0, *ends[: done - 1].tolist()], ends[:done]
        entries, counts, rows = entries[: ends[-1]], np.diff(ends, prepend=0).tolist(), np.diff(written[:done, ROWS], prepend=0).tolist()
        judged = dict[int, Tally]()
        for i in self._unlike_names(segments[:done], entries.base_offset[bounds].tolist(), entries.last_offset[ends - 1].tolist()):
            tally = _judged(ranges[i], entries[bounds[i]], entries[bounds[i] + counts[i] - 1])
            if tally is None:
                return self._decoded(ranges[:i]) if i else None
            judged[i] = tally
        at = memory.at.tolist()
        self._learn(at)
        if self.options.on_progress is not None:
            for segment in segments[:done]:
                self.options.on_progress(segment.size)
        batch = None
        if at[ROWS]:
            run = Run(memory.columns(at), records[: len(entries)], [], {}, bool(at[UNTIMED]))
            batch = record_batch(run, entries, list(zip(segments[:done], rows, strict=True)), self.stored)
            if batch.num_rows and self.options.typed:
                batch = typed_batch(batch, self.options.columns, self.options.typed)
        return Found(counts, rows, judged, batch if batch is not None and batch.num_rows else None)

    def _stream(
        self, segments: list[Segment], entries: Entries, records: Any, ends: Any, written: Any, memory: RecordMemory, room: Room
    ) -> int:
        """Call the loop; returns how many segments it has decoded."""
        files, held = _files(segments)
        (window, _), (arena, _), (look, _), calls = take(SMALL + PAD), take(room.arena + PAD), take(LOOK_BYTES + PAD), _calls()
        assert calls is not None
        empty = np.zeros(1, np.uint8)
        addresses = Calls(*calls, look.address, empty.ctypes.data)
        source = Source(0, window.address, window.address, arena.address, SMALL, BLOCK, False, False, decoders())
        span = Span(0, 0, 0.0, self.sizes.inflates)
        done = stream_files(
            addresses, files, source, span, limits(self.options), entries.array, records, ends, written, memory.target, memory.at, room
        )  # fmt: skip
        del held
        return done

    def _memory(self, size: int) -> tuple[RecordMemory, Room]:
        """Memory for the records of so many bytes of segments, as far as those before let expect it."""
        options, sizes = self.stored, self.sizes
        # Columns that are mostly empty would be copied. A batch is appended where there is room for all of its bytes.
        more, more_rows = (2 * sizes.largest, int(2 * sizes.largest * sizes.density)) if sizes.largest else (INFLATED, SLACK)
        payload_bytes = min(int(size * sizes.inflates * _MARGIN) + more, max(options.inflated_bytes, SMALL))
        rows = min(int(payload_bytes * sizes.density * _MARGIN) + more_rows, payload_bytes // SMALLEST_RECORD)
        arena, of_payloads = min(INFLATED, options.max_batch_bytes), modes(options, COPY, "controlType" in options.columns)
        return memory_for(sizes, payload_bytes, rows, more, of_payloads, options, SLOTS, arena, in_microseconds(options))

    def _learn(self, at: list[int]) -> None:
        sizes = self.sizes
        if at[ROWS]:
            sizes.largest = max(at[LARGEST], sizes.largest // 2)
            columns = at[KEY], at[VALUE], at[HEADER_KEY], at[HEADER_VALUE]
            sizes.learn(at[PLAIN] + at[ARENA], at[ROWS], at[HEADERS], columns, at[PACKED], at[ARENA])

    def _unlike_names(self, segments: list[Segment], first: list[int], last: list[int]) -> list[int]:
        """Numbers of the segments whose names and neighbours do not say that their first and last offsets are right."""
        found, remarks = [], self.wants_remarks
        for i, (one, begun, ended) in enumerate(zip(segments, first, last, strict=True)):
            base, following = one.base_offset, one.following
            starts = base is None or begun == base or (begun > base and not remarks)
            ends = following == ended + 1 or (following is None and not remarks)
            if not (starts and ends) or one.orphans or one.twin is not None or (remarks and one.preceding is None and begun != 0):
                found.append(i)
        return found


@cache
def _calls() -> tuple[int, int, int] | None:
    """Addresses of ``open``, ``statx`` and ``close``; None if the system lacks one."""
    library = ctypes.CDLL(None)
    addresses = list[int]()
    for name in ("open", "statx", "close"):
        function: Any = getattr(library, name, None)
        if function is None:
            return None
        addresses.append(ctypes.cast(function, ctypes.c_void_p).value or 0)
    first, second, third = addresses
    return first, second, third


def _simple(ranges: Sequence[Range]) -> int:
    """How many ranges, from the first on, are whole segments of this machine, in a shipped format, and need nothing else of the log."""
    for i, one in enumerate(ranges):
        segment = one.segment
        identity = segment.identity
        if (
            not 0 < segment.size <= SMALL
            or one.start != 0
            or one.end != segment.size
            or one.fault is not None
            or one.transactions is not None
            or one.start_offset is not None
            or one.end_offset is not None
            or segment.format != "kafka"
            or segment.memory is not None
            or segment.manifest is not None
            or identity is None
            or identity.inode is None
            or identity.inode > HIGHEST
            or ("://" in segment.path and storage.is_url(segment.path))
        ):
            return i
    return len(ranges)


def _files(segments: list[Segment]) -> tuple[Any, list[Any]]:
    """The table of the files for the loop, and the memory that it refers to."""
    identities = [one.identity for one in segments if one.identity is not None]
    tails = [one.tail or b"" for one in identities]
    names, last = (
        np.frombuffer(some, np.uint8) for some in (os.fsencode("\0".join([one.path for one in segments])) + b"\0", b"".join(tails) + b"\0")
    )
    files = np.empty((len(segments), WIDTH), np.int64)
    files[:, SIZE] = [one.size for one in segments]
    files[:, INODE] = [one.inode or 0 for one in identities]
    files[:, MODIFIED], files[:, MODIFIED_NS] = np.divmod([one.modified or 0 for one in identities], _NS)
    born = np.array([-_NS if one.born is None else one.born for one in identities], np.int64)
    files[:, BORN], files[:, BORN_NS] = np.divmod(born, _NS)
    devices = [one.device for one in identities]
    numbers = {one: -1 if one is None else os.major(one) | os.minor(one) << 32 for one in set(devices)}
    files[:, DEVICE] = [numbers[one] for one in devices]
    files[:, TAIL_BYTES] = lengths = [len(one) for one in tails]
    files[0, PATH], files[1:, PATH] = 0, np.flatnonzero(names == 0)[:-1] + 1
    files[:, TAIL] = np.cumsum(lengths) - lengths + last.ctypes.data
    files[:, PATH] += names.ctypes.data
    return files, [names, last]


def _judged(one: Range, first: Entry, last: Entry) -> Tally | None:
    """What the beginning and the end of a segment tell beside its neighbours; None if that is damage."""
    segment, found = one.segment, Tally()
    try:
        with SegmentFile(segment) as file:
            compare_start(file, first, "skip", found)
            trouble = at_stop(file, Stop(segment.size, Code.OK, 0), last.last_known_offset, found)
    except KolumnError:
        return None
    return None if trouble is not None or found.damage else found
