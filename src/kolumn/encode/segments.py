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

from kolumn.arrays import Bytes
from kolumn.commit.staged_file import StagedFile, final_name, make_folders, writing
from kolumn.encode.entries import Encoded
from kolumn.errors import ArgumentError

_LARGEST_RELATIVE = 2**31 - 1
_DIGITS = 20


class SegmentFiles:
    """Files of one partition, in a staging place; they are complete and on disk when the context ends without an error.

    Parameters
    ----------
    place : Path
        A segment file (``*.log``), or the folder of a topic-partition, which is made: from `kolumn.encode.outgoing` or a Spark job.
    segment_bytes : int
        A segment is rolled before it would become larger. If ``place`` is a segment file, there is only one segment.
    index_interval_bytes : int
    enriched : bool
        Whether the index is that of enriched logs.

    Attributes
    ----------
    paths : list of Path
        The segments.
    last_offset : int
        The last offset written; -1 before the first.

    Raises
    ------
    ArgumentError
        A size is less than 1, or the data does not fit into one segment file.
    KolumnError
        A file cannot be written.
    """

    def __init__(self, place: Path, segment_bytes: int, index_interval_bytes: int, enriched: bool = False) -> None:
        self.enriched = enriched
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
        start = 0
        for b, (position, size, base, last, time) in enumerate(_fields(batches)):
            if self._open is None or self._open.full(size, last, self.segment_bytes):
                self._write(batches, start, position)
                start = position
                self._roll(base)
            assert self._open is not None
            self._open.note(size, base, last, time, self.interval)
            self.last_offset = last
            if b + 1 == len(batches.entries):
                self._write(batches, start, position + size)

    def append_tail(self, data: Bytes) -> None:
        """Append bytes that are not an entry: the tail of an active segment."""
        if self._open is not None and len(data):
            self._open.write(data)

    def _write(self, batches: Encoded, start: int, stop: int) -> None:
        if self._open is not None and stop > start:
            self._open.write(batches.data[start:stop])

    def _roll(self, base: int) -> None:
        if self._open is not None:
            if self.single:
                raise ArgumentError(f"{final_name(self.place)}: more than a segment can hold: name a folder, in which segments are rolled")
            self._open.complete()
        name = self.place.stem if self.single else f"{base:020}"
        # Index entries are relative to the offset in the file's name, if it has one.
        named = int(name) if self.single and len(name) == _DIGITS and name.isdigit() and int(name) <= base else base
        folder = self.place.parent if self.single else self.place
        self._open = _kind(self.enriched)(folder / name, named, base)
        self.paths.append(folder / f"{name}.log")


class Sink(Protocol):
    """Where entries of an index are written."""

    def write(self, data: bytes, /) -> int:
        """Write bytes."""


class IndexEntries:
    """The entries of the offset index and of the time index of a segment.

    Parameters
    ----------
    base : int
        Entries are relative to it; a batch too far from it for 32 bits gets no entry.
    index, times : Sink
        Where the entries of the two indexes are written.
    """

    def __init__(self, base: int, index: Sink, times: Sink) -> None:
        self.base, self.size, self.since, self.last = base, 0, 0, base
        self.time, self.time_offset, self.time_noted = -1, base, -1
        self.index, self.times = index, times

    def note(self, size: int, base: int, last: int, time: int, interval: int) -> None:
        """Add index entries for a batch, before it is written."""
        if time > self.time:
            self.time, self.time_offset = time, last
        if self.since > interval:
            if last - self.base <= _LARGEST_RELATIVE:
                self.index.write(struct.pack(">ii", last - self.base, self.size))
            self.note_time()
            self.since = 0
        self.size, self.since, self.last = self.size + size, self.since + size, last

    def note_time(self) -> None:
        """Add the largest timestamp so far; called when a segment is closed too."""
        if self.time > self.time_noted and self.time_offset - self.base <= _LARGEST_RELATIVE:
            self.times.write(struct.pack(">qi", self.time, self.time_offset - self.base))
            self.time_noted = self.time


class _Segment(IndexEntries):
    """One segment that is being written, and its indexes. ``first`` is the first offset."""

    suffixes: tuple[str, ...] = (".log", ".index", ".timeindex")

    def __init__(self, stem: Path, base: int, first: int) -> None:
        self.first = first
        self.files = [StagedFile(Path(f"{stem}{suffix}")) for suffix in self.suffixes]
        self.log = self.files[0]
        super().__init__(base, self.files[1], self.files[-1])

    def full(self, size: int, last: int, segment_bytes: int) -> bool:
        """Whether a batch has to go into the next segment."""
        return self.size > 0 and (self.size + size > segment_bytes or last - self.first > _LARGEST_RELATIVE)

    def write(self, data: Any) -> None:
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

    def note(self, size: int, base: int, last: int, time: int, interval: int) -> None:
        """Add an index entry for a message, before it is written."""
        self.time = max(self.time, time)
        self.newest = base - self.base, self.time, self.size
        if self.since > interval:
            self._write_newest()
            self.since = 0
        self.size, self.since, self.last = self.size + size, self.since + size, last

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


def _fields(batches: Encoded) -> list[tuple[int, int, int, int, int]]:
    entries = batches.entries
    columns = (entries.position, entries.size, entries.base_offset, entries.last_offset, entries.max_timestamp)
    return list(zip(*(column.tolist() for column in columns), strict=True))
