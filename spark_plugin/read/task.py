"""What a task does, whatever asked for it: it takes its GPU where one is asked for, and decodes ranges."""

import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import Any

import pyarrow as pa

from kolumn.backend import choose
from kolumn.damage.findings import Damage
from kolumn.decode.pipeline import scan_ranges
from kolumn.decode.result import Tally
from kolumn.options import Options
from kolumn.source.segments import Range
from kolumn.spark_plugin.options.positions import Key
from kolumn.spark_plugin.options.read import ReadOptions
from kolumn.spark_plugin.read.splits import Split, narrowed
from kolumn.spark_plugin.session.gpu_task import use_gpu

logger = logging.getLogger(__name__)


@cache
def settle_in() -> None:
    """After the first task of a worker: keep its garbage collector away from what will stay there anyway.

    Spark's daemon collects garbage after every task, and walks all objects of Numba and Arrow each time: tens of milliseconds. What is
    loaded later than this is walked still, hence after a task, not before it.
    """
    gc.collect()
    gc.freeze()


def read_task(
    parts: Iterable[tuple[Iterable[Range], Options]],
    damage: Callable[[Damage], None],
    tally: Callable[[Range, Tally], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode what a task is to read: the only way from a task to `kolumn.decode.pipeline.scan_ranges`, whose errors it raises.

    Parameters
    ----------
    parts : iterable of (iterable of Range, Options)
        Ranges, and how they are decoded. Where that is on a GPU, it is the one that Spark gave to the task.
    damage : callable
        Is given each damage that ``errors="skip"`` leaves out.
    tally : callable, optional
        Is given each range and what was found in it.
    """
    for ranges, options in parts:
        if choose(options.backend) == "gpu":
            use_gpu()
        yield from scan_ranges(ranges, options, damage=damage, tally=tally)
    settle_in()


def read_split(
    split: Split, options: ReadOptions, damage: Callable[[Damage], None], tally: Callable[[Range, Tally], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """Decode a split within the bounds of its topic partitions."""
    groups = groupby(split.ranges, _key)
    parts = ((ranges, narrowed(options, split.bounds.get(key, (None, None))).decode) for key, ranges in groups)
    yield from read_task(parts, damage, tally)


def warn(damage: Damage) -> None:
    """Spark gives a source no counters: a line in the worker's log for each damage; ``kolumn-damage`` is the table."""
    gone: Any = "an unknown number of" if damage.records_lost is None else damage.records_lost
    logger.warning(
        "%s: position %d: left out %d bytes with %s records: %s", damage.segment, damage.position, damage.size, gone, damage.reason
    )


def _key(one: Range) -> Key:
    return one.segment.topic, one.segment.partition
