"""The newest record of each key of an internal topic: what a coordinator has in memory after it has loaded the topic."""

from collections.abc import Iterable
from typing import NamedTuple

from kolumn.decode.pipeline import OnDamage
from kolumn.errors import ArgumentError
from kolumn.keywords import Errors, Progress
from kolumn.replicas.topic_rows import topic_rows
from kolumn.source.segments import Segment
from kolumn.source.side_files import METADATA, read_topic_id
from kolumn.source.storage import beside

Key = tuple[str, int]
"""Topic and partition."""
_COLUMNS = ("offset", "timestampMs", "key", "value", "transaction", "partition")


class Newest(NamedTuple):
    """A value of a key that no tombstone has removed."""

    partition: int | None
    offset: int
    timestamp_ms: int
    value: bytes


def newest(
    segments: Iterable[Segment], topic: str, errors: Errors, on_damage: OnDamage | None, on_progress: Progress | None = None
) -> dict[bytes, Newest]:
    """The newest value of each key, in the order of the log; keys without one are left out.

    Of a transaction's records only those count whose transaction was committed. If the segments are of several copies of the topic, each
    offset is read once.

    Raises
    ------
    ArgumentError
        The topic is not among the segments.
    """
    own = [one for one in segments if one.topic == topic]
    if not own:
        raise ArgumentError(f"no {topic} in this source: name the log directory of a broker that has partitions of it, or several")
    found: dict[bytes, Newest | None] = {}
    for batch in topic_rows(own, _COLUMNS, errors, on_damage, on_progress):
        for offset, time, key, value, state, partition in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if key is not None and state in ("none", "committed"):
                # The last write decides the order too.
                found.pop(key, None)
                found[key] = None if value is None else Newest(partition, offset, time, value)
    return {key: one for key, one in found.items() if one is not None}


def partitions_of(segments: Iterable[Segment]) -> dict[Key, list[Segment]]:
    """Segments of each topic-partition, snapshots of metadata left out."""
    found: dict[Key, list[Segment]] = {}
    for one in segments:
        if one.topic is not None and one.partition is not None and one.base_offset is not None:
            found.setdefault((one.topic, one.partition), []).append(one)
    return found


def topic_ids(own: Iterable[Segment]) -> set[str]:
    """The ids that the folders of a partition say their topic has; empty without any."""
    names = dict.fromkeys(beside(one.path, METADATA) for one in own)
    return {found for name in names if (found := read_topic_id(name)) is not None}
