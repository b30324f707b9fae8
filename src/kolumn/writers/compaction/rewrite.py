"""Pass two of a compaction: an entry that keeps all its records is copied, others are encoded again (``MemoryRecords.filterTo``).

Batches of format 2 are filtered as bytes (`cpu_fallback/encode/filter.py`); what that leaves, and all other entries, become columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.paths import FILTER, is_on
from kolumn.core.recycle import take
from kolumn.cpu_fallback.encode.batches import seal
from kolumn.cpu_fallback.encode.filter import EMPTIED, LONGER, WHOLE, filter_records
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.decode.host.run import Payloads
from kolumn.decode.result import Tally
from kolumn.formats import layouts, table, v2
from kolumn.formats.codecs import NONE
from kolumn.formats.entries import Entries, Entry
from kolumn.log.pieces import Piece, intact, payloads_of_batches, pieces_of
from kolumn.options import Options
from kolumn.source.segments import Segment
from kolumn.writers.batches import header_sizes
from kolumn.writers.compaction.retention import Round, per_entry
from kolumn.writers.conversion.convert import part, with_known_offsets
from kolumn.writers.encoders import encoder
from kolumn.writers.entries import Encoded, EntrySettings, PayloadRoom, Splice, place
from kolumn.writers.table import stored_columns, take_apart

COPY, REBUILD, EMPTY, DROP, MERGE = range(5)
"""Fates of entries."""


@dataclass
class Fate:
    """The fate of each entry of a piece, flags of the records that stay, and of the entries that get a delete horizon now."""

    entries: Int64s
    keep: Flags
    horizon: Flags

    def part(self, piece: Piece, start: int, stop: int) -> "Fate":
        """That of some entries of the piece."""
        if stop - start == len(self.entries):
            return self
        first = int(piece.counts[:start].sum())
        keep = self.keep[first : first + int(piece.counts[start:stop].sum())]
        return Fate(self.entries[start:stop], keep, self.horizon[start:stop])


def fate(piece: Piece, round: Round, legacy_deletes: bool, merge: bool, discard: Flags) -> Fate:
    """Decide about the entries of a piece; ``discard`` is what `Round.discarded` says of them."""
    entries, counts = piece.entries, piece.counts
    expired = (entries.delete_horizon == 1) & (entries.base_timestamp <= round.now)
    keep = round.retained(piece, np.where(entries.control == 1, discard & expired, discard), legacy_deletes)
    kept = per_entry(keep, counts)
    dead = per_entry(keep & np.asarray(piece.records["tombstone"]), counts) > 0
    headed = layouts.among(entries.layout, layouts.BATCHES)
    horizon = headed & (entries.delete_horizon != 1) & (dead | (discard & (entries.control == 1))) & (kept > 0)
    fates = np.where((kept == counts) & ~horizon & ~piece.partial, COPY, REBUILD)
    fates[kept == 0] = np.where(headed & _stay_empty(entries, round), EMPTY, DROP)[kept == 0]
    if merge:
        fates[layouts.among(entries.layout, layouts.MESSAGES) & (entries.codec != NONE) & (kept > 0)] = MERGE
    return Fate(fates, keep, horizon)


def _stay_empty(entries: Entries, round: Round) -> Flags:
    """Flags of the batches that stay when they lose all records: the last one of its producer, and that of the round."""
    return round.producers.is_last(entries) | (entries.last_offset + 1 == round.end)


@dataclass
class Cleaner:
    """Cleans one segment; ``merge`` combines neighbouring compressed message sets, up to the bytes that ``how`` allows a batch.

    The layout, magic and codec of ``how`` are those of each entry. ``records`` and ``retained`` count those before and after.
    """

    segment: Segment
    round: Round
    options: Options
    how: EntrySettings
    legacy_deletes: bool
    merge: bool
    found: Tally = field(default_factory=Tally)
    records: int = 0
    retained: int = 0

    def cleaned(self) -> Iterator[Encoded]:
        """What stays, in the order of the segment."""
        for source, origin, entries in intact(self.segment, self.options, self.found):
            plain = entries.layout == v2.LAYOUT.number
            bounds = [0, *(np.flatnonzero(np.diff(plain)) + 1).tolist(), len(entries)]
            for start, stop in pairwise(bounds):
                if start == stop:
                    continue
                if plain[start]:
                    yield from self._batches(source, origin, entries[start:stop])
                    continue
                for piece in self._pieces(source, origin, entries[start:stop]):
                    what = self._fate(piece, self.round.discarded(piece.entries))
                    yield from _rewritten(piece, what, self.round, self.how)

    def _pieces(self, source: Bytes, origin: int, entries: Entries) -> Iterator[Piece]:
        return pieces_of(source, origin, entries, self.segment, self.options, damage=self.found.damage)

    def _fate(self, piece: Piece, discard: Flags) -> Fate:
        what = fate(piece, self.round, self.legacy_deletes, self.merge, discard)
        self.records += len(what.keep)
        self.retained += int(what.keep.sum())
        return what

    def _batches(self, source: Bytes, origin: int, entries: Entries) -> Iterator[Encoded]:
        """What stays of batches of format 2."""
        discard, out = self.round.discarded(entries), Splice(source, origin, entries.copy())
        left = np.ones(len(entries), bool)
        if is_on(FILTER) and len(self.round.latest.marks()[1]):
            plain = (entries.control == 0) & (entries.timestamp_type == table.CREATE_TIME) & ~discard
            plain &= (entries.base_offset >= self.round.first_dirty) & (entries.last_offset < self.round.end)
            rows = np.flatnonzero(plain)
            for some, payloads, good in payloads_of_batches(source, origin, entries[rows], self.options):
                for codec in np.unique(some.codec[good]).tolist():
                    chosen = np.flatnonzero(good & (some.codec == codec))
                    done = self._filter(some[chosen], Payloads(*(column[chosen] for column in payloads)), codec, rows[chosen], out)
                    left[done] = False
                rows = rows[len(some) :]
        needed = np.flatnonzero(left)
        for piece in self._pieces(source, origin, entries[needed]) if len(needed) else ():
            rows = np.searchsorted(entries.position, piece.entries.position)
            what = self._fate(piece, discard[rows])
            out.put(rows[what.entries != DROP], _in_place(piece, what, self.round, self.how))
        if out.stays.any():
            yield out.encoded()

    def _filter(self, entries: Entries, payloads: Payloads, codec: int, rows: Int64s, out: Splice) -> Int64s:
        """Put what stays of batches with one codec into ``out``, where they have ``rows``; returns the rows that are done."""
        (lowest, marks), round = self.round.latest.marks(), self.round
        how = replace(self.how, layout=v2.LAYOUT.number, magic=v2.MAGIC, codec=codec)
        gap, made = np.full(len(entries), v2.HEADER if codec == NONE else 0, np.int64), np.empty(len(entries), np.int64)
        counts = entries.count.copy()
        room, _ = take(int((payloads.size + gap + LONGER * counts).sum()) + PAD)
        data = np.frombuffer(room, np.uint8)
        filter_records(
            entries.array, payloads.address, payloads.size, gap, marks.ctypes.data, lowest, len(marks), round.now,
            round.now + round.retention_ms, data.ctypes.data, made,
        )  # fmt: skip
        whole, dropped, good = made == WHOLE, (made == EMPTIED) & ~_stay_empty(entries, round), made >= 0
        out.keep(rows[whole])
        if good.any():
            laid = PayloadRoom(data, np.cumsum(made[good] + gap[good]) - made[good], made[good])
            encoded = place(laid, entries[good], header_sizes, how)
            seal(encoded.data.ctypes.data, encoded.entries.array)
            out.put(rows[good], encoded)
        done = whole | dropped | good
        self.records += int(counts[done].sum())
        self.retained += int(entries.count[whole | good].sum())
        return rows[done]


def _rewritten(piece: Piece, what: Fate, round: Round, how: EntrySettings) -> Iterator[Encoded]:
    """The entries of a piece with their retained records."""
    layout, magic, codec = piece.entries.layout, piece.entries.magic, piece.entries.codec
    merged = what.entries == MERGE
    changes = merged[1:] & ((np.diff(layout) != 0) | (np.diff(magic) != 0) | (np.diff(codec) != 0))
    bounds = [0, *(np.flatnonzero(changes | (merged[1:] != merged[:-1])) + 1).tolist(), len(piece.entries)]
    for start, stop in pairwise(bounds):
        if start == stop:
            return
        some, own = part(piece, start, stop), what.part(piece, start, stop)
        if merged[start]:
            yield _merged(some.records.filter(pa.array(own.keep)), _like(some.entries[0], how))
        else:
            yield _in_place(some, own, round, how)


def _like(entry: Entry, how: EntrySettings) -> EntrySettings:
    return replace(how, layout=entry.layout, magic=entry.magic, codec=entry.codec)


def _in_place(piece: Piece, what: Fate, round: Round, how: EntrySettings) -> Encoded:
    """Entries that are copied, and between them those that are encoded again: all that are alike at once, wherever they are."""
    kinds, out = what.entries, Splice(piece.source, piece.origin, with_known_offsets(piece))
    out.keep(np.flatnonzero(kinds == COPY))
    kept = per_entry(what.keep, piece.counts)
    alike = np.stack([kinds, piece.entries.layout, piece.entries.magic, piece.entries.codec], axis=1)
    for one in np.unique(alike[(kinds == REBUILD) | (kinds == EMPTY)], axis=0):
        chosen = (alike == one).all(axis=1)
        records = piece.records.filter(pa.array(np.repeat(chosen, piece.counts) & what.keep))
        rows = np.flatnonzero(chosen)
        settings = _like(piece.entries[int(rows[0])], how)
        out.put(rows, _rebuilt(records, piece.entries[rows], kept[rows], what.horizon[rows], round, settings))
    return out.encoded()


def _merged(records: pa.RecordBatch, how: EntrySettings) -> Encoded:
    given = take_apart(pa.Table.from_batches([stored_columns(records, how.layout)]), 0)
    given.from_log = True
    file = encoder(how.layout)
    return file.put(given, file.group(given, how, last=True), how)


def _rebuilt(records: pa.RecordBatch, source: Entries, kept: Int64s, horizon: Flags, round: Round, how: EntrySettings) -> Encoded:
    """Encode the entries with their retained records; base offset, last offset, sequence and producer are kept."""
    given = take_apart(pa.Table.from_batches([stored_columns(records, how.layout)]), 0)
    given.from_log = True
    first = np.cumsum(kept) - kept
    entries = source.copy()
    entries.count = kept
    some = kept > 0
    last = first + kept - 1
    if layouts.holds_messages(how.layout):
        entries.base_offset[some], entries.last_offset[some] = given.offset[first[some]], given.offset[last[some]]
    elif layouts.holds_records(how.layout):
        set_before = entries.delete_horizon == 1
        entries.base_timestamp[some & ~set_before] = given.timestamp[first[some & ~set_before]]
        entries.base_timestamp[horizon] = round.now + round.retention_ms
        entries.base_timestamp[~some] = -1
        entries.delete_horizon = (set_before | horizon) & some
    entries.codec[~some] = NONE
    created = some & (entries.timestamp_type != table.LOG_APPEND_TIME)
    if created.any():
        highest = np.maximum.reduceat(given.timestamp, first[some])
        entries.max_timestamp[created] = highest[created[some]]
    file = encoder(how.layout)
    return file.put(given, file.regroup(given, first, entries, how), how)
