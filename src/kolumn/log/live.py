"""Which files of a source are read, and which are left out, each with its reason.

Segments whose offsets are in another file too are those that a swap file replaces, and copies under names that are not Kafka's. What was
listed and is neither a live segment nor a file that brokers keep beside segments is left out. Snapshots of KRaft, and index files without a
log, have remarks of their own. Names of the snapshots (``org.apache.kafka.snapshot.Snapshots``), which hold the state up to their offset:

    <offset, 20 digits>-<epoch, 10 digits>.checkpoint      in the folder `__cluster_metadata-0`; the offset is the snapshot's end
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum, unique

import pyarrow as pa

from kolumn.core.errors import KolumnError, shown
from kolumn.core.keywords import Source
from kolumn.core.schema import LEFT_OUT_SCHEMA
from kolumn.decode.host.headers import headers
from kolumn.formats import table
from kolumn.log.recognised import FORMAT as REDPANDA
from kolumn.log.recognised import recognised
from kolumn.source import redpanda
from kolumn.source.names import CLEANED, DELETED, DELETED_LOG, LOG, MANIFEST, PARTITION, base_and_copy, offset_in, tier_partition
from kolumn.source.segments import Listed, Segment, find_segments, in_directory, unfinished_from, with_neighbours
from kolumn.source.storage import FolderEntry, base_name, listing, parent, with_suffix, within

_SNAPSHOT = re.compile(r"\d{20}-\d{10}\.checkpoint")


def segments_of_source(source: Source) -> list[Segment]:
    """Live segments of a source, those of all copies too, and with their faults those of manifests that cannot be used."""
    return with_twins(without_replaced(recognised(find_segments(source, faults=True))))


def without_replaced(segments: list[Segment]) -> list[Segment]:
    """Drop the segments that a ``.swap`` file of their directory replaces. Like ``LogLoader`` of Kafka on start-up, it drops those whose
    base offset lies between the first base offset and the last next offset of the directory's swap files, and the one that a swap file gets
    the name of, even if there is nothing in it."""
    spans: dict[str, tuple[int, int]] = {}
    renamed = set[tuple[str, int | None]]()
    for segment in segments:
        if segment.is_swap and (base := segment.base_offset) is not None:
            end = base
            for entries in headers(segment):
                end = int(entries.last_offset[-1]) + 1 if len(entries) else end
            folder = parent(segment.path)
            renamed.add((folder, base))
            low, high = spans.get(folder, (base, 0))
            spans[folder] = min(low, base), max(high, end)
    if not spans:
        return segments

    def is_replaced(segment: Segment) -> bool:
        folder, base = parent(segment.path), segment.base_offset
        low, high = spans.get(folder, (0, 0))
        return not segment.is_swap and base is not None and (low <= base < high or (folder, base) in renamed)

    kept = [segment for segment in segments if not is_replaced(segment)]
    for folder in spans:
        linked = {one.path: one for one in with_neighbours([segment for segment in kept if parent(segment.path) == folder])}
        kept = [linked.get(segment.path, segment) for segment in kept]
    return kept


def with_twins(segments: list[Segment]) -> list[Segment]:
    """Mark segments that have offsets of another segment of their directory: copies under names that are not Kafka's."""
    if all(segment.base_offset is not None for segment in segments):
        return segments
    folders: dict[str, list[Segment]] = {}
    for segment in segments:
        folders.setdefault(parent(segment.path), []).append(segment)
    twins = {}
    for own in folders.values():
        named, odd = [s for s in own if s.base_offset is not None], [s for s in own if s.base_offset is None and s.path.endswith(LOG)]
        spans = [(span, s.path) for s in named if odd and (span := _span(s)) is not None]
        for segment in odd if named else ():
            if (span := _span(segment)) is not None:
                twins[segment.path] = next((path for other, path in spans if other[0] <= span[1] and span[0] <= other[1]), None)
                spans.append((span, segment.path))
    return [replace(s, twin=twins[s.path]) if twins.get(s.path) else s for s in segments]


def _span(segment: Segment) -> tuple[int, int] | None:
    """First and last offset of a segment, from its headers."""
    first = last = None
    for entries in headers(segment):
        if len(entries):
            low = entries[0].base_offset
            first = first if first is not None else entries[0].last_offset if low == table.UNKNOWN else low
            last = entries[-1].last_offset
    return None if first is None or last is None else (first, last)


def snapshots_of(segments: Iterable[Segment]) -> dict[str, list[str]]:
    """Names of the snapshots in the folders of some segments, by folder, oldest first; folders without any are left out."""
    folders = dict.fromkeys(parent(segment.path) or "." for segment in segments if segment.base_offset is not None)
    names = {folder: sorted(file.name for file in listing(folder) if _SNAPSHOT.fullmatch(base_name(file.name))) for folder in folders}
    return {folder: own for folder, own in names.items() if own}


def with_snapshots(segments: list[Segment]) -> list[Segment]:
    """The segments, with the snapshots of their folders before those of the log; none is added twice."""
    known = {segment.path for segment in segments}
    both = []
    beside = snapshots_of(segments)
    for segment in segments:
        for name in beside.pop(parent(segment.path) or ".", ()):
            if name not in known:
                own = find_segments(name)
                both += [replace(one, topic=segment.topic, partition=segment.partition, format=segment.format) for one in own]
        both.append(segment)
    return both


def with_deleted(segments: list[Segment], listed: Listed, topic: str | None, partition: int | None) -> list[Segment]:
    """The segments, after those among the listed files that brokers have renamed to delete them."""
    names = [entry.name for entry in listed if entry.is_regular and entry.name.endswith(DELETED_LOG)]
    if not names:
        return segments
    format = segments[0].format if segments else "kafka"
    return [*(replace(one, format=format) for one in find_segments(names, topic, partition)), *segments]


_OF_BROKERS = re.compile(
    r"(meta\.properties|partition\.metadata|quorum-state|bootstrap\.checkpoint|remote-log-index-cache|[a-z-]+-checkpoint)(\.tmp)?"
    r"|\.lock|\.kafka_cleanshutdown"
    r"|[0-9]{20}(-[A-Za-z0-9_-]+)?\.(index|timeindex|txnindex|snapshot|leader_epoch_checkpoint|checkpoint|rsm-manifest|indexes)(\.swap)?"
)
_MOST_NAMES = 3


@unique
class LeftOut(StrEnum):
    """Why something is left out."""

    DELETED = "deleted"  # a segment, a replica or a topic that a broker deletes: ``.deleted``, ``…-delete``
    FUTURE = "future"  # a replica that is copied from another log directory: ``…-future``
    STRAY = "stray"  # a replica that the cluster did not expect: ``…-stray``
    UNFINISHED = "unfinished"
    """A compaction, a split or a copy to a tier that was not finished: ``.cleaned``, ``.swap``, a copy without its metadata."""
    REPLACED = "replaced"  # a segment that a swap file replaces
    UNUSABLE = "unusable"  # a link to nothing, a device, a socket or a FIFO
    FOREIGN = "foreign"  # nothing that a broker reads


_BY_STATE = {
    "delete": (LeftOut.DELETED, "the topic, or this replica, is being deleted"),
    "future": (LeftOut.FUTURE, "this replica is being copied from another log directory"),
    "stray": (LeftOut.STRAY, "the cluster did not expect this replica here when the broker started"),
}
_OWN_LOGS = "a namespace of Redpanda's own logs, which are read if it is named"
_KAFKAS = LeftOut.FOREIGN, "a folder as Kafka names it, among those of Redpanda's topics"
_Why = tuple[LeftOut, str]


@dataclass
class _Group:
    """Files with one reason: of one segment, or of one folder."""

    kind: LeftOut
    reason: str
    files: list[FolderEntry] = field(default_factory=list)


def left_out(listed: Listed, segments: list[Segment]) -> pa.Table:
    """What a read does not return of what was ``listed`` while its live ``segments`` were found; columns of `LEFT_OUT_SCHEMA`."""
    is_live = _known(segments)
    deleted = {segment.path.removesuffix(DELETED_LOG) for segment in segments if segment.path.endswith(DELETED_LOG)}
    others = [entry for entry in listed if not (is_live(entry) or (entry.name.endswith(DELETED) and _stem(entry.name) in deleted))]
    cleaned: dict[str, list[str]] = {}
    for entry in others:
        if entry.name.endswith(CLEANED):
            cleaned.setdefault(parent(entry.name), []).append(entry.name)
    unfinished = {folder: unfinished_from(names) for folder, names in cleaned.items()}
    swapped = {parent(segment.path) for segment in segments if segment.is_swap}
    manifests = {segment.path for segment in segments if segment.manifest is not None}
    format = segments[0].format if segments else "kafka"
    starts, folders = _starts_in_buckets(segments), {parent(segment.path) for segment in segments}
    rows, groups = [], dict[tuple[str, str, str], _Group]()
    for entry in others:
        last, folder = base_name(entry.name), parent(entry.name)
        if entry.is_folder:
            why, of = _why_folder(entry.name, format), format
            if why is None and format == REDPANDA and PARTITION.fullmatch(last) and entry.name not in folders:
                why, of = _KAFKAS, "kafka"
            if why is not None and (row := _folder(entry.name, why, is_live, of)) is not None:
                rows.append(row)
        elif not entry.is_regular:
            groups[folder, last, ""] = _Group(LeftOut.UNUSABLE, "a link to nothing, a device, a socket or a FIFO", [entry])
        elif (named := redpanda.named(last)) is not None:
            groups.setdefault((folder, last, ""), _Group(*_why_named(named, starts.get(redpanda.ntp_of(folder))))).files.append(entry)
        elif (not manifests or with_suffix(entry.name, MANIFEST) not in manifests) and (
            why := _why(last, unfinished.get(folder), folder in swapped)
        ) is not None:
            part = "" if why[0] is LeftOut.FOREIGN else last.partition(".")[0]
            groups.setdefault((folder, part, why[1]), _Group(*why)).files.append(entry)
    rows += [_row(folder, group, format) for (folder, _, _), group in groups.items()]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: (row["kind"] == LeftOut.FOREIGN, str(row["path"]))), LEFT_OUT_SCHEMA)


def _stem(name: str) -> str:
    return within(parent(name), base_name(name).partition(".")[0])


def _known(segments: list[Segment]) -> Callable[[FolderEntry], bool]:
    """Whether something that was listed is one of the segments, maybe by another name."""
    paths = {segment.path for segment in segments}
    identities = (segment.identity for segment in segments)
    files = {(identity.device, identity.inode) for identity in identities if identity is not None and identity.inode is not None}

    def is_known(entry: FolderEntry) -> bool:
        now = entry.identity
        return entry.name in paths or (now is not None and (now.device, now.inode) in files)

    return is_known


def _starts_in_buckets(segments: list[Segment]) -> dict[str, int]:
    """The first offset of each partition in Redpanda's bucket, by namespace, topic and partition."""
    starts: dict[str, int] = {}
    for segment in segments:
        if segment.raft is not None and segment.copy_id is not None and segment.base_offset is not None:
            partition = redpanda.ntp_of(parent(segment.path))
            starts[partition] = min(segment.base_offset, starts.get(partition, segment.base_offset))
    return starts


def _why_named(named: redpanda.Named, start: int | None) -> _Why:
    """Why a segment of Redpanda is left out."""
    if named.copy_id is None:
        return LeftOut.REPLACED, "an empty segment: a leader of a later term began at its offset"
    if start is not None and named.base < start:
        return LeftOut.DELETED, "before the start of the log by the manifest of its partition"
    return LeftOut.REPLACED, "the manifest of its partition does not name it: it was replaced, or its upload was not finished"


def _why_folder(name: str, format: str = "kafka") -> _Why | None:
    """Why a folder is left out; None if its segments were listed, or if it has none."""
    last, above = base_name(name), base_name(parent(name))
    if format == REDPANDA and last in redpanda.OWN_NAMESPACES:
        return LeftOut.FOREIGN, _OWN_LOGS
    match = PARTITION.fullmatch(last)
    if match is not None:
        return _BY_STATE[match["state"]] if match["state"] else None
    if tier_partition(last, above) is not None or _OF_BROKERS.fullmatch(last):
        return None
    return LeftOut.FOREIGN, "not the name of a topic-partition folder"


def _why(last: str, unfinished: int | None, is_swapped: bool) -> _Why | None:
    """Why a file that is no live segment is left out; None for the files that brokers keep beside segments."""
    if last.endswith(DELETED):
        return LeftOut.DELETED, "removed by retention, compaction or truncation; a broker deletes it soon"
    if last.endswith(CLEANED):
        return LeftOut.UNFINISHED, "made by a compaction or a split that was not finished; a broker deletes it when it starts"
    offset = offset_in(last) if last.endswith(".swap") else None
    if offset is not None and unfinished is not None and offset >= unfinished:
        why = f"a .cleaned file at offset {unfinished} says that this one was not finished; a broker deletes it when it starts"
        return LeftOut.UNFINISHED, why
    if _OF_BROKERS.fullmatch(last) or redpanda.BESIDE.fullmatch(last):
        return None
    base, copy = base_and_copy(last)
    if last.endswith(LOG) and copy is not None:
        return LeftOut.UNFINISHED, "a copy in a tier that was not finished, or is being deleted: no broker reads it"
    if last.endswith(LOG) and base is not None and is_swapped:
        return LeftOut.REPLACED, "a .swap file of its folder has its records after a compaction or a split"
    return LeftOut.FOREIGN, ""


def _folder(name: str, why: _Why, is_live: Callable[[FolderEntry], bool], format: str) -> dict[str, object] | None:
    """The row of a folder; None if everything in it is read, because it was named too."""
    own: Listed = []
    row: dict[str, object] = {"path": shown(name), "kind": str(why[0]), "reason": why[1]}
    try:
        found = (
            find_segments(name, faults=True, listed=own) if base_name(name) in redpanda.OWN_NAMESPACES else in_directory(name, listed=own)
        )
        segments = without_replaced([segment for segment in found if segment.fault is None])
    except KolumnError as error:
        return {**row, "reason": f"{why[1]}; {error}"}
    files = [entry for entry in own if not entry.is_folder]
    rest = [entry for entry in files if not is_live(entry)]
    if files and not rest:
        return None
    names = {entry.name for entry in rest}
    chosen = [segment for segment in segments if segment.path in names]
    if any(entry.is_folder and _why_folder(entry.name) is not None for entry in own):
        row["reason"] = f"{why[1]}; what is in its folders is not counted"
    return {**row, "files": len(rest), "bytes": sum(entry.size for entry in rest), "records": _records(chosen, format) if chosen else None}


def _row(folder: str, group: _Group, format: str) -> dict[str, object]:
    """The row of a group: under the name of its log, if there is one."""
    files = sorted(group.files, key=lambda file: (LOG not in file.name, file.name))
    first, reason = files[0], group.reason
    path, records = first.name, None
    if group.kind is LeftOut.FOREIGN:
        some = ", ".join(base_name(file.name) for file in files[:_MOST_NAMES])
        more = f" and {len(files) - _MOST_NAMES} more" if len(files) > _MOST_NAMES else ""
        path, reason = (path if len(files) == 1 else folder or "."), f"no file of a broker: {shown(some)}{more}"
    elif LOG in base_name(first.name) and first.is_regular:
        records = _records([Segment(path, None, None, base_and_copy(path)[0], first.size, identity=first.identity)], format)
    size = sum(file.size for file in files)
    return {"path": shown(path), "kind": str(group.kind), "files": len(files), "bytes": size, "records": records, "reason": reason}


def _records(segments: Iterable[Segment], format: str) -> int | None:
    """Records by the headers of batches; None if these do not tell."""
    total = 0
    try:
        for segment in segments:
            rows = [entries.intact() for entries in headers(replace(segment, format=format))]
            counts = [entries.count[entries.control == 0] for entries in rows]
            if (segment.size and not rows) or any((count == table.UNKNOWN).any() for count in counts):
                return None
            total += sum(int(count.sum()) for count in counts)
    except KolumnError:
        # The file is gone, or none of a broker.
        return None
    return total
