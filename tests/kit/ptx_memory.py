"""Which memory PTX may touch: every load and store is checked for alignment, bounds, and races between threads.

A piece of memory may be written for its size and read for some bytes more, as device memory may. A *race* is: two threads of one
launch touch the same byte, one of them writes it, and nothing orders the two. Barriers of a warp (``bar.warp.sync``) order its
lanes, those of a block (``bar.sync``) its threads; a shuffle orders nothing. Two threads that write the same value are no race: flags
are set so. Where races are looked for, a piece has a *shadow*: for each of its bytes who wrote it, and the last two who read it.

Everything that is asked at each access is in one array of int64, the *context*, so that machine code needs nothing but its address.
"""

import bisect
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import cfunc, njit, types

from kit.emulated import kept
from kolumn.core.arrays import Int64s
from kolumn.formats.words import load64, store64

# The context. First what a thread sees of the launch, then what the checks need.
TID, NTID, CTAID, NCTAID, GIVE, FLAG, ASK, MASK, COUNTERS = range(9)
PARAMS, SHARED, REGIONS, HOW_MANY, LAUNCH, SYNCS, ERRORS, ERROR = range(9, 17)
TRACE, TRACED, TRACE_ROOM, SEGMENT = range(22, 26)
CONTEXT = 26
TRACE_COLUMNS = 5
"""int64 of an access in a trace: line, thread, address, width (negative where written), synchronisations of its warp and block so far."""
MISALIGNED, OUTSIDE, RACE = 1, 2, 3
MOST_PIECES = 1 << 14
LARGEST_SHADOWED = 1 << 21
"""Bytes of the largest piece in which races are looked for."""
CELL = 6
"""int64 of a byte in a shadow: tag and place of who wrote it, of who read it last, and of another one who read it."""
_ROW, _CELL, _WARP = 4 * 8, CELL * 8, 32
_REGIONS, _HOW_MANY, _LAUNCH, _SYNCS, _NTID = 8 * REGIONS, 8 * HOW_MANY, 8 * LAUNCH, 8 * SYNCS, 8 * NTID
_ERRORS, _ERROR, _TRACE, _TRACED, _ROOM = 8 * ERRORS, 8 * ERROR, 8 * TRACE, 8 * TRACED, 8 * TRACE_ROOM
_THREADS, _LINES = (1 << 32) - 1, 24
_int64 = types.int64


class Wrong(NamedTuple):
    """The first access of a launch that is wrong, as the context holds it from `ERROR` on."""

    kind: int
    line: int
    thread: int
    address: int
    width: int
    other: int


@njit(inline="always")
def _ordered(context, tag, place, own, thread):
    """Whether an access, ``tag`` and ``place`` of a cell, is ordered before what ``thread`` does now, whose tag is ``own``."""
    if (tag >> 32) != (own >> 32) or tag == own:
        return True
    other, block = tag & _THREADS, load64(context + _NTID)
    if other // block != thread // block:
        return False
    # The synchronisations of each warp, and the block's after them.
    syncs = load64(context + _SYNCS)
    if load64(syncs) > (place & 0xFFFFF):
        return True
    return other // _WARP == thread // _WARP and load64(syncs + 8 * (1 + thread % block // _WARP)) > (place >> 20) & 0xFFFFF


@kept(__file__, compiler=partial(cfunc, _int64(*[_int64] * 7)))
def access(context, address, width, write, line, thread, value):
    """1 where the access may be done; what is wrong with it is noted in the context, with the first one's particulars."""
    kind, other = 0, 0
    if address & (width - 1):
        kind = MISALIGNED
    else:
        low, high, regions = 0, load64(context + _HOW_MANY), load64(context + _REGIONS)
        while low < high:
            middle = (low + high) >> 1
            if load64(regions + _ROW * middle) <= address:
                low = middle + 1
            else:
                high = middle
        row = regions + _ROW * (low - 1)
        if low == 0 or address + width > load64(row + (8 if write else 16)):
            kind = OUTSIDE
        elif load64(row + 24) != 0:
            own = (load64(context + _LAUNCH) << 32) | thread
            syncs = load64(context + _SYNCS)
            warp = load64(syncs + 8 * (1 + thread % load64(context + _NTID) // _WARP))
            place = (line << 40) | (warp << 20) | load64(syncs)
            for k in range(min(width, load64(row + 8) - address)):
                cell = load64(row + 24) + _CELL * (address + k - load64(row))
                tag, at = load64(cell), load64(cell + 8)
                if not _ordered(context, tag, at, own, thread):
                    here = (load64((address + k) & -8) >> (8 * ((address + k) & 7))) & 0xFF
                    if not write or ((value >> (8 * k)) & 0xFF) != here:
                        kind, other = RACE, ((at >> 40) << 32) | (tag & _THREADS)
                if write:
                    for reader in (16, 32):
                        tag, at = load64(cell + reader), load64(cell + reader + 8)
                        if not _ordered(context, tag, at, own, thread):
                            kind, other = RACE, ((at >> 40) << 32) | (tag & _THREADS)
                    store64(cell, own)
                    store64(cell + 8, place)
                else:
                    if load64(cell + 16) != own:
                        store64(cell + 32, load64(cell + 16))
                        store64(cell + 40, load64(cell + 24))
                    store64(cell + 16, own)
                    store64(cell + 24, place)
    if load64(context + _TRACE) != 0 and load64(context + _TRACED) < load64(context + _ROOM):
        cell = load64(context + _TRACE) + 8 * TRACE_COLUMNS * load64(context + _TRACED)
        store64(context + _TRACED, load64(context + _TRACED) + 1)
        store64(cell, line)
        store64(cell + 8, thread)
        store64(cell + 16, address)
        store64(cell + 24, -width if write else width)
        syncs = load64(context + _SYNCS)
        store64(cell + 32, load64(syncs) + load64(syncs + 8 * (1 + thread % load64(context + _NTID) // _WARP)))
    if kind == 0:
        return 1
    store64(context + _ERRORS, load64(context + _ERRORS) + 1)
    if load64(context + _ERRORS) == 1:
        at = context + _ERROR
        store64(at, kind)
        store64(at + 8, line)
        store64(at + 16, thread)
        store64(at + 24, address)
        store64(at + 32, width)
        store64(at + 40, other)
    return 1 if kind == RACE else 0


class Pieces:
    """The pieces of memory that may be touched; with ``races`` those are looked for in pieces of up to `LARGEST_SHADOWED` bytes."""

    def __init__(self, races: bool = False) -> None:
        self.races = races
        self.table = np.zeros((MOST_PIECES, 4), np.int64)
        self._known: list[int] = []
        self._rows: dict[int, tuple[int, int, int, int]] = {}
        self._shadows: dict[int, Int64s] = {}
        self._changed = False

    def add(self, begin: int, size: int, readable: int) -> None:
        """``size`` bytes from ``begin`` may be written, ``readable`` ones read."""
        if begin not in self._rows:
            bisect.insort(self._known, begin)
        shadow = 0
        if self.races and 0 < size <= LARGEST_SHADOWED:
            self._shadows[begin] = np.zeros(CELL * size, np.int64)
            shadow = self._shadows[begin].ctypes.data
        self._rows[begin], self._changed = (begin, begin + size, begin + readable, shadow), True

    def remove(self, begin: int) -> None:
        """The piece is not there any more."""
        if self._rows.pop(begin, None) is not None:
            self._known.remove(begin)
            self._shadows.pop(begin, None)
            self._changed = True

    def forget_accesses(self, begin: int) -> None:
        """Nobody has touched the piece yet."""
        if begin in self._shadows:
            self._shadows[begin][:] = 0

    def update(self, context: Int64s) -> None:
        """Make a context know the pieces."""
        if self._changed:
            rows = np.array([self._rows[begin] for begin in self._known], np.int64).reshape(-1, 4)
            self.table[: len(rows)] = rows
            self._changed = False
        context[REGIONS], context[HOW_MANY] = self.table.ctypes.data, len(self._known)

    def writable(self) -> list[tuple[int, int]]:
        """Begin and size of each piece that can be written."""
        return [(begin, self._rows[begin][1] - begin) for begin in self._known if self._rows[begin][1] > begin]

    def writer(self, address: int) -> tuple[int, int, int] | None:
        """Launch, thread and line of the last write to a byte; None if nobody is known to have written it."""
        at = bisect.bisect_right(self._known, address) - 1
        shadow = self._shadows.get(self._known[at]) if at >= 0 else None
        if shadow is None or CELL * (address - self._known[at]) >= len(shadow):
            return None
        tag, place = (int(one) for one in shadow[CELL * (address - self._known[at]) :][:2])
        return (tag >> 32, tag & _THREADS, place >> 40) if tag else None
