"""Which topic-partitions of a source are in several directories, and which of their offsets exist more than once."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from kolumn.core.errors import ArgumentError
from kolumn.damage.intact import LARGEST_SPAN
from kolumn.formats import table
from kolumn.log.batch_table import entry_rows
from kolumn.log.headers import with_last_offsets
from kolumn.options import Options
from kolumn.source import storage
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment, with_neighbours
from kolumn.source.side_files import METADATA, read_topic_id
from kolumn.source.storage import beside

Key = tuple[str, int]
"""Topic and partition."""
Copies = dict[str, list[Segment]]
"""For each directory, in the order of the source, its segments."""


@dataclass(frozen=True)
class Overlap:
    """Offsets of a topic-partition that two directories have.

    Attributes
    ----------
    topic, partition
    folders : tuple of two str
        The two directories, in the order of the source.
    first, last : int
        Lowest and highest offset that lies in a segment of both. Not every offset between them must be in both.
    """

    topic: str
    partition: int
    folders: tuple[str, str]
    first: int
    last: int

    def __str__(self) -> str:
        one, other = self.folders
        return f"{self.topic}-{self.partition}: offsets {self.first} to {self.last} are in {one} and in {other}"


def copies(segments: list[Segment]) -> dict[Key, Copies]:
    """The topic-partitions that are in more than one directory.

    Segments without a topic or a partition are ignored, and so are snapshots (``.checkpoint``), which are not part of a log. Partitions
    with segments in a tier are left to `kolumn.copies.tiers`.
    """
    folders = {(one.topic, one.partition, one.path[: one.path.rfind("/")]) for one in segments}
    if len({(topic, partition) for topic, partition, _ in folders}) == len(folders):
        return {}
    found: dict[Key, Copies] = {}
    tiers = {(one.topic, one.partition) for one in segments if one.copy_id is not None}
    for segment in segments:
        if segment.topic is None or segment.partition is None or segment.path.endswith(".checkpoint"):
            continue
        if tiers and (segment.topic, segment.partition) in tiers:
            continue
        found.setdefault((segment.topic, segment.partition), {}).setdefault(storage.parent(segment.path), []).append(segment)
    several = {key: folders for key, folders in found.items() if len(folders) > 1}
    return {key: real for key, folders in several.items() if len(real := _by_folder(folders, segments)) > 1} if several else several


def _by_folder(folders: Copies, segments: list[Segment]) -> Copies:
    """The same by directories: several names may lead to one, by links or relative to other folders."""
    found: dict[str, tuple[str, list[Segment]]] = {}
    for name, own in folders.items():
        real = name if storage.is_url(name) else os.path.realpath(name)
        found.setdefault(real, (name or ".", []))[1].extend(own)
    if len(found) < len(folders):
        place = {id(one): i for i, one in enumerate(segments)}
        for _, own in found.values():
            own.sort(key=lambda one: place[id(one)])
    return dict(found.values())


def overlaps(segments: list[Segment]) -> list[Overlap]:
    """Where directories of one topic-partition have the same offsets; one entry for each pair of them.

    Reads headers only, and only of segments that another directory could overlap. Damage is skipped.
    """
    return [overlap for (topic, partition), found in copies(segments).items() for overlap in _overlaps(topic, partition, found)]


def one_log(segments: list[Segment], options: Options) -> list[Segment]:
    """The segments that ``options.replicas`` selects: no offset of a partition twice, in the order of offsets.

    Raises
    ------
    ArgumentError
        Directories of one partition overlap, and ``replicas`` is not "first".
    """
    found = copies(segments)
    if not found:
        return segments
    if options.replicas != "first":
        for key, folders in found.items():
            overlapping(key, folders, options)
    joined: list[Segment] = []
    done: set[Key] = set()
    for segment in segments:
        key = (segment.topic or "", -1 if segment.partition is None else segment.partition)
        if key not in found or segment.path.endswith(".checkpoint"):
            joined.append(segment)
        elif key not in done:
            done.add(key)
            joined += next(iter(found[key].values())) if options.replicas == "first" else linked(in_order(found[key]))
    return joined


def one_directory(segments: list[Segment], what: str) -> list[Segment]:
    """The segments, after a check that each topic-partition is in one directory.

    Raises
    ------
    ArgumentError
        A topic-partition is in several directories. ``what`` is the operation, a verb, for the message.
    """
    for (topic, partition), folders in copies(segments).items():
        raise ArgumentError(
            f"{topic}-{partition} is in {' and in '.join(folders)}: {what} one directory at a time, or put its segments into one "
            "directory; replicas='first' takes the first"
        )
    return segments


def in_order(folders: Copies) -> list[Segment]:
    """The segments of all directories by base offset."""
    return sorted((segment for own in folders.values() for segment in own), key=_base)


def linked(segments: list[Segment]) -> list[Segment]:
    """Segments in order of base offset, with their neighbours in this order set, even if those are in other directories."""
    bases = {one.base_offset for one in segments}
    # An index file without a log in its directory: the log may be in another one.
    orphans = {name for one in segments for name in one.orphans if int(storage.base_name(name).partition(".")[0]) not in bases}
    return with_neighbours(segments, orphans)


def bounds(segments: list[Segment]) -> dict[Segment, int | None]:
    """For each segment of one directory, the offset before the next one's base offset; None for the last, and without a base offset."""
    bases = sorted({one.base_offset for one in segments if one.base_offset is not None})
    following = dict(zip(bases, [*bases[1:], None], strict=True))
    return {
        one: None if one.base_offset is None or (after := following[one.base_offset]) is None else after - 1 for one in segments
    }  # fmt: skip


def _base(segment: Segment) -> int:
    return -1 if segment.base_offset is None else segment.base_offset


def refuse_other_topics(folders: Copies) -> None:
    """Raise `ArgumentError` if directories have other topic ids: a topic was deleted and made again with the same name (KIP-516)."""
    known: dict[str, str] = {}
    for folder, own in folders.items():
        local = [one for one in own if one.copy_id is None and one.memory is None]
        topic_id = read_topic_id(beside(local[0].path, METADATA)) if local else None
        if topic_id is not None:
            known.setdefault(topic_id, folder)
    if len(known) > 1:
        (one, folder), (other, second) = list(known.items())[:2]
        raise ArgumentError(
            f"{folder} and {second} are of two topics of the same name, with the ids {one} and {other} in {METADATA}: they "
            "are no copies of one log. Name the directories of one topic alone"
        )


def overlapping(key: Key, folders: Copies, options: Options) -> None:
    """Raise `ArgumentError`, with what to do, if directories of a partition overlap."""
    refuse_other_topics(folders)
    for overlap in _overlaps(*key, folders):
        first = next(iter(folders))
        if options.replicas == "merge":
            raise ArgumentError(
                f"{overlap}. replicas='merge' makes one log of records, not of segments: read it, and write it by "
                "kolumn.write(kolumn.scan(..., replicas='merge'), target); or take one directory by its name or by replicas='first'"
            )
        raise ArgumentError(
            f"{overlap}: copies of one partition. replicas='merge' reads each offset once and fills what is damaged in one copy from the "
            f"others; replicas='first' reads {first} alone; or name one of the directories"
        )


def _overlaps(topic: str, partition: int, folders: Copies) -> Iterator[Overlap]:
    spans = _spans(folders)
    for one, other in combinations(folders, 2):
        common = [
            (max(low, other_low), min(high, other_high))
            for low, high in spans[one]
            for other_low, other_high in spans[other]
            if low <= other_high and other_low <= high
        ]
        if common:
            yield Overlap(topic, partition, (one, other), min(low for low, _ in common), max(high for _, high in common))


def _spans(folders: Copies) -> dict[str, list[tuple[int, int]]]:
    """First and last offset of each segment that has entries. If the names prove that nothing overlaps, the offsets are taken from them."""
    order = [(_base(segment), segment, folder) for folder, own in folders.items() for segment in own if segment.size]
    order.sort(key=lambda one: one[0])
    limits = {segment: limit for own in folders.values() for segment, limit in bounds(own).items()}
    found: dict[str, list[tuple[int, int]]] = {folder: [] for folder in folders}
    for (base, segment, folder), after in zip(order, [*order[1:], None], strict=True):
        limit = limits[segment]
        if base >= 0 and limit is not None and after is not None and after[2] == folder and after[0] > base:
            found[folder].append((base, limit))
        elif (own := span(segment, limit)) is not None:
            found[folder].append(own)
    return found


def span(segment: Segment, limit: int | None) -> tuple[int, int] | None:
    """First and last offset of a segment from its headers; None if it has no entry."""
    base = segment.base_offset
    highest = limit if limit is not None else (base or 0) + LARGEST_SPAN if base is not None else 2**63 - 1
    low, high = 2**63 - 1, -1
    with SegmentFile(segment) as file:
        for entries in entry_rows(file, Options(errors="skip", check_crcs=False)):
            last = with_last_offsets(file, entries).last_offset
            first = np.where(entries.base_offset == table.UNKNOWN, last, entries.base_offset)
            sane = (first >= (base or 0)) & (last >= first) & (last <= highest)
            if sane.any():
                low, high = min(low, int(first[sane].min())), max(high, int(last[sane].max()))
    if high < 0:
        return None
    return (low if base is None else base, high)
