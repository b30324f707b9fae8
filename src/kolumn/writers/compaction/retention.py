"""Which records of a compacted log stay (``Cleaner.shouldRetainRecord`` and ``CleanedTransactionMetadata`` of Kafka 3.9)."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags, Int64s
from kolumn.formats import layouts, table
from kolumn.formats.entries import Entries
from kolumn.log.aborted import ABORTED, Transactions
from kolumn.log.pieces import Piece, pieces
from kolumn.options import Options
from kolumn.source.segments import Segment
from kolumn.writers.compaction.latest import LatestOffsets

_OF_KEYS = ("offset", "key", "producerId", "isTransactional", "isControl")
_SEEN = [table.PRODUCER_ID, table.PRODUCER_EPOCH, table.MAX_TIMESTAMP, table.LAST_OFFSET, table.CONTROL]
"""Columns of the batch table that tell what a producer did."""


def per_entry(flags: Flags, counts: Int64s) -> Int64s:
    """Number of flagged records of each entry; the entries have ``counts`` records, one after the other."""
    total, ends = np.append(0, np.cumsum(flags)), np.cumsum(counts)
    return total[ends] - total[ends - counts]


@dataclass
class Producers:
    """The last batch of each active producer. It stays, without records if necessary, since it contains the producer's sequence.

    ``ProducerStateManager``: a data batch of a new epoch replaces the last one, a marker of a new epoch removes it.
    """

    expiration_ms: int
    now: int
    last: dict[int, tuple[int, int | None, int]] = field(default_factory=dict)

    def see(self, entries: Entries) -> None:
        """Note batches, in the order of the log."""
        some = entries.array[entries.producer_id >= 0]
        for producer, epoch, time, offset, control in some[:, _SEEN].tolist():
            known = self.last.get(producer, (epoch, None, time))
            if control:
                offset_then = known[1] if known[0] == epoch else None
                self.last[producer] = epoch, offset_then, time
            else:
                self.last[producer] = epoch, offset, time

    def is_last(self, entries: Entries) -> Flags:
        """Flags of the batches that are the last of their producer."""
        flags = np.zeros(len(entries), bool)
        rows = np.flatnonzero(entries.producer_id >= 0)
        for i, (producer, own_epoch, _, last, control) in zip(rows.tolist(), entries.array[rows][:, _SEEN].tolist(), strict=True):
            found = self.last.get(producer)
            if found is None or self.now - found[2] >= self.expiration_ms:
                continue
            epoch, offset, _ = found
            flags[i] = last == offset if offset is not None else control == 1 and own_epoch == epoch
        return flags


@dataclass
class Round:
    """One cleaning round of a partition, of the offsets from ``first_dirty`` to before ``end``, at the time ``now`` in ms.

    ``observed`` are the producers of which a batch of the current transaction was seen; tombstones stay ``retention_ms``.
    """

    latest: LatestOffsets
    transactions: Transactions
    producers: Producers
    first_dirty: int
    end: int
    now: int
    retention_ms: int
    observed: set[int] = field(default_factory=set)

    def discarded(self, entries: Entries) -> Flags:
        """Flags of the batches that no reader needs: those of aborted transactions, and markers of transactions without other batches."""
        flags = np.zeros(len(entries), bool)
        rows = np.flatnonzero(entries.transactional | entries.control)
        if not len(rows):
            return flags
        some = entries[rows]
        columns = (column.tolist() for column in (rows, some.producer_id, some.transactional, some.control, self.aborted(some)))
        for i, producer, transactional, control, aborted in zip(*columns, strict=True):
            if control:
                flags[i] = bool(transactional) and producer not in self.observed
                self.observed.discard(producer)
            else:
                self.observed.add(producer)
                flags[i] = aborted
        return flags

    def aborted(self, entries: Entries) -> Flags:
        """Flags of the data batches of aborted transactions; never of KIP-98 sets, since a transaction may end inside a set."""
        whole = (entries.transactional == 1) & ~layouts.among(entries.layout, layouts.SETS)
        return self.transactions.states(entries.producer_id, entries.base_offset, whole) == ABORTED

    def aborted_records(self, piece: Piece) -> Flags:
        """Flags of the records of aborted transactions, except control records."""
        in_sets = layouts.among(piece.entries.layout, layouts.SETS)
        if not (piece.entries.transactional.any() or in_sets.any()):
            return np.zeros(piece.records.num_rows, bool)
        found = np.repeat(self.aborted(piece.entries), piece.counts)
        sets = np.repeat(in_sets, piece.counts)
        if sets.any():
            producer, offset = (piece.records[name].to_numpy() for name in ("producerId", "offset"))
            found |= self.transactions.states(producer, offset, sets & np.asarray(piece.records["isTransactional"])) == ABORTED
        return found & ~np.asarray(piece.records["isControl"])

    def add_keys(self, segment: Segment, options: Options) -> None:
        """Pass one: add the records of a segment that may replace earlier records of their keys to the last offsets."""
        for piece in pieces(segment, options, columns=_OF_KEYS):
            records = piece.records
            usable = ~np.asarray(records["isControl"]) & ~self.aborted_records(piece)
            usable &= records["offset"].to_numpy() >= self.first_dirty
            keys, offsets = records["key"], records["offset"]
            if not usable.all():
                keys, offsets = (column.filter(pa.array(usable)) for column in (keys, offsets))
            self.latest.add(keys, offsets)

    def retained(self, piece: Piece, discard: Flags, legacy_deletes: bool) -> Flags:
        """Flags of the records that stay; ``discard`` flags the entries of which no record does.

        ``legacy_deletes`` says whether tombstones of formats without a delete horizon stay.
        """
        records, counts = piece.records, piece.counts
        offset, control = records["offset"].to_numpy(), np.asarray(records["isControl"])
        keyed, dead = np.asarray(pc.is_valid(records["key"])), np.asarray(records["tombstone"])
        latest = self.latest.is_latest(offset)
        if (offset < self.first_dirty).any():
            latest |= (offset < self.first_dirty) & ~self.latest.known(records["key"])
        stays = keyed & latest
        if dead.any():
            horizon = np.repeat(np.where(piece.entries.delete_horizon == 1, piece.entries.base_timestamp, self.now + 1), counts)
            has_horizon = np.repeat(layouts.among(piece.entries.layout, layouts.BATCHES), counts)
            stays &= ~dead | np.where(has_horizon, self.now < horizon, legacy_deletes)
        stays |= (offset >= self.end) | control
        return stays & ~np.repeat(discard, counts) & ~self.aborted_records(piece)
