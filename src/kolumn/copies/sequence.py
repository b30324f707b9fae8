"""What no checksum covers, in any format: the offset of an entry, and in format 2 its leader epoch. Which of them are damaged?

Leader epochs of a log: which offsets of a copy belong to it.

A leader that was elected uncleanly, or that tried again after a failure, copies offsets to a tier that another leader has copied before.
The segments of the log are those whose leader epochs are the epochs of its newest leader at the same offsets.
"""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from kolumn.core.arrays import Flags, Int64s
from kolumn.source.segments import HIGHEST
from kolumn.source.side_files import Epochs

_EDGE = 3
"""Entries on each side of a break that are examined one by one."""
_WINDOW = 512
"""How many entries back the predecessor of an entry is searched."""


def placed(base: Int64s, last: Int64s, content: Int64s, start: int) -> Flags:
    """Flags of the entries whose offsets are believed.

    Those are the longest sequence of growing offsets, and others that were written so, since offsets can go back: entries that adjoin the
    one before or after them in the file, that fill a gap between two others, that are there twice, or where no offset is missing that
    they could have had.

    Parameters
    ----------
    base, last : int64 array of n
        First and last offset of each entry, in the order of the file; base <= last.
    content : int64 array of (n, k)
        Checksum and size: entries with the same ones have the same bytes.
    start : int
        The offset with which the file begins, by its name.
    """
    flags = _fitting(base, last)
    if flags.all():
        return flags
    leads = np.append(last[:-1] + 1 == base[1:], False)
    follows = np.insert(leads[:-1], 0, base[0] == start)
    fills = np.isin(base - 1, last) & np.isin(last + 1, base)
    chosen = np.flatnonzero(flags)
    at = np.searchsorted(chosen, np.arange(len(base)))
    before, after = np.append(chosen, len(base))[at - 1], np.append(chosen, len(base))[at]
    floor = np.where(at > 0, np.append(last, 0)[before], start - 1)
    ceiling = np.where(at < len(chosen), np.append(base, 0)[after], HIGHEST)
    has_room = ceiling - floor - 1 > last - base
    _, number, count = np.unique(np.column_stack([base, last, content]), axis=0, return_inverse=True, return_counts=True)
    return flags | leads | follows | fills | (count[number.ravel()] > 1) | ~has_room


def strands(base: Int64s, last: Int64s, epoch: Int64s) -> tuple[Int64s, Int64s]:
    """Cut the entries of a file into strands.

    Parameters
    ----------
    base, last, epoch : int64 array of n
        First and last offset and leader epoch of each entry, -1 if it has none.

    Returns
    -------
    epoch : int64 array of n
        -1 where it is damaged.
    cuts : int64 array
        The entries before which offsets or epochs go back.
    """
    breaks = np.append(False, base[1:] <= last[:-1])[: len(base)]
    bounds = [0, *np.flatnonzero(breaks).tolist(), len(base)]
    epoch = np.concatenate([trusted_epochs(epoch[start:end]) for start, end in pairwise(bounds)])
    highest = np.maximum.accumulate(epoch) if len(epoch) else epoch
    if ((epoch < highest) & (epoch >= 0)).any():
        known = -1
        for i, (goes_back, own) in enumerate(zip(breaks.tolist(), epoch.tolist(), strict=True)):
            breaks[i] = goes_back or 0 <= own < known
            known = own if breaks[i] else max(known, own)
    return epoch, np.flatnonzero(breaks)


def trusted_epochs(epoch: Int64s) -> Int64s:
    """Leader epochs, -1 where one entry alone contradicts those on both sides of it: then its epoch is damaged."""
    rows = np.flatnonzero(epoch >= 0)
    own = epoch[rows]
    if len(own) < 3 or (own[1:] >= own[:-1]).all():
        return epoch
    before, after = np.concatenate([own[1:2], own[:-1]]), np.concatenate([own[1:], own[-2:-1]])
    # At the ends there is one neighbour, which has to agree with the one after it.
    agree = np.concatenate([own[1:2] <= own[2:3], own[:-2] <= own[2:], own[-3:-2] <= own[-2:-1]])
    wrong = agree & ((own < np.minimum(before, after)) | (own > np.maximum(before, after)))
    wrong[0], wrong[-1] = bool(agree[0] and own[0] > own[1]), bool(agree[-1] and own[-1] < own[-2])
    # Of two in a row that contradict each other the first is taken for damaged.
    wrong[1:] &= ~wrong[:-1]
    trusted = epoch.copy()
    trusted[rows[wrong]] = -1
    return trusted


def _fitting(base: Int64s, last: Int64s) -> Flags:
    """Flags of the entries that form the longest sequence of growing offsets.

    If two entries exclude each other, the one whose offsets adjoin its neighbours' is kept: a damaged offset rarely adjoins them.
    """
    flags = np.ones(len(base), np.bool_)
    breaks = np.flatnonzero(base[1:] <= last[:-1])
    if not len(breaks):
        return flags
    near = np.zeros(len(base), np.bool_)
    for step in range(1 - _EDGE, _EDGE + 1):
        near[np.clip(breaks + step, 0, len(base) - 1)] = True
    starts = np.flatnonzero(near | np.concatenate([[True], near[:-1]]))
    ends = np.append(starts[1:], len(base))
    chosen = _heaviest(base[starts], last[ends - 1], ends - starts)
    for node in np.flatnonzero(~chosen):
        flags[starts[node] : ends[node]] = False
    return flags


def _heaviest(low: Int64s, high: Int64s, weight: Int64s) -> Flags:
    """Flags of the runs in the sequence with most entries, and among those with most neighbours that touch."""
    score, before = 2 * weight, np.full(len(low), -1)
    for i in range(len(low)):
        first = max(0, i - _WINDOW)
        value = np.where(high[first:i] < low[i], score[first:i] + (high[first:i] + 1 == low[i]), -1)
        if len(value) and value.max() >= 0:
            nearest = len(value) - 1 - int(value[::-1].argmax())
            before[i] = first + nearest
            score[i] += value[nearest]
    chosen = np.zeros(len(low), np.bool_)
    # Among equally good ones, the one that ends lowest: a damaged offset is mostly far away.
    best = np.flatnonzero(score == score.max())
    at = int(best[high[best].argmin()])
    while at >= 0:
        chosen[at] = True
        at = int(before[at])
    return chosen


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
