"""Leader epochs and last offsets that files of a tier name, compared with the batches where copies contradict each other.

A changed digit there would give up segments that are intact. The comparison costs requests, so nothing is compared without a contradiction.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from kolumn.entries.headers import headers
from kolumn.errors import KolumnError, shown
from kolumn.formats.entries import Entry
from kolumn.options import Options
from kolumn.plan.seek import select_ranges
from kolumn.replicas.ends import last_offset
from kolumn.replicas.lineage import belonging, lineage
from kolumn.source.segments import HIGHEST, Segment
from kolumn.source.side_files import TIER_CHECKPOINT, Epochs
from kolumn.source.storage import with_suffix

logger = logging.getLogger(__name__)
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
