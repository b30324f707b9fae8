"""Outcomes of transactions, for ``isolation_level="read_committed"`` and the column ``transaction``.

A consumer that reads committed records leaves out the batches of aborted transactions and everything from the last stable
offset on, the first offset of the earliest transaction that is still open (``Fetcher``, KIP-98). ``open_transactions`` says whether a
read ends there too.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.buffers import bools, int64s, keep, numbers, strings
from kolumn.formats.entries import Entries
from kolumn.options import Options
from kolumn.source.side_files import AbortedTxn

COLUMN = "transaction"
STATES = ("none", "committed", "aborted", "open")
NONE, COMMITTED, ABORTED, OPEN = range(4)  # states of a record, indices into `STATES`
_NEEDED = ("offset", "producerId", "isTransactional")


@dataclass(frozen=True)
class Transactions:
    """The transactions of one topic-partition that were not committed; of the earliest open one the producer's epoch and the timestamp of
    its first batch, for a read that stops there."""

    aborted: tuple[AbortedTxn, ...] = ()
    open: tuple[tuple[int, int], ...] = ()  # producer id and first offset of transactions without a marker at the end of the log
    epoch: int | None = None
    since: int | None = None

    @property
    def last_stable_offset(self) -> int | None:
        """Offset at which a committed reader has to stop; None if no transaction is open."""
        return min((first for _, first in self.open), default=None)

    @cached_property
    def _ranges(self) -> Int64s:
        """Aborted and open transactions as (producer id, first, last, state), by producer and first offset."""
        entries = [(*entry, ABORTED) for entry in self.aborted] + [(*entry, 2**63 - 1, OPEN) for entry in self.open]
        return np.array(sorted(entries), np.int64).reshape(-1, 4)

    def states(self, producer: Int64s, offset: Int64s, transactional: Flags) -> Int64s:
        """State of each record, an index into `STATES`; a marker has the state of the transaction that it ends."""
        starts = self._starts(producer, offset, transactional)
        if starts is None:
            return self._each(producer, offset, transactional)
        return np.repeat(self._each(producer[starts], offset[starts], transactional[starts]), np.diff(starts, append=len(offset)))

    def _starts(self, producer: Int64s, offset: Int64s, transactional: Flags) -> Int64s | None:
        """Rows at which the state can change; None if offsets do not grow."""
        if not len(offset) or (offset[1:] <= offset[:-1]).any():
            return None
        changes = np.flatnonzero((producer[1:] != producer[:-1]) | (transactional[1:] != transactional[:-1])) + 1
        edges = np.concatenate([self._ranges[:, 1], self._ranges[:, 2] + (self._ranges[:, 3] == ABORTED)])
        near = edges[(edges > offset[0]) & (edges <= offset[-1])]
        return np.unique(np.concatenate([[0], changes, np.searchsorted(offset, near)]))

    def _each(self, producer: Int64s, offset: Int64s, transactional: Flags) -> Int64s:
        states = np.where(transactional, COMMITTED, NONE)
        for mine in np.unique(producer[transactional]):
            ranges = self._ranges[self._ranges[:, 0] == mine]
            if len(ranges):
                entries = np.flatnonzero(transactional & (producer == mine))
                row = np.searchsorted(ranges[:, 1], offset[entries], side="right") - 1
                within = (row >= 0) & (offset[entries] <= ranges[row, 2])
                states[entries[within]] = ranges[row[within], 3]
        return states


def states_of(transactions: Transactions, entries: Entries) -> Int64s:
    """State of each batch, an index into `STATES`: all records of a batch are of one transaction, except in a `kip98_draft` set."""
    return transactions.states(entries.producer_id, entries.base_offset, entries.transactional != 0)


def matter(options: Options) -> bool:
    """Whether the options need the outcome of transactions."""
    return options.isolation_level == "read_committed" or COLUMN in options.columns


def to_decode(options: Options, transactions: Transactions | None) -> Options:
    """Options for decoding all records and columns that `settle` needs to return what ``options`` request."""
    if transactions is None:
        return options
    columns = options.columns
    if not _is_settled(options, transactions):
        columns = tuple(dict.fromkeys([*(name for name in columns if name != COLUMN), *_NEEDED]))
    return replace(options, columns=columns, end_offset=end_of(options, transactions))


def may_stop(options: Options) -> bool:
    """Whether a read stops at the first open transaction."""
    return options.isolation_level == "read_committed" and options.open_transactions == "stop"


def end_of(options: Options, transactions: Transactions) -> int | None:
    """Offset at which a reader stops: with read_committed, at the last stable offset at the latest, unless it is to read on."""
    end, stable = options.end_offset, transactions.last_stable_offset
    if may_stop(options) and stable is not None:
        end = stable if end is None else min(end, stable)
    return end


def left_out(states: Int64s, options: Options) -> Flags | None:
    """Which records or batches of some states a read leaves out; None if it is not one of committed records."""
    if options.isolation_level != "read_committed":
        return None
    aborted: Flags = states == ABORTED
    return aborted | (states == OPEN) if options.open_transactions == "skip" else aborted


def _is_settled(options: Options, transactions: Transactions) -> bool:
    """Whether no record has to be looked at: the options keep those of all transactions, and no column shows the state."""
    skipped = transactions.open if options.open_transactions == "skip" else ()
    kept = options.isolation_level != "read_committed" or not (transactions.aborted or skipped)
    return kept and COLUMN not in options.columns


def settle(batch: pa.RecordBatch, options: Options, transactions: Transactions | None) -> pa.RecordBatch:
    """The requested columns of a batch that was decoded with `to_decode`, without records of transactions that ``options`` exclude."""
    if transactions is None or _is_settled(options, transactions):
        return batch
    producer, offset = (int64s(batch.column(name)) for name in ("producerId", "offset"))
    states = transactions.states(producer, offset, bools(batch.column("isTransactional")))
    columns = [_names(states) if name == COLUMN else batch.column(name) for name in options.columns]
    settled = pa.RecordBatch.from_arrays(columns, names=list(options.columns))
    gone = left_out(states, options)
    return settled if gone is None or not gone.any() else keep(settled, ~gone)


def _names(states: Int64s) -> pa.Array:
    return pa.DictionaryArray.from_arrays(numbers(states, pa.int8()), strings(STATES)).cast(pa.string())
