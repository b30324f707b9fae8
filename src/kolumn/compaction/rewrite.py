"""Writes the retained records of entries: an entry is copied if no record was dropped, else encoded again (``MemoryRecords.filterTo``)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kolumn.arrays import Flags, Int64s
from kolumn.arrow.recycle import take_array
from kolumn.codecs import NONE
from kolumn.compaction.retention import Round, per_entry
from kolumn.conversion.convert import copied, part, with_known_offsets
from kolumn.encode.encoders import encoder
from kolumn.encode.entries import Encoded, EntrySettings
from kolumn.encode.table import stored_columns, take_apart
from kolumn.formats import layouts, table
from kolumn.formats.entries import Entries, Entry
from kolumn.log.pieces import Piece

COPY, REBUILD, EMPTY, DROP, MERGE = range(5)
"""Fates of entries."""


@dataclass
class Fate:
    """Decision about the entries of a piece and their records.

    Attributes
    ----------
    entries : int64 array
        For each entry: copied, rebuilt, emptied, dropped or merged.
    keep : bool array
        Whether each record is kept.
    horizon : bool array
        Flags of the entries that get a delete horizon now.
    """

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


def fate(piece: Piece, round: Round, legacy_deletes: bool, merge: bool, discard: Flags | None = None) -> Fate:
    """Decide about the entries of a piece.

    Parameters
    ----------
    piece, round, legacy_deletes
    merge : bool
        Whether neighbouring compressed message sets are combined.
    discard : bool array, optional
        What `Round.discarded` says of the entries, if it was asked before: the round remembers what it has seen.
    """
    entries, counts = piece.entries, piece.counts
    if discard is None:
        discard = round.discarded(entries)
    keep = round.retained(piece, gone(entries, discard, round), legacy_deletes)
    kept = per_entry(keep, counts)
    dead = per_entry(keep & np.asarray(piece.records["tombstone"]), counts) > 0
    fates, horizon = fates_of(entries, counts, kept, dead, discard, round)
    fates[(fates == COPY) & piece.partial] = REBUILD
    sets = layouts.among(entries.layout, layouts.MESSAGES) & (entries.codec != NONE) & (kept > 0)
    if merge:
        fates[sets] = MERGE
    return Fate(fates, keep, horizon)


def gone(entries: Entries, discard: Flags, round: Round) -> Flags:
    """Flags of the entries of which no record stays, since no reader needs them: of a marker, once its delete horizon is reached."""
    expired = (entries.delete_horizon == 1) & (entries.base_timestamp <= round.now)
    return np.where(entries.control == 1, discard & expired, discard)


def fates_of(entries: Entries, counts: Int64s, kept: Int64s, dead: Flags, discard: Flags, round: Round) -> tuple[Int64s, Flags]:
    """Fates of entries, and flags of those that get a delete horizon now.

    Parameters
    ----------
    entries : Entries
    counts, kept : int64 arrays of n
        How many records they have, and how many stay.
    dead : bool array of n
        Whether one that stays is a tombstone.
    discard : bool array of n
        As for `fate`.
    round : Round
    """
    headed = layouts.among(entries.layout, layouts.BATCHES)
    stays_empty = headed & (round.producers.is_last(entries) | (entries.last_offset + 1 == round.end))
    horizon = headed & (entries.delete_horizon != 1) & (dead | (discard & (entries.control == 1))) & (kept > 0)
    fates = np.where((kept == counts) & ~horizon, COPY, REBUILD)
    fates[kept == 0] = np.where(stays_empty, EMPTY, DROP)[kept == 0]
    return fates, horizon


def rewrite(piece: Piece, what: Fate, round: Round, how: EntrySettings, whole: Callable[[Entries], Piece] | None) -> Iterator[Encoded]:
    """Encode the retained records of a piece as entries.

    Parameters
    ----------
    piece, what, round
    how : EntrySettings
        With the format, and the bytes of merged entries; the rest is that of the entries.
    whole : callable, optional
        Returns some entries of the piece with all columns, for those that are not copied; None if the piece has all.
    """
    layout, magic, codec = piece.entries.layout, piece.entries.magic, piece.entries.codec
    merged = what.entries == MERGE
    changes = merged[1:] & ((np.diff(layout) != 0) | (np.diff(magic) != 0) | (np.diff(codec) != 0))
    bounds = [0, *(np.flatnonzero(changes | (merged[1:] != merged[:-1])) + 1).tolist(), len(piece.entries)]
    for start, stop in pairwise(bounds):
        if start == stop:
            return
        some, own = part(piece, start, stop), what.part(piece, start, stop)
        if merged[start]:
            yield _merged(_retained(some, own, np.arange(stop - start), whole), _like(some.entries[0], how))
        elif (own.entries != DROP).any():
            yield in_place(some, own, round, how, whole)


def _like(entry: Entry, how: EntrySettings) -> EntrySettings:
    return replace(how, layout=entry.layout, magic=entry.magic, codec=entry.codec)


def in_place(piece: Piece, what: Fate, round: Round, how: EntrySettings, whole: Callable[[Entries], Piece] | None) -> Encoded:
    """Entries that are copied, and between them those that are encoded again: all that are alike at once, wherever they are.

    Parameters are those of `rewrite`. None of the entries is merged, and not all are dropped.
    """
    kinds = what.entries
    if (kinds == COPY).all():
        return copied(piece)
    entries = with_known_offsets(piece)
    arrays, array, at = [piece.source], np.zeros(len(entries), np.int64), entries.position - piece.origin
    kept = per_entry(what.keep, piece.counts)
    alike = np.stack([kinds, entries.layout, entries.magic, entries.codec], axis=1)
    new = (kinds == REBUILD) | (kinds == EMPTY)
    for one in np.unique(alike[new], axis=0):
        rows = np.flatnonzero((alike == one).all(axis=1))
        records, settings = _retained(piece, what, rows, whole), _like(entries[int(rows[0])], how)
        made = _rebuilt(records, piece.entries[rows], kept[rows], what.horizon[rows], round, settings)
        array[rows], at[rows] = len(arrays), made.entries.position
        entries.array[rows] = made.entries.array
        arrays.append(made.data)
    stays = kinds != DROP
    entries = entries[stays]
    data = take_array(int(entries.size.sum()), np.uint8)
    np.concatenate([arrays[number][start:end] for number, start, end in stretches(array[stays], at[stays], entries.size)], out=data)
    entries.position = np.cumsum(entries.size) - entries.size
    return Encoded(data, entries)


def stretches(array: Int64s, at: Int64s, size: Int64s) -> Iterator[tuple[int, int, int]]:
    """Entries that follow one another in the same array, together: the number of that array, and where they start and stop in it.

    Parameters
    ----------
    array, at, size : int64 arrays of n
        Of each entry, at least one: the number of its array, where it is in that, and its bytes.
    """
    stop = at + size
    cut = (array[1:] != array[:-1]) | (at[1:] != stop[:-1])
    first, last = np.flatnonzero(np.append(True, cut)), np.flatnonzero(np.append(cut, True))
    yield from zip(array[first].tolist(), at[first].tolist(), stop[last].tolist(), strict=True)


def _retained(piece: Piece, what: Fate, rows: Int64s, whole: Callable[[Entries], Piece] | None) -> pa.RecordBatch:
    """The retained records of some entries, with all columns."""
    chosen = np.zeros(len(piece.entries), bool)
    chosen[rows] = True
    own = np.repeat(chosen, piece.counts)
    if whole is None:
        return piece.records.filter(pa.array(own & what.keep))
    return whole(piece.entries[rows]).records.filter(pa.array(what.keep[own]))


def _merged(records: pa.RecordBatch, how: EntrySettings) -> Encoded:
    given = take_apart(pa.Table.from_batches([stored_columns(records, how.layout)]), 0)
    given.from_log = True
    file = encoder(how.layout)
    return file.put(given, file.group(given, how, last=True), how)


def _rebuilt(records: pa.RecordBatch, source: Entries, kept: Int64s, horizon: Flags, round: Round, how: EntrySettings) -> Encoded:
    """Encode the entries with their retained records; base offset, last offset, sequence and producer are kept."""
    messages = layouts.holds_messages(how.layout)
    given = take_apart(pa.Table.from_batches([stored_columns(records, how.layout)]), 0)
    given.from_log = True
    first = np.cumsum(kept) - kept
    entries = source.copy()
    entries.count = kept
    some = kept > 0
    last = first + kept - 1
    if messages:
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
