"""Files and folders of a source that a read does not return, each with its reason.

What was listed and is neither a live segment nor a file that brokers keep beside segments is left out. Snapshots of KRaft, and index files
without a log, have remarks of their own.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum, unique

import pyarrow as pa

from kolumn.core.errors import KolumnError, shown
from kolumn.core.schema import LEFT_OUT_SCHEMA
from kolumn.formats import table
from kolumn.log.headers import headers
from kolumn.log.live import without_replaced
from kolumn.source.names import CLEANED, DELETED, LOG, MANIFEST, PARTITION, base_and_copy, offset_in, place_of
from kolumn.source.segments import Listed, Segment, in_directory, unfinished_from
from kolumn.source.storage import FolderEntry, base_name, parent, with_suffix

_OF_BROKERS = re.compile(
    r"(meta\.properties|partition\.metadata|quorum-state|bootstrap\.checkpoint|remote-log-index-cache|[a-z-]+-checkpoint)(\.tmp)?"
    r"|\.lock|\.kafka_cleanshutdown"
    r"|[0-9]{20}(-[A-Za-z0-9_-]+)?\.(index|timeindex|txnindex|snapshot|leader_epoch_checkpoint|checkpoint|rsm-manifest|indexes)(\.swap)?"
)
_MOST_NAMES = 3


@unique
class LeftOut(StrEnum):
    """Why something is left out."""

    DELETED = "deleted"
    """A segment, a replica or a topic that a broker deletes: ``.deleted``, ``…-delete``."""
    FUTURE = "future"
    """A replica that is copied from another log directory: ``…-future``."""
    STRAY = "stray"
    """A replica that the cluster did not expect: ``…-stray``."""
    UNFINISHED = "unfinished"
    """A compaction, a split or a copy to a tier that was not finished: ``.cleaned``, ``.swap``, a copy without its metadata."""
    REPLACED = "replaced"
    """A segment that a swap file replaces."""
    UNUSABLE = "unusable"
    """A link to nothing, a device, a socket or a FIFO."""
    FOREIGN = "foreign"
    """Nothing that a broker reads."""


_BY_STATE = {
    "delete": (LeftOut.DELETED, "the topic, or this replica, is being deleted"),
    "future": (LeftOut.FUTURE, "this replica is being copied from another log directory"),
    "stray": (LeftOut.STRAY, "the cluster did not expect this replica here when the broker started"),
}
_NO_FOLDER = (LeftOut.FOREIGN, "its name is none of a topic-partition's folder")
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
    others = [one for one in listed if not is_live(one)]
    unfinished = {folder: unfinished_from(names) for folder, names in _by_folder(one.name for one in others if one.name.endswith(CLEANED))}
    swapped = {parent(one.path) for one in segments if one.is_swap}
    manifests = {one.path for one in segments if one.manifest is not None}
    format = segments[0].format if segments else "kafka"
    rows, groups = [], dict[tuple[str, str, str], _Group]()
    for one in others:
        last, folder = base_name(one.name), parent(one.name)
        if one.is_folder:
            if (why := _why_folder(*_last_two(one.name))) is not None and (row := _folder(one.name, why, is_live, format)) is not None:
                rows.append(row)
        elif not one.is_regular:
            groups[folder, last, ""] = _Group(LeftOut.UNUSABLE, "a link to nothing, a device, a socket or a FIFO", [one])
        elif (not manifests or with_suffix(one.name, MANIFEST) not in manifests) and (
            why := _why(last, unfinished.get(folder), folder in swapped)
        ) is not None:
            part = "" if why[0] is LeftOut.FOREIGN else last.partition(".")[0]
            groups.setdefault((folder, part, why[1]), _Group(*why)).files.append(one)
    rows += [_row(folder, group, format) for (folder, _, _), group in groups.items()]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: (row["kind"] == LeftOut.FOREIGN, str(row["path"]))), LEFT_OUT_SCHEMA)


def _known(segments: list[Segment]) -> Callable[[FolderEntry], bool]:
    """Whether something that was listed is one of the segments, maybe by another name."""
    paths = {one.path for one in segments}
    files = {(one.identity.device, one.identity.inode) for one in segments if one.identity is not None and one.identity.inode is not None}

    def is_known(found: FolderEntry) -> bool:
        now = found.identity
        return found.name in paths or (now is not None and (now.device, now.inode) in files)

    return is_known


def _by_folder(names: Iterable[str]) -> Iterable[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(parent(name), []).append(name)
    return found.items()


def _why_folder(last: str, above: str) -> _Why | None:
    """Why a folder is left out; None if its segments were listed, or if it has none."""
    match = PARTITION.fullmatch(last)
    if match is not None and match["state"]:
        return _BY_STATE[match["state"]]
    return None if match is not None or place_of(last, above) is not None or _OF_BROKERS.fullmatch(last) else _NO_FOLDER


def _why(last: str, unfinished: int | None, is_swapped: bool) -> _Why | None:
    """Why a file that is no live segment is left out; None for the files that brokers keep beside segments."""
    if last.endswith(DELETED):
        return LeftOut.DELETED, "removed by retention, compaction or truncation; a broker deletes it soon"
    if last.endswith(CLEANED):
        return LeftOut.UNFINISHED, "made by a compaction or a split that was not finished; a broker deletes it when it starts"
    offset = offset_in(last) if last.endswith(".swap") else None
    if offset is not None and unfinished is not None and offset >= unfinished:
        return (
            LeftOut.UNFINISHED,
            f"a .cleaned file at offset {unfinished} says that this one was not finished; a broker deletes it when it starts",
        )
    if _OF_BROKERS.fullmatch(last):
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
        found = without_replaced([one for one in in_directory(name, listed=own) if one.fault is None])
    except KolumnError as error:
        return {**row, "reason": f"{why[1]}; {error}"}
    files = [one for one in own if not one.is_folder]
    rest = [one for one in files if not is_live(one)]
    if files and not rest:
        return None
    names, deeper = {one.name for one in rest}, [one for one in own if one.is_folder and _why_folder(*_last_two(one.name)) is not None]
    chosen = [one for one in found if one.path in names]
    row["reason"] = f"{why[1]}; what is in its folders is not counted" if deeper else why[1]
    return {**row, "files": len(rest), "bytes": sum(one.size for one in rest), "records": _records(chosen, format) if chosen else None}


def _last_two(name: str) -> tuple[str, str]:
    return base_name(name), base_name(parent(name))


def _row(folder: str, group: _Group, format: str) -> dict[str, object]:
    """The row of a group: under the name of its log, if there is one."""
    group.files.sort(key=lambda one: (LOG not in one.name, one.name))
    first, reason = group.files[0], group.reason
    path, records = first.name, None
    if group.kind is LeftOut.FOREIGN:
        some = ", ".join(base_name(one.name) for one in group.files[:_MOST_NAMES])
        more = f" and {len(group.files) - _MOST_NAMES} more" if len(group.files) > _MOST_NAMES else ""
        path, reason = (path if len(group.files) == 1 else folder or "."), f"no file of a broker: {shown(some)}{more}"
    elif LOG in base_name(first.name) and first.is_regular:
        records = _records([Segment(path, None, None, base_and_copy(path)[0], first.size, identity=first.identity)], format)
    size = sum(one.size for one in group.files)
    return {"path": shown(path), "kind": str(group.kind), "files": len(group.files), "bytes": size, "records": records, "reason": reason}


def _records(segments: Iterable[Segment], format: str) -> int | None:
    """Records by the headers of batches; None if these do not tell."""
    total = 0
    try:
        for one in segments:
            rows = [entries.intact() for entries in headers(replace(one, format=format))]
            counts = [entries.count[entries.control == 0] for entries in rows]
            if (one.size and not rows) or any((count == table.UNKNOWN).any() for count in counts):
                return None
            total += sum(int(count.sum()) for count in counts)
    except KolumnError:
        # The file is gone, or none of a broker.
        return None
    return total
