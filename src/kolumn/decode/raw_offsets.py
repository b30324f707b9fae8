"""Consumer offsets from the raw offsets of a Redpanda log: the engine reads by raw ones, and what a read returns is translated last.

A raw offset is larger by the number of raw offsets that batches of the types `kolumn.formats.redpanda.FILTERED` have before it, the delta.
It grows from entry to entry, and `kolumn.copies.raw_offsets` knows it where a range begins.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.buffers import int64s, numbers
from kolumn.core.errors import Code
from kolumn.damage.findings import Kind, Remark
from kolumn.formats.entries import Entries
from kolumn.formats.redpanda import DATA, FILTERED
from kolumn.source.segments import Range

_BEFORE_ALL = -(2**63)


def filtered(entries: Entries) -> Entries:
    """The batches with raw offsets and no consumer offsets, among those whose headers are right."""
    return entries[np.isin(entries.batch_type, FILTERED) & _is_sound(entries)]


def _is_sound(entries: Entries) -> Flags:
    return entries.is_intact | (entries.code == Code.BAD_CRC)


class Deltas:
    """The delta along the entries of a range, in their order.

    Parameters
    ----------
    delta : int, optional
        Before the first entry; None if it is not known: then raw offsets stay.
    watched : bool
        Whether absent raw offsets are counted.
    """

    def __init__(self, delta: int | None, watched: bool) -> None:
        self._is_watched = watched
        self.delta, self._begin, self._after = delta, -1, -1
        self.absent = 0
        """Raw offsets between entries that no entry has: batches that are lost, or that compaction has removed."""
        # Of each batch that consumers have no offsets of its raw offsets and the delta after it, with room for more; the first row stands
        # for what is before all of them.
        self._steps, self._count = np.array([[_BEFORE_ALL, _BEFORE_ALL, delta or 0]], np.int64).T.copy(), 1

    def add(self, entries: Entries) -> None:
        """Go on over some entries."""
        if entries.code.any():
            entries = entries[_is_sound(entries)]
        if not len(entries):
            return
        if self._is_watched:
            base, after = entries.base_offset, entries.last_offset + 1
            if self._after < 0:
                self._begin = self._after = int(base[0])
            before = np.concatenate([[self._after], after[:-1]])
            self.absent += int(np.maximum(base - before, 0).sum())
            self._after = int(after[-1])
        own = entries[:0] if (entries.batch_type == DATA).all() else filtered(entries)
        if not len(own) or self.delta is None:
            return
        after = self.delta + np.cumsum(own.last_offset - own.base_offset + 1)
        start, self._count = self._count, self._count + len(own)
        if self._count > self._steps.shape[1]:
            # Twice as many: a range may have a million of them, a few in each chunk.
            self._steps = np.concatenate([self._steps[:, :start], np.empty((3, self._count), np.int64)], axis=1)
        self._steps[:, start : self._count] = own.base_offset, own.last_offset, after
        self.delta = int(after[-1])

    def translated(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with consumer offsets in its column ``offset``; null in records of batches that no consumer has."""
        at = batch.schema.get_field_index("offset")
        if at < 0 or self.delta is None or (self.delta == 0 and self._count == 1):
            return batch
        raw = int64s(batch.column(at))
        offsets, own = self._of(raw)
        return batch.set_column(at, batch.schema.field(at), numbers(offsets, pa.int64(), own))

    def _of(self, raw: Int64s) -> tuple[Int64s, Flags]:
        """Offsets of consumers, and flags of those that they do not have."""
        base, last, delta = self._steps[:, : self._count]
        step = np.searchsorted(base, raw, side="right") - 1
        return raw - delta[step], raw <= last[step]

    def remarks(self, part: Range) -> Iterator[Remark]:
        """What is doubtful about the offsets of a range that was read to its end; its log learns the delta there."""
        segment = part.segment
        if part.start == 0 and self._begin >= 0 and segment.base_offset is not None:
            # Its name tells of what is lost at its beginning.
            self.absent += max(self._begin - (segment.lowest or 0), 0)
        told = None if isinstance(part.offsets, int) else part.offsets.learn(part, self.delta)
        if self.delta is None:
            text = "raw offsets are returned: how far consumer offsets differ from them is not known where the log begins"
            searched = f"{part.offsets.searched}; " if part.offsets.searched else ""
            evidence = f"{searched}if you know the difference, name it in start_delta"
            yield Remark(segment.path, part.start, Kind.RAW_OFFSETS, None, None, text, evidence)
        elif told is not None:
            yield Remark(segment.path, part.start, Kind.RAW_OFFSETS, None, None, told, "the manifest's delta_offset_end")
        elif self.absent:
            are = "raw offset is" if self.absent == 1 else "raw offsets are"
            text = f"{self.absent} {are} absent: later consumer offsets are too high if a batch without consumer offsets was there"
            evidence = "compaction or damage has removed batches; a bucket's manifest, or another copy, tells the difference after them"
            yield Remark(segment.path, part.start, Kind.RAW_OFFSETS, None, None, text, evidence)
