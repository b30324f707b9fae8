"""Segments whose offsets are in another file too: those that a swap file replaces, and copies under names that are not Kafka's.

Snapshots of KRaft beside a log: files of batches that hold the state up to an offset.

    <offset, 20 digits>-<epoch, 10 digits>.checkpoint      in the folder `__cluster_metadata-0`; the offset is the snapshot's end

Source: ``org.apache.kafka.snapshot.Snapshots`` of Kafka.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from kolumn.core.keywords import Source
from kolumn.formats import table
from kolumn.log.headers import headers
from kolumn.source.names import LOG, SWAP
from kolumn.source.segments import Segment, find_segments, with_neighbours
from kolumn.source.storage import base_name, listing, parent


def segments_of_source(source: Source) -> list[Segment]:
    """Live segments of a source, those of all copies too, and with their faults those of manifests that cannot be used."""
    return with_twins(without_replaced(find_segments(source, faults=True)))


def without_replaced(segments: list[Segment]) -> list[Segment]:
    """Drop the segments that a ``.swap`` file of their directory replaces.

    Like ``LogLoader`` of Kafka on start-up, it drops those whose base offset lies between the first base offset and the last next
    offset of the directory's swap files, and the one that a swap file gets the name of, even if there is nothing in it.
    """
    spans: dict[str, tuple[int, int]] = {}
    renamed = set[tuple[str, int]]()
    for segment in [one for one in segments if one.path.endswith(SWAP)]:
        if (base := segment.base_offset) is not None:
            end = base
            for entries in headers(segment):
                end = int(entries.last_offset[-1]) + 1 if len(entries) else end
            folder = parent(segment.path)
            renamed.add((folder, base))
            low, high = spans.get(folder, (base, 0))
            spans[folder] = min(low, base), max(high, end)
    if not spans:
        return segments
    kept = [s for s in segments if s.is_swap or not (_between(s, spans.get(parent(s.path))) or (parent(s.path), s.base_offset) in renamed)]
    for folder in spans:
        placed = {one.path: one for one in with_neighbours([s for s in kept if parent(s.path) == folder])}
        kept = [placed.get(s.path, s) for s in kept]
    return kept


def with_twins(segments: list[Segment]) -> list[Segment]:
    """Mark segments that have offsets of another segment of their directory: copies under names that are not Kafka's."""
    if all(one.base_offset is not None for one in segments):
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


def _between(segment: Segment, span: tuple[int, int] | None) -> bool:
    return span is not None and segment.base_offset is not None and span[0] <= segment.base_offset < span[1]


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
