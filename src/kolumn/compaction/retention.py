"""Which records of a compacted log stay (``Cleaner.shouldRetainRecord`` and ``CleanedTransactionMetadata`` of Kafka 3.9)."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc

from kolumn.arrays import Flags, Rows
from kolumn.compaction.latest import LatestOffsets
from kolumn.formats import layouts, table
from kolumn.log.pieces import Piece
from kolumn.transactions.states import ABORTED, Transactions


@dataclass
class Producers:
    """The last batch of each active producer. It stays, without records if necessary, since it contains the producer's sequence.

    ``ProducerStateManager``: a data batch of a new epoch replaces the last one, a marker of a new epoch removes it.
    """

    expiration_ms: int
    now: int
    last: dict[int, tuple[int, int | None, int]] = field(default_factory=dict)

    def see(self, rows: Rows) -> None:
        """Note batches, in the order of the log."""
        for row in rows[rows[:, table.PRODUCER_ID] >= 0]:
            producer, epoch, time = (int(row[column]) for column in (table.PRODUCER_ID, table.PRODUCER_EPOCH, table.MAX_TIMESTAMP))
            offset = int(row[table.LAST_OFFSET])
            known = self.last.get(producer, (epoch, None, time))
            if row[table.CONTROL]:
                offset_then = known[1] if known[0] == epoch else None
                self.last[producer] = epoch, offset_then, time
            else:
                self.last[producer] = epoch, offset, time

    def is_last(self, rows: Rows) -> Any:
        """Flags of the batches that are the last of their producer."""
        flags = np.zeros(len(rows), bool)
        for i in np.flatnonzero(rows[:, table.PRODUCER_ID] >= 0).tolist():
            found = self.last.get(int(rows[i, table.PRODUCER_ID]))
            if found is None or self.now - found[2] >= self.expiration_ms:
                continue
            epoch, offset, _ = found
            if offset is not None:
                flags[i] = rows[i, table.LAST_OFFSET] == offset
            else:
                flags[i] = rows[i, table.CONTROL] == 1 and rows[i, table.PRODUCER_EPOCH] == epoch
        return flags


@dataclass
class Round:
    """One cleaning round of a partition.

    Attributes
    ----------
    latest : LatestOffsets
    transactions : Transactions
    producers : Producers
    first_dirty, end : int
        First offset that it cleans, and the offset after the last.
    now, retention_ms : int
        Time of the round; how long tombstones stay.
    observed : set of int
        Producers of which a batch of the current transaction was seen.
    """

    latest: LatestOffsets
    transactions: Transactions
    producers: Producers
    first_dirty: int
    end: int
    now: int
    retention_ms: int
    observed: set[int] = field(default_factory=set)

    def discarded(self, rows: Rows) -> Any:
        """Flags of the batches that no reader needs: those of aborted transactions, and markers of transactions without other batches."""
        flags = np.zeros(len(rows), bool)
        for i in np.flatnonzero(rows[:, table.TRANSACTIONAL] | rows[:, table.CONTROL]).tolist():
            producer = int(rows[i, table.PRODUCER_ID])
            if rows[i, table.CONTROL]:
                flags[i] = bool(rows[i, table.TRANSACTIONAL]) and producer not in self.observed
                self.observed.discard(producer)
            else:
                self.observed.add(producer)
                flags[i] = self.aborted(rows[i : i + 1])[0]
        return flags

    def aborted(self, rows: Rows) -> Any:
        """Flags of the data batches of aborted transactions; never of KIP-98 sets, since a transaction may end inside a set."""
        producer, offset, transactional = (rows[:, column] for column in (table.PRODUCER_ID, table.BASE_OFFSET, table.TRANSACTIONAL))
        whole = (transactional == 1) & ~layouts.among(rows[:, table.LAYOUT], layouts.SETS)
        return self.transactions.states(producer, offset, whole) == ABORTED

    def aborted_records(self, piece: Piece) -> Any:
        """Flags of the records of aborted transactions, except control records."""
        found = np.repeat(self.aborted(piece.rows), piece.counts)
        sets = np.repeat(layouts.among(piece.rows[:, table.LAYOUT], layouts.SETS), piece.counts)
        if sets.any():
            producer, offset = (piece.records[name].to_numpy() for name in ("producerId", "offset"))
            found |= self.transactions.states(producer, offset, sets & np.asarray(piece.records["isTransactional"])) == ABORTED
        return found & ~np.asarray(piece.records["isControl"])

    def retained(self, piece: Piece, discard: Flags, legacy_deletes: bool) -> Any:
        """Flags of the records that stay.

        Parameters
        ----------
        piece : Piece
        discard : bool array
            For each entry: whether all of its records are dropped.
        legacy_deletes : bool
            Whether tombstones of formats without a delete horizon stay.
        """
        records, counts = piece.records, piece.counts
        offset, control = records["offset"].to_numpy(), np.asarray(records["isControl"])
        keyed, dead = np.asarray(pc.is_valid(records["key"])), np.asarray(records["tombstone"])
        latest = self.latest.is_latest(offset)
        if (offset < self.first_dirty).any():
            latest |= (offset < self.first_dirty) & ~self.latest.known(records["key"])
        horizon = np.repeat(np.where(piece.rows[:, table.DELETE_HORIZON] == 1, piece.rows[:, table.BASE_TIMESTAMP], self.now + 1), counts)
        has_horizon = np.repeat(layouts.among(piece.rows[:, table.LAYOUT], layouts.BATCHES), counts)
        deletes = np.where(has_horizon, self.now < horizon, legacy_deletes)
        stays = (offset >= self.end) | (keyed & latest & (~dead | deletes)) | control
        return stays & ~np.repeat(discard, counts) & ~self.aborted_records(piece)
