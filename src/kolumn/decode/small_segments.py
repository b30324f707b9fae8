"""Small segments some together: their records become one record batch, and they cost one call of compiled code.

What is read of a segment, and what is compared, is the same as in `kolumn.decode.pipeline`. A segment with anything unusual is left to it.
"""

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.arrow.recycle import take
from kolumn.backend import choose
from kolumn.cpu_fallback.columns.columns import Columns
from kolumn.cpu_fallback.fields.put import COPY
from kolumn.cpu_fallback.fields.target import HEADER_KEY, HEADER_VALUE, HEADERS, KEY, POSITIONS, ROWS, VALUE
from kolumn.cpu_fallback.inflate.decoders import decoders
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.cpu_fallback.stream import ARENA, PACKED, PLAIN, SLOTS, UNTIMED, Room, Source, Span
from kolumn.cpu_fallback.stream_files import LOOK_BYTES, WIDTH, Calls, stream_files
from kolumn.decode.host.record_batch import record_batch
from kolumn.decode.host.run import Run, in_microseconds, modes
from kolumn.decode.host.select import limits
from kolumn.decode.host.stream_arena import INFLATED
from kolumn.decode.host.streamed import BLOCK, SLACK
from kolumn.decode.result import Tally
from kolumn.decode.segment_end import at_stop, compare_start
from kolumn.errors import Code, KolumnError
from kolumn.formats.entries import Entries, Entry
from kolumn.formats.v2 import SMALLEST_HEADER, SMALLEST_RECORD
from kolumn.options import Options
from kolumn.plan.chunks import MOST_ENTRIES, Stop
from kolumn.source import storage
from kolumn.source.identity import Identity
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment
from kolumn.values.columns.stage import typed_batch

SMALL = 1 << 18
"""Bytes of a segment that is decoded together with its neighbours: it takes less time in loops than in Python."""
MOST_SEGMENTS = 256
_MOST_SKIPPED = 64
_MARGIN = 1.2
_NS = 1_000_000_000


class Found(NamedTuple):
    """Segments that were decoded: what was found in each, and a batch with the records of all; None if they have none."""

    tallies: list[Tally]
    batch: pa.RecordBatch | None


class SmallSegments:
    """Decodes the small segments of one read; several threads may call it.

    Attributes
    ----------
    inflates, density, header_density, shares
        As those of `SegmentFile`, of the segments so far.
    """

    def __init__(self, options: Options) -> None:
        self.options, self.stored = options, options.stored
        self.inflates, self.density, self.header_density, self.shares = 1.0, 1 / 50, 1 / 32, (1.0, 1.0, 1 / 8, 1 / 4)
        self.is_possible = choose(options.backend) == "cpu" and options.binary == "contiguous" and _calls() is not None
        self._unusual = self._to_skip = 0

    def decode(self, ranges: Sequence[Range]) -> Found | None:
        """Decode the first ones of some ranges; None if the first one has to be decoded alone."""
        if self._to_skip:
            self._to_skip -= 1
            return None
        if not self.is_possible or len(ranges) < 2:
            return None
        some = ranges[: next((i for i, one in enumerate(ranges) if not _is_simple(one)), len(ranges))]
        if len(some) < 2:
            return None
        found = self._decoded(some)
        # Where one is unusual, others are: formats 0 and 1, or damage.
        self._unusual = min(2 * self._unusual + 1, _MOST_SKIPPED) if found is None else 0
        self._to_skip = self._unusual
        return found

    def _decoded(self, ranges: Sequence[Range]) -> Found | None:
        segments = [one.segment for one in ranges]
        columns, room = self._columns(sum(segment.size for segment in segments))
        entries, records = Entries.room(MOST_ENTRIES), np.zeros(MOST_ENTRIES, np.int64)
        ends, written, at = np.zeros(len(segments), np.int64), np.zeros((len(segments), SLOTS), np.int64), np.zeros(SLOTS, np.int64)
        done = self._stream(segments, entries, records, ends, written, columns, at, room)
        if not done:
            self.inflates, self.density = min(2 * self.inflates, 64.0), min(2 * self.density, 1 / SMALLEST_RECORD)
            return None
        bounds = [0, *ends[:done].tolist()]
        rows = [0, *written[:done, ROWS].tolist()]
        tallies = []
        last = np.array(bounds[1:]) - 1
        begun, ended = entries.base_offset[bounds[:-1]].tolist(), entries.last_offset[last].tolist()
        for i, (first, end) in enumerate(pairwise(bounds)):
            tally = Tally() if _is_whole(segments[i], begun[i], ended[i]) else _judged(ranges[i], entries[first], entries[end - 1])
            if tally is None:
                return self._decoded(ranges[:i]) if i else None
            tally.batches, tally.records, tally.valid_bytes = end - first, rows[i + 1] - rows[i], segments[i].size
            tallies.append(tally)
        entries = entries[: bounds[-1]]
        self._learn(at)
        for segment in segments[:done]:
            self.options.progress(segment.size)
        if not rows[-1]:
            return Found(tallies, None)
        run = Run(columns, at[:POSITIONS], records[: bounds[-1]], [], {}, bool(at[UNTIMED]))
        parts = list(zip(segments[:done], np.diff(rows).tolist(), strict=True))
        batch = record_batch(run, entries, parts, self.stored)
        if batch.num_rows and self.options.typed:
            batch = typed_batch(batch, self.options.columns, self.options.typed)
        return Found(tallies, batch if batch.num_rows else None)

    def _stream(
        self, segments: list[Segment], entries: Entries, records: Any, ends: Any, written: Any, columns: Columns, at: Any, room: Room
    ) -> int:
        """Call the loop; returns how many segments it has decoded."""
        files, held = _files(segments)
        (window, _), (arena, _), (look, _), calls = take(SMALL + PAD), take(room.arena + PAD), take(LOOK_BYTES + PAD), _calls()
        assert calls is not None
        empty = np.zeros(1, np.uint8)
        addresses = Calls(*calls, look.address, empty.ctypes.data)
        source = Source(0, window.address, window.address, arena.address, SMALL, BLOCK, False, False, decoders())
        span = Span(0, 0, 0.0, max(self.inflates, 1.0))
        done = stream_files(
            addresses, files, source, span, limits(self.options), entries.array, records, ends, written, columns.target, at, room
        )
        del held
        return done

    def _columns(self, size: int) -> tuple[Columns, Room]:
        """Memory for the records of so many bytes of segments, as far as those before let expect it."""
        options = self.stored
        payload_bytes = min(int(size * self.inflates * _MARGIN) + INFLATED, max(options.inflated_bytes, SMALL))
        rows = min(int(payload_bytes * self.density * _MARGIN) + SLACK, payload_bytes // SMALLEST_RECORD)
        key, value, *header = (min(int(payload_bytes * share) + INFLATED, payload_bytes) for share in self.shares)
        wanted = "headers" in options.columns
        headers = int(payload_bytes * self.header_density) + INFLATED // SMALLEST_HEADER if wanted else 0
        keys, values = modes(options, COPY, "controlType" in options.columns)
        columns = Columns.of(
            rows, key, value, headers, keys, values, wanted, header_bytes=(header[0], header[1]), microseconds=in_microseconds(options)
        )  # fmt: skip
        return columns, Room(rows, key, value, min(INFLATED, options.max_batch_bytes), headers, *header)

    def _learn(self, at: Any) -> None:
        consumed, total = int(at[PLAIN] + at[PACKED]), int(at[PLAIN] + at[ARENA])
        if not total or not at[ROWS]:
            return
        self.inflates, self.density, self.header_density = total / consumed, int(at[ROWS]) / total, _MARGIN * int(at[HEADERS]) / total
        key, value, header_key, header_value = (
            min(1.0, _MARGIN * int(at[slot]) / total) for slot in (KEY, VALUE, HEADER_KEY, HEADER_VALUE)
        )
        self.shares = key, value, header_key, header_value


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


def _is_simple(one: Range) -> bool:
    """Whether a range is a whole segment of this machine, in a shipped format, that can be read without knowing more of the log."""
    segment = one.segment
    return (
        0 < segment.size <= SMALL
        and one.start == 0
        and one.end == segment.size
        and one.fault is None
        and one.transactions is None
        and not one.is_bounded
        and segment.format == "kafka"
        and segment.memory is None
        and segment.manifest is None
        and segment.identity is not None
        and segment.identity.inode is not None
        and not storage.is_url(segment.path)
    )


def _files(segments: list[Segment]) -> tuple[Any, list[Any]]:
    """The table of the files for the loop, and the memory that it refers to."""
    paths = [os.fsencode(segment.path) + b"\0" for segment in segments]
    tails = [(segment.identity and segment.identity.tail) or b"" for segment in segments]
    held = [np.frombuffer(b"".join(paths), np.uint8), np.frombuffer(b"".join(tails) + b"\0", np.uint8)]
    path, tail, rows = held[0].ctypes.data, held[1].ctypes.data, list[tuple[int, ...]]()
    for segment, name, last in zip(segments, paths, tails, strict=True):
        assert segment.identity is not None
        rows.append((segment.size, *_numbers(segment.identity), path, tail, len(last)))
        path, tail = path + len(name), tail + len(last)
    return np.array(rows, np.int64).reshape(-1, WIDTH), held


def _numbers(identity: Identity) -> tuple[int, ...]:
    modified, born, device = identity.modified or 0, identity.born, identity.device
    at = (-1, 0) if born is None else divmod(born, _NS)
    return (
        identity.inode or 0, *divmod(modified, _NS), *at, -1 if device is None else os.major(device) | os.minor(device) << 32,
    )  # fmt: skip


def _is_whole(segment: Segment, first: int, last: int) -> bool:
    """Whether a segment with these first and last offsets begins with the offset of its name and ends before that of the next one."""
    named = segment.base_offset
    starts = named == first and (segment.preceding is not None or named == 0)
    return starts and segment.following == last + 1 and not segment.orphans and segment.twin is None


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
