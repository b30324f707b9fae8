"""Records are encoded as entries of another layout: batches stay together, single messages are combined up to a size."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Int64s
from kolumn.core.errors import ArgumentError
from kolumn.formats import layout as contents
from kolumn.formats import layouts, table
from kolumn.formats.codecs import NONE, ZSTD
from kolumn.formats.codecs.known import NAMES
from kolumn.formats.entries import Entries
from kolumn.log.pieces import Piece
from kolumn.writers.conversion import losses
from kolumn.writers.conversion.losses import Losses
from kolumn.writers.conversion.retarget import Changes, retarget
from kolumn.writers.encoders import encoder, in_parts
from kolumn.writers.entries import Encoded, EntrySettings, Groups
from kolumn.writers.table import RecordsIn, take_apart

_HEADED = (*layouts.BATCHES, *layouts.SETS)
"""Layouts whose header stays valid when records are missing."""
_KEPT = [
    table.BASE_OFFSET, table.LAST_OFFSET, table.TIMESTAMP_TYPE, table.BASE_TIMESTAMP, table.MAX_TIMESTAMP, table.PRODUCER_ID,
    table.PRODUCER_EPOCH, table.BASE_SEQUENCE, table.LEADER_EPOCH, table.TRANSACTIONAL, table.CONTROL,
]  # fmt: skip
_WHOLE, _PACKED, _SINGLE = range(3)
"""Treatment of an entry: it keeps its header, its records stay together, or its single record may be combined with others."""
_LARGEST = 2**31 - 1


@dataclass
class Regrouped:
    """Records that become entries of one layout and with one codec.

    If ``entries`` are given, these keep their header fields, and ``first`` is the first record of each; otherwise they follow from the
    records.
    """

    given: RecordsIn
    how: EntrySettings
    first: Int64s | None = None
    entries: Entries | None = None

    def groups(self) -> Groups:
        """Which records make which entries."""
        file = encoder(self.how.layout)
        if self.entries is None or self.first is None:
            return file.group(self.given, self.how, last=True)
        return file.regroup(self.given, self.first, self.entries, self.how)


def regroup(piece: Piece, changes: Changes, codec: int | None, lost: Losses) -> Iterator[Encoded]:
    """Encode the records of a piece in the target's layout; parameters and errors are those of `regrouped`."""
    for one in regrouped(piece, changes, codec, lost):
        yield from in_parts(one.given, one.groups(), one.how)


def regrouped(piece: Piece, changes: Changes, codec: int | None, lost: Losses) -> Iterator[Regrouped]:
    """Records of a piece as the target's layout can store them, in the order of the log; ``codec`` None keeps that of each entry.

    Losses are added to ``lost``. Raises `ArgumentError` if the target does not support the codec.
    """
    entries = piece.entries
    kinds = _kinds(piece, changes)
    codecs = entries.codec if codec is None else np.where(entries.control == 1, NONE, codec)
    _check_codecs(codecs, changes.how, codec)
    if contents.HORIZONS not in losses.holds(changes.how.layout, changes.how.magic):
        lost.note(contents.HORIZONS, int(entries.delete_horizon.sum()))
    lost.note(contents.EMPTY, int(((piece.counts == 0) & (kinds != _WHOLE)).sum()))
    bounds = [0, *(np.flatnonzero((np.diff(kinds) != 0) | (np.diff(codecs) != 0)) + 1).tolist(), len(entries)]
    for start, stop in pairwise(bounds):
        how = replace(changes.how, codec=int(codecs[start]))
        own = slice(int(piece.counts[:start].sum()), int(piece.counts[:stop].sum()))
        entry = np.repeat(np.arange(start, stop), piece.counts[start:stop])
        layout = np.repeat(entries.layout[start:stop], piece.counts[start:stop])
        records, entry = retarget(piece.records.slice(own.start, own.stop - own.start), entry, layout, changes, lost)
        if kinds[start] == _WHOLE:
            yield _whole(records, entry, entries[start:stop], start, how)
        elif records.num_rows:
            yield _together(records, entry, how, kinds[start] == _PACKED)


def _kinds(piece: Piece, changes: Changes) -> Int64s:
    layout, counts = piece.entries.layout, piece.counts
    kinds = np.where(np.isin(layout, _HEADED) | (piece.entries.codec != NONE), _PACKED, _SINGLE)
    if changes.how.layout in _HEADED and changes.transactions is None and changes.timestamp is None:
        control = np.asarray(piece.records["isControl"]).astype(np.int64)
        marked = np.add.reduceat(np.append(control, 0), piece.first) * (counts > 0)
        uniform = (marked == 0) | (marked == counts)
        kinds[np.isin(layout, _HEADED) & uniform] = _WHOLE
    return kinds


def _whole(records: pa.RecordBatch, entry: Int64s, source: Entries, start: int, how: EntrySettings) -> Regrouped:
    """Entries with their original header fields."""
    given = take_apart(pa.Table.from_batches([records]), 0)
    given.from_log = True
    counts = np.bincount(entry - start, minlength=len(source))
    first = np.cumsum(counts) - counts
    entries = Entries.zeros(len(source))
    entries.array[:, _KEPT] = source.array[:, _KEPT]
    entries.layout, entries.magic, entries.codec = how.layout, how.magic, np.where(counts > 0, how.codec, NONE)
    entries.count = counts
    if not layouts.is_set(how.layout):
        entries.delete_horizon = source.delete_horizon
        drafts = layouts.among(source.layout, layouts.SETS)
        if drafts.any():
            some = drafts & (counts > 0)
            entries.base_timestamp[some] = given.timestamp[first[some]]
            entries.control[some] = given.numbers["isControl"][first[some]]
    return Regrouped(given, how, first, entries)


def _together(records: pa.RecordBatch, entry: Int64s, how: EntrySettings, packed: bool) -> Regrouped:
    """Entries whose header fields are derived from their records."""
    given = take_apart(pa.Table.from_batches([records]), 0)
    given.from_log = True
    if packed:
        how = replace(how, batch_bytes=_LARGEST, batch_records=_LARGEST)
        given.cut = np.append(False, np.diff(entry) != 0)
    return Regrouped(given, how)


def _check_codecs(codecs: Int64s, how: EntrySettings, asked: int | None) -> None:
    if not layouts.holds_records(how.layout) and (codecs == ZSTD).any():
        name = layouts.FORMAT_NAMES[how.format]
        why = "is asked for" if asked is not None else "is what batches of the source have"
        raise ArgumentError(f"codec zstd {why}, and format {name} with magic {how.magic} has {', '.join(NAMES[:ZSTD])}: give codec=")
