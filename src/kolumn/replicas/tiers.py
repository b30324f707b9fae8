"""A log whose closed segments, or some of them, are in a tier: each offset once, from the tier or from the broker's folder.

A tier may have several copies of the same offsets: of a try that failed, of another leader, or under another prefix. Copies whose
leader epochs are not those of the log are left out. Of the others the one that goes furthest is read; the broker's folder is read
from its first offset on, since it is nearer.
"""

import logging
from dataclasses import replace
from heapq import heappop, heappush
from itertools import pairwise

from kolumn.errors import ArgumentError, shown
from kolumn.options import Options
from kolumn.replicas.claimed import TierCopy, with_batch_epochs, with_ends, with_epochs
from kolumn.replicas.copies import Copies, Key, one_log, overlapping
from kolumn.replicas.ends import last_offset
from kolumn.replicas.lineage import Interval, belonging
from kolumn.source.segments import HIGHEST, Segment
from kolumn.source.side_bytes import side_bytes
from kolumn.source.side_files import CHECKPOINT, TIER_CHECKPOINT, Epochs, epochs_in, read_epochs
from kolumn.source.storage import beside, parent
from kolumn.threads import TIER, workers

logger = logging.getLogger(__name__)


def tiered(segments: list[Segment]) -> dict[Key, Copies]:
    """The topic-partitions of which some segments are in a tier: their segments by directory, in the order of the source."""
    keys = {(one.topic, one.partition) for one in segments if one.copy_id is not None}
    if not keys:
        return {}
    found: dict[Key, Copies] = {}
    for one in segments:
        key = one.topic or "", -1 if one.partition is None else one.partition
        if key in keys and one.base_offset is not None and not one.path.endswith(".checkpoint"):
            found.setdefault(key, {}).setdefault(parent(one.path), []).append(one)
    return found


def apart(folders: Copies) -> Copies:
    """Directories for a merge of copies: each segment of a tier is a copy of its own."""
    found: Copies = {}
    for folder, own in folders.items():
        for one in own:
            found.setdefault(folder if one.copy_id is None else one.path, []).append(one)
    return found


def stitched(key: Key, folders: Copies, options: Options) -> list[Segment]:
    """The segments that make up the log, in the order of offsets, with bounds where not all of a segment belongs to it.

    Reads the last headers of each segment, and the leader epochs beside it.

    Raises
    ------
    ArgumentError
        Several brokers' folders have the same offsets and ``replicas`` is "raise"; or two copies have the same offsets and epochs and
        cannot be the same bytes.
    KolumnError
        A manifest or a file of leader epochs contradicts others and its own batches; with ``errors="skip"`` a warning.
    """
    segments = [one for own in folders.values() for one in own]
    unread = [replace(one, start_offset=one.base_offset, end_offset=one.base_offset) for one in segments if one.fault is not None]
    if unread:
        read = {folder: some for folder, own in folders.items() if (some := [one for one in own if one.fault is None])}
        return [*(stitched(key, read, options) if read else []), *unread]
    if any(one.is_bounded for one in segments):
        # Done before: a task gets what was chosen.
        return sorted(segments, key=_lowest)
    local = {folder: own for folder, own in folders.items() if own[0].copy_id is None}
    if len(local) > 1 and options.replicas == "first":
        local = dict([next(iter(local.items()))])
    elif len(local) > 1:
        overlapping(key, local, options)
    copies = _looked_at([one for one in segments if one.copy_id is not None or parent(one.path) in local])
    copies = with_batch_epochs(with_ends(copies, options))
    _refuse_unlike(copies)
    copies, log = with_epochs(copies, [_checkpoint(own[0]) for own in local.values()], options)
    return _linked(_swept(copies, log))


def _lowest(segment: Segment) -> int:
    return segment.lowest or 0


def _checkpoint(segment: Segment) -> Epochs:
    return read_epochs(beside(segment.path, CHECKPOINT)) or ()


def _looked_at(segments: list[Segment]) -> list[TierCopy]:
    with workers(TIER) as pool:
        return list(pool.map(_look, segments))


def _look(segment: Segment) -> TierCopy:
    if segment.manifest is not None:
        return TierCopy(segment, segment.manifest.last, segment.manifest.epochs)
    epochs = None if segment.copy_id is None else epochs_in(side_bytes(segment, TIER_CHECKPOINT))
    if segment.following is not None:
        return TierCopy(segment, segment.following - 1, epochs)
    return TierCopy(segment, last_offset(segment), epochs)


def _refuse_unlike(copies: list[TierCopy]) -> None:
    """An error if two copies have the same offsets of the same epochs and different sizes: one of them is not of this log."""
    seen: dict[tuple[int | None, int, Epochs | None], TierCopy] = {}
    for one in copies:
        if one.segment.copy_id is None or one.last < 0:
            continue
        other = seen.setdefault((one.segment.base_offset, one.last, one.epochs), one)
        if other.segment.size != one.segment.size:
            raise ArgumentError(
                f"{other.segment.path} and {one.segment.path} both have offsets {one.segment.base_offset} to {one.last} of the same leader "
                f"epochs, in {other.segment.size} and {one.segment.size} bytes: replicas='merge' reads each offset from a copy in which it "
                "is intact; or name the files of one of them"
            )


def _swept(copies: list[TierCopy], log: Epochs) -> list[tuple[Segment, int, int, Interval]]:
    """For each part of the log: the segment, the first and last offset that are read from it, and those that it has."""
    parts: list[tuple[int, int, TierCopy]] = []
    for one in copies:
        base = one.segment.base_offset or 0
        some = belonging(one.epochs, log, base, one.last) if one.last >= base else []
        if not some and one.last >= base:
            logger.warning("%s: offsets %d to %d are of a leader whose log was given up: left out", shown(one.segment.path), base, one.last)
        parts += [(low, high, one) for low, high in some]
    parts.sort(key=lambda part: (part[0], -part[1], part[2].segment.path))
    near = iter([*(low for low, _, one in parts if one.segment.copy_id is None), HIGHEST])
    nearest, at, offset = next(near), 0, -1
    open_parts: list[tuple[bool, int, str, TierCopy]] = []
    found = []
    while at < len(parts) or open_parts:
        if not open_parts:
            offset = max(offset, parts[at][0])
        while at < len(parts) and parts[at][0] <= offset:
            _, high, one = parts[at]
            heappush(open_parts, (one.segment.copy_id is not None, -high, one.segment.path, one))
            at += 1
        far, high, _, one = heappop(open_parts)
        if -high < offset:
            continue
        while nearest <= offset:
            nearest = next(near)
        last = min(-high, nearest - 1) if far else -high
        found.append((one.segment, offset, last, (one.segment.base_offset or 0, one.last)))
        if last < -high:
            heappush(open_parts, (far, high, one.segment.path, one))
        offset = last + 1
    return found


def _linked(parts: list[tuple[Segment, int, int, Interval]]) -> list[Segment]:
    """The segments with bounds and neighbours."""
    found: list[Segment] = []
    before: int | None = None
    after = [*(first for _, first, _, _ in parts[1:]), None]
    for (segment, first, last, (low, high)), following in zip(parts, after, strict=True):
        one = replace(
            segment,
            preceding=before,
            following=following if last == high else None,
            start_offset=None if first == low else first,
            end_offset=None if last == high else last + 1,
        )
        found.append(one)
        before = first
    return found


def linked_as_log(segments: list[Segment], options: Options) -> list[Segment]:
    """All segments, whole, where those of tiers know their neighbours in the log; for checks that look at each copy."""
    placed: dict[str, Segment] = {}
    for key, folders in tiered(segments).items():
        some = [one for own in folders.values() for one in own]
        bases = sorted({one.base_offset or 0 for one in some})
        before = {base: below for below, base in pairwise(bases)}
        placed |= {one.path: replace(one, preceding=before.get(one.base_offset or 0, one.preceding)) for one in some}
        try:
            log = stitched(key, folders, replace(options, replicas="first", errors="skip"))
        except ArgumentError:
            continue
        for one in log:
            if one.copy_id is not None and not one.is_bounded:
                placed[one.path] = replace(placed[one.path], following=one.following)
    return [placed.get(one.path, one) for one in segments]


def log_of(segments: list[Segment], options: Options) -> list[Segment]:
    """As `kolumn.replicas.copies.one_log`, with partitions in tiers stitched."""
    tiers, joined = tiered(segments), list[Segment]()
    done: set[Key] = set()
    for one in segments:
        key = one.topic or "", -1 if one.partition is None else one.partition
        if (found := tiers.get(key)) is None or one.base_offset is None:
            joined.append(one)
        elif key not in done:
            done.add(key)
            joined += stitched(key, found, options)
    return one_log(joined, options)


def whole_segments(segments: list[Segment], of_tiers: bool) -> list[Segment]:
    """The segments, after a check that each is read as a whole.

    Raises
    ------
    ArgumentError
        Only some offsets of a segment belong to the log, or its bytes are not a file, unless ``of_tiers``.
    """
    for one in segments:
        if one.manifest is not None and not of_tiers:
            raise ArgumentError(
                f"{one.path}: its bytes are in the chunks of a tier. Read it, and write it by kolumn.write(kolumn.scan(...), target)"
            )
        if one.is_bounded:
            raise ArgumentError(
                f"{one.path}: only some of its offsets belong to the log, other copies have the others. Read the log, and write it by "
                "kolumn.write(kolumn.scan(...), target); or name the files that are to be used"
            )
    return segments
