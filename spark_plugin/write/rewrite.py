"""`convert` and `compact` of thousands of segments: a task writes a segment into its own folder, the driver moves complete ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.functions import max as highest

from kolumn import keywords
from kolumn.api import segments_of
from kolumn.commit.run import recover
from kolumn.compaction.compact import (
    DAY_MS,
    Compaction,
    CompactionPlan,
    CompactionSettings,
    clean_segment,
    copy_segment,
    folder_of,
    plan_partition,
)
from kolumn.compaction.first_pass import last_keys
from kolumn.compaction.latest import LatestOffsets
from kolumn.conversion.convert import Conversion, ConversionJob, can_roll, targets
from kolumn.encode.outgoing import name_of
from kolumn.entries.headers import headers
from kolumn.errors import ArgumentError
from kolumn.keywords import known_keywords
from kolumn.log.pieces import whole_options
from kolumn.log.transactions import transactions_of_segment
from kolumn.replicas.copies import one_directory
from kolumn.source import storage
from kolumn.source.segments import Segment
from kolumn.spark_plugin.session.session import by_job
from kolumn.spark_plugin.session.workers_python import use_this_python
from kolumn.spark_plugin.write.staging import Staging, files_of, move_all

_TASKS_EACH = 4
"""Tasks for each slot: more than one, since segments differ in size."""


@dataclass(frozen=True)
class _Done:
    """The output of one attempt of a task: the segment's place, the folder with its files, and the result."""

    place: str
    folder: str
    result: Any


_Work = Callable[[Staging, Any], _Done]


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
    errors: keywords.Errors = "raise",
    check_crcs: bool = True,
    replicas: keywords.Replicas = "raise",
    topic: str | None = None,
    partition: int | None = None,
    chunk_bytes: int | None = None,
    memory_bytes: int | None = None,
    max_batch_bytes: int = 2**31 - 1,
    max_ratio: float = 1032.0,
    on_progress: keywords.Progress | None = None,
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
    options = whole_options(
        source_format,
        errors=errors, check_crcs=check_crcs, replicas=replicas, topic=topic, partition=partition, chunk_bytes=chunk_bytes,
        memory_bytes=memory_bytes, max_batch_bytes=max_batch_bytes, max_ratio=max_ratio, on_progress=on_progress,
    )  # fmt: skip
    return _convert(
        spark,
        ConversionJob.of(options, format, magic, codec, level, timestamp, drop_transactions, batch_bytes, index_interval_bytes),
        source,
        target,
    )


def _convert(spark: SparkSession, job: ConversionJob, source: keywords.Source, target: str) -> Conversion:
    items = _places(job.chosen(segments_of(source, job.options)), target)
    found: dict[str, Any] = {}
    if job.drop_transactions:
        firsts = list({folder_of(segment): segment for segment, _ in items}.items())
        states = by_job(spark)(lambda one: transactions_of_segment(one[1], job.options), firsts)
        found = {folder: state for (folder, _), state in zip(firsts, states, strict=True)}

    def work(where: Staging, item: tuple[Segment, str]) -> _Done:
        segment, place = item
        with where.attempt() as (folder, name):
            made = job.segment(segment, folder / storage.base_name(place), found.get(folder_of(segment)), can_roll(target))
            return _Done(place, name, made)

    total = Conversion()
    _run(spark, target, [(items, work)], total.add)
    return total


@known_keywords()
def compact(
    spark: SparkSession,
    source: keywords.Source,
    target: str,
    *,
    format: keywords.Format = "kafka",
    delete_retention_ms: int = DAY_MS,
    now: int | None = None,
    first_dirty_offset: int = 0,
    include_active: bool = False,
    merge_bytes: int | None = None,
    producer_id_expiration_ms: int = DAY_MS,
    index_interval_bytes: int = 4096,
    errors: keywords.Errors = "raise",
    check_crcs: bool = True,
    replicas: keywords.Replicas = "raise",
    topic: str | None = None,
    partition: int | None = None,
    chunk_bytes: int | None = None,
    memory_bytes: int | None = None,
    max_batch_bytes: int = 2**31 - 1,
    max_ratio: float = 1032.0,
    on_progress: keywords.Progress | None = None,
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
    options = whole_options(
        format,
        errors=errors, check_crcs=check_crcs, replicas=replicas, topic=topic, partition=partition, chunk_bytes=chunk_bytes,
        memory_bytes=memory_bytes, max_batch_bytes=max_batch_bytes, max_ratio=max_ratio, on_progress=on_progress,
    )  # fmt: skip
    how = CompactionSettings.of(
        options, delete_retention_ms, now, first_dirty_offset, merge_bytes, producer_id_expiration_ms, index_interval_bytes
    )  # fmt: skip
    if how.first_dirty:
        raise ArgumentError("first_dirty_offset: a round in Spark cleans whole partitions; leave it out, or use kolumn.compact")
    return _compact(spark, how, source, target, include_active)


def _compact(spark: SparkSession, how: CompactionSettings, source: keywords.Source, target: str, include_active: bool) -> Compaction:
    segments = one_directory(segments_of(source, how.options), "compact")
    places = dict(_places(segments, target))
    partitions = [list(own) for _, own in groupby(segments, key=folder_of)]
    plans = list(by_job(spark)(lambda own: plan_partition(own, how, include_active), partitions))
    tasks = [(plan, i) for plan in plans for i in range(len(plan.dirty))]
    total = Compaction()
    latest = _latest(spark, tasks, how)
    observed = [one for plan in plans for one in _observed(plan)]

    def clean(where: Staging, item: tuple[int, Any]) -> _Done:
        number, offsets = item
        plan, i = tasks[number]
        segment, round = plan.dirty[i], plan.round(how, LatestOffsets.of(offsets), observed[number])
        place = places[segment]
        with where.attempt() as (folder, name):
            path = folder / storage.base_name(place)
            return _Done(place, name, clean_segment(segment, path, round, plan.legacy_deletes[i], how, can_roll(target)))

    def copy(where: Staging, item: tuple[Segment, str]) -> _Done:
        segment, place = item
        with where.attempt() as (folder, name):
            copy_segment(segment, folder / storage.base_name(place))
            return _Done(place, name, Compaction([storage.base_name(place)]))

    as_they_are = [(segment, places[segment]) for plan in plans for segment in plan.rest]
    _run(spark, target, [(list(enumerate(latest)), clean), (as_they_are, copy)], total.add)
    folders = list(dict.fromkeys(map(storage.parent, places.values())))
    total.segments.sort(key=lambda one: (folders.index(storage.parent(one)), one))
    return total


def _latest(spark: SparkSession, tasks: list[tuple[CompactionPlan, int]], how: CompactionSettings) -> list[Any]:
    """For each dirty segment, the sorted last offsets of its keys (int64): keys are shuffled, and only offsets reach the driver."""
    if not tasks:
        return []
    folders = sorted({folder_of(plan.dirty[i]) for plan, i in tasks})

    def keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                plan, i = tasks[number]
                own, found = folders.index(folder_of(plan.dirty[i])), LatestOffsets()
                for part, offsets in last_keys(plan.dirty[i], plan.round(how, found), how.options):
                    found.add(part, offsets)
                for chunk in found.table().to_batches():
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
                producer = row.producer_id
                if row.control:
                    seen.discard(producer)
                else:
                    seen.add(producer)


def _places(segments: list[Segment], target: str) -> list[tuple[Segment, str]]:
    items = list(targets(segments, target))
    # This has to be done before anything looks for existing files.
    recover(_root(target))
    for _, place in items:
        if storage.look(place) is not None:
            raise ArgumentError(f"{place} already exists: name another target, or remove it")
    return items


def _root(target: str) -> str:
    path = name_of(target)
    return storage.parent(path) if path.endswith(".log") else path


def _run(spark: SparkSession, target: str, jobs: list[tuple[list[Any], _Work]], count: Callable[[Any], None]) -> None:
    """Run each job in tasks, and rename the files they wrote when all jobs are done; a failed job leaves no files."""
    if not any(items for items, _ in jobs):
        return
    slots = _TASKS_EACH * spark.sparkContext.defaultParallelism
    where = Staging(_root(target), "rewrite")
    try:
        done: list[_Done] = []
        for items, work in jobs:
            if items:
                done += spark.sparkContext.parallelize(items, min(len(items), slots)).map(partial(work, where)).collect()
        files = [(file, storage.beside(one.place, storage.base_name(file))) for one in done for file in files_of(one.folder)]
        move_all(where.root, where.name, files)
        for one in done:
            one.result.segments = [storage.beside(one.place, name) for name in one.result.segments]
            count(one.result)
    finally:
        where.remove()
