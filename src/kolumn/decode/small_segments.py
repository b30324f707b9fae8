"""Small segments some together: their records become one record batch, and they cost one call of compiled code.

What is read of a segment, and what is compared, is the same as in `kolumn.decode.pipeline`. A segment with anything unusual is left to it.
"""

import ctypes
import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.errors import Code, KolumnError
from kolumn.core.paths import TOGETHER, turned_off
from kolumn.core.recycle import take, take_array
from kolumn.cpu_fallback.columns import RecordMemory
from kolumn.cpu_fallback.fields.target import COPY, HEADER_KEY, HEADER_VALUE, HEADERS, KEY, ROWS, VALUE
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
from kolumn.damage.findings import Tally
from kolumn.damage.segment_end import at_stop, compare_start
from kolumn.decode.host.chunks import MOST_ENTRIES, Stop
from kolumn.decode.host.record_batch import record_batch
from kolumn.decode.host.run import Run, limits, memory_for, modes
from kolumn.decode.host.streamed import BLOCK, INFLATED, SLACK
from kolumn.formats import layouts, table
from kolumn.formats.entries import Entries
from kolumn.formats.v2 import SMALLEST_RECORD
from kolumn.options import Options
from kolumn.source import storage
from kolumn.source.segment_file import SegmentFile, SizeEstimate
from kolumn.source.segments import HIGHEST, Range, Segment
from kolumn.values.typed import typed_batch

SMALL = 1 << 18  # bytes of a segment that is decoded together with its neighbours: it takes less time in loops than in Python
MOST_SEGMENTS = 256
_MOST_SKIPPED = 64
_MARGIN = 1.2
_NS = 1_000_000_000


class Together(NamedTuple):
    """Segments that were decoded: of each the number of its entries, and of their records; and the records of all, if they have any."""

    entries: list[int]
    rows: list[int]
    judged: dict[int, Tally]  # what was found at the beginning or end of some segments that names alone do not tell
    batch: pa.RecordBatch | None

    def tallies(self, ranges: Sequence[Range]) -> Iterator[Tally]:
        """The tally of each of these segments, for those who ask."""
        for i, (part, entries, rows) in enumerate(zip(ranges, self.entries, self.rows, strict=True)):
            tally = self.judged.get(i) or Tally()
            tally.batches, tally.records, tally.valid_bytes = entries, rows, part.segment.size
            yield tally


def tasks_of(source: Iterator[Range], chunk_bytes: int, more_bytes: int = 0, after: int = 0) -> Iterator[list[Range]]:
    """Ranges for a thread each: one, or several small ones. If the source fails, those that it named before come first.

    Several have about ``chunk_bytes``. If that is little, so that threads share the small ranges of a short source too, ``more_bytes``
    are for those of a long one, after so many of the first ones: each task costs waits for Python's lock.
    """
    held: list[Range] = []
    size = begun = 0
    try:
        for part in source:
            own = part.end - part.start
            if held and (own > SMALL or size + own > chunk_bytes or len(held) == MOST_SEGMENTS):
                task, held, size, begun = held, [], 0, begun + 1
                yield task
                if begun >= after:
                    chunk_bytes = max(chunk_bytes, more_bytes)
            if own > SMALL:
                yield [part]
            else:
                held.append(part)
                size += own
    except GeneratorExit:
        raise
    except BaseException:
        if held:
            yield held
        raise
    if held:
        yield held


class SmallSegments:
    """Decodes the small segments of one read; several threads may call it."""

    def __init__(self, options: Options, on_gpu: bool, wants_remarks: bool) -> None:
        self.options, self.stored, self.wants_remarks = options, options.stored if options.typed else options, wants_remarks
        self.sizes = SizeEstimate(1.0, 1 / 50, shares=(1.0, 1.0, 1 / 8, 1 / 4))
        is_usual = options.binary == "contiguous" and not options.remarks
        self.is_possible = is_usual and not on_gpu and TOGETHER not in turned_off() and _calls() is not None
        self._unusual = self._to_skip = 0

    def decode(self, ranges: Sequence[Range]) -> Together | None:
        """Decode the first ones of some ranges; None if the first one has to be decoded alone."""
        if self._to_skip:
            self._to_skip -= 1
            return None
        some = ranges[: _simple(ranges)] if self.is_possible else ()
        if len(some) < 2:
            return None
        together = self._decoded(some)
        # Where one is unusual, others are: formats 0 and 1, or damage.
        self._unusual = min(2 * self._unusual + 1, _MOST_SKIPPED) if together is None else 0
        self._to_skip = self._unusual
        return together

    def _decoded(self, ranges: Sequence[Range]) -> Together | None:
        segments = [part.segment for part in ranges]
        memory, room = self._memory(sum([segment.size for segment in segments]))
        entries = Entries(take_array(MOST_ENTRIES * table.WIDTH, np.int64).reshape(-1, table.WIDTH))
        records = take_array(MOST_ENTRIES, np.int64)
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
            tally = _judged(ranges[i], entries[bounds[i] : bounds[i] + counts[i]])
            if tally is None:
                return self._decoded(ranges[:i]) if i else None
            judged[i] = tally
        at = memory.at.tolist()
        if at[ROWS]:
            sizes = self.sizes
            sizes.largest = max(at[LARGEST], sizes.largest // 2)
            columns = at[KEY], at[VALUE], at[HEADER_KEY], at[HEADER_VALUE]
            sizes.learn(at[PLAIN] + at[ARENA], at[ROWS], at[HEADERS], columns, at[PACKED], at[ARENA])
        if self.options.on_progress is not None:
            for segment in segments[:done]:
                self.options.on_progress(segment.size)
        batch = None
        if at[ROWS]:
            run = Run(memory.columns(at), records[: len(entries)], [], {}, bool(at[UNTIMED]))
            batch = record_batch(run, entries, list(zip(segments[:done], rows, strict=True)), self.stored)
            if batch.num_rows and self.options.typed:
                batch = typed_batch(batch, self.options.columns, self.options.typed)
        return Together(counts, rows, judged, batch if batch is not None and batch.num_rows else None)

    def _stream(
        self, segments: list[Segment], entries: Entries, records: Int64s, ends: Int64s, written: Int64s, memory: RecordMemory, room: Room
    ) -> int:
        """Call the loop; returns how many segments it has decoded."""
        files, held = _files(segments)
        (window, _), (arena, _), (look, _), calls = take(SMALL + PAD), take(room.arena + PAD), take(LOOK_BYTES + PAD), _calls()
        assert calls is not None
        empty = np.zeros(1, np.uint8)
        addresses = Calls(*calls, look.address, empty.ctypes.data)
        source = Source(0, window.address, window.address, arena.address, SMALL, BLOCK, False, False, decoders())
        span, asked = Span(0, 0, 0.0, self.sizes.inflates, layouts.KAFKA), limits(self.options)
        done = stream_files(addresses, files, source, span, asked, entries.array, records, ends, written, memory.target, memory.at, room)
        # Its addresses are in the table of files.
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
        return memory_for(sizes, payload_bytes, rows, more, of_payloads, options, SLOTS, arena=arena, converts=True)

    def _unlike_names(self, segments: list[Segment], first: list[int], last: list[int]) -> list[int]:
        """Numbers of the segments whose names and neighbours do not say that their first and last offsets are right."""
        unlike, remarks = [], self.wants_remarks
        for i, (segment, begun, ended) in enumerate(zip(segments, first, last, strict=True)):
            base, following = segment.base_offset, segment.following
            starts = base is None or begun == base or (begun > base and not remarks)
            ends = following == ended + 1 or (following is None and not remarks)
            is_first = remarks and segment.preceding is None and begun != 0
            if not (starts and ends) or segment.orphans or segment.twin is not None or is_first:
                unlike.append(i)
        return unlike


@cache
def _calls() -> tuple[int, int, int] | None:
    """Addresses of ``open``, ``statx`` and ``close``; None if the system lacks one."""
    library = ctypes.CDLL(None)
    try:
        first, second, third = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in ("open", "statx", "close"))
    except AttributeError:
        return None
    return first, second, third


def _simple(ranges: Sequence[Range]) -> int:
    """How many ranges, from the first on, are whole segments of this machine, in a shipped format, and need nothing else of the log."""
    for i, part in enumerate(ranges):
        segment, identity = part.segment, part.segment.identity
        is_whole = 0 < segment.size <= SMALL and part.start == 0 and part.end == segment.size
        is_plain = part.fault is None and part.transactions is None and part.without is None and not part.is_bounded
        is_file = segment.format == "kafka" and segment.memory is None and segment.manifest is None
        is_known = identity is not None and identity.inode is not None and identity.inode <= HIGHEST
        if not (is_whole and is_plain and is_file and is_known) or ("://" in segment.path and storage.is_url(segment.path)):
            return i
    return len(ranges)


def _files(segments: list[Segment]) -> tuple[Int64s, list[Bytes]]:
    """The table of the files for the loop, and the memory that it refers to."""
    identities = [segment.identity for segment in segments if segment.identity is not None]
    tails = [identity.tail or b"" for identity in identities]
    names = np.frombuffer(os.fsencode("\0".join([segment.path for segment in segments])) + b"\0", np.uint8)
    last = np.frombuffer(b"".join(tails) + b"\0", np.uint8)
    files = np.empty((len(segments), WIDTH), np.int64)
    files[:, SIZE] = [segment.size for segment in segments]
    files[:, INODE] = [identity.inode or 0 for identity in identities]
    files[:, MODIFIED], files[:, MODIFIED_NS] = np.divmod([identity.modified or 0 for identity in identities], _NS)
    born = np.array([-_NS if identity.born is None else identity.born for identity in identities], np.int64)
    files[:, BORN], files[:, BORN_NS] = np.divmod(born, _NS)
    devices = [identity.device for identity in identities]
    numbers = {device: -1 if device is None else os.major(device) | os.minor(device) << 32 for device in set(devices)}
    files[:, DEVICE] = [numbers[device] for device in devices]
    files[:, TAIL_BYTES] = lengths = [len(tail) for tail in tails]
    files[0, PATH], files[1:, PATH] = 0, np.flatnonzero(names == 0)[:-1] + 1
    files[:, TAIL] = np.cumsum(lengths) - lengths + last.ctypes.data
    files[:, PATH] += names.ctypes.data
    return files, [names, last]


def _judged(part: Range, entries: Entries) -> Tally | None:
    """What the beginning and the end of a segment tell beside its neighbours; None if that is damage."""
    segment, tally = part.segment, Tally()
    try:
        with SegmentFile(segment) as file:
            compare_start(file, entries, "skip", tally)
            trouble = at_stop(file, Stop(segment.size, Code.OK, 0), entries.last_known_offset(-1), tally)
    except KolumnError:
        return None
    return None if trouble is not None or tally.damage else tally
