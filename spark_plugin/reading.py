"""One task: a split's ranges, decoded within the bounds of their topic partitions."""

import gc
import logging
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from typing import Any

import pyarrow as pa

from kolumn.backend import choose
from kolumn.damage import Damage
from kolumn.decode import scan_ranges
from kolumn.source import Range
from kolumn.spark_plugin.gpu_task import use_gpu
from kolumn.spark_plugin.options import ReadOptions
from kolumn.spark_plugin.positions import Key
from kolumn.spark_plugin.splits import Split, narrowed

logger = logging.getLogger(__name__)


@cache
def settle_in() -> None:
    """After the first task of a worker: keep its garbage collector away from what will stay there anyway.

    Spark's daemon collects garbage after every task, and walks all objects of Numba and Arrow each time: tens of milliseconds. What is
    loaded later than this is walked still, hence after a task, not before it.
    """
    gc.collect()
    gc.freeze()


def read_split(split: Split, options: ReadOptions, damage: Callable[[Damage], None]) -> Iterator[pa.RecordBatch]:
    """Decode a split; errors as `kolumn.decode.scan_ranges`."""
    if choose(options.decode.backend) == "gpu":
        use_gpu()
    for key, ranges in groupby(split.ranges, _key):
        yield from scan_ranges(ranges, narrowed(options, split.bounds.get(key, (None, None))).decode, damage=damage)
    settle_in()


def warn(damage: Damage) -> None:
    """Spark gives a source no counters: a line in the worker's log for each damage; ``kolumn-damage`` is the table."""
    gone: Any = "an unknown number of" if damage.records_lost is None else damage.records_lost
    logger.warning(
        "%s: position %d: left out %d bytes with %s records: %s", damage.segment, damage.position, damage.size, gone, damage.reason
    )


def _key(one: Range) -> Key:
    return one.segment.topic, one.segment.partition
