"""Snapshots of KRaft beside a log: files of batches that hold the state up to an offset.

    <offset, 20 digits>-<epoch, 10 digits>.checkpoint      in the folder `__cluster_metadata-0`; the offset is the snapshot's end

Source: ``org.apache.kafka.snapshot.Snapshots`` of Kafka.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from kolumn.source.segments import Segment, find_segments
from kolumn.source.storage import base_name, listing, parent

_NAME = re.compile(r"\d{20}-\d{10}\.checkpoint")


def snapshots_of(segments: Iterable[Segment]) -> dict[str, list[str]]:
    """Names of the snapshots in the folders of some segments, by folder, oldest first; folders without any are left out."""
    folders = dict.fromkeys(parent(one.path) or "." for one in segments if one.base_offset is not None)
    found = {folder: sorted(one.name for one in listing(folder) if _NAME.fullmatch(base_name(one.name))) for folder in folders}
    return {folder: names for folder, names in found.items() if names}


def with_snapshots(segments: list[Segment]) -> list[Segment]:
    """The segments, with the snapshots of their folders before those of the log; none is added twice."""
    known = {one.path for one in segments}
    made = []
    beside = snapshots_of(segments)
    for one in segments:
        for name in beside.pop(parent(one.path) or ".", ()):
            if name not in known:
                made += [replace(each, topic=one.topic, partition=one.partition, format=one.format) for each in find_segments(name)]
        made.append(one)
    return made
