"""`groups`: committed offsets, members and lag of consumer groups, from the topic `__consumer_offsets` and the logs beside it.

The newest record of each key of an internal topic: what a coordinator has in memory after it has loaded the topic.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa

from kolumn.copies.ends import log_end
from kolumn.copies.ranges import topic_rows
from kolumn.core.errors import ArgumentError, shown
from kolumn.core.keywords import Errors, Progress, Source, known_keywords
from kolumn.decode.pipeline import OnDamage
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segments import Segment
from kolumn.source.side_files import METADATA, read_topic_id
from kolumn.source.storage import beside
from kolumn.values.internal.definitions import definitions
from kolumn.values.internal.topics import decode_key, decode_value
from kolumn.values.internal.wire import MalformedMessageError, MessageBytes, reader

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


logger = logging.getLogger("kolumn.groups")

TOPIC = "__consumer_offsets"
_ASSIGNED = pa.list_(pa.field("element", pa.struct([("topic", pa.string()), ("partition", pa.int32())])))
_MEMBER = pa.struct(
    [
        ("memberId", pa.string()),
        ("instanceId", pa.string()),
        ("clientId", pa.string()),
        ("clientHost", pa.string()),
        ("assigned", _ASSIGNED),
    ]
)
GROUP_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("kind", pa.string()),
        ("state", pa.string()),
        ("protocolType", pa.string()),
        ("protocol", pa.string()),
        ("generation", pa.int32()),
        ("members", pa.list_(pa.field("element", _MEMBER))),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committedOffset", pa.int64()),
        ("logEndOffset", pa.int64()),
        ("lag", pa.int64()),
        ("leaderEpoch", pa.int32()),
        ("metadata", pa.string()),
        ("commitTimestamp", pa.timestamp("ms", tz="UTC")),
        ("topicId", pa.string()),
    ]
)
"""Columns of `groups`; ``kind`` is "classic", "consumer", "share" or "streams", null for a group that has committed offsets alone."""
_KINDS = {"ConsumerGroup": "consumer", "ShareGroup": "share", "StreamsGroup": "streams"}
_STABLE = 0
_NO_ID = "A" * 22


_End = Callable[[str, int, str | None], int | None]
"""The end of the log of a topic, a partition and a topic id, if it is there."""


@dataclass
class _Group:
    """What the topic says about a group."""

    kind: str | None = None
    own: dict[str, Any] = field(default_factory=dict)
    epoch: int | None = None
    target: int | None = None
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    current: dict[str, dict[str, Any]] = field(default_factory=dict)
    commits: dict[Key, dict[str, Any]] = field(default_factory=dict)


@known_keywords()
def groups(source: Source, *, errors: Errors = "raise", on_damage: OnDamage | None = None, on_progress: Progress | None = None) -> pa.Table:
    """The groups of a cluster with their last committed offsets, and the lag against the logs that are there.

    Parameters
    ----------
    source : str, PathLike or iterable of those
        Log directories of brokers, with partitions of `__consumer_offsets` and of the topics that are consumed. Copies of a partition
        are merged, so the directories of all brokers can be named.
    errors : str
        "raise" at damage in `__consumer_offsets`, or "skip" it: an older commit may then seem to be the last one.
    on_damage : callable, optional
        Called with a `kolumn.Damage` for each damaged stretch that is left out.
    on_progress : callable, optional
        As in `kolumn.scan`.

    Returns
    -------
    pyarrow.Table
        Columns of `GROUP_SCHEMA`, one row for each group and partition with a committed offset, and one row without a topic for a group
        that has none. ``logEndOffset`` and ``lag`` are null if the partition's log is not in the source, or belongs to a topic of another
        id. The log's end on disk may be above the high watermark that consumers can read to.

    Raises
    ------
    ArgumentError
        The source has no partition of `__consumer_offsets`.
    CorruptBatchError
        Damage, with ``errors="raise"``.
    """
    segments = live_segments(source, Options.of(errors="skip")).segments
    found = _groups(newest(segments, TOPIC, errors, on_damage, on_progress))
    logs = partitions_of(segments)
    names = {one: topic for (topic, _), own in logs.items() for one in topic_ids(own)}
    ends = _ends(logs)
    rows = [row for name in sorted(found) for row in _rows(name, found[name], ends, names)]
    return pa.Table.from_pylist(rows, GROUP_SCHEMA)


def _groups(latest: Mapping[bytes, Newest]) -> dict[str, _Group]:
    found: dict[str, _Group] = {}
    unknown = 0
    for key, one in latest.items():
        name, value = decode_key(TOPIC, False, key), decode_value(TOPIC, False, key, one.value)
        if name.fields is None or name.type is None or value.fields is None:
            unknown += 1
            continue
        group = name.fields.get("group") or name.fields.get("groupId") or ""
        _note(found.setdefault(group, _Group()), name.type, dict(name.fields), dict(value.fields))
    if unknown:
        logger.warning("%s: %d records of messages or versions that are not known were left out", TOPIC, unknown)
    return found


def _note(group: _Group, type: str, key: dict[str, Any], value: dict[str, Any]) -> None:
    """Take in one record; those of later offsets come later."""
    if type in ("OffsetCommit", "LegacyOffsetCommit"):
        group.commits[key["topic"], key["partition"]] = value
    elif type == "GroupMetadata":
        group.kind, group.own, group.epoch = "classic", value, value["generation"]
    for prefix, kind in _KINDS.items():
        if type == f"{prefix}Metadata":
            group.kind, group.epoch = kind, value["epoch"]
        elif type == f"{prefix}MemberMetadata":
            group.members[key["memberId"]] = value
        elif type == f"{prefix}CurrentMemberAssignment":
            group.current[key["memberId"]] = value
        elif type == f"{prefix}TargetAssignmentMetadata":
            group.target = value["assignmentEpoch"]


def _rows(name: str, group: _Group, ends: _End, names: dict[str, str]) -> list[dict[str, Any]]:
    about = {"group": name, "kind": group.kind, "state": _state(group), "generation": group.epoch, "members": _members(group, names)}
    if group.kind == "classic":
        about |= {"protocolType": group.own["protocolType"], "protocol": group.own["protocol"]}
    if not group.commits:
        return [about]
    rows = []
    for (topic, partition), value in sorted(group.commits.items()):
        id = value.get("topicId") if value.get("topicId") != _NO_ID else None
        end, offset = ends(topic, partition, id), value["offset"]
        rows.append(
            about
            | {"topic": topic, "partition": partition, "committedOffset": offset, "logEndOffset": end, "metadata": value["metadata"]}
            | {"lag": None if end is None else end - offset, "leaderEpoch": _known(value.get("leaderEpoch"))}
            | {"commitTimestamp": _known(value["commitTimestamp"]), "topicId": id}
        )
    return rows


def _known(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


def _ends(logs: dict[Key, list[Segment]]) -> _End:
    @cache
    def end(topic: str, partition: int, id: str | None) -> int | None:
        own = logs.get((topic, partition))
        if own is None:
            return None
        ids = topic_ids(own)
        if id is not None and ids and id not in ids:
            return None
        read = [one for one in own if one.fault is None]
        for one in own:
            if one.fault is not None:
                logger.warning("%s. The end of %s-%d is that of what can be read", one.fault, shown(topic), partition)
        return log_end(read) if read else None

    return end


def _state(group: _Group) -> str | None:
    """The state that a coordinator gives the group after it has loaded the topic; null if it depends on more than the topic."""
    if group.kind is None:
        return None
    if group.kind == "classic":
        return "Stable" if group.own["members"] else "Empty"
    if not group.members:
        return "Empty"
    if group.kind != "consumer":
        return "Stable" if group.kind == "share" else None
    if group.target is None or (group.epoch or 0) > group.target:
        return "Assigning"
    current = [group.current.get(name, {}) for name in group.members]
    settled = all(one.get("state") == _STABLE and one.get("memberEpoch") == group.target for one in current)
    return "Stable" if settled else "Reconciling"


def _members(group: _Group, names: dict[str, str]) -> list[dict[str, Any]]:
    if group.kind == "classic":
        is_consumer = group.own["protocolType"] == "consumer"
        return [
            {"memberId": one["memberId"], "instanceId": one.get("groupInstanceId"), "clientId": one["clientId"]}
            | {"clientHost": one["clientHost"], "assigned": _assigned(one["assignment"]) if is_consumer else None}
            for one in group.own["members"]
        ]
    found = []
    for name, one in group.members.items():
        parts = group.current.get(name, {}).get("assignedPartitions")
        assigned = parts and [
            {"topic": names.get(part["topicId"], part["topicId"]), "partition": number} for part in parts for number in part["partitions"]
        ]
        about = {"memberId": name, "instanceId": one.get("instanceId"), "clientId": one["clientId"], "clientHost": one["clientHost"]}
        found.append(about | {"assigned": assigned})
    return found


def _assigned(data: bytes) -> list[dict[str, Any]] | None:
    """The partitions in an assignment of the consumer protocol; None if it is not one."""
    message = definitions("clients")["ConsumerProtocolAssignment"]
    try:
        source = MessageBytes(data)
        if not data:
            return []
        # A newer version is read as the newest that is known, as Java does.
        found = reader(message, min(max(source.int16(), 0), message.versions.last))(source)
    except MalformedMessageError:
        return None
    return [{"topic": one["topic"], "partition": number} for one in found["assignedPartitions"] for number in one["partitions"]]
