"""Folders of a topic-partition as a broker has them: index files from the log (`rebuild_index`), and the folders that `recover` writes.

The offset index gets an entry for a batch after more bytes than the interval; the time index gets the largest timestamp so far with each of
those, and at the end (``LogSegment.recover``). The transaction index gets an entry for each ABORT marker that ends a transaction.
"""

import io
import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from kolumn.copies.copies import Copies, bounds
from kolumn.copies.elections import trusted_epochs
from kolumn.copies.examine import Examined, examine
from kolumn.copies.transactions import abort_markers, begun_at
from kolumn.core import keywords
from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.core.keywords import Errors, Progress, known_keywords
from kolumn.core.results import Result, counted
from kolumn.damage.findings import Damage, OnDamage, Skipped, Tally, header_error
from kolumn.decode.host.headers import first_offset, with_last_offsets
from kolumn.formats import layouts, table
from kolumn.formats.entries import Entries
from kolumn.log.live import without_replaced
from kolumn.log.pieces import entry_chunks, piece_of
from kolumn.options import Options
from kolumn.source.names import file_name
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment, find_segments
from kolumn.source.side_files import CHECKPOINT, METADATA, read_topic_id
from kolumn.source.storage import beside, is_url, parent, read_bytes, with_suffix
from kolumn.writers.commit.run import Commit
from kolumn.writers.commit.staged_file import StagedFile, make_folders, writing
from kolumn.writers.encoders import ENCODERS
from kolumn.writers.entries import Encoded, EntrySettings, RecordsIn, stored_columns
from kolumn.writers.names import refuse_redpanda
from kolumn.writers.write import IndexEntries

_SUFFIXES = (".index", ".timeindex", ".txnindex")


@dataclass(frozen=True, repr=False)
class Rebuilt(Result):
    """Result of `rebuild_index`.

    Attributes
    ----------
    files : tuple of str
        The index files that were written, in the order of their segments.
    removed : tuple of str
        Transaction indexes of segments that have no aborted transaction.
    offset_entries, time_entries, transaction_entries : int
        Entries written.
    skipped : Skipped
        Damage of the logs, of which the indexes have nothing.
    """

    files: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    offset_entries: int = 0
    time_entries: int = 0
    transaction_entries: int = 0
    skipped: Skipped = field(default_factory=Skipped)

    @property
    def damage(self) -> list[Damage]:
        """The damaged stretches that were left out."""
        return self.skipped.damage

    def __str__(self) -> str:
        entries = self.offset_entries + self.time_entries + self.transaction_entries
        removed = f", {counted(len(self.removed), 'file')} without entries removed" if self.removed else ""
        return self.skipped.after(f"{counted(len(self.files), 'index file')} with {entries} entries{removed}")


@known_keywords()
def rebuild_index(
    path: keywords.Path,
    *,
    index_interval_bytes: int = 4096,
    errors: Errors = "raise",
    on_damage: OnDamage | None = None,
    on_progress: Progress | None = None,
) -> Rebuilt:
    """Write the index files of segments anew, in their folders: ``.index``, ``.timeindex`` and ``.txnindex``.

    Existing ones are replaced, all of them or none. The log is read, and never changed. No broker may be running on it.

    Parameters
    ----------
    path : str or PathLike
        A `topic-partition` directory or a log directory of many, on this machine.
    index_interval_bytes : int
        Bytes between two entries; Kafka's default is 4096.
    errors : str
        "raise" at the first damage, before anything is written, or "skip" it: intact batches after it get entries too.
    on_damage, on_progress : callable, optional
        As in `kolumn.scan`.

    Returns
    -------
    Rebuilt

    Raises
    ------
    ArgumentError
        The path is a URL or has no segments, or the interval is less than 1.
    CorruptBatchError
        Damage, with ``errors="raise"``.
    KolumnError
        A file cannot be written.
    """
    name = str(path)
    if index_interval_bytes < 1:
        raise ArgumentError(f"index_interval_bytes={index_interval_bytes}: expected at least 1")
    if is_url(name):
        raise ArgumentError(f"{name}: index files are written beside a log on this machine, not at a URL")
    if not Path(name).is_dir():
        raise ArgumentError(f"{name}: not a directory: name a topic-partition directory, or a log directory")
    skipped = Skipped()

    def damaged(piece: Damage) -> None:
        skipped(piece)
        if on_damage is not None:
            on_damage(piece)

    found = without_replaced(find_segments(name))
    refuse_redpanda(found, "its nodes do not use index files of Kafka")
    segments = [segment for segment in found if segment.base_offset is not None]
    indexes = [_Indexes(segment) for segment in segments if not segment.is_swap]
    folders: dict[str, list[_Indexes]] = {}
    for index in indexes:
        folders.setdefault(parent(index.segment.path), []).append(index)
    for own in folders.values():
        _fill(own, Options.of(errors=errors, backend="cpu", threads=1, on_progress=on_progress), index_interval_bytes, damaged)
    return _written(Path(name), indexes, skipped)


class _Indexes:
    """The index files of a segment, in memory: an entry takes 8, 12 or 34 bytes."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.offsets, self.times, self.transactions = io.BytesIO(), io.BytesIO(), io.BytesIO()
        self.entries = IndexEntries(segment.base_offset or 0, self.offsets, self.times)

    def contents(self) -> list[tuple[str, bytes]]:
        return list(zip(_SUFFIXES, (file.getvalue() for file in (self.offsets, self.times, self.transactions)), strict=True))


def _fill(own: list[_Indexes], options: Options, interval: int, on_damage: OnDamage) -> None:
    begun = begun_at(own[0].segment)
    for index in own:
        if layouts.format_of(index.segment.format).timed_index:
            raise ArgumentError(f"{index.segment.path}: the index of this draft is written by kolumn.write alone")
        tally = Tally()
        with SegmentFile(index.segment) as file:
            for chunk in entry_chunks(file, options, tally):
                wrong = chunk.entries[~chunk.entries.is_intact]
                if len(wrong) and options.errors == "raise":
                    start = wrong[0].position - chunk.origin
                    raise header_error(file.path, wrong[0], chunk.source[start : start + wrong[0].size])
                good = chunk.entries.intact()
                if len(good):
                    # Damaged bytes before an entry are part of the file.
                    index.entries.note(good.position, good, interval)
                    _note_transactions(file, good, begun, index.transactions)
        index.entries.note_time()
        for piece in tally.damage:
            on_damage(piece)


def _note_transactions(file: SegmentFile, entries: Entries, begun: dict[int, int], out: io.BytesIO) -> None:
    for row, first in abort_markers(file, entries, begun):
        if first is not None:
            stable = min(begun.values(), default=row.last_offset + 1)
            out.write(struct.pack(">hqqqq", 0, row.producer_id, first, row.last_offset, stable))


def _written(root: Path, indexes: list[_Indexes], skipped: Skipped) -> Rebuilt:
    files, removed, sizes = list[str](), list[str](), dict.fromkeys(_SUFFIXES, 0)
    with Commit(root, replace=True) as commit:
        for index in indexes:
            for suffix, data in index.contents():
                final = Path(with_suffix(index.segment.path, suffix))
                if suffix == ".txnindex" and not data:
                    # A broker makes the file with its first entry.
                    if final.exists():
                        commit.remove(final)
                        removed.append(str(final))
                    continue
                with StagedFile(commit.place(final)) as file:
                    file.write(data)
                files.append(str(final))
                sizes[suffix] += len(data)
    counts = sizes[".index"] // 8, sizes[".timeindex"] // 12, sizes[".txnindex"] // 34
    return Rebuilt(tuple(files), tuple(removed), *counts, skipped)


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


class Everything:
    """Intact entries of all copies, in the order of offsets; a segment is examined when its offsets are asked for."""

    def __init__(self, folders: Copies, options: Options) -> None:
        self.options = options
        self.limits = [(segment, folder, limit) for folder, own in folders.items() for segment, limit in bounds(own).items()]
        self.held: dict[Segment, list[Examined]] = {}

    def near(self, low: int, high: int) -> list[Examined]:
        """Segments that can have offsets in [low, high]; calls come in the order of offsets."""
        self.held = {
            segment: self.held.get(segment) or examine(segment, folder, limit, self.options)
            for segment, folder, limit in self.limits
            if (segment.base_offset or 0) <= high and (limit is None or limit >= low)
        }
        return [strand for strands in self.held.values() for strand in strands]


def missing(low: int, high: int, runs: list[KeptRun]) -> list[tuple[int, int]]:
    """Parts of [low, high] that no run covers; ``runs`` are in order and do not overlap."""
    gaps: list[tuple[int, int]] = []
    for run in runs[max(bisect_right(runs, low, key=lambda run: run.low) - 1, 0) :]:
        if run.low > high:
            break
        if run.high < low:
            continue
        if run.low > low:
            gaps.append((low, run.low - 1))
        low = run.high + 1
    return [*gaps, (low, high)] if low <= high else gaps


def cut_out(source: Bytes, origin: int, entry: Entries, run: KeptRun, options: Options) -> Encoded:
    """The entry with the records at the offsets of a run alone; ``source`` has the bytes of the segment from ``origin`` on, padded."""
    piece = piece_of(source, origin, entry, run.segment, options)
    offsets = piece.records["offset"].to_numpy()
    kept = np.flatnonzero((offsets >= run.low) & (offsets <= run.high))
    records, made, own = piece.records.take(pa.array(kept)), entry.copy(), entry[0]
    how = EntrySettings(layouts.KAFKA, own.layout, own.magic, own.codec, None, _LARGEST, _LARGEST)
    given = RecordsIn.of_log(stored_columns(records, own.layout))
    first = int(given.offset[0])
    if own.base_sequence >= 0:
        # A producer's sequence grows with the offset, and begins again at 0 after the largest number.
        made.base_sequence[0] = (own.base_sequence + first - own.base_offset) % (_LARGEST + 1)
    made.base_offset[0], made.last_offset[0], made.count[0] = first, int(given.offset[-1]), len(kept)
    if own.timestamp_type != table.LOG_APPEND_TIME:
        made.max_timestamp[0] = given.timestamp.max()
    encoder = ENCODERS[own.layout]
    return encoder.put(given, encoder.regroup(given, np.zeros(1, np.int64), made, how), how)


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
            position = entries[i].position - start
            offsets = piece_of(source, origin, entries[i : i + 1], run.segment, options).records["offset"].to_numpy()
            entries.last_offset[i] = offsets.max()
            data[position : position + 8] = np.frombuffer(int(offsets.max()).to_bytes(8, "big"), np.uint8)
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
    segments."""

    def __init__(self, folder: Path, bases: list[int]) -> None:
        self.folder, self.bases = folder, bases
        self.last, self.base, self.name, self.size = -1, -2, 0, 0
        self._open: StagedFile | None = None
        self.written = WrittenPartition()

    def __enter__(self) -> Self:
        with writing(self.folder):
            make_folders(self.folder, 0o700)
        return self

    def __exit__(self, failed: type[BaseException] | None, error: object, trace: object) -> None:
        if failed is None:
            # The next offset of the log: a broker must not give offsets to new records that the source has had.
            if self.bases and self.bases[-1] > self.last:
                self._roll(self.bases[-1])
            self._close()
        elif self._open is not None:
            self._open.abandon()

    def copy(self, run: KeptRun, options: Options) -> None:
        """Copy the entries of a run; every checksum is compared again. An entry that is cut is encoded again. Raises `KolumnError` if the
        file is no longer what it was when it was examined, or cannot be read or written."""
        batches = size = done = 0
        with SegmentFile(run.segment) as file:
            for chunk in entry_chunks(file, options, Tally(), part=Range(run.segment, run.start, run.end, run.floor)):
                entries = with_last_offsets(file, chunk.entries.copy())
                if not entries.is_intact.all():
                    break
                done += entries[-1].end - entries[0].position
                if run.is_cut:
                    made = cut_out(chunk.source, chunk.origin, entries, run, options)
                    data, entries = made.data, made.entries
                else:
                    data, entries = with_inner_offsets(chunk.source, chunk.origin, entries, run, options)
                self._append(data, entries, *self._bases_of(file, entries))
                batches, size = batches + len(entries), size + len(data)
        if done != run.end - run.start:
            changed = f"it was changed while it was copied, at position {run.start + done}; nothing is kept"
            raise KolumnError(f"{run.segment.path}: {changed}")
        self.written.batches.append(batches)
        self.written.bytes.append(size)

    def _bases_of(self, file: SegmentFile, entries: Entries) -> tuple[Int64s, Int64s]:
        """A first offset of each entry that is not above its real one, and which of the bases its segment in the source has."""
        bases = np.array(self.bases, np.int64)
        after = np.append(self.last, entries.last_offset[:-1]) + 1
        low = np.where(entries.base_offset == table.UNKNOWN, after, entries.base_offset)
        number = np.searchsorted(bases, low, side="right") - 1
        doubtful = (entries.base_offset == table.UNKNOWN) & (np.searchsorted(bases, entries.last_offset, "right") - 1 > number)
        doubtful[0] |= bool(entries.base_offset[0] == table.UNKNOWN)
        for i in np.flatnonzero(doubtful).tolist():
            low[i] = first_offset(file, entries[i])
            number[i] = np.searchsorted(bases, low[i], side="right") - 1
        return low, number

    def _append(self, data: Bytes, entries: Entries, first: Int64s, bases: Int64s) -> None:
        view = data.data.cast("B")
        origin, done = entries[0].position, 0
        # A damaged epoch would make the broker forget those after it.
        columns = entries.position, entries.size, entries.last_offset, trusted_epochs(entries.leader_epoch), first, bases
        for position, size, last, epoch, low, base in zip(*(column.tolist() for column in columns), strict=True):
            if self._open is None or base != self.base or self.size + size > _LARGEST or last - self.name > _LARGEST:
                self._write(view[done : position - origin])
                done = position - origin
                same = base == self.base or base < 0
                self._roll(low if same else max(self.bases[base], self.last + 1))
                self.base = base
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
        self._open = StagedFile(self.folder / file_name(name))

    def _close(self) -> None:
        if self._open is not None:
            self._open.complete()
        self._open = None


def write_side_files(folder: Path, sources: Iterable[Segment], written: WrittenPartition, interval: int) -> list[Segment]:
    """Write what a broker keeps beside the segments of a folder, and return those segments. The indexes and the leader epochs follow from
    the log. The topic's id is copied from the first source that has a valid one."""
    segments = find_segments(str(folder))
    indexes = [_Indexes(segment) for segment in segments]
    if indexes:
        _fill(indexes, Options.of(errors="raise", backend="cpu", threads=1), interval, lambda _: None)
    for index in indexes:
        for suffix, data in index.contents():
            # A transaction index without entries has no file.
            if data or suffix != ".txnindex":
                with StagedFile(Path(index.segment.path).with_suffix(suffix)) as file:
                    file.write(data)
    if written.epochs:
        lines = ["0", str(len(written.epochs)), *(f"{epoch} {offset}" for epoch, offset in written.epochs)]
        with StagedFile(folder / CHECKPOINT) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
    for name in dict.fromkeys(beside(segment.path, METADATA) for segment in sources if segment.memory is None):
        if read_topic_id(name) is not None and (raw := read_bytes(name)) is not None:
            with StagedFile(folder / METADATA) as file:
                file.write(raw)
            break
    return segments
