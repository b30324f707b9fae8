"""A log whose closed segments, or some of them, are in a tier: each offset once, from the tier or from the broker's folder.

A tier may have several copies of the same offsets: of a try that failed, of another leader, or under another prefix. Copies whose
leader epochs are not those of the log are left out. Of the others the one that goes furthest is read; the broker's folder is read
from its first offset on, since it is nearer.

Leader epochs and last offsets that files of a tier name, compared with the batches where copies contradict each other.

A changed digit there would give up segments that are intact. The comparison costs requests, so nothing is compared without a contradiction.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import accumulate, pairwise

import numpy as np

from kolumn.copies.copies import Copies, Key, one_log, overlapping
from kolumn.copies.ends import last_offset
from kolumn.copies.sequence import Interval, belonging, lineage
from kolumn.core.errors import ArgumentError, KolumnError, shown
from kolumn.core.threads import TIER, workers
from kolumn.formats.entries import Entry
from kolumn.log.headers import headers
from kolumn.log.seek import select_ranges
from kolumn.options import Options
from kolumn.source.segment_file import side_bytes
from kolumn.source.segments import HIGHEST, Segment
from kolumn.source.side_files import CHECKPOINT, TIER_CHECKPOINT, Epochs, epochs_in, read_epochs
from kolumn.source.storage import beside, parent, with_suffix

_MOST = 16
"""Copies with one epoch that are compared: they had to be changed alike to be wrong together."""


@dataclass(frozen=True)
class TierCopy:
    """A segment and what is known of it; ``last`` is its last offset, -1 if it has no intact entry."""

    segment: Segment
    last: int
    epochs: Epochs | None


def with_ends(copies: list[TierCopy], options: Options) -> list[TierCopy]:
    """The copies with last offsets of their batches where a manifest says that offsets of another copy are in one.

    Raises
    ------
    KolumnError
        A manifest says something else than the batches, and ``errors`` is "raise".
    """
    bases = sorted({one.segment.base_offset or 0 for one in copies if one.segment.copy_id is not None})
    found = []
    for one in copies:
        following = bisect_right(bases, one.segment.base_offset or 0)
        if one.segment.manifest is not None and following < len(bases) and bases[following] <= one.last:
            last = last_offset(one.segment)
            if last not in (-1, one.last):
                _tell(f"{one.segment.path}: endOffset: expected {last}, which its last batch has, found {one.last}", options)
                one = replace(one, last=last)
        found.append(one)
    return found


def with_batch_epochs(copies: list[TierCopy]) -> list[TierCopy]:
    """The copies with the leader epochs of their batches, where no file names them and another copy has some of the offsets."""
    ends = sorted((one.segment.base_offset or 0, one.last) for one in copies)
    highest = [*accumulate((last for _, last in ends), max)]
    bases = [base for base, _ in ends]

    def overlaps(base: int, last: int) -> bool:
        first, stop = bisect_left(bases, base), bisect_right(bases, last)
        return stop - first > 1 or (first > 0 and highest[first - 1] >= base)

    return [
        replace(one, epochs=_batch_epochs(one.segment))
        if one.epochs is None and one.segment.copy_id is not None and overlaps(one.segment.base_offset or 0, one.last)
        else one
        for one in copies
    ]


def _batch_epochs(segment: Segment) -> Epochs | None:
    """Leader epochs by the headers of a segment's batches; None if it has none, or they go back."""
    found: list[tuple[int, int]] = []
    try:
        for entries in headers(segment):
            known = entries[entries.leader_epoch >= 0]
            for row in np.flatnonzero(np.diff(known.leader_epoch, prepend=found[-1][0] if found else -1)).tolist():
                found.append((int(known.leader_epoch[row]), int(known.base_offset[row])))
    except KolumnError:
        return None
    return tuple(found) if found and all(one[0] < other[0] for one, other in pairwise(found)) else None


def with_epochs(copies: list[TierCopy], others: list[Epochs], options: Options) -> tuple[list[TierCopy], Epochs]:
    """The copies without leader epochs that contradict those of the log and their own batches; and the epochs of the log.

    Raises
    ------
    KolumnError
        There are such, and ``errors`` is "raise".
    """
    proved: dict[str, bool] = {}
    while True:
        log = lineage([*(one.epochs for one in copies if one.epochs), *others])
        wrong = _disproved(copies, log, proved)
        if wrong is None:
            return copies, log
        name = wrong.segment.path if wrong.segment.manifest is not None else with_suffix(wrong.segment.path, TIER_CHECKPOINT)
        _tell(f"{name}: leader epochs: expected those of the segment's batches, found {dict(wrong.epochs or ())}", options)
        copies = [replace(one, epochs=None) if one is wrong else one for one in copies]


def _tell(text: str, options: Options) -> None:
    if options.errors == "raise":
        raise KolumnError(f"{text}: the file was changed. errors='skip' goes by the batches")
    logger.warning("%s: the batches count", shown(text))


def _disproved(copies: list[TierCopy], log: Epochs, proved: dict[str, bool]) -> TierCopy | None:
    """A copy whose leader epochs are not those of batches, if not all offsets of some copy belong to the log: that one, or why.

    Two copies that name different offsets for the beginning of one epoch are not of two logs: the one that has those offsets is right.
    """
    listing: dict[tuple[int, int], list[TierCopy]] = {}
    for one in copies:
        for begins in one.epochs or ():
            if one.segment.copy_id is not None and len(some := listing.setdefault(begins, [])) < _MOST:
                some.append(one)
    for one in copies:
        base = one.segment.base_offset or 0
        if one.segment.copy_id is None or one.last < base or belonging(one.epochs, log, base, one.last) == [(base, one.last)]:
            continue
        if not _is_right(one, proved):
            return one
        own = dict(one.epochs or ())
        for (epoch, start), (_, end) in pairwise((*log, (0, HIGHEST))):
            if own.get(epoch) != start and (epoch in own or (start <= one.last and end > base)):
                is_moved = base < own.get(epoch, base) <= one.last
                for other in listing.get((epoch, start), ()):
                    is_elsewhere = not (other.segment.base_offset or 0) <= start <= other.last
                    if not _is_right(other, proved) or (is_moved and is_elsewhere):
                        return other
    return None


def _is_right(one: TierCopy, proved: dict[str, bool]) -> bool:
    if one.segment.path not in proved:
        proved[one.segment.path] = has_epochs(one.segment, one.last, one.epochs or ())
    return proved[one.segment.path]


def has_epochs(segment: Segment, last: int, epochs: Epochs) -> bool:
    """Whether leader epochs begin in a segment where its batches say, and the last of them is that of its end.

    Epochs that begin before the segment or after ``last`` are not compared, nor are those of formats 0 and 1, which have none.
    """
    base = segment.base_offset or 0
    inside = [(epoch, max(start, base)) for epoch, start in epochs if start <= last]
    before = sum(start == base for _, start in inside)
    if not all(_begins(segment, epoch, start) for epoch, start in inside[max(before - 1, 0) :]):
        return False
    end = next(_rows_from(segment, last), None)
    return not inside or end is None or end.leader_epoch == inside[-1][0]


def _begins(segment: Segment, epoch: int, start: int) -> bool:
    """Whether the first batch from an offset on has an epoch, and those before it in the segment have lower ones."""
    for row in _rows_from(segment, max(start - 1, segment.base_offset or 0)):
        if row.last_offset >= start:
            return row.base_offset >= start and row.leader_epoch == epoch
        if row.leader_epoch >= epoch:
            return False
    return True


def _rows_from(segment: Segment, offset: int) -> Iterator[Entry]:
    """Batches from an offset on that have a leader epoch. What cannot be read proves nothing."""
    try:
        for one in select_ranges([segment], Options(start_offset=offset)):
            for entries in headers(segment, one.start):
                yield from entries[(entries.last_offset >= offset) & (entries.leader_epoch >= 0)]
    except KolumnError:
        return


logger = logging.getLogger("kolumn.replicas")


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
    """As `kolumn.copies.copies.one_log`, with partitions in tiers stitched."""
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
