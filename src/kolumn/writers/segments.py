"""Batches become the files of a topic-partition: segments, and the indexes that a broker stores next to each.

    <base offset, 20 digits>.log         the batches
    <base offset, 20 digits>.index       i32 offset - base | i32 position          of a batch, about every index_interval_bytes
    <base offset, 20 digits>.timeindex   i64 largest timestamp so far | i32 offset - base of the batch that has it

An enriched log has one index that includes the times, as its proposal specifies. It always contains the last entry:

    <base offset, 20 digits>.index       i32 offset - base | i64 largest timestamp so far | i32 position

Entries are written as by ``LogSegment.append``: before a batch, once more bytes than the interval have been written since the last
entry. A segment's last timestamp is added when it is closed.
"""

import struct
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.cpu_fallback.encode.index import index_entries
from kolumn.formats.entries import Entries, Entry
from kolumn.writers.commit.staged_file import StagedFile, final_name, make_folders, writing
from kolumn.writers.entries import Encoded

_LARGEST_RELATIVE = 2**31 - 1
_DIGITS = 20
_INDEX = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIMES = np.dtype([("time", ">i8"), ("offset", ">i4")])
_ENRICHED = np.dtype([("offset", ">i4"), ("time", ">i8"), ("position", ">i4")])


class SegmentFiles:
    """Files of one partition, in a staging place; they are complete and on disk when the context ends without an error.

    ``place`` is a segment file (``*.log``), or the folder of a topic-partition, which is made. In a folder, a segment is rolled before it
    would exceed ``segment_bytes``; a segment file becomes as large as a segment can be, and with ``rolls`` more follow beside it, named by
    their base offsets. ``enriched`` indexes are those of enriched logs. Raises `ArgumentError` if a size is less than 1, or the data does
    not fit into one segment file, and `KolumnError` if a file cannot be written.
    """

    def __init__(self, place: Path, segment_bytes: int, index_interval_bytes: int, enriched: bool = False, rolls: bool = False) -> None:
        self.enriched, self.rolls = enriched, rolls
        self.place, self.single = place, place.suffix == ".log"
        self.segment_bytes = _LARGEST_RELATIVE if self.single else segment_bytes
        self.interval = index_interval_bytes
        if min(segment_bytes, index_interval_bytes) < 1:
            raise ArgumentError(f"segment_bytes={segment_bytes}, index_interval_bytes={index_interval_bytes}: expected at least 1")
        self.paths: list[Path] = []
        self.last_offset = -1
        self._open: _Segment | None = None

    def __enter__(self) -> Self:
        if not self.single:
            with writing(self.place):
                make_folders(self.place, 0o700)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            if self._open is None and self.single:
                self._open = _kind(self.enriched)(self.place.with_suffix(""), 0, 0)
                self.paths.append(self.place)
            if self._open is not None:
                self._open.complete()
        elif self._open is not None:
            self._open.abandon()

    def append(self, batches: Encoded) -> None:
        """Append batches, rolling segments between them."""
        entries, done = batches.entries, 0
        while done < len(entries):
            rest = entries[done:]
            fits = 0 if self._open is None else self._open.fits(rest, self.segment_bytes)
            if not fits:
                self._roll(rest[0])
                continue
            assert self._open is not None
            some, start = rest[:fits], rest[0].position
            self._open.note(some.position - start + self._open.size, some, self.interval)
            self._open.write(batches.data[start : some[-1].end])
            self.last_offset, done = some[-1].last_offset, done + fits

    def append_tail(self, data: Bytes) -> None:
        """Append bytes that are not an entry: the tail of an active segment."""
        if self._open is not None and len(data):
            self._open.write(data)

    def _roll(self, first: Entry) -> None:
        base, name = first.base_offset, f"{first.base_offset:020}"
        if self._open is not None:
            if self.single and not self.rolls:
                raise ArgumentError(f"{final_name(self.place)}: more than a segment can hold: name a folder, in which segments are rolled")
            self._open.complete()
        elif self.single and not (self.rolls and _is_far(self.place.stem, first.last_offset)):
            name = self.place.stem
        # Index entries are relative to the offset in the file's name, if it has one.
        named = int(name) if _is_offset(name) and int(name) <= base else base
        folder = self.place.parent if self.single else self.place
        path = folder / f"{name}.log"
        if path.exists():
            raise ArgumentError(f"{final_name(path)}: two segments would get this name: their offsets overlap. Use kolumn.recover first")
        self._open = _kind(self.enriched)(folder / name, named, named if self.rolls else base)
        self.paths.append(path)


def _is_offset(name: str) -> bool:
    return len(name) == _DIGITS and name.isdigit()


def _is_far(name: str, offset: int) -> bool:
    """Whether an offset is too far from the one in a segment's name for an index, or for a broker to start on the segment."""
    return _is_offset(name) and offset - int(name) > _LARGEST_RELATIVE


class Sink(Protocol):
    """Where entries of an index are written."""

    def write(self, data: bytes, /) -> int:
        """Write bytes."""


class IndexEntries:
    """The entries of the offset index and of the time index of a segment, relative to its ``base`` offset.

    A batch too far from it for 32 bits gets no entry.
    """

    def __init__(self, base: int, index: Sink, times: Sink) -> None:
        self.base, self.size, self.since, self.last = base, 0, 0, base
        self.time, self.time_offset, self.time_noted = -1, base, -1
        self.index, self.times = index, times

    def note(self, positions: Int64s, entries: Entries, interval: int) -> None:
        """Add index entries for batches, at least one, before they are written to these positions of the segment."""
        due, newest, offsets = self._due(positions, entries, interval)
        last = entries.last_offset[due] - self.base
        near = last <= _LARGEST_RELATIVE
        self.index.write(_packed(_INDEX, last[near], positions[due][near]))
        relative = offsets - self.base
        near = relative <= _LARGEST_RELATIVE
        time, relative = newest[near], relative[near]
        later = time > np.append(self.time_noted, time[:-1])[: len(time)]
        self.times.write(_packed(_TIMES, time[later], relative[later]))
        self.time_noted = max(self.time_noted, int(time.max(initial=-1)))

    def _due(self, positions: Int64s, entries: Entries, interval: int) -> tuple[Int64s, Int64s, Int64s]:
        """Batches that get index entries: their numbers, the largest timestamp up to each, the last offset of the batch with it."""
        due, time, offset = (np.empty(len(entries), np.int64) for _ in range(3))
        state = np.array([self.size - self.since, self.time, self.time_offset], np.int64)
        rows, position = np.ascontiguousarray(entries.array), np.ascontiguousarray(positions)
        count = index_entries(rows, position, min(interval, _LARGEST_RELATIVE), state, due, time, offset)
        start, self.time, self.time_offset = state.tolist()
        self.size = int(positions[-1]) + entries[-1].size
        self.since, self.last = self.size - start, entries[-1].last_offset
        return due[:count], time[:count], offset[:count]

    def note_time(self) -> None:
        """Add the largest timestamp so far; called when a segment is closed too."""
        if self.time > self.time_noted and self.time_offset - self.base <= _LARGEST_RELATIVE:
            self.times.write(struct.pack(">qi", self.time, self.time_offset - self.base))
            self.time_noted = self.time


class _Segment(IndexEntries):
    """One segment that is being written, and its indexes. Offsets that are too far from ``first`` do not fit."""

    suffixes: tuple[str, ...] = (".log", ".index", ".timeindex")

    def __init__(self, stem: Path, base: int, first: int) -> None:
        self.first = first
        self.files = [StagedFile(Path(f"{stem}{suffix}")) for suffix in self.suffixes]
        self.log = self.files[0]
        super().__init__(base, self.files[1], self.files[-1])

    def fits(self, entries: Entries, segment_bytes: int) -> int:
        """How many of some batches, one after the other, this segment has room for; an empty segment has room for the first."""
        near = int(entries.last_offset.max()) - self.first <= _LARGEST_RELATIVE
        if near and self.size + entries[-1].end - entries[0].position <= segment_bytes:
            return len(entries)
        after = self.size + entries.end - entries[0].position
        full = (after > segment_bytes) | (entries.last_offset - self.first > _LARGEST_RELATIVE)
        if self.size == 0:
            full[0] = False
        return int(np.argmax(full)) if full.any() else len(entries)

    def write(self, data: Bytes) -> None:
        self.log.write(data)

    def complete(self) -> None:
        """Write the last index entries, and flush all files to disk, the log last."""
        self.note_time()
        for file in reversed(self.files):
            file.complete()

    def abandon(self) -> None:
        """Close the files as they are."""
        for file in self.files:
            file.abandon()


class _EnrichedSegment(_Segment):
    """A segment of an enriched log, which has one index."""

    suffixes = (".log", ".index")

    def __init__(self, stem: Path, base: int, first: int) -> None:
        super().__init__(stem, base, first)
        self.newest: tuple[int, int, int] | None = None

    def note(self, positions: Int64s, entries: Entries, interval: int) -> None:
        """As `IndexEntries.note`, for messages."""
        due, newest, _ = self._due(positions, entries, interval)
        base = entries.base_offset - self.base
        some = base[due]
        near = some <= _LARGEST_RELATIVE
        self.index.write(_packed(_ENRICHED, some[near], newest[near], positions[due][near]))
        is_last = len(due) > 0 and due[-1] == len(entries) - 1
        self.newest = None if is_last else (int(base[-1]), self.time, int(positions[-1]))

    def _write_newest(self) -> None:
        if self.newest is not None and self.newest[0] <= _LARGEST_RELATIVE:
            self.index.write(struct.pack(">iqi", *self.newest))
        self.newest = None

    def complete(self) -> None:
        """Complete the files; the index always contains the last entry."""
        self._write_newest()
        super().complete()

    def note_time(self) -> None:
        """Times are in the one index."""


def _kind(enriched: bool) -> type[_Segment]:
    return _EnrichedSegment if enriched else _Segment


def _packed(kind: np.dtype[Any], *columns: Int64s) -> bytes:
    """Index entries as bytes."""
    made = np.empty(len(columns[0]), kind)
    for name, column in zip(kind.names or (), columns, strict=True):
        made[name] = column
    return made.tobytes()
