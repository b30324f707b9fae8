"""Pass two of a compaction, for segments of which pass one knows enough: only batches that lose records are decompressed.

Batches that keep all records are copied from file to file, as many at once as follow one another. Those that lose some are written
again without becoming columns (`cpu_fallback/encode/filter.py`), unless there are tombstones or anything unusual in them.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from kolumn.arrays import Bytes, Flags, Int64s
from kolumn.arrow.recycle import take, take_array
from kolumn.codecs import NONE
from kolumn.compaction.first_pass import KnownSegment
from kolumn.compaction.retention import Round
from kolumn.compaction.rewrite import COPY, DROP, EMPTY, REBUILD, fate, fates_of, gone, in_place, stretches
from kolumn.cpu_fallback.encode.batches import seal
from kolumn.cpu_fallback.encode.filter import LONGER, filter_records
from kolumn.cpu_fallback.inflate.arena import Share
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.decode.host.run import decompressed
from kolumn.encode.batches import header_sizes
from kolumn.encode.entries import Encoded, EntrySettings, PayloadRoom, place
from kolumn.encode.segments import Part, SegmentFiles
from kolumn.errors import KolumnError
from kolumn.formats import table, v2
from kolumn.formats.entries import Entries
from kolumn.log.pieces import COLUMNS, piece_of, pieces_of
from kolumn.options import Options
from kolumn.paths import FILTER, is_on
from kolumn.source.segment_file import SegmentFile

OF_FATES = ("offset", "key", "producerId", "isTransactional", "isControl", "tombstone")
"""Columns that tell which records stay."""


class SecondPass:
    """Cleans one segment.

    Parameters
    ----------
    file : SegmentFile
    found : KnownSegment
    round : Round
    options : Options
    how : EntrySettings
        As for `rewrite.rewrite`.

    Attributes
    ----------
    records, retained, bytes : int
        Records so far, how many of them stay, and in how many bytes.
    """

    def __init__(self, file: SegmentFile, found: KnownSegment, round: Round, options: Options, how: EntrySettings) -> None:
        self.file, self.found, self.round, self.options, self.how = file, found, round, options, how
        self.records = self.retained = self.bytes = 0

    def write(self, files: SegmentFiles) -> None:
        """Write what stays of the segment."""
        first, dead = self.found.first, self.found.dead
        kept = self.round.latest.kept(first, first + len(dead))
        for entries in self._stretches():
            if len(entries) > len(dead):
                raise self._changed()
            out, parts = self._cleaned(entries, kept[: len(entries)], dead[: len(entries)])
            if len(out):
                files.append_parts(out, parts)
                self.bytes += int(out.size.sum())
            kept, dead = kept[len(entries) :], dead[len(entries) :]
            self.options.progress(int(entries.size.sum()))
        if len(dead):
            raise self._changed()

    def _stretches(self) -> Iterator[Entries]:
        """The batches, about as many bytes of them at a time as a chunk has."""
        for entries in self.found.batches(self.file):
            group = (entries.position - entries[0].position) // self.options.chunk_bytes
            bounds = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(entries)]
            for start, stop in pairwise(bounds):
                yield entries[start:stop]

    def _cleaned(self, entries: Entries, last: Int64s, dead: Flags) -> tuple[Entries, list[Part]]:
        """What stays of some batches, and where its bytes are; ``last`` counts the records that are the last of their keys."""
        round, counts, marker = self.round, entries.count, entries.control == 1
        discard = round.discarded(entries)
        dropped = gone(entries, discard, round)
        kept = np.where(dropped, 0, np.where(marker, counts, last))
        fates, _ = fates_of(entries, counts, kept, np.zeros(len(entries), bool), discard, round)
        unsure = (dead | (entries.base_offset < round.first_dirty) | (entries.last_offset >= round.end)) & ~dropped & ~marker
        self.records += int(counts.sum())
        left = unsure | (fates == REBUILD) | (fates == EMPTY)
        out, stays, number, at = entries.copy(), (fates == COPY) & ~left, np.zeros(len(entries), np.int64), entries.position.copy()
        sources: list[Bytes | SegmentFile] = [self.file]

        def put(rows: Int64s, made: Encoded) -> None:
            stays[rows], number[rows], at[rows] = True, len(sources), made.entries.position
            out.array[rows] = made.entries.array
            sources.append(made.data)

        plain = (fates == REBUILD) & ~unsure & ~marker & (entries.timestamp_type == table.CREATE_TIME)
        for rows, made in self._filtered(entries, np.flatnonzero(plain)):
            put(rows, made)
            left[rows] = False
        self.retained += int(kept[~left].sum())
        needed = np.flatnonzero(left)
        for rows, made in self._decoded(entries, needed, discard, 2 * int(unsure.sum()) > len(needed)):
            put(rows, made)
        out, number, at = out[stays], number[stays], at[stays]
        if not len(out):
            return out, []
        out.position = np.cumsum(out.size) - out.size
        return out, [(sources[which], start, stop) for which, start, stop in stretches(number, at, out.size)]

    def _filtered(self, entries: Entries, rows: Int64s) -> Iterator[tuple[Int64s, Encoded]]:
        """What some batches become without the records that go, and which of ``rows`` these are. The others have to be decoded."""
        if not len(rows) or not len(self.round.latest.marks()[1]) or not is_on(FILTER):
            return
        source, origin, left = _bytes_of(self.file, entries[rows])
        while len(left):
            payloads, held, _ = decompressed(source, origin, left, self.options, Share(self.options.inflated_bytes))
            done = len(payloads.size)
            if not done:
                return
            for codec in np.unique(left.codec[:done]).tolist():
                some = np.flatnonzero((left.codec[:done] == codec) & left[:done].is_intact)
                if len(some):
                    good, made = self._filter(left[some], payloads.address[some], payloads.size[some], codec)
                    yield rows[some[good]], made
            del held
            left, rows = left[done:], rows[done:]

    def _filter(self, entries: Entries, address: Int64s, size: Int64s, codec: int) -> tuple[Flags, Encoded]:
        """Flags of the batches that could be written again, and these; all have one codec."""
        (lowest, marks), how = self.round.latest.marks(), replace(self.how, layout=v2.LAYOUT.number, magic=v2.MAGIC, codec=codec)
        gap, made = np.full(len(entries), v2.HEADER if codec == NONE else 0, np.int64), np.empty(len(entries), np.int64)
        room, _ = take(int((size + gap + LONGER * entries.count).sum()) + PAD)
        data = np.frombuffer(room, np.uint8)
        filter_records(entries.array, address, size, gap, marks.ctypes.data, lowest, len(marks), data.ctypes.data, made)
        good = made >= 0
        entries, made, gap = entries[good], made[good], gap[good]
        encoded = place(PayloadRoom(data, np.cumsum(made + gap) - made, made), entries, header_sizes, how)
        seal(encoded.data.ctypes.data, encoded.entries.array)
        return good, encoded

    def _decoded(self, entries: Entries, needed: Int64s, discard: Flags, few: bool) -> Iterator[tuple[Int64s, Encoded]]:
        """Decode the ``needed`` ones of some batches: the rows of those that stay, and the batches that they become.

        With ``few``, most of them are expected to stay as they are.
        """
        if not len(needed):
            return
        source, origin, asked = _bytes_of(self.file, entries[needed])
        columns, done = OF_FATES if few else COLUMNS, 0
        whole = partial(piece_of, source, origin, segment=self.file.segment, options=self.options) if few else None
        for piece in pieces_of(source, origin, asked, self.file.segment, self.options, columns):
            rows = needed[done : done + len(piece.entries)]
            if len(rows) < len(piece.entries) or (piece.entries.base_offset != entries.base_offset[rows]).any():
                break
            done += len(rows)
            what = fate(piece, self.round, False, False, discard[rows])
            self.retained += int(what.keep.sum())
            stays = what.entries != DROP
            if stays.any():
                yield rows[stays], in_place(piece, what, self.round, self.how, whole)
        if done < len(needed):
            raise self._changed()

    def _changed(self) -> KolumnError:
        return KolumnError(f"{self.file.path}: was overwritten while it was compacted. Run again")


def _bytes_of(file: SegmentFile, entries: Entries) -> tuple[Bytes, int, Entries]:
    """Bytes of some batches one after the other, padded; the position of the first byte, and the batches with positions that fit."""
    parts = list(stretches(np.zeros(len(entries), np.int64), entries.position, entries.size))
    if len(parts) == 1:
        _, start, stop = parts[0]
        return file.read(start, stop), start, entries.copy()
    size = int(entries.size.sum())
    data, at, moved = take_array(size + PAD, np.uint8), 0, entries.copy()
    for _, start, stop in parts:
        data[at : at + stop - start] = file.read(start, stop)[: stop - start]
        at += stop - start
    data[size:] = 0
    moved.position = np.cumsum(moved.size) - moved.size
    return data, 0, moved
