"""The work of every task: it opens its GPU if ``backend`` asks for one, and decodes ranges."""

import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import pyarrow as pa

from kolumn.backend import RESIDENT, choose
from kolumn.core.errors import shown
from kolumn.damage.findings import Damage, OnDamage, Skipped, Tally
from kolumn.damage.stopped import lines
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.source.segments import Range
from kolumn.spark_plugin.read.options import PAST_IT, LoadOptions
from kolumn.spark_plugin.read.splits import Split
from kolumn.spark_plugin.session.gpu_task import use_gpu

logger = logging.getLogger(__name__)

_tasks = count(1)


def _settle_in() -> None:
    """Exclude the objects that exist after a worker's first task from garbage collection: they stay anyway.

    Spark's daemon collects garbage after every task, and visits all objects of Numba and Arrow each time, which takes tens of
    milliseconds. Works again after the second, fourth, eighth … task, which may have loaded what those before did not need.
    """
    number = next(_tasks)
    if number & (number - 1) == 0:
        gc.collect()
        gc.freeze()


def read_task(
    parts: Iterable[tuple[Iterable[Range], Options]],
    damage: OnDamage | None = None,
    tally: Callable[[Range, Tally], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode the ranges of a task. Every task calls `kolumn.decode.pipeline.scan_ranges` through this function, which raises its errors.

    ``parts`` are ranges, and how they are decoded: if on a GPU, it is the one that Spark assigned to the task, or, with columns that stay
    there, the executor's. ``damage`` is called with each damaged part that ``errors="skip"`` leaves out, a `Skipped` counts what else is
    left out; without it that is logged. ``tally`` is called with each range and what was counted in it.
    """
    losses = TaskLosses()
    try:
        for ranges, options in parts:
            if options.backend != RESIDENT and choose(options.backend) == "gpu":
                use_gpu()
            yield from scan_ranges(ranges, options, damage=damage or losses, tally=tally)
    finally:
        losses.say()
    _settle_in()


def read_split(
    split: Split, options: LoadOptions, damage: OnDamage | None = None, tally: Callable[[Range, Tally], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """Decode a split within the bounds of its topic partitions."""
    yield from read_task(split.parts(options.decode), damage, tally)


class TaskLosses(Skipped):
    """What a task leaves out, counted for the metrics of a scan: damage is logged as it comes, and not kept."""

    def __init__(self) -> None:
        super().__init__()
        self.stretches_left_out = self.records_left_out = 0

    def __call__(self, piece: Damage) -> None:
        self.stretches_left_out += 1
        self.records_left_out += piece.records_lost or 0
        gone: Any = "an unknown number of" if piece.records_lost is None else piece.records_lost
        logger.warning(
            "%s: position %d: left out %d bytes with %s records: %s", shown(piece.segment), piece.position, piece.size, gone, piece.reason
        )

    def say(self) -> None:
        """Log what was lost of values, and where the task has stopped, of which the driver has warned."""
        if self.values.values:
            logger.warning("%s", self.values.said)
        # Another task may have what comes after the transaction.
        for line in lines([own for own in self.stopped if own.records != 0 or own.is_estimate], PAST_IT):
            logger.info("%s", line)

    @property
    def after_open(self) -> int:
        """Committed records after open transactions, which were not read."""
        return sum(own.records or 0 for own in self.stopped)
