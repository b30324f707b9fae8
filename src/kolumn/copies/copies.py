"""Which topic-partitions of a source are in several directories, and which of their offsets exist more than once."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter

import numpy as np

from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.cpu_fallback.check import check
from kolumn.damage.intact import LARGEST_SPAN
from kolumn.decode.host.headers import headers, with_last_offsets
from kolumn.formats import table
from kolumn.formats.entries import Entry
from kolumn.formats.entry import OVERHEAD
from kolumn.log.pieces import entry_rows
from kolumn.options import Options
from kolumn.source import storage
from kolumn.source.segment_file import SegmentFile, side_bytes
from kolumn.source.segments import HIGHEST, Segment, with_neighbours
from kolumn.source.side_files import METADATA, OFFSET_INDEX, index_in, read_topic_id
from kolumn.source.storage import beside

_ZEROS = 64  # bytes after an entry that show that nothing follows
Key = tuple[str, int]  # topic and partition
Copies = dict[str, list[Segment]]  # for each directory, in the order of the source, its segments


@dataclass(frozen=True)
class Overlap:
    """Offsets of a topic-partition that two directories have, in the order of the source. ``first`` and ``last`` are the lowest and highest
    offset that lies in a segment of both. Not every offset between them must be in both."""

    topic: str
    partition: int
    folders: tuple[str, str]
    first: int
    last: int

    def __str__(self) -> str:
        left, right = self.folders
        return f"{self.topic}-{self.partition}: offsets {self.first} to {self.last} are in {left} and in {right}"


def copies(segments: list[Segment]) -> dict[Key, Copies]:
    """The topic-partitions that are in more than one directory. Segments without a topic or a partition are ignored, and so are snapshots
    (``.checkpoint``), which are not part of a log. Partitions with segments in a tier are left to `kolumn.copies.tiers`."""
    folders = {(segment.topic, segment.partition, segment.path[: segment.path.rfind("/")]) for segment in segments}
    if len({(topic, partition) for topic, partition, _ in folders}) == len(folders):
        return {}
    by_key: dict[Key, Copies] = {}
    tiers = {(segment.topic, segment.partition) for segment in segments if segment.copy_id is not None}
    for segment in segments:
        if segment.topic is None or segment.partition is None or segment.path.endswith(".checkpoint"):
            continue
        if (segment.topic, segment.partition) not in tiers:
            by_key.setdefault(segment.key, {}).setdefault(storage.parent(segment.path), []).append(segment)
    several = ((key, _by_folder(own, segments)) for key, own in by_key.items() if len(own) > 1)
    return {key: own for key, own in several if len(own) > 1}


def _by_folder(folders: Copies, segments: list[Segment]) -> Copies:
    """The same by directories: several names may lead to one, by links or relative to other folders."""
    real: dict[str, tuple[str, list[Segment]]] = {}
    for name, own in folders.items():
        real.setdefault(name if storage.is_url(name) else os.path.realpath(name), (name or ".", []))[1].extend(own)
    if len(real) < len(folders):
        rank = {id(segment): i for i, segment in enumerate(segments)}
        for _, own in real.values():
            own.sort(key=lambda segment: rank[id(segment)])
    return dict(real.values())


def overlaps(segments: list[Segment]) -> list[Overlap]:
    """Where directories of one topic-partition have the same offsets; one entry for each pair of them. Reads headers only, and only of
    segments that another directory could overlap. Damage is skipped."""
    return [overlap for key, folders in copies(segments).items() for overlap in _overlaps(key, folders)]


def one_log(segments: list[Segment], options: Options) -> list[Segment]:
    """The segments that ``options.replicas`` selects: no offset of a partition twice, in the order of offsets. Raises ArgumentError if
    directories of one partition overlap, and ``replicas`` is not "first"."""
    several = copies(segments)
    if not several:
        return segments
    if options.replicas != "first":
        for key, folders in several.items():
            overlapping(key, folders, options)
    joined: list[Segment] = []
    done: set[Key] = set()
    for segment in segments:
        key = segment.key
        if key not in several or segment.path.endswith(".checkpoint"):
            joined.append(segment)
        elif key not in done:
            done.add(key)
            joined += next(iter(several[key].values())) if options.replicas == "first" else linked(in_order(several[key]))
    return joined


def one_directory(segments: list[Segment], what: str, hint: str = "; replicas='first' takes the first") -> list[Segment]:
    """The segments, after a check that each topic-partition is in one directory: an ArgumentError that names the operation, a verb."""
    for (topic, partition), folders in copies(segments).items():
        raise ArgumentError(
            f"{topic}-{partition} is in {' and in '.join(folders)}: {what} one directory at a time, or put its segments into one "
            f"directory{hint}"
        )
    return segments


def in_order(folders: Copies) -> list[Segment]:
    return sorted((segment for own in folders.values() for segment in own), key=_base)


def linked(segments: list[Segment]) -> list[Segment]:
    """Segments in order of base offset, with their neighbours in this order set, even if those are in other directories."""
    bases = {segment.base_offset for segment in segments}
    # An index file without a log in its directory: the log may be in another one.
    orphans = {name for one in segments for name in one.orphans if int(storage.base_name(name).partition(".")[0]) not in bases}
    return with_neighbours(segments, orphans)


def bounds(segments: list[Segment]) -> dict[Segment, int | None]:
    """For each segment of one directory, the offset before the next one's base offset; None for the last, and without a base offset."""
    bases = sorted({segment.base_offset for segment in segments if segment.base_offset is not None})
    last = dict(zip(bases, [base - 1 for base in bases[1:]], strict=False))
    return {segment: None if segment.base_offset is None else last.get(segment.base_offset) for segment in segments}


def _base(segment: Segment) -> int:
    return -1 if segment.base_offset is None else segment.base_offset


def refuse_other_topics(folders: Copies) -> None:
    """Raise `ArgumentError` if directories have other topic ids: a topic was deleted and made again with the same name (KIP-516)."""
    known: dict[str, str] = {}
    for folder, own in folders.items():
        local = next((segment for segment in own if segment.copy_id is None and segment.memory is None), None)
        if local is not None and (topic_id := read_topic_id(beside(local.path, METADATA))) is not None:
            known.setdefault(topic_id, folder)
    if len(known) > 1:
        (topic_id, folder), (other, second) = list(known.items())[:2]
        raise ArgumentError(
            f"{folder} and {second} are of two topics of the same name, with the ids {topic_id} and {other} in {METADATA}: they "
            "are no copies of one log. Name the directories of one topic alone"
        )


def overlapping(key: Key, folders: Copies, options: Options) -> None:
    """Raise `ArgumentError`, with what to do, if directories of a partition overlap."""
    refuse_other_topics(folders)
    for overlap in _overlaps(key, folders):
        if options.replicas == "merge":
            raise ArgumentError(
                f"{overlap}. replicas='merge' makes one log of records, not of segments: read it, and write it by "
                "kolumn.write(kolumn.scan(..., replicas='merge'), target); or take one directory by its name or by replicas='first'"
            )
        raise ArgumentError(
            f"{overlap}: copies of one partition. replicas='merge' reads each offset once and fills what is damaged in one copy from the "
            f"others; replicas='first' reads {next(iter(folders))} alone; or name one of the directories"
        )


def _overlaps(key: Key, folders: Copies) -> Iterator[Overlap]:
    spans = _spans(folders)
    for left, right in combinations(folders, 2):
        common = [
            (max(low, other_low), min(high, other_high))
            for low, high in spans[left]
            for other_low, other_high in spans[right]
            if low <= other_high and other_low <= high
        ]
        if common:
            yield Overlap(*key, (left, right), min(low for low, _ in common), max(high for _, high in common))


def _spans(folders: Copies) -> dict[str, list[tuple[int, int]]]:
    """First and last offset of each segment that has entries. If the names prove that nothing overlaps, the offsets are taken from them."""
    order = [(_base(segment), segment, folder) for folder, own in folders.items() for segment in own if segment.size]
    order.sort(key=itemgetter(0))
    limits = {segment: limit for own in folders.values() for segment, limit in bounds(own).items()}
    spans: dict[str, list[tuple[int, int]]] = {folder: [] for folder in folders}
    for (base, segment, folder), after in zip(order, [*order[1:], None], strict=True):
        limit = limits[segment]
        if base >= 0 and limit is not None and after is not None and after[2] == folder and after[0] > base:
            spans[folder].append((base, limit))
        elif (own := span(segment, limit)) is not None:
            spans[folder].append(own)
    return spans


def span(segment: Segment, limit: int | None) -> tuple[int, int] | None:
    """First and last offset of a segment from its headers; None if it has no entry."""
    base = segment.base_offset
    highest = limit if limit is not None else (base or 0) + LARGEST_SPAN if base is not None else HIGHEST
    low, high = HIGHEST, -1
    with SegmentFile(segment) as file:
        for entries in entry_rows(file, Options(errors="skip", check_crcs=False)):
            last = with_last_offsets(file, entries).last_offset
            first = np.where(entries.base_offset == table.UNKNOWN, last, entries.base_offset)
            sane = (first >= (base or 0)) & (last >= first) & (last <= highest)
            if sane.any():
                low, high = min(low, int(first[sane].min())), max(high, int(last[sane].max()))
    return None if high < 0 else (low if base is None else base, high)


def last_offset(segment: Segment) -> int:
    """Last offset of a segment, from its last headers; from all headers where the chain of entries does not lead to its end.

    -1 if it has no intact entry.
    """
    index = index_in(side_bytes(segment, ".index"), OFFSET_INDEX)
    starts = [0] if index is None or not 0 < index["position"][-1] < segment.size else [int(index["position"][-1]), 0]
    for start in starts:
        last, end = -1, start
        try:
            for entries in headers(segment, start):
                if len(entries):
                    last, end = max(last, int(entries.last_offset.max())), entries[-1].end
        except KolumnError:
            continue
        if end == segment.size and last >= (segment.base_offset or 0):
            return last
    offsets = span(segment, None)
    return -1 if offsets is None else offsets[1]


def topic_ids(segments: Iterable[Segment]) -> dict[str, str]:
    """Ids of topics from ``partition.metadata`` (Kafka 2.8 and later); one file of each topic is read. Topics without one are left out."""
    first: dict[str, Segment] = {}
    for segment in segments:
        if segment.topic is not None:
            first.setdefault(segment.topic, segment)
    read = {topic: read_topic_id(beside(segment.path, METADATA)) for topic, segment in first.items()}
    return {topic: number for topic, number in read.items() if number is not None}


def created_anew(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """A message for each topic whose id has changed; no message if one of the two ids is unknown."""
    return [
        f"topic {topic}: its id was {before[topic]} and is {now[topic]}: it was deleted and created anew, and its offsets began again at 0"
        for topic in sorted(before)
        if now.get(topic, before[topic]) != before[topic]
    ]


def log_start(segments: list[Segment]) -> int | None:
    """The earliest offset, from the first segment's name; None if that is not a base offset."""
    return min((s.base_offset for s in segments if s.base_offset is not None), default=None)


def log_end(segments: list[Segment]) -> int:
    """The offset after the last complete entry of a partition. Reads the headers of the last segment, or that of each copy. An entry whose
    checksum is wrong at the very end counts as half written: a file that was allocated in advance has room for all of it before it has the
    bytes. For a partition without entries the result is the base offset of its last segment."""
    for folders in copies(segments).values():
        return max(log_end(own) for own in folders.values())
    for segment in reversed(segments):
        last = _last_complete(segment)
        if last is not None:
            return last + 1
    return segments[-1].base_offset or 0


def _last_complete(segment: Segment) -> int | None:
    last = _last_two(segment, 0)
    # Two damaged entries in a row are damage, not a write in progress: the read reports them.
    return next((entry.last_offset for entry in reversed(last) if entry.is_intact), last[-1].last_offset if last else None)


def begin_of_later_epoch(segments: list[Segment], epoch: int, otherwise: int) -> int:
    """The first offset of a log with a later leader epoch, which is ``otherwise`` if there is none. Epochs never go back in a log."""
    has_earlier = False
    for segment in reversed(segments):
        for entries in headers(segment):
            has_earlier |= entries[0].leader_epoch <= epoch
            later = entries[entries.leader_epoch > epoch]
            if len(later):
                otherwise = later[0].base_offset
                break
        if has_earlier:
            break
    return otherwise


def whole_end(segment: Segment, start: int = 0) -> int:
    """Where the last whole entry of a segment ends that is being written; the segment's end if what follows cannot be half an entry.

    Headers from ``start`` on are read, where an entry begins. A file that was allocated in advance has zeros after half an entry, whose
    checksum is wrong then, or whose length is not there yet.
    """
    last = _last_two(segment, start)
    end = after = last[-1].end if last else start
    if last and not last[-1].is_intact and all(entry.is_intact for entry in last[:-1]):
        end = last[-1].position
    else:
        after = min(end + OVERHEAD, segment.size)
    with SegmentFile(segment) as file:
        return end if not file.read(after, min(after + _ZEROS, file.size)).any() else file.size


def _last_two(segment: Segment, start: int) -> list[Entry]:
    """The last entries of the chain from a position on, with their checksums compared."""
    last: list[Entry] = []
    for entries in headers(segment, start):
        last = [*last, *(entry.copy() for entry in entries[-2:])][-2:]
    with SegmentFile(segment) as file:
        for entry in last:
            check(file.read(entry.position, entry.end).ctypes.data, entry.position, entry.array.reshape(1, -1))
    return last
