"""Writes the entries that are kept as the segments of a topic-partition, cut where the source's segments are, and the files beside them.

What is kept: whole entries of the copies, in the order of offsets, and parts of those of which the log has some offsets only.

An entry of which only some offsets are kept is encoded again, with the header fields that it had.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from kolumn.copies.copies import Copies, bounds
from kolumn.copies.examine import Examined, examine
from kolumn.copies.sequence import trusted_epochs
from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.errors import KolumnError
from kolumn.decode.result import Tally
from kolumn.formats import layouts, table
from kolumn.formats.entries import Entries
from kolumn.log.batch_table import entry_chunks
from kolumn.log.headers import first_offset, with_last_offsets
from kolumn.log.pieces import piece_of
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment, find_segments
from kolumn.source.side_files import CHECKPOINT, METADATA, read_topic_id
from kolumn.source.storage import beside, read_bytes
from kolumn.tools.rebuild_index import index_contents
from kolumn.writers.commit.staged_file import StagedFile, make_folders, writing
from kolumn.writers.encoders import encoder
from kolumn.writers.entries import Encoded, EntrySettings
from kolumn.writers.table import stored_columns, take_apart


@dataclass(frozen=True)
class KeptRun:
    """Intact entries that follow each other in a file, at the positions [start, end), of which the offsets ``low`` to ``high`` are kept.

    ``floor`` is the last offset before it in this file. A run that is ``is_cut`` is one entry that may have other offsets too: these are
    kept from another copy, or are not part of the log.
    """

    segment: Segment
    start: int
    end: int
    floor: int
    low: int
    high: int
    is_cut: bool = False

    @property
    def range(self) -> Range:
        """The bytes, for a reader."""
        return Range(self.segment, self.start, self.end, self.floor)


def kept_runs(ranges: Iterable[tuple[Range, int, int]]) -> list[KeptRun]:
    """The ranges of a merge, without those that are lost, in the order of offsets."""
    found = [KeptRun(one.segment, one.start, one.end, one.floor, low, high, one.is_bounded) for one, low, high in ranges if not one.is_lost]
    return sorted(found, key=lambda run: run.low)


class Everything:
    """Intact entries of all copies, in the order of offsets; a segment is examined when its offsets are asked for."""

    def __init__(self, folders: Copies, options: Options) -> None:
        self.options = options
        self.limits = [(one, folder, limit) for folder, own in folders.items() for one, limit in bounds(own).items()]
        self.held: dict[Segment, list[Examined]] = {}

    def near(self, low: int, high: int) -> list[Examined]:
        """Segments that can have offsets in [low, high]; calls come in the order of offsets."""
        near = [one for one in self.limits if (one[0].base_offset or 0) <= high and (one[2] is None or one[2] >= low)]
        self.held = {one[0]: self.held.get(one[0]) or examine(*one, self.options) for one in near}
        return [strand for found in self.held.values() for strand in found]


def missing(low: int, high: int, runs: list[KeptRun]) -> list[tuple[int, int]]:
    """Parts of [low, high] that no run covers; ``runs`` are in order and do not overlap."""
    found: list[tuple[int, int]] = []
    for run in runs[max(bisect_right(runs, low, key=lambda one: one.low) - 1, 0) :]:
        if run.low > high:
            break
        if run.high < low:
            continue
        if run.low > low:
            found.append((low, run.low - 1))
        low = run.high + 1
    return [*found, (low, high)] if low <= high else found


def cut_out(source: Bytes, origin: int, entry: Entries, run: KeptRun, options: Options) -> Encoded:
    """The entry with the records at the offsets of a run alone; ``source`` has the bytes of the segment from ``origin`` on, padded."""
    piece = piece_of(source, origin, entry, run.segment, options)
    offsets = piece.records["offset"].to_numpy()
    kept = np.flatnonzero((offsets >= run.low) & (offsets <= run.high))
    records, made, own = piece.records.take(pa.array(kept)), entry.copy(), entry[0]
    how = EntrySettings(layouts.KAFKA, own.layout, own.magic, own.codec, None, _LARGEST, _LARGEST)
    given = take_apart(pa.Table.from_batches([stored_columns(records, own.layout)]), 0)
    given.from_log = True
    first = int(given.offset[0])
    if own.base_sequence >= 0:
        # A producer's sequence grows with the offset, and begins again at 0 after the largest number.
        made.base_sequence[0] = (own.base_sequence + first - own.base_offset) % (_LARGEST + 1)
    made.base_offset[0], made.last_offset[0], made.count[0] = first, int(given.offset[-1]), len(kept)
    if own.timestamp_type != table.LOG_APPEND_TIME:
        made.max_timestamp[0] = given.timestamp.max()
    file = encoder(own.layout)
    return file.put(given, file.regroup(given, np.zeros(1, np.int64), made, how), how)


def with_inner_offsets(source: Bytes, origin: int, entries: Entries, run: KeptRun, options: Options) -> tuple[Bytes, Entries]:
    """The bytes of entries, and their rows: a wrapper of format 0 whose offset is damaged gets that of its last message.

    No checksum covers an entry's offset in that format, and its messages have their own. Such an offset lies above those of the run, or
    not below the next one; a broker rolls segments by it. Parameters are those of `cut_out`.
    """
    start, last = entries[0].position, entries.last_offset
    data = source[start - origin : entries[-1].end - origin]
    above = last > np.append(np.minimum(run.high, last[1:] - 1), run.high)
    wrong = np.flatnonzero(above & layouts.among(entries.layout, layouts.MESSAGES) & (entries.magic == 0) & (entries.codec != 0))
    if len(wrong):
        data, entries = data.copy(), entries.copy()
        for i in wrong.tolist():
            at = entries[i].position - start
            offsets = piece_of(source, origin, entries[i : i + 1], run.segment, options).records["offset"].to_numpy()
            entries.last_offset[i] = offsets.max()
            data[at : at + 8] = np.frombuffer(int(offsets.max()).to_bytes(8, "big"), np.uint8)
    return data, entries


_LARGEST = 2**31 - 1


@dataclass
class WrittenPartition:
    """What was written of a topic-partition: for each run its number of entries and of bytes, and the first offset of each leader epoch."""

    batches: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)


class LogFiles:
    """Segments of one partition in a staging folder, which is made. A segment begins at each of the ``bases``, those of the source's
    segments.
    """

    def __init__(self, folder: Path, bases: list[int]) -> None:
        self.folder, self.bases = folder, bases
        self.last, self.at, self.name, self.size = -1, -2, 0, 0
        self._open: StagedFile | None = None
        self.written = WrittenPartition()

    def __enter__(self) -> Self:
        with writing(self.folder):
            make_folders(self.folder, 0o700)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            # The next offset of the log: a broker must not give offsets to new records that the source has had.
            if self.bases and self.bases[-1] > self.last:
                self._roll(self.bases[-1])
            self._close()
        elif self._open is not None:
            self._open.abandon()

    def copy(self, run: KeptRun, options: Options) -> None:
        """Copy the entries of a run; every checksum is compared again. An entry that is cut is encoded again.

        Raises `KolumnError` if the file is no longer what it was when it was examined, or cannot be read or written.
        """
        batches = size = done = 0
        with SegmentFile(run.segment) as file:
            for chunk in entry_chunks(file, options, Tally(), part=run.range):
                entries = with_last_offsets(file, chunk.entries.copy())
                if not entries.is_intact.all():
                    break
                done += entries[-1].end - entries[0].position
                if run.is_cut:
                    made = cut_out(chunk.source, chunk.origin, entries, run, options)
                    data, entries = made.data, made.entries
                else:
                    data, entries = with_inner_offsets(chunk.source, chunk.origin, entries, run, options)
                self._append(data, entries, self._places(file, entries))
                batches, size = batches + len(entries), size + len(data)
        if done != run.end - run.start:
            changed = f"it was changed while it was copied, at position {run.start + done}; nothing is kept"
            raise KolumnError(f"{run.segment.path}: {changed}")
        self.written.batches.append(batches)
        self.written.bytes.append(size)

    def _places(self, file: SegmentFile, entries: Entries) -> tuple[Int64s, Int64s]:
        """A first offset of each entry that is not above its real one, and the source's segment that it belongs to."""
        bases = np.array(self.bases, np.int64)
        after = np.append(self.last, entries.last_offset[:-1]) + 1
        low = np.where(entries.base_offset == table.UNKNOWN, after, entries.base_offset)
        at = np.searchsorted(bases, low, side="right") - 1
        doubtful = (low == after) & (entries.base_offset == table.UNKNOWN) & (np.searchsorted(bases, entries.last_offset, "right") - 1 > at)
        doubtful[0] |= bool(entries.base_offset[0] == table.UNKNOWN)
        for i in np.flatnonzero(doubtful).tolist():
            low[i] = first_offset(file, entries[i])
            at[i] = np.searchsorted(bases, low[i], side="right") - 1
        return low, at

    def _append(self, data: Bytes, entries: Entries, places: tuple[Int64s, Int64s]) -> None:
        view = data.data.cast("B")
        origin, done = entries[0].position, 0
        # A damaged epoch would make the broker forget those after it.
        columns = entries.position, entries.size, entries.last_offset, trusted_epochs(entries.leader_epoch)
        for position, size, last, epoch, low, at in zip(*(one.tolist() for one in (*columns, *places)), strict=True):
            if self._open is None or at != self.at or self.size + size > _LARGEST or last - self.name > _LARGEST:
                self._write(view[done : position - origin])
                done = position - origin
                same = at == self.at or at < 0
                self._roll(low if same else max(self.bases[at], self.last + 1))
                self.at = at
            if epoch >= 0 and (not self.written.epochs or epoch > self.written.epochs[-1][0]):
                self.written.epochs.append((epoch, low))
            self.size, self.last = self.size + size, last
        self._write(view[done:])

    def _write(self, data: memoryview) -> None:
        if self._open is not None:
            self._open.write(data)

    def _roll(self, name: int) -> None:
        self._close()
        self.name, self.size = name, 0
        self._open = StagedFile(self.folder / f"{name:020}.log")

    def _close(self) -> None:
        if self._open is not None:
            self._open.complete()
        self._open = None


def write_side_files(folder: Path, sources: Iterable[Segment], written: WrittenPartition, interval: int) -> list[Segment]:
    """Write what a broker keeps beside the segments of a folder, and return those segments.

    The indexes and the leader epochs follow from the log. The topic's id is copied from the first source that has a valid one.
    """
    segments = find_segments(str(folder))
    for one, suffix, data in index_contents(segments, interval):
        with StagedFile(Path(one.path).with_suffix(suffix)) as file:
            file.write(data)
    if written.epochs:
        lines = ["0", str(len(written.epochs)), *(f"{epoch} {offset}" for epoch, offset in written.epochs)]
        with StagedFile(folder / CHECKPOINT) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
    for name in dict.fromkeys(beside(one.path, METADATA) for one in sources if one.memory is None):
        if read_topic_id(name) is not None and (raw := read_bytes(name)) is not None:
            with StagedFile(folder / METADATA) as file:
                file.write(raw)
            break
    return segments
