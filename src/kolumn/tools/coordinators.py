"""What the topics of coordinators say: `groups` from `__consumer_offsets`, `open_transactions` from `__transaction_state`.

Of an internal topic the newest record of each key counts: what a coordinator has in memory after it has loaded the topic. Both are compared
with the logs that are there.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from kolumn.copies.consumers import consumers_offset
from kolumn.copies.copies import log_end
from kolumn.copies.ranges import log_ranges, topic_rows, whole_ranges
from kolumn.copies.transactions import of_ranges
from kolumn.core.errors import ArgumentError, shown
from kolumn.core.keywords import Errors, Progress, Source, Time, known_keywords
from kolumn.damage.findings import OnDamage, Tally
from kolumn.decode.observed import moment
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options, moment_of
from kolumn.readers.plan import live_segments
from kolumn.source.segments import Segment
from kolumn.source.side_files import METADATA, read_topic_id
from kolumn.source.storage import beside, parent
from kolumn.values.internal.messages import MalformedMessageError, MessageBytes, decode_key, decode_value, definitions, reader

OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
_LOGGERS = {OFFSETS_TOPIC: logging.getLogger("kolumn.groups"), TRANSACTIONS_TOPIC: logging.getLogger("kolumn.transactions")}
_Partition = tuple[str, int]
_Log = tuple[str | None, int | None]  # None in folders with other names than topic-partitions have
_Row = dict[str, Any]
_COLUMNS = ("key", "value", "transaction")
_MOMENT = pa.timestamp("ms", tz="UTC")
_MERGED = Options(errors="skip", replicas="merge", backend="cpu")


def _known(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


def _partitions(segments: Iterable[Segment]) -> dict[_Partition, list[Segment]]:
    """Segments of each topic-partition, snapshots of metadata left out."""
    partitions: dict[_Partition, list[Segment]] = {}
    for segment in segments:
        if segment.topic is not None and segment.partition is not None and segment.base_offset is not None:
            partitions.setdefault((segment.topic, segment.partition), []).append(segment)
    return partitions


class _Message(NamedTuple):
    type: str
    key: _Row
    value: _Row


def _newest(
    segments: Iterable[Segment], topic: str, errors: Errors, on_damage: OnDamage | None, on_progress: Progress | None
) -> Iterator[_Message]:
    """The newest message of each key, in the order of the log; those of unknown types and versions are left out.

    Of a transaction's records only those count whose transaction was committed. If the segments are of several copies of the topic, each
    offset is read once. Raises `ArgumentError` if the topic is not among the segments.
    """
    own = [segment for segment in segments if segment.topic == topic]
    if not own:
        raise ArgumentError(f"no {topic} in this source: name the log directory of a broker that has partitions of it, or several")
    newest: dict[bytes, bytes | None] = {}
    for batch in topic_rows(own, _COLUMNS, errors, on_damage, on_progress):
        for key, value, state in zip(*(batch[name].to_pylist() for name in _COLUMNS), strict=True):
            if key is not None and state in ("none", "committed"):
                # The last write decides the order too.
                newest.pop(key, None)
                newest[key] = value
    unknown = 0
    for key, value in newest.items():
        if value is None:
            continue
        name, fields = decode_key(topic, False, key), decode_value(topic, False, key, value).fields
        if name.fields is None or name.type is None or fields is None:
            unknown += 1
        else:
            yield _Message(name.type, dict(name.fields), dict(fields))
    if unknown:
        _LOGGERS[topic].warning("%s: %d records of messages or versions that are not known were left out", topic, unknown)


_ASSIGNED = pa.list_(pa.field("element", pa.struct([("topic", pa.string()), ("partition", pa.int32())])))
_MEMBER = pa.struct([*((name, pa.string()) for name in ("memberId", "instanceId", "clientId", "clientHost")), ("assigned", _ASSIGNED)])
GROUP_SCHEMA = pa.schema(
    [
        ("group", pa.string()), ("kind", pa.string()), ("state", pa.string()), ("protocolType", pa.string()), ("protocol", pa.string()),
        ("generation", pa.int32()), ("members", pa.list_(pa.field("element", _MEMBER))), ("topic", pa.string()), ("partition", pa.int32()),
        ("committedOffset", pa.int64()), ("logEndOffset", pa.int64()), ("lag", pa.int64()), ("leaderEpoch", pa.int32()),
        ("metadata", pa.string()), ("commitTimestamp", _MOMENT), ("topicId", pa.string()),
    ]
)  # fmt: skip
"""Columns of `groups`; ``kind`` is "classic", "consumer", "share" or "streams", null for a group that has committed offsets alone."""
_KINDS = {"ConsumerGroup": "consumer", "ShareGroup": "share", "StreamsGroup": "streams"}
_STABLE = 0
_NO_ID = "A" * 22
_End = Callable[[str, int, str | None], int | None]  # the end of the log of a topic, a partition and a topic id, if it is there


@dataclass
class _Group:
    kind: str | None = None
    own: _Row = field(default_factory=dict)
    epoch: int | None = None
    target: int | None = None
    members: dict[str, _Row] = field(default_factory=dict)
    current: dict[str, _Row] = field(default_factory=dict)
    commits: dict[_Partition, _Row] = field(default_factory=dict)

    def note(self, type: str, key: _Row, value: _Row) -> None:
        if type in ("OffsetCommit", "LegacyOffsetCommit"):
            self.commits[key["topic"], key["partition"]] = value
        elif type == "GroupMetadata":
            self.kind, self.own, self.epoch = "classic", value, value["generation"]
        for prefix, kind in _KINDS.items():
            if type == f"{prefix}Metadata":
                self.kind, self.epoch = kind, value["epoch"]
            elif type == f"{prefix}MemberMetadata":
                self.members[key["memberId"]] = value
            elif type == f"{prefix}CurrentMemberAssignment":
                self.current[key["memberId"]] = value
            elif type == f"{prefix}TargetAssignmentMetadata":
                self.target = value["assignmentEpoch"]


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
    on_damage, on_progress : callable, optional
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
    known: dict[str, _Group] = {}
    for type, key, value in _newest(segments, OFFSETS_TOPIC, errors, on_damage, on_progress):
        known.setdefault(key.get("group") or key.get("groupId") or "", _Group()).note(type, key, value)
    logs = _partitions(segments)
    names = {id: topic for (topic, _), own in logs.items() for id in _topic_ids(own)}
    ends = _ends(logs)
    return pa.Table.from_pylist([row for name in sorted(known) for row in _group_rows(name, known[name], ends, names)], GROUP_SCHEMA)


def _topic_ids(own: Iterable[Segment]) -> set[str]:
    """The ids that the folders of a partition say their topic has; empty without any."""
    names = dict.fromkeys(beside(segment.path, METADATA) for segment in own)
    return {id for name in names if (id := read_topic_id(name)) is not None}


def _group_rows(name: str, group: _Group, ends: _End, names: dict[str, str]) -> list[_Row]:
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
            {
                **about, "topic": topic, "partition": partition, "committedOffset": offset, "logEndOffset": end,
                "lag": None if end is None else end - offset, "metadata": value["metadata"],
                "leaderEpoch": _known(value.get("leaderEpoch")), "commitTimestamp": _known(value["commitTimestamp"]), "topicId": id,
            }
        )  # fmt: skip
    return rows


def _ends(logs: dict[_Partition, list[Segment]]) -> _End:
    @cache
    def end(topic: str, partition: int, id: str | None) -> int | None:
        own = logs.get((topic, partition))
        if own is None:
            return None
        ids = _topic_ids(own)
        if id is not None and ids and id not in ids:
            return None
        for fault in (segment.fault for segment in own if segment.fault is not None):
            _LOGGERS[OFFSETS_TOPIC].warning("%s. The end of %s-%d is that of what can be read", fault, shown(topic), partition)
        readable = [segment for segment in own if segment.fault is None]
        return consumers_offset(readable, _MERGED, log_end(readable)) if readable else None

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
    settled = all(member.get("state") == _STABLE and member.get("memberEpoch") == group.target for member in current)
    return "Stable" if settled else "Reconciling"


def _members(group: _Group, names: dict[str, str]) -> list[_Row]:
    if group.kind == "classic":
        is_consumer = group.own["protocolType"] == "consumer"
        return [
            {
                "memberId": member["memberId"], "instanceId": member.get("groupInstanceId"), "clientId": member["clientId"],
                "clientHost": member["clientHost"], "assigned": _assigned(member["assignment"]) if is_consumer else None,
            }
            for member in group.own["members"]
        ]  # fmt: skip
    rows = []
    for name, member in group.members.items():
        parts = group.current.get(name, {}).get("assignedPartitions")
        assigned = parts and [
            {"topic": names.get(part["topicId"], part["topicId"]), "partition": number} for part in parts for number in part["partitions"]
        ]
        about = {"memberId": name, "instanceId": member.get("instanceId"), "clientId": member["clientId"]}
        rows.append(about | {"clientHost": member["clientHost"], "assigned": assigned})
    return rows


def _assigned(data: bytes) -> list[_Row] | None:
    """The partitions in an assignment of the consumer protocol; None if it is not one."""
    message = definitions("clients")["ConsumerProtocolAssignment"]
    try:
        source = MessageBytes(data)
        if not data:
            return []
        # A newer version is read as the newest that is known, as Java does.
        fields = reader(message, min(max(source.int16(), 0), message.versions[-1]))(source)
    except MalformedMessageError:
        return None
    return [{"topic": part["topic"], "partition": number} for part in fields["assignedPartitions"] for number in part["partitions"]]


def transactional_ids(segments: Iterable[Segment]) -> dict[int, str]:
    """The transactional id that each producer id has by the newest records of `__transaction_state`, of which damage is left out."""
    messages = _newest(segments, TRANSACTIONS_TOPIC, "skip", None, None)
    return {value["producerId"]: key["transactionalId"] for _, key, value in messages}


_STATUS = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")
"""States of a transaction by the number that a coordinator writes."""
UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
TRANSACTION_SCHEMA = pa.schema(
    [
        ("producerId", pa.int64()), ("producerEpoch", pa.int16()), ("transactionalId", pa.string()), ("topic", pa.string()),
        ("partition", pa.int32()), ("firstOffset", pa.int64()), ("firstTimestamp", _MOMENT), ("ageMs", pa.int64()),
        ("isHanging", pa.bool_()), ("coordinatorState", pa.string()), ("coordinatorEpoch", pa.int16()), ("timeoutMs", pa.int32()),
        ("startTimestamp", _MOMENT), ("lastUpdateTimestamp", _MOMENT),
    ]
)  # fmt: skip
"""Columns of `open_transactions`: from ``coordinatorState`` on, and ``transactionalId``, the coordinator's view."""


@known_keywords()
def open_transactions(
    source: Source,
    *,
    now: Time | None = None,
    errors: Errors = "raise",
    on_damage: OnDamage | None = None,
    on_progress: Progress | None = None,
) -> pa.Table:
    """Transactions that are open in the logs of a source, or under way for a coordinator.

    Parameters
    ----------
    source : str, PathLike or iterable of those
        Log directories of brokers. Copies of a partition are merged.
    now : int, datetime or str, optional
        The moment at which ages end; the present by default. For a cluster that has died, the moment at which it did.
    errors, on_damage, on_progress
        As in `kolumn.groups`.

    Returns
    -------
    pyarrow.Table
        Columns of `TRANSACTION_SCHEMA`, one row for each producer and partition. ``firstOffset`` is null if the coordinator knows of the
        transaction, and the partition's log has nothing of it, or is not there. ``isHanging``: no coordinator will end the transaction:
        `__transaction_state` does not have it under way with this partition. Null where the source has no `__transaction_state`.

    Raises
    ------
    ArgumentError
        The source has no segments.
    CorruptBatchError
        Damage, with ``errors="raise"``.
    """
    end = moment_of(now)
    segments = live_segments(source, Options.of(errors="skip")).segments
    known = coordinated(segments, errors, on_damage, on_progress)
    return transaction_table(_open(segments, errors, on_damage, on_progress), known, end)


def coordinated(
    segments: list[Segment], errors: Errors, on_damage: OnDamage | None, on_progress: Progress | None
) -> dict[int, dict[str, Any]] | None:
    """What coordinators know of transactions, by producer: columns of `TRANSACTION_SCHEMA`, and their ``partitions``; None without
    `__transaction_state` among the segments."""
    if not any(segment.topic == TRANSACTIONS_TOPIC for segment in segments):
        return None
    messages = _newest(segments, TRANSACTIONS_TOPIC, errors, on_damage, on_progress)
    return {value["producerId"]: _coordinated(key, value) for _, key, value in messages}


First = tuple[int, int | None, int | None]  # first offset, its timestamp, and the producer's epoch


def transaction_table(opened: Iterable[tuple[_Log, int, First]], known: dict[int, _Row] | None, end: int) -> pa.Table:
    """Transactions that are open in logs, with their producers, and those that are under way for a coordinator; ages end at ``end``."""
    opened = list(opened)
    rows = [_transaction_row(partition, producer, first, known, end) for partition, producer, first in opened]
    seen = {(partition, producer) for partition, producer, _ in opened}
    for producer, transaction in (known or {}).items():
        if transaction["coordinatorState"] in UNDER_WAY:
            missing = [partition for partition in sorted(transaction["partitions"]) if (partition, producer) not in seen]
            rows += [_transaction_row(partition, producer, None, known, end) for partition in missing]
    return pa.Table.from_pylist(rows, TRANSACTION_SCHEMA)


def _transaction_row(partition: _Log, producer: int, first: First | None, known: dict[int, _Row] | None, end: int) -> _Row:
    transaction = (known or {}).get(producer, {})
    offset, time_ms, epoch = first or (None, None, None)
    # Without a record of the log the coordinator's start counts.
    begun = time_ms if time_ms is not None else transaction.get("startTimestamp")
    under_way = transaction.get("coordinatorState") in UNDER_WAY and partition in transaction.get("partitions", ())
    return {name: value for name, value in transaction.items() if name != "partitions"} | {
        "producerId": producer, "producerEpoch": epoch, "topic": partition[0], "partition": partition[1], "firstOffset": offset,
        "firstTimestamp": moment(time_ms), "ageMs": None if begun is None else end - begun,
        "isHanging": None if known is None else not under_way,
    }  # fmt: skip


def _coordinated(key: _Row, value: _Row) -> _Row:
    status = value["transactionStatus"]
    return {
        "transactionalId": key["transactionalId"], "coordinatorEpoch": value["producerEpoch"],
        "partitions": {(part["topic"], number) for part in value["transactionPartitions"] or () for number in part["partitionIds"]},
        "coordinatorState": _STATUS[status] if 0 <= status < len(_STATUS) else f"unknown ({status})",
        "timeoutMs": value["transactionTimeoutMs"], "startTimestamp": _known(value["transactionStartTimestampMs"]),
        "lastUpdateTimestamp": _known(value["transactionLastUpdateTimestampMs"]),
    }  # fmt: skip


def _open(
    segments: list[Segment], errors: Errors, on_damage: OnDamage | None, on_progress: Progress | None
) -> list[tuple[_Log, int, First]]:
    columns = ("offset", "timestampMs", "producerId", "producerEpoch")
    options = Options.of(columns=columns, errors=errors, replicas="merge", backend="cpu", on_progress=on_progress)
    opened = list[tuple[_Log, int, First]]()
    for partition, own in [*sorted(_partitions(segments).items()), *_unnamed(segments)]:
        found = Tally()
        transactions = of_ranges(whole_ranges(own, options), options, found)
        if errors == "skip" and on_damage is not None:
            for damage in found.damage:
                on_damage(damage)
        opened += [
            (partition, producer, _first(own, producer, offset, options, on_damage))
            for producer, offset in sorted(transactions.open, key=lambda item: item[1])
        ]
    return opened


def _unnamed(segments: list[Segment]) -> Iterator[tuple[_Log, list[Segment]]]:
    """Segments of each folder whose name is not that of a topic-partition, and files whose name is no offset."""
    named = {segment.path for own in _partitions(segments).values() for segment in own}
    rest = [segment for segment in segments if segment.path not in named and not segment.path.endswith(".checkpoint")]
    for _, own in groupby(rest, key=lambda segment: parent(segment.path)):
        some = list(own)
        yield (some[0].topic, some[0].partition), some


def _first(own: list[Segment], producer: int, offset: int, options: Options, on_damage: OnDamage | None) -> First:
    known = consumers_offset(own, options, offset)
    offset = offset if known is None else known
    narrow = replace(options, start_offset=offset, end_offset=offset + 1)
    for batch in scan_ranges(log_ranges(own, narrow), narrow, on_damage):
        for number, time_ms, owner, epoch in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if number == offset and owner == producer:
                return offset, time_ms, epoch
    return offset, None, None
