"""The work of a task: batches in the schema that Spark asked for, and what is counted on the way."""

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

import pyarrow as pa

from kolumn.damage.findings import Damage
from kolumn.decode.result import Tally
from kolumn.source.segments import Range
from kolumn.spark_plugin.connector.statistics import rows_of_totals
from kolumn.spark_plugin.connector.work import Work, ascending
from kolumn.spark_plugin.read.schema import arrow_schema, in_schema
from kolumn.spark_plugin.read.splits import Split
from kolumn.spark_plugin.read.task import read_split, warn
from kolumn.spark_plugin.stream.progress import check_planned

CONSTANT = frozenset({"topic", "partition", "segment", "timestampType"})
"""Columns whose buffers the batches of a segment share, mostly."""


@dataclass
class Counted:
    """What a task did: the metrics in Spark's UI. Names are those of the connector."""

    logBytes: int = 0  # noqa: N815
    logBatches: int = 0  # noqa: N815
    records: int = 0
    damaged: int = 0
    lost: int = 0
    decodeMs: float = 0  # noqa: N815

    def range_done(self, _: Range, tally: Tally) -> None:
        """A range was read."""
        self.logBytes += tally.valid_bytes
        self.logBatches += tally.batches

    def left_out(self, damage: Damage) -> None:
        """A damaged stretch was left out."""
        self.damaged += 1
        self.lost += damage.records_lost or 0
        warn(damage)


class Task:
    """One task.

    Attributes
    ----------
    schema : pa.Schema
        Of its batches.
    counted : Counted
    """

    def __init__(self, split: Split, work: Work) -> None:
        self.schema = arrow_schema(work.schema)
        self.counted = Counted()
        self._batches = self._limited(self._decoded(split, work), work.limit)

    def next(self) -> pa.RecordBatch | None:
        """The next batch that has rows; None at the end."""
        start = perf_counter()
        try:
            for batch in self._batches:
                if batch.num_rows:
                    self.counted.records += batch.num_rows
                    return batch
            return None
        finally:
            self.counted.decodeMs += (perf_counter() - start) * 1000

    def _decoded(self, split: Split, work: Work) -> Iterator[pa.RecordBatch]:
        if work.totals:
            yield from rows_of_totals(split.ranges, work.options.decode, work.totals, self.schema)
            return
        last = -1
        if work.live:
            check_planned(split)
        for batch in read_split(split, work.options, self.counted.left_out, self.counted.range_done):
            if work.ordered:
                last = ascending(batch.column("offset").to_numpy(), last)
            yield in_schema(batch, self.schema)

    def _limited(self, batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if 0 <= limit <= batch.num_rows:
                yield batch.slice(0, limit)
                return
            limit = max(-1, limit - batch.num_rows)
            yield batch
