"""Leader epochs of a log: which offsets of a copy belong to it.

A leader that was elected uncleanly, or that tried again after a failure, copies offsets to a tier that another leader has copied before.
The segments of the log are those whose leader epochs are the epochs of its newest leader at the same offsets.
"""

from collections.abc import Iterable
from itertools import pairwise

from kolumn.source.segments import HIGHEST
from kolumn.source.side_files import Epochs

Interval = tuple[int, int]
"""First and last offset."""


def lineage(known: Iterable[Epochs]) -> Epochs:
    """Epochs of the newest leader. Lists of older leaders tell the epochs before those that it still has."""
    found: Epochs = ()
    for one in sorted(filter(None, known), key=lambda epochs: (epochs[-1], len(epochs)), reverse=True):
        first = found[0] if found else (HIGHEST, HIGHEST)
        before = tuple(epoch for epoch in one if epoch[0] <= first[0] and epoch[1] < first[1])
        # The broker raises the start of its first epoch when it deletes segments.
        found = (*before, *(found[1:] if before and before[-1][0] == first[0] else found))
    return found


def belonging(own: Epochs | None, log: Epochs, first: int, last: int) -> list[Interval]:
    """Parts of the offsets [first, last] of a copy at which its epochs are those of the log; all of them if epochs are not known."""
    if not own or not log:
        return [(first, last)]
    cuts = sorted({first, last + 1, *(start for _, start in (*own, *log) if first < start <= last)})
    parts: list[Interval] = []
    for low, end in pairwise(cuts):
        mine, expected = _at(own, low), _at(log, low)
        if mine is not None and expected is not None and mine != expected:
            continue
        if parts and parts[-1][1] == low - 1:
            parts[-1] = parts[-1][0], end - 1
        else:
            parts.append((low, end - 1))
    return parts


def _at(epochs: Epochs, offset: int) -> int | None:
    """The epoch of an offset; None before the first."""
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), None)
