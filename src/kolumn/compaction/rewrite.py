"""Writes the retained records of entries: an entry is copied if no record was dropped, else encoded again (``MemoryRecords.filterTo``)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kolumn.arrays import Flags, Int64s
from kolumn.codecs import NONE
from kolumn.compaction.retention import Round
from kolumn.conversion.convert import copied, part
from kolumn.encode.encoders import encoder
from kolumn.encode.entries import Encoded, EntrySettings
from kolumn.encode.table import take_apart
from kolumn.formats import layouts, table
from kolumn.formats.entries import Entries
from kolumn.log.pieces import Piece

_COPY, _REBUILD, _EMPTY, _DROP, _MERGE = range(5)
_LARGEST = 2**31 - 1


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


def fate(piece: Piece, round: Round, legacy_deletes: bool, merge: bool) -> Fate:
    """Decide about the entries of a piece; with ``merge``, neighbouring compressed message sets are combined."""
    entries, counts = piece.entries, piece.counts
    discard = round.discarded(entries)
    marker = entries.control == 1
    with_horizon = entries.delete_horizon == 1
    expired = with_horizon & (entries.base_timestamp <= round.now)
    gone = np.where(marker, discard & expired, discard)
    keep = round.retained(piece, gone, legacy_deletes)
    kept = _per_entry(keep, piece)
    headed = layouts.among(entries.layout, layouts.BATCHES)
    stays_empty = headed & (round.producers.is_last(entries) | (entries.last_offset + 1 == round.end))
    dead = _per_entry(keep & np.asarray(piece.records["tombstone"]), piece) > 0
    horizon = headed & ~with_horizon & (dead | (discard & marker)) & (kept > 0)
    fates = np.where((kept == counts) & ~horizon, _COPY, _REBUILD)
    fates[(kept == 0)] = np.where(stays_empty, _EMPTY, _DROP)[kept == 0]
    sets = layouts.among(entries.layout, layouts.MESSAGES) & (entries.codec != NONE) & (kept > 0)
    if merge:
        fates[sets] = _MERGE
    return Fate(fates, keep, horizon)


def _per_entry(flags: Flags, piece: Piece) -> Int64s:
    """Number of flagged records of each entry."""
    total = np.append(0, np.cumsum(flags))
    return total[piece.first + piece.counts] - total[piece.first]


def rewrite(piece: Piece, what: Fate, round: Round, format: int, merge_bytes: int) -> Iterator[Encoded]:
    """Encode the retained records of a piece as entries."""
    layout, magic, codec = piece.entries.layout, piece.entries.magic, piece.entries.codec
    changes = (np.diff(what.entries) != 0) | (np.diff(layout) != 0) | (np.diff(magic) != 0) | (np.diff(codec) != 0)
    for start, stop in pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), len(piece.entries)]):
        kind, some = int(what.entries[start]), part(piece, start, stop)
        own = slice(int(piece.first[start]), int(piece.first[start] + some.counts.sum()))
        if kind == _COPY:
            yield copied(some)
        elif kind != _DROP:
            how = EntrySettings(format, int(layout[start]), int(magic[start]), int(codec[start]), None, _LARGEST, _LARGEST)
            records = some.records.filter(pa.array(what.keep[own]))
            kept = _per_entry(what.keep[own], some)
            if kind == _MERGE:
                yield _merged(records, replace(how, batch_bytes=merge_bytes))
            else:
                yield _rebuilt(records, some.entries, kept, what.horizon[start:stop], round, how)


def _merged(records: pa.RecordBatch, how: EntrySettings) -> Encoded:
    given = take_apart(pa.Table.from_batches([_plain(records, how)]), 0)
    given.from_log = True
    file = encoder(how.layout)
    return file.put(given, file.group(given, how, last=True), how)


def _plain(records: pa.RecordBatch, how: EntrySettings) -> pa.RecordBatch:
    """Records without the columns that messages cannot store."""
    absent = {"headers", "isTransactional", "producerId", "producerEpoch", "sequence", "leaderEpoch"}
    if not layouts.has_typed_control(how.layout):
        absent.add("isControl")
    return records.select([name for name in records.schema.names if name not in absent])


def _rebuilt(records: pa.RecordBatch, source: Entries, kept: Int64s, horizon: Flags, round: Round, how: EntrySettings) -> Encoded:
    """Encode the entries with their retained records; base offset, last offset, sequence and producer are kept."""
    messages = layouts.holds_messages(how.layout)
    given = take_apart(pa.Table.from_batches([_plain(records, how) if messages else records]), 0)
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
