"""Which entries of a segment have a damaged offset: no checksum covers the offset in any format."""

import numpy as np

from kolumn.arrays import Flags, Int64s

_EDGE = 3
"""Entries on each side of a break that are examined one by one."""
_WINDOW = 512
"""How many entries back the predecessor of an entry is searched."""


def fitting(base: Int64s, last: Int64s) -> Flags:
    """Flags of the entries that form the longest sequence of growing offsets.

    If two entries exclude each other, the one whose offsets adjoin its neighbours' is kept: a damaged offset rarely adjoins them.

    Parameters
    ----------
    base, last : int64 array of n
        First and last offset of each entry, in the order of the file; base <= last.
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
