"""Leader epochs and last offsets that files of a tier name, compared with the batches where copies contradict each other.

A changed digit there would give up segments that are intact. The comparison costs requests, so nothing is compared without a contradiction.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from kolumn.entries.headers import headers
from kolumn.errors import KolumnError, without_secrets
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


def with_epochs(copies: list[TierCopy], others: list[Epochs], options: Options) -> tuple[list[TierCopy], Epochs]:
    """The copies without leader epochs that contradict those of the log and their own batches; and the epochs of the log.

    Raises
    ------
    KolumnError
        There are such, and ``errors`` is "raise".
    """
    seen: set[str] = set()
    while True:
        log = lineage([*(one.epochs for one in copies if one.epochs), *others])
        wrong = next((one for one in _suspects(copies, log) if one.segment.path not in seen and not _is_right(one, seen)), None)
        if wrong is None:
            return copies, log
        name = wrong.segment.path if wrong.segment.manifest is not None else with_suffix(wrong.segment.path, TIER_CHECKPOINT)
        _tell(f"{name}: leader epochs: expected those of the segment's batches, found {dict(wrong.epochs or ())}", options)
        copies = [replace(one, epochs=None) if one is wrong else one for one in copies]


def _tell(text: str, options: Options) -> None:
    if options.errors == "raise":
        raise KolumnError(f"{text}: the file was changed. errors='skip' goes by the batches")
    logger.warning("%s: the batches count", without_secrets(text))


def _suspects(copies: list[TierCopy], log: Epochs) -> Iterator[TierCopy]:
    """Copies of a tier of which not all belongs to the log, each followed by those whose epochs are why."""
    listing: dict[int, list[TierCopy]] = {}
    for one in copies:
        for epoch, _ in one.epochs or ():
            if one.segment.copy_id is not None and len(some := listing.setdefault(epoch, [])) < _MOST:
                some.append(one)
    for one in copies:
        base = one.segment.base_offset or 0
        if one.segment.copy_id is None or one.last < base or belonging(one.epochs, log, base, one.last) == [(base, one.last)]:
            continue
        yield one
        own = {epoch for epoch, _ in one.epochs or ()}
        for (epoch, start), (_, end) in pairwise((*log, (0, HIGHEST))):
            if start <= one.last and end > base and epoch not in own:
                yield from listing.get(epoch, ())


def _is_right(one: TierCopy, seen: set[str]) -> bool:
    seen.add(one.segment.path)
    return has_epochs(one.segment, one.last, one.epochs or ())


def has_epochs(segment: Segment, last: int, epochs: Epochs) -> bool:
    """Whether leader epochs begin in a segment where its batches say.

    Epochs that begin before the segment or after ``last`` are not compared, nor are those of formats 0 and 1, which have none.
    """
    base = segment.base_offset or 0
    inside = [(epoch, max(start, base)) for epoch, start in epochs if start <= last]
    before = sum(start == base for _, start in inside)
    return all(_begins(segment, epoch, start) for epoch, start in inside[max(before - 1, 0) :])


def _begins(segment: Segment, epoch: int, start: int) -> bool:
    """Whether the first batch from an offset on has an epoch, and those before it in the segment have lower ones."""
    low = max(start - 1, segment.base_offset or 0)
    try:
        for one in select_ranges([segment], Options(start_offset=low)):
            for entries in headers(segment, one.start):
                for row in entries[entries.last_offset >= low]:
                    if row.leader_epoch < 0:
                        return True
                    if row.last_offset >= start:
                        return row.base_offset >= start and row.leader_epoch == epoch
                    if row.leader_epoch >= epoch:
                        return False
    except KolumnError:
        # What cannot be read proves nothing.
        return True
    return True
