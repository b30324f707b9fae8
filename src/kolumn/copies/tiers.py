"""A log whose closed segments, or some of them, are in a tier: each offset once, from the tier or from the broker's folder.

A tier may have several copies of the same offsets: of a try that failed, of another leader, or under another prefix. A leader that was
elected uncleanly, or that tried again after a failure, copies offsets that another leader has copied before. Copies whose leader epochs are
not those of the log are left out. Of the others the one that goes furthest is read; the broker's folder is read from its first offset on,
since it is nearer. What a tier's files say of epochs and last offsets is compared with batches only where copies contradict each other,
since that costs requests: a changed digit there would give up segments that are intact.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import accumulate, pairwise

import numpy as np

from kolumn.copies.copies import Copies, Key, last_offset, one_log, overlapping
from kolumn.core.errors import ArgumentError, KolumnError, shown
from kolumn.core.threads import TIER, workers
from kolumn.decode.host.headers import headers
from kolumn.formats.entries import Entry
from kolumn.log.seek import select_ranges
from kolumn.options import Options
from kolumn.source.segment_file import side_bytes
from kolumn.source.segments import HIGHEST, Segment
from kolumn.source.side_files import CHECKPOINT, TIER_CHECKPOINT, Epochs, epochs_in, read_epochs
from kolumn.source.storage import beside, parent, with_suffix

logger = logging.getLogger("kolumn.replicas")
_MOST = 16  # copies with one epoch that are compared: they had to be changed alike to be wrong together
Interval = tuple[int, int]  # first and last offset


@dataclass(frozen=True)
class TierCopy:
    """A segment and what is known of it; ``last`` is its last offset, -1 if it has no intact entry."""

    segment: Segment
    last: int
    epochs: Epochs | None

    @property
    def base(self) -> int:
        return self.segment.base_offset or 0


def with_ends(copies: list[TierCopy], options: Options) -> list[TierCopy]:
    """The copies with last offsets of their batches where a manifest says that offsets of another copy are in one. Raises KolumnError if a
    manifest says something else than the batches, and ``errors`` is "raise"."""
    bases = sorted({copy.base for copy in copies if copy.segment.copy_id is not None})
    checked = []
    for copy in copies:
        following = bisect_right(bases, copy.base)
        if copy.segment.manifest is not None and following < len(bases) and bases[following] <= copy.last:
            last = last_offset(copy.segment)
            if last not in (-1, copy.last):
                _tell(f"{copy.segment.path}: endOffset: expected {last}, which its last batch has, found {copy.last}", options)
                copy = replace(copy, last=last)
        checked.append(copy)
    return checked


def with_batch_epochs(copies: list[TierCopy]) -> list[TierCopy]:
    """The copies with the leader epochs of their batches, where no file names them and another copy has some of the offsets."""
    ends = sorted((copy.base, copy.last) for copy in copies)
    highest = [*accumulate((last for _, last in ends), max)]
    bases = [base for base, _ in ends]

    def overlaps(copy: TierCopy) -> bool:
        first, stop = bisect_left(bases, copy.base), bisect_right(bases, copy.last)
        return stop - first > 1 or (first > 0 and highest[first - 1] >= copy.base)

    return [
        replace(copy, epochs=_batch_epochs(copy.segment))
        if copy.epochs is None and copy.segment.copy_id is not None and overlaps(copy)
        else copy
        for copy in copies
    ]


def _batch_epochs(segment: Segment) -> Epochs | None:
    """Leader epochs by the headers of a segment's batches; None if it has none, or they go back."""
    epochs: list[tuple[int, int]] = []
    try:
        for entries in headers(segment):
            known = entries[entries.leader_epoch >= 0]
            for row in np.flatnonzero(np.diff(known.leader_epoch, prepend=epochs[-1][0] if epochs else -1)).tolist():
                epochs.append((int(known.leader_epoch[row]), int(known.base_offset[row])))
    except KolumnError:
        return None
    return tuple(epochs) if epochs and all(before[0] < after[0] for before, after in pairwise(epochs)) else None


def with_epochs(copies: list[TierCopy], others: list[Epochs], options: Options) -> tuple[list[TierCopy], Epochs]:
    """The copies without leader epochs that contradict those of the log and their own batches; and the epochs of the log. Raises
    KolumnError if there are such, and ``errors`` is "raise"."""
    proved: dict[str, bool] = {}
    while True:
        log = lineage([*(copy.epochs for copy in copies if copy.epochs), *others])
        wrong = _disproved(copies, log, proved)
        if wrong is None:
            return copies, log
        name = wrong.segment.path if wrong.segment.manifest is not None else with_suffix(wrong.segment.path, TIER_CHECKPOINT)
        _tell(f"{name}: leader epochs: expected those of the segment's batches, found {dict(wrong.epochs or ())}", options)
        copies = [replace(copy, epochs=None) if copy is wrong else copy for copy in copies]


def _tell(text: str, options: Options) -> None:
    if options.errors == "raise":
        raise KolumnError(f"{text}: the file was changed. errors='skip' goes by the batches")
    logger.warning("%s: the batches count", shown(text))


def _disproved(copies: list[TierCopy], log: Epochs, proved: dict[str, bool]) -> TierCopy | None:
    """A copy whose leader epochs are not those of batches, if not all offsets of some copy belong to the log: that one, or why. Two copies
    that name different offsets for the beginning of one epoch are not of two logs: the one that has those offsets is right."""
    naming: dict[tuple[int, int], list[TierCopy]] = {}
    for copy in copies:
        for begins in copy.epochs or ():
            if copy.segment.copy_id is not None and len(some := naming.setdefault(begins, [])) < _MOST:
                some.append(copy)
    for copy in copies:
        base, last = copy.base, copy.last
        if copy.segment.copy_id is None or last < base or belonging(copy.epochs, log, base, last) == [(base, last)]:
            continue
        if not _is_right(copy, proved):
            return copy
        own = dict(copy.epochs or ())
        for (epoch, start), (_, end) in pairwise((*log, (0, HIGHEST))):
            if own.get(epoch) != start and (epoch in own or (start <= last and end > base)):
                is_moved = base < own.get(epoch, base) <= last
                for other in naming.get((epoch, start), ()):
                    if not _is_right(other, proved) or (is_moved and not other.base <= start <= other.last):
                        return other
    return None


def _is_right(copy: TierCopy, proved: dict[str, bool]) -> bool:
    if copy.segment.path not in proved:
        proved[copy.segment.path] = _has_epochs(copy.segment, copy.last, copy.epochs or ())
    return proved[copy.segment.path]


def _has_epochs(segment: Segment, last: int, epochs: Epochs) -> bool:
    """Whether leader epochs begin in a segment where its batches say, and the last of them is that of its end. Epochs that begin before the
    segment or after ``last`` are not compared, nor are those of formats 0 and 1, which have none."""
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
        for span in select_ranges([segment], Options(start_offset=offset)):
            for entries in headers(segment, span.start):
                yield from entries[(entries.last_offset >= offset) & (entries.leader_epoch >= 0)]
    except KolumnError:
        return


def lineage(known: Iterable[Epochs]) -> Epochs:
    """Epochs of the newest leader. Lists of older leaders tell the epochs before those that it still has."""
    log: Epochs = ()
    for epochs in sorted(filter(None, known), key=lambda epochs: (epochs[-1], len(epochs)), reverse=True):
        first = log[0] if log else (HIGHEST, HIGHEST)
        before = tuple(epoch for epoch in epochs if epoch[0] <= first[0] and epoch[1] < first[1])
        # The broker raises the start of its first epoch when it deletes segments.
        log = (*before, *(log[1:] if before and before[-1][0] == first[0] else log))
    return log


def belonging(own: Epochs | None, log: Epochs, first: int, last: int) -> list[Interval]:
    """Parts of the offsets [first, last] of a copy at which its epochs are those of the log; all of them if epochs are not known."""
    if not own or not log:
        return [(first, last)]
    cuts = sorted({first, last + 1, *(start for _, start in (*own, *log) if first < start <= last)})
    parts: list[Interval] = []
    for low, end in pairwise(cuts):
        mine, expected = _epoch_of(low, own), _epoch_of(low, log)
        if mine is not None and expected is not None and mine != expected:
            continue
        if parts and parts[-1][1] == low - 1:
            parts[-1] = parts[-1][0], end - 1
        else:
            parts.append((low, end - 1))
    return parts


def _epoch_of(offset: int, epochs: Epochs) -> int | None:
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), None)


def tiered(segments: list[Segment]) -> dict[Key, Copies]:
    """The topic-partitions of which some segments are in a tier: their segments by directory, in the order of the source."""
    keys = {(segment.topic, segment.partition) for segment in segments if segment.copy_id is not None}
    tiers: dict[Key, Copies] = {}
    for segment in segments if keys else ():
        if segment.key in keys and segment.base_offset is not None and not segment.path.endswith(".checkpoint"):
            tiers.setdefault(segment.key, {}).setdefault(parent(segment.path), []).append(segment)
    return tiers


def apart(folders: Copies) -> Copies:
    """Directories for a merge of copies: each segment of a tier is a copy of its own."""
    copies: Copies = {}
    for folder, own in folders.items():
        for segment in own:
            copies.setdefault(folder if segment.copy_id is None else segment.path, []).append(segment)
    return copies


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
    segments = [segment for own in folders.values() for segment in own]
    unread = [replace(one, start_offset=one.base_offset, end_offset=one.base_offset) for one in segments if one.fault is not None]
    if unread:
        read = {folder: some for folder, own in folders.items() if (some := [one for one in own if one.fault is None])}
        return [*(stitched(key, read, options) if read else []), *unread]
    if any(segment.is_bounded for segment in segments):
        # Done before: a task gets what was chosen.
        return sorted(segments, key=lambda segment: segment.lowest or 0)
    brokers = {folder: [one for one in own if one.copy_id is None] for folder, own in folders.items()}
    local = {folder: own for folder, own in brokers.items() if own}
    if len(local) > 1 and options.replicas == "first":
        local = dict([next(iter(local.items()))])
    elif len(local) > 1:
        overlapping(key, local, options)
    with workers(TIER) as pool:
        copies = list(pool.map(_look, [one for one in segments if one.copy_id is not None or parent(one.path) in local]))
    copies = with_batch_epochs(with_ends(copies, options))
    _refuse_unlike(copies)
    checkpoints = [read_epochs(beside(own[0].path, CHECKPOINT)) or () for own in local.values()]
    return _linked(_swept(*with_epochs(copies, checkpoints, options)))


def _look(segment: Segment) -> TierCopy:
    if segment.manifest is not None:
        return TierCopy(segment, segment.manifest.last, segment.manifest.epochs)
    if segment.raft is not None:
        # A segment of Redpanda is of one term, and its batches do not have it.
        last = segment.raft.last if segment.following is None else segment.following - 1
        return TierCopy(segment, last_offset(segment) if last is None else last, ((segment.raft.term, segment.base_offset or 0),))
    epochs = None if segment.copy_id is None else epochs_in(side_bytes(segment, TIER_CHECKPOINT))
    return TierCopy(segment, last_offset(segment) if segment.following is None else segment.following - 1, epochs)


def _refuse_unlike(copies: list[TierCopy]) -> None:
    """An error if two copies have the same offsets of the same epochs and different sizes: one of them is not of this log."""
    seen: dict[tuple[int | None, int, Epochs | None], Segment] = {}
    for copy in copies:
        segment = copy.segment
        if segment.copy_id is None or copy.last < 0:
            continue
        other = seen.setdefault((segment.base_offset, copy.last, copy.epochs), segment)
        if other.size != segment.size:
            raise ArgumentError(
                f"{other.path} and {segment.path} both have offsets {segment.base_offset} to {copy.last} of the same leader "
                f"epochs, in {other.size} and {segment.size} bytes: replicas='merge' reads each offset from a copy in which it "
                "is intact; or name the files of one of them"
            )


def _swept(copies: list[TierCopy], log: Epochs) -> list[tuple[TierCopy, int, int]]:
    """For each part of the log: the copy, and the first and last offset that are read from it."""
    parts: list[tuple[int, int, TierCopy]] = []
    for copy in copies:
        base, last = copy.base, copy.last
        own = belonging(copy.epochs, log, base, last) if last >= base else []
        if not own and last >= base:
            logger.warning("%s: offsets %d to %d are of a leader whose log was given up: left out", shown(copy.segment.path), base, last)
        parts += [(low, high, copy) for low, high in own]
    parts.sort(key=lambda part: (part[0], -part[1], part[2].segment.path))
    near = iter([*(low for low, _, copy in parts if copy.segment.copy_id is None), HIGHEST])
    nearest, i, offset = next(near), 0, -1
    open_parts: list[tuple[bool, int, str, TierCopy]] = []
    chosen = []
    while i < len(parts) or open_parts:
        if not open_parts:
            offset = max(offset, parts[i][0])
        while i < len(parts) and parts[i][0] <= offset:
            _, high, copy = parts[i]
            heappush(open_parts, (copy.segment.copy_id is not None, -high, copy.segment.path, copy))
            i += 1
        far, high, path, copy = heappop(open_parts)
        if -high < offset:
            continue
        while nearest <= offset:
            nearest = next(near)
        last = min(-high, nearest - 1) if far else -high
        chosen.append((copy, offset, last))
        if last < -high:
            heappush(open_parts, (far, high, path, copy))
        offset = last + 1
    return chosen


def _linked(parts: list[tuple[TierCopy, int, int]]) -> list[Segment]:
    firsts = [None, *(first for _, first, _ in parts), None]
    return [
        replace(
            copy.segment,
            preceding=before,
            following=following if last == copy.last else None,
            start_offset=None if first == copy.base else first,
            end_offset=None if last == copy.last else last + 1,
        )
        for (copy, first, last), before, following in zip(parts, firsts, firsts[2:], strict=False)
    ]


def linked_as_log(segments: list[Segment], options: Options) -> list[Segment]:
    """All segments, whole, where those of tiers know their neighbours in the log; for checks that look at each copy."""
    placed: dict[str, Segment] = {}
    for key, folders in tiered(segments).items():
        some = [segment for own in folders.values() for segment in own]
        before = {base: below for below, base in pairwise(sorted({segment.base_offset or 0 for segment in some}))}
        placed |= {one.path: replace(one, preceding=before.get(one.base_offset or 0, one.preceding)) for one in some}
        try:
            log = stitched(key, folders, replace(options, replicas="first", errors="skip"))
        except ArgumentError:
            continue
        for segment in log:
            if segment.copy_id is not None and not segment.is_bounded:
                placed[segment.path] = replace(placed[segment.path], following=segment.following)
    return [placed.get(segment.path, segment) for segment in segments]


def log_of(segments: list[Segment], options: Options) -> list[Segment]:
    """As `kolumn.copies.copies.one_log`, with partitions in tiers stitched."""
    tiers, joined, done = tiered(segments), list[Segment](), set[Key]()
    for segment in segments:
        if (folders := tiers.get(segment.key)) is None or segment.base_offset is None:
            joined.append(segment)
        elif segment.key not in done:
            done.add(segment.key)
            joined += stitched(segment.key, folders, options)
    return one_log(joined, options)


def whole_segments(segments: list[Segment], of_tiers: bool) -> list[Segment]:
    """The segments, after a check that each is read as a whole: an ArgumentError if only some offsets of one belong to the log, or if its
    bytes are not a file, unless ``of_tiers``."""
    for segment in segments:
        if segment.manifest is not None and not of_tiers:
            raise ArgumentError(
                f"{segment.path}: its bytes are in the chunks of a tier. Read it, and write it by kolumn.write(kolumn.scan(...), target)"
            )
        if segment.is_bounded:
            raise ArgumentError(
                f"{segment.path}: only some of its offsets belong to the log, other copies have the others. Read the log, and write it by "
                "kolumn.write(kolumn.scan(...), target); or name the files that are to be used"
            )
    return segments
