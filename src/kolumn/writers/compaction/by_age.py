"""`clean`: old records are dropped by age from the head of the log, as the proposal of the enriched format describes.

segment 0      segment 1                    segment 2
|--- old ---|  |--- old ---|--- young ---|  |--- young ---|
  dropped        cut here ^                    stays
"""

import time
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Unpack

import numpy as np

from kolumn.copies.copies import one_directory
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import known_keywords
from kolumn.formats import layouts
from kolumn.log.batch_table import entry_rows
from kolumn.log.chunks import chunks, header_rows
from kolumn.log.headers import with_last_offsets
from kolumn.log.seek import ENRICHED_INDEX, read_index
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment
from kolumn.source.storage import beside, modified_ms
from kolumn.writers.compaction.compact import copy_segment, folder_of
from kolumn.writers.conversion.convert import can_roll, root_of, targets
from kolumn.writers.entries import Encoded
from kolumn.writers.outgoing import outgoing
from kolumn.writers.segments import SegmentFiles

_COPIED = 8 << 20


@dataclass
class Cleaning:
    """Result of a cleaning by age.

    Attributes
    ----------
    segments, dropped : list of str
        The segments that it wrote, and the segments of the source that were dropped as a whole.
    cut : dict of str to int
        Bytes that were dropped at the head of a segment of the source.
    """

    segments: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)


@known_keywords(
    keywords.refused(
        ("errors", "check_crcs", "chunk_bytes", "memory_bytes", "max_batch_bytes", "max_ratio", "on_progress"), "clean decodes nothing"
    )
)
def clean(
    source: keywords.Source,
    target: keywords.Path,
    *,
    retention_ms: int,
    now: int | None = None,
    format: keywords.Format = "enriched",
    index_interval_bytes: int = 4096,
    **options: Unpack[keywords.WholeOptions],
) -> Cleaning:
    """Drop records that are older than a topic's retention from the head of its partitions, including the active segment.

    Whole segments are dropped while their last timestamp is old. In the first segment that stays, the index is searched for the first
    young entry, and the file is cut there; later records stay even if they are old. Indexes are hints: the headers between two index
    entries decide, and without a valid index with times, as in shipped formats, only the headers. An entry without a timestamp is as old
    as the entry before it; a segment without any timestamp is as old as its file.

    Parameters
    ----------
    source
        As in `kolumn.scan`, with whole topic-partitions.
    target : str or PathLike
        As in `kolumn.compact`; segments keep their names.
    retention_ms, now : int
        ``retention.ms`` of the topic, and the time in ms since 1970, by default the present.
    format, index_interval_bytes
        As in `kolumn.write`.
    replicas, topic, partition
        As in `kolumn.scan`.

    Returns
    -------
    Cleaning

    Raises
    ------
    ArgumentError
        An option is invalid, or the target exists.
    KolumnError
        The target cannot be written. Nothing is left there then, as after an `ArgumentError`.
    """
    if retention_ms < 0:
        raise ArgumentError(f"retention_ms={retention_ms}: expected 0 or more")
    chosen = Options.of(format=format, **options)
    limit = (int(time.time() * 1000) if now is None else now) - retention_ms
    places = dict(targets(one_directory(live_segments(source, chosen).one_log(), "clean"), target))
    return _clean(places, target, limit, index_interval_bytes)


def _clean(places: dict[Segment, str], target: keywords.Path, limit: int, interval: int) -> Cleaning:
    done = Cleaning()
    with outgoing(root_of(target), places.values()) as place:
        for _, own in groupby(places, key=folder_of):
            young = False
            for segment in own:
                start = 0 if young else _first_young(segment, limit)
                if start is None:
                    done.dropped.append(segment.path)
                    continue
                young = True
                if start:
                    done.cut[segment.path] = start
                with place(places[segment]) as path:
                    names = _from(segment, start, path, interval, can_roll(target))
                done.segments += [beside(places[segment], one) for one in names]
    return done


def _first_young(segment: Segment, limit: int) -> int | None:
    """Position of the first entry that is not older than ``limit``; None if all are older, and the segment is not empty.

    If a young entry follows damage, it is the position of the last entry before the damage: the age of the damaged bytes is unknown.
    """
    with SegmentFile(segment) as file:
        start, timed = _old_head(file, limit), False
        last, end = start, start
        for entries in header_rows(file, start, file.size):
            times = entries.max_timestamp
            hits = np.flatnonzero(times >= limit)
            if len(hits):
                return int(entries.position[hits[0]])
            timed |= bool((times != -1).any())
            last, end = entries[-1].position, entries[-1].end
        if end < file.size and _is_young_after(file, end, limit):
            return last
        if timed or start:
            return None
    return None if segment.size and modified_ms(segment.path) < limit else 0


def _is_young_after(file: SegmentFile, position: int, limit: int) -> bool:
    """Whether an entry after damage is young; False if no entry follows."""
    headers = entry_rows(file, Options(format=file.segment.format, check_crcs=False, errors="skip"))
    return any(((entries.position >= position) & (entries.max_timestamp >= limit)).any() for entries in headers)


def _old_head(file: SegmentFile, limit: int) -> int:
    """Position up to which all entries are old according to the index of an enriched segment, if the log confirms the index entry."""
    segment = file.segment
    if not layouts.FORMATS[file.format].timed_index or segment.base_offset is None:
        return 0
    index = read_index(segment, ".index", ENRICHED_INDEX)
    if index is None:
        return 0
    at = int(np.searchsorted(index["timestamp"], limit, side="left")) - 1
    if at < 0:
        return 0
    position, highest = int(index["position"][at]), int(index["timestamp"][at])
    found = False
    for entries in header_rows(file, 0, min(position + 1, file.size)):
        if (entries.max_timestamp > highest).any():
            return 0
        found = bool(entries.position[-1] == position and entries.base_offset[-1] == segment.base_offset + int(index["offset"][at]))
    return position if found else 0


def _from(segment: Segment, start: int, place: Path, interval: int, rolls: bool) -> list[str]:
    """Write the segment from an entry on, with new indexes; it is copied unchanged if that entry is its first. Returns names of files."""
    if start == 0:
        copy_segment(segment, place)
        return [place.name]
    enriched = layouts.format_of(segment.format).timed_index
    with SegmentFile(segment) as file, SegmentFiles(place, 1 << 30, interval, enriched, rolls) as files:
        end = start
        for chunk in chunks(file, start, file.size, _COPIED):
            entries = with_last_offsets(file, chunk.entries).copy()
            first, end = entries[0].position, int(entries.position[-1] + entries.size[-1])
            data = chunk.source[first - chunk.origin : end - chunk.origin]
            entries.position -= first
            files.append(Encoded(data, entries))
        files.append_tail(file.read(end, file.size)[: file.size - end])
    return [path.name for path in files.paths]
