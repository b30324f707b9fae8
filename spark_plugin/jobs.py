"""What an export has to do: the new records of each partition, cut into jobs, and jobs put together to tasks."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby

from kolumn.errors import ArgumentError
from kolumn.options import Options
from kolumn.source import Segment
from kolumn.spark_plugin.manifest import Manifest
from kolumn.spark_plugin.session import Run, by_threads
from kolumn.spark_plugin.splits import pack, wanted
from kolumn.spark_plugin.staged import Job
from kolumn.storage import is_url, parent


def plan_jobs(segments: list[Segment], decode: Options, manifest: Manifest, split_bytes: int, run: Run = by_threads) -> Iterator[Job]:
    """What is new in each partition, in pieces of about ``split_bytes``.

    Raises
    ------
    ArgumentError
        A segment without topic or partition, and a partition that is in two folders.
    """
    unnamed = [segment.path for segment in segments if segment.topic is None or segment.partition is None]
    if unnamed:
        raise ArgumentError(f"{unnamed[0]}: its folder is not named topic-partition: give the options topic and partition")
    unique = {segment.path if is_url(segment.path) else os.path.realpath(segment.path): segment for segment in segments}.values()
    for (topic, partition), group in groupby(sorted(unique, key=_order), key=lambda one: (one.topic, one.partition)):
        assert topic is not None
        assert partition is not None
        own = list(group)
        folders = {parent(segment.path) for segment in own}
        if len(folders) > 1:
            raise ArgumentError(f"{topic}-{partition} is in {' and in '.join(sorted(folders))}: export one copy of a partition")
        start = manifest.next_offset(topic, partition)
        options = decode if start is None else Options.of(**(asdict(decode) | {"start_offset": start}))
        for ranges in pack(wanted(own, options, split_bytes, run), split_bytes):
            yield Job(topic, partition, start, ranges)


def _order(segment: Segment) -> tuple[str, int, int]:
    return segment.topic or "", segment.partition or 0, segment.base_offset or 0


def plan_tasks(jobs: Iterable[Job], target: int) -> Iterator[list[Job]]:
    """Small partitions share a task."""
    group: list[Job] = []
    size = 0
    for job in jobs:
        length = sum(part.end - part.start for part in job.ranges)
        if group and size + length > target:
            yield group
            group, size = [], 0
        group.append(job)
        size += length
    if group:
        yield group
