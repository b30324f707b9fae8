"""When transactions began and ended, from the order of records and markers."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

MOST = 400
"""Transactions that are kept of each outcome."""


@dataclass(frozen=True)
class Transaction:
    """One transaction of one partition; times in ms since 1970."""

    producer: int
    partition: str
    outcome: str
    start_ms: int
    end_ms: int
    first_offset: int


@dataclass
class TransactionStatistics:
    """The transactions of all partitions: counts by outcome, and the first ones of each outcome.

    Outcomes are "committed", "aborted" and "open"; a marker without records is "empty".
    """

    counts: dict[str, int] = field(default_factory=dict)
    found: list[Transaction] = field(default_factory=list)
    _begun: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, partition: str) -> None:
        """Add records with control records, in the order of the log."""
        within, control, producers, times, offsets = (
            batch[name].to_numpy(zero_copy_only=False) for name in ("isTransactional", "isControl", "producerId", "timestampMs", "offset")
        )
        rows = np.flatnonzero(within | control)
        if not len(rows):
            return
        # Of records of one producer in a row only the first one matters.
        keep = np.ones(len(rows), bool)
        keep[1:] = control[rows[1:]] | control[rows[:-1]] | (producers[rows[1:]] != producers[rows[:-1]])
        kinds = batch["controlType"]
        for row in rows[keep].tolist():
            producer, time = int(producers[row]), int(times[row])
            if not control[row]:
                self._begun.setdefault(producer, (time, int(offsets[row])))
            elif (kind := kinds[row].as_py()) in ("COMMIT", "ABORT"):
                self._end(producer, time, {"COMMIT": "committed", "ABORT": "aborted"}[kind], partition)

    def close(self, partition: str) -> None:
        """The partition ends: what has no marker is open."""
        for producer, (start, _) in list(self._begun.items()):
            self._end(producer, start, "open", partition)

    def _end(self, producer: int, time: int, outcome: str, partition: str) -> None:
        begun = self._begun.pop(producer, None)
        outcome = outcome if begun is not None else "empty"
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        if begun is not None and self.counts[outcome] <= MOST:
            self.found.append(Transaction(producer, partition, outcome, begun[0], max(time, begun[0]), begun[1]))
