"""Writes the entries that are kept as the segments of a topic-partition, cut where the source's segments are, and the files beside them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from kolumn.arrays import Bytes, Int64s
from kolumn.commit.staged_file import StagedFile, make_folders, writing
from kolumn.decode.result import Tally
from kolumn.entries.last_offsets import first_offset, with_last_offsets
from kolumn.errors import KolumnError
from kolumn.formats import table
from kolumn.formats.entries import Entries
from kolumn.index_files.rebuild import index_contents
from kolumn.log.batch_table import entry_chunks
from kolumn.options import Options
from kolumn.replicas.sequence import trusted_epochs
from kolumn.salvage.cut import cut_out, with_inner_offsets
from kolumn.salvage.runs import KeptRun
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment, find_segments
from kolumn.source.side_files import CHECKPOINT, METADATA, read_topic_id
from kolumn.source.storage import beside, read_bytes

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
