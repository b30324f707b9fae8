"""The work of every task: it opens its GPU if ``backend`` asks for one, and decodes ranges."""

import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import count, groupby
from typing import Any

import pyarrow as pa

from kolumn.backend import choose
from kolumn.core.errors import shown
from kolumn.damage.findings import Damage
from kolumn.decode.pipeline import scan_ranges
from kolumn.decode.result import Tally
from kolumn.options import Options
from kolumn.source.segments import Range
from kolumn.spark_plugin.options.positions import Key
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.splits import Split, narrowed
from kolumn.spark_plugin.session.gpu_task import use_gpu

logger = logging.getLogger(__name__)


_tasks = count(1)


def settle_in() -> None:
    """Exclude the objects that exist after a worker's first task from garbage collection: they stay anyway.

    Spark's daemon collects garbage after every task, and visits all objects of Numba and Arrow each time, which takes tens of
    milliseconds. Objects loaded after this call are still visited. It is therefore called after a task, not before it, and works again
    after the second, fourth, eighth … task: one of them may have loaded what those before did not need.
    """
    number = next(_tasks)
    if number & (number - 1) == 0:
        gc.collect()
        gc.freeze()


def read_task(
    parts: Iterable[tuple[Iterable[Range], Options]],
    damage: Callable[[Damage], None],
    tally: Callable[[Range, Tally], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode the ranges of a task. Every task calls `kolumn.decode.pipeline.scan_ranges` through this function, which raises its errors.

    Parameters
    ----------
    parts : iterable of (iterable of Range, Options)
        Ranges, and how they are decoded. If that is on a GPU, it is the one that Spark assigned to the task.
    damage : callable
        Called with each damaged part that ``errors="skip"`` leaves out.
    tally : callable, optional
        Called with each range and the tally of what was found in it.
    """
    for ranges, options in parts:
        if choose(options.backend) == "gpu":
            use_gpu()
        yield from scan_ranges(ranges, options, damage=damage, tally=tally)
    settle_in()


def read_split(
    split: Split, options: LoadOptions, damage: Callable[[Damage], None], tally: Callable[[Range, Tally], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """Decode a split within the bounds of its topic partitions."""
    groups = groupby(split.ranges, _key)
    parts = ((ranges, narrowed(options, split.bounds.get(key, (None, None))).decode) for key, ranges in groups)
    yield from read_task(parts, damage, tally)


def warn(damage: Damage) -> None:
    """Log one warning for each damaged part in the worker, since Spark has no counters for a source; ``kolumn-damage`` is the table."""
    gone: Any = "an unknown number of" if damage.records_lost is None else damage.records_lost
    logger.warning(
        "%s: position %d: left out %d bytes with %s records: %s", shown(damage.segment), damage.position, damage.size, gone, damage.reason
    )


def _key(one: Range) -> Key:
    return one.segment.topic, one.segment.partition
