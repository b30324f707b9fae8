"""`convert`, `compact`, `erase` of thousands of segments: a task writes a segment into its own folder, the driver moves complete ones."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.functions import max as highest

from kolumn.copies.transactions import transactions_of_log
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import known_keywords
from kolumn.decode.host.headers import headers
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.readers.selection import Keys, Where
from kolumn.source import storage
from kolumn.source.segments import Segment
from kolumn.spark_plugin.session.session import by_job, use_this_python
from kolumn.spark_plugin.write.staging import Staging, files_of, move_all
from kolumn.writers.commit.run import recover
from kolumn.writers.last_offsets import LatestOffsets
from kolumn.writers.rewriting.compact import (
    DAY_MS,
    Compaction,
    CompactionPlan,
    CompactionSettings,
    clean_segment,
    copy_with_damage,
    folder_of,
    plan_partition,
    segments_to_compact,
)
from kolumn.writers.rewriting.convert import Conversion, ConversionJob, can_roll, root_of, targets
from kolumn.writers.rewriting.erase import Erased, Erasure, ErasureWork, refused_by_erase

_TASKS_EACH = 4
"""Tasks for each slot: more than one, since segments differ in size."""


@known_keywords()
def convert(
    spark: SparkSession,
    source: keywords.Source,
    target: str,
    *,
    format: keywords.Format = "kafka",
    magic: int | None = None,
    codec: keywords.Codec | None = None,
    level: int | None = None,
    source_format: keywords.Format = "kafka",
    timestamp: int | None = None,
    drop_transactions: bool = False,
    batch_bytes: int = 16384,
    index_interval_bytes: int = 4096,
    **options: Unpack[keywords.WholeOptions],
) -> Conversion:
    """`kolumn.convert` as a Spark job; each task converts some of the segments.

    Parameters
    ----------
    spark : SparkSession
    source, target, format, magic, …
        All as in `kolumn.convert`. A path must mean the same to workers and driver; otherwise use a URL.

    Returns
    -------
    Conversion
        The sums over all segments.
    """
    use_this_python(spark)
    chosen = Options.of(format=source_format, **options)
    job = ConversionJob.of(
        chosen, format=format, magic=magic, codec=codec, level=level, timestamp=timestamp, drop_transactions=drop_transactions,
        batch_bytes=batch_bytes, index_interval_bytes=index_interval_bytes,
    )  # fmt: skip
    named = list(targets(job.chosen(live_segments(source, job.options).one_log()), target, format))
    _refuse_existing(target, job.claimed(named, target))
    transactions: dict[str, Any] = {}
    if job.drop_transactions:
        firsts = {folder_of(segment): segment for segment, _ in named}
        log = [segment for segment, _ in named]
        states = by_job(spark)(lambda segment: transactions_of_log(segment, log, job.options), list(firsts.values()))
        transactions = dict(zip(firsts, states, strict=True))

    offsets = job.offsets(segment for segment, _ in named)

    def write(segment: Segment, path: Path) -> Conversion:
        return job.segment(segment, path, transactions.get(folder_of(segment)), can_roll(target), offsets.get(segment))

    total = Conversion()
    for conversion in _written(spark, target, [(name, segment) for segment, name in named], write):
        total.add(conversion)
    return total


@known_keywords()
def compact(
    spark: SparkSession,
    source: keywords.Source,
    target: str,
    *,
    format: keywords.Format = "kafka",
    delete_retention_ms: keywords.Duration = DAY_MS,
    now: keywords.Time | None = None,
    first_dirty_offset: int = 0,
    include_active: bool = False,
    merge_bytes: int | None = None,
    producer_id_expiration_ms: keywords.Duration = DAY_MS,
    index_interval_bytes: int = 4096,
    **options: Unpack[keywords.WholeOptions],
) -> Compaction:
    """`kolumn.compact` as Spark jobs: one shuffles keys to find the last offset of each, the next rewrites the segments.

    Parameters
    ----------
    spark : SparkSession
    source, target, format, delete_retention_ms, …
        All as in `kolumn.compact`, except ``first_dirty_offset``: a round starts at the log's beginning, so only 0 is accepted.
        A path must mean the same to workers and driver; otherwise use a URL.

    Returns
    -------
    Compaction
        The sums over all segments.
    """
    use_this_python(spark)
    chosen = Options.of(format=format, **options)
    how = CompactionSettings.of(
        chosen, delete_retention_ms, now, first_dirty_offset, merge_bytes, producer_id_expiration_ms, index_interval_bytes
    )
    if how.first_dirty:
        raise ArgumentError("first_dirty_offset: a round in Spark cleans whole partitions; leave it out, or use kolumn.compact")
    segments = segments_to_compact(source, how.options)
    names = dict(_new_targets(segments, target))
    partitions = [list(own) for _, own in groupby(segments, key=folder_of)]
    plans = list(by_job(spark)(lambda own: plan_partition(own, how, include_active), partitions))
    tasks = [(plan, i) for plan in plans for i in range(len(plan.dirty))]
    latest = _latest(spark, tasks, how)
    observed = [producers for plan in plans for producers in _observed(plan)]

    def write(item: Segment | tuple[int, Any], path: Path) -> Compaction:
        if isinstance(item, Segment):
            return copy_with_damage(item, path, how)
        number, offsets = item
        plan, i = tasks[number]
        round = plan.round(how, LatestOffsets.of(offsets), observed[number])
        return clean_segment(plan.dirty[i], path, round, plan.legacy_deletes[i], how, can_roll(target))

    dirty = [(names[plan.dirty[i]], (number, latest[number])) for number, (plan, i) in enumerate(tasks)]
    total = Compaction()
    for compaction in _written(spark, target, [*dirty, *((names[segment], segment) for plan in plans for segment in plan.rest)], write):
        total.add(compaction)
    folders = list(dict.fromkeys(map(storage.parent, names.values())))
    total.segments.sort(key=lambda name: (folders.index(storage.parent(name)), name))
    return total


@known_keywords(refused_by_erase)
def erase(
    spark: SparkSession,
    source: keywords.Source,
    target: str,
    *,
    keys: Keys | None = None,
    where: Where | None = None,
    verify: bool = False,
    format: keywords.Format = "kafka",
    index_interval_bytes: int = 4096,
    private_keys: keywords.Keys | None = None,
    **options: Unpack[keywords.ChosenOptions],
) -> Erasure:
    """`kolumn.erase` as a Spark job; each task writes some of the segments.

    Parameters
    ----------
    spark : SparkSession
    source, target, keys, where, …
        All as in `kolumn.erase`. A path must mean the same to workers and driver; otherwise use a URL. With ``verify`` the driver
        reads source and target again.

    Returns
    -------
    Erasure
    """
    use_this_python(spark)
    chosen = Options.of(format=format, private_keys=private_keys, **options)
    work = ErasureWork.of(source, target, chosen, keys, where, index_interval_bytes)
    if work.tiers:
        raise ArgumentError(f"{work.tiers[0].path}: kolumn.erase writes a tier's segments in their layout, this job does not")
    _refuse_existing(target, work.names.values())
    job, rolls = work.job, can_roll(target)
    plans = list(by_job(spark)(job.plan, work.partitions))
    segments = [(plan, number) for plan in plans for number in range(len(plan.segments))]

    def write(item: int, path: Path) -> Erased:
        return job.segment(*segments[item], path, rolls)

    items = [(work.names[plan.segments[number]], item) for item, (plan, number) in enumerate(segments)]
    done = _written(spark, target, items, write)
    return work.result({plan.segments[number]: own for (plan, number), own in zip(segments, done, strict=True)}, verify)


def _latest(spark: SparkSession, tasks: list[tuple[CompactionPlan, int]], how: CompactionSettings) -> list[Any]:
    """For each dirty segment, the sorted last offsets of its keys (int64): keys are shuffled, and only offsets reach the driver."""
    if not tasks:
        return []
    folders = sorted({folder_of(plan.dirty[i]) for plan, i in tasks})

    def keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                plan, i = tasks[number]
                own, latest = folders.index(folder_of(plan.dirty[i])), LatestOffsets()
                plan.round(how, latest).add_keys(plan.dirty[i], how.options)
                for chunk in latest.table().to_batches():
                    folder = pa.repeat(pa.scalar(own, pa.int32()), chunk.num_rows)
                    yield pa.RecordBatch.from_arrays([folder, *chunk.columns], names=["folder", "key", "offset"])

    rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(keys, "folder int, key binary, offset bigint")
    last = rows.groupBy("folder", "key").agg(highest("offset").alias("offset")).select("folder", "offset").toArrow()
    by_folder = {own: np.sort(last.filter(pc.equal(last["folder"], own))["offset"].to_numpy()) for own in range(len(folders))}
    return [by_folder[folders.index(folder_of(plan.dirty[i]))] for plan, i in tasks]


def _observed(plan: CompactionPlan) -> Iterator[frozenset[int]]:
    """For each dirty segment: the producers with a transaction that is open at its start and has a batch in an earlier segment."""
    seen: set[int] = set()
    for segment in plan.dirty:
        yield frozenset(seen)
        for entries in headers(segment):
            for row in entries[(entries.transactional | entries.control) == 1]:
                (seen.discard if row.control else seen.add)(row.producer_id)


def _new_targets(segments: list[Segment], target: str) -> list[tuple[Segment, str]]:
    """Each segment with the name that it is written to, which no file has."""
    named = list(targets(segments, target))
    _refuse_existing(target, (name for _, name in named))
    return named


def _refuse_existing(target: str, names: Iterable[str]) -> None:
    # This has to be done before anything looks for existing files.
    recover(root_of(target))
    for name in names:
        if storage.look(name) is not None:
            raise ArgumentError(f"{name} already exists: name another target, or remove it")


def _written(spark: SparkSession, target: str, items: list[tuple[str, Any]], write: Callable[[Any, Path], Any]) -> list[Any]:
    """Write items to their names, in tasks; a failed job leaves no files. Returns the results of ``write``, with final names."""
    if not items:
        return []
    staging = Staging(root_of(target), "rewrite")

    def work(item: tuple[str, Any]) -> tuple[str, Any]:
        """The folder of this attempt, and the result."""
        final, what = item
        with staging.attempt() as (folder, name):
            return name, write(what, folder / storage.base_name(final))

    try:
        slots = _TASKS_EACH * spark.sparkContext.defaultParallelism
        done = spark.sparkContext.parallelize(items, min(len(items), slots)).map(work).collect()
        written = [(final, name, result) for (final, _), (name, result) in zip(items, done, strict=True)]
        files = [(file, storage.beside(final, storage.base_name(file))) for final, name, _ in written for file in files_of(name)]
        move_all(staging.root, staging.name, files)
        for final, _, result in written:
            result.segments = [storage.beside(final, segment) for segment in result.segments]
        return [result for _, _, result in written]
    finally:
        staging.remove()
