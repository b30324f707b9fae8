"""Pass one of a compaction: the keys of all records, and what the batches of a segment are, once all keys are known.

Segments of intact batches of format 2 are read block by block, as `kolumn.read` reads them, and for each batch it is counted how many of
its records are the last of their keys. So pass two (`second_pass.py`) needs to decode only batches that lose records. Of other segments
nothing is known but keys.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kolumn.arrays import Flags, Int64s
from kolumn.compaction.latest import LatestOffsets
from kolumn.compaction.retention import Round, per_entry
from kolumn.cpu_fallback.inflate.arena import Share
from kolumn.decode.host.chunk import HostChunk, stream_loaded
from kolumn.decode.host.record_batch import HostPart
from kolumn.decode.host.streamed import Streamed
from kolumn.decode.result import Tally
from kolumn.decode.segment_end import at_stop, compare_start
from kolumn.formats import layouts, v2
from kolumn.formats.entries import Entries
from kolumn.log.pieces import of_all_records, pieces
from kolumn.options import Options
from kolumn.paths import COMPACTION, is_on
from kolumn.plan.chunks import Chunk, Reached, chunks, header_rows
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment

HELD = 1 << 16
"""Batches of a round whose headers are held from pass one to pass two. More of them are read again."""
_OF_KEYS = ("offset", "key", "producerId", "isTransactional", "isControl")
"""Columns that tell which records may be the last of their key."""
_OF_BATCHES = ("offset", "key", "tombstone")
_LOWEST = -(2**63)


class _UnusualError(Exception):
    """A segment has damage, or entries of several formats, after some of its keys were added."""


@dataclass
class KnownSegment:
    """What pass one knows of a segment of intact format 2 batches.

    Attributes
    ----------
    first : int
        Number of its first batch in `LatestOffsets.kept`.
    dead : bool array of n
        Flags of its batches: whether one of the records is a tombstone.
    end : int
        Position after the last batch.
    entries : Entries, optional
        Its batches, unless they are too many to be held.
    """

    first: int
    dead: Flags
    end: int
    entries: Entries | None

    def batches(self, file: SegmentFile) -> Iterator[Entries]:
        """Its batches, some at a time."""
        yield from header_rows(file, 0, self.end) if self.entries is None else [self.entries]


def first_pass(segments: list[Segment], round: Round, options: Options) -> list[KnownSegment | None]:
    """Add the keys of a partition's segments to those of the round.

    Returns
    -------
    list
        What is known of each segment; None if nothing but keys.

    Raises
    ------
    CorruptBatchError, FormatError, LimitError
        An entry is damaged, with ``errors="raise"``.
    """
    if not is_on(COMPACTION):
        return add_all(segments, round, options)
    streamed = _Streaming(round, options)
    try:
        found = [streamed.add(segment) for segment in segments]
    except _UnusualError:
        # What the damage costs is not known here, so all begins again, with what tells it.
        round.latest = LatestOffsets()
        return add_all(segments, round, replace(options, on_progress=_after(streamed.told, options.on_progress)))
    return found if streamed.in_order else [None] * len(segments)


def add_all(segments: list[Segment], round: Round, options: Options) -> list[KnownSegment | None]:
    """As `first_pass`, for segments of any kind, of which then nothing but keys is known."""
    streamed = _Streaming(round, options)
    for segment in segments:
        streamed.add_keys(segment)
    return [None] * len(segments)


def last_keys(segment: Segment, round: Round, options: Options) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Keys and offsets of a segment's records that may replace earlier records of their keys."""
    for piece in pieces(segment, options, columns=_OF_KEYS):
        records = piece.records
        usable = ~np.asarray(records["isControl"]) & ~round.aborted_records(piece)
        usable &= records["offset"].to_numpy() >= round.first_dirty
        if usable.all():
            yield records["key"], records["offset"]
        else:
            mask = pa.array(usable)
            yield records["key"].filter(mask), records["offset"].filter(mask)


def _after(told: int, on_progress: Callable[[int], None] | None) -> Callable[[int], None] | None:
    """What reports progress, without bytes of which it was told before."""
    if on_progress is None:
        return None

    def report(done: int) -> None:
        nonlocal told
        again = min(done, told)
        told -= again
        if done > again:
            on_progress(done - again)

    return report


class _Streaming:
    """Adds keys, segment by segment.

    Attributes
    ----------
    in_order : bool
        Whether the offsets of all records grow, and are those that the headers tell. Then no offset occurs twice, and how many records of
        a batch are the last of their keys is what `Round.retained` would find.
    told : int
        Bytes of which progress was reported.
    """

    def __init__(self, round: Round, options: Options) -> None:
        self.round, self.options = round, options
        self.columns = of_all_records(options, _OF_BATCHES)
        self.in_order, self.highest, self.told, self.held = True, _LOWEST, 0, 0

    def add_keys(self, segment: Segment) -> None:
        """Add the keys of a segment of any kind."""
        for keys, offsets in last_keys(segment, self.round, self.options):
            self._follow(offsets.to_numpy())
            self.round.latest.add(keys, offsets)

    def add(self, segment: Segment) -> KnownSegment | None:
        """Add the keys of a segment; None if it is not one of format 2.

        Raises
        ------
        _UnusualError
            That turned out after some keys were added.
        """
        if (found := self._counted(segment)) is None:
            self.add_keys(segment)
        return found

    def _counted(self, segment: Segment) -> KnownSegment | None:
        with SegmentFile(segment) as file:
            if not file.is_local or file.format != layouts.KAFKA:
                return None
            size, checked, found, reached = self.options.chunk_bytes, self.options.check_crcs, Tally(), None
            plan = chunks(file, 0, file.size, size, streamed=True, ahead=False, check_crcs=checked)
            first, dead, entries, floor, end = -1, list[Flags](), list[Entries](), -1, 0
            while True:
                try:
                    chunk = plan.send(reached)
                except StopIteration as stopped:
                    trouble = at_stop(file, stopped.value, floor, found)
                    break
                if end == 0:
                    compare_start(file, chunk.entries[0], "skip", found)
                streamed = None if found.damage else self._streamed(file, chunk)
                if streamed is None and first < 0:
                    return None
                if streamed is None:
                    raise _UnusualError
                for part in streamed.parts:
                    number, flags = self._add(part)
                    first = number if first < 0 else first
                    dead.append(flags)
                entries.append(streamed.entries.copy())
                floor, end = entries[-1][-1].last_offset, entries[-1][-1].end
                reached = Reached(end, streamed.following)
                self._tell(entries[-1])
            if first < 0:
                return None
            if trouble is not None or found.damage:
                raise _UnusualError
        return KnownSegment(first, np.concatenate(dead), end, self._held(entries))

    def _streamed(self, file: SegmentFile, chunk: Chunk) -> Streamed | None:
        """The records of a chunk of intact format 2 batches; None if the general path has to judge what is there."""
        if chunk.entries.layout[0] != v2.LAYOUT.number:
            return None
        if chunk.is_unread:
            found = HostChunk.streamed(file, chunk, self.columns, alone=True)
        else:
            found = stream_loaded(file, chunk, self.columns, Share(self.columns.inflated_bytes, large=True))
        if found is None or found.is_wrong or found.rest is not None or len(found.entries) < len(chunk.entries):
            return None
        return found

    def _add(self, part: HostPart) -> tuple[int, Flags]:
        """Add the keys of some batches; returns the number of the first one, and flags of those with tombstones."""
        run, entries, counts = part.run, part.entries, part.run.records
        offsets = np.frombuffer(run.columns.offset, np.int64, run.rows)
        keys = run.columns.key.array(pa.binary(), run.sources)
        self._follow(offsets)
        some = counts > 0
        last = np.cumsum(counts)[some] - 1
        inside = (offsets[last - counts[some] + 1] >= entries.base_offset[some]) & (offsets[last] <= entries.last_offset[some])
        self.in_order &= bool(inside.all())
        usable = entries.control == 0
        if entries.transactional.any():
            usable &= ~self.round.aborted(entries)
        added = counts
        if not usable.all() or (run.rows and offsets[0] < self.round.first_dirty):
            mask = np.repeat(usable, counts) & (offsets >= self.round.first_dirty)
            added, offsets, keys = per_entry(mask, counts), offsets[mask], keys.filter(pa.array(mask))
        number = self.round.latest.add(keys, pa.array(offsets), added)
        if run.columns.value.nulls == 0:
            return number, np.zeros(len(entries), bool)
        return number, (per_entry(run.columns.value.null_flags, counts) > 0) & (entries.control == 0)

    def _follow(self, offsets: Int64s) -> None:
        """Note whether offsets follow those before."""
        if len(offsets):
            self.in_order &= bool(offsets[0] > self.highest and (offsets[1:] > offsets[:-1]).all())
            self.highest = int(offsets[-1])

    def _held(self, entries: list[Entries]) -> Entries | None:
        """The batches of a segment, if there is room for them."""
        count = sum(map(len, entries))
        if self.held + count > HELD:
            return None
        self.held += count
        return Entries.joined(entries)

    def _tell(self, entries: Entries) -> None:
        done = int(entries.size.sum())
        self.told += done
        self.options.progress(done)
