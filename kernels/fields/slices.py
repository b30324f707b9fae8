"""Where records begin in few large batches: a block per batch, whose warps have a slice of the payload each.

    payload    |record|record|rec.........ord|record|record|............record|record|
    slices     |                   |                   |                   |
    guesses    0                        ^                ^                      ^

A guess is a position from which two records follow each other without a gap, the second with a higher offset: all of their fields fit
their lengths. Bytes inside of a value may look like that too, so guesses are compared: the chain of each slice has to end where the
next one's begins. Nothing is written before.

Bound: the bytes of the payload that records begin in, read twice; the latency of the records of a slice, twice.
"""

import numpy as np

from kolumn.core.errors import Code
from kolumn.formats import layouts, memory, table, v2, varint
from kolumn.formats.machine_code.deferred import register_jitable
from kolumn.formats.machine_code.words import address_of, load64, store64
from kolumn.kernels.fields.hop import ROOM, Hop, has_varints, hop, hop_in_window, hop_staged, walk
from kolumn.kernels.machine.kernel import (
    WARP,
    Arguments,
    Kernel,
    block_of_grid,
    blocks,
    blocks_of_grid,
    field,
    ones,
    shared_array,
    thread_of_block,
    votes,
    wait_for_block,
)

SLICES = 16
FEW = 4096
"""With fewer batches than this, each gets a warp or more: fewer threads would leave most of a device idle."""
LARGE = 128 << 10
"""Bytes of a batch, on the average, from which on it is cut into slices."""
LONG = 2048
"""Bytes of a record, on the average, from which on guesses take longer than they save."""
_LOG_SLICES, _OK = SLICES.bit_length() - 1, int(Code.OK)
_MOST_ROWS = 2**31 - 1
_SEARCHED = 4 * LONG
_PART = 24
"""Bytes of what a warp knows of its slice: where the first record begins, how many do, and where the first one after them begins."""
_ROOMS, _PARTS = SLICES * ROOM, SLICES * _PART


def hop_for(size: int, batches: int, rows: int) -> tuple[Kernel, int]:
    """The fastest kernel for batches of ``size`` bytes with so many rows together, and its items."""
    if batches >= FEW:
        return hop, batches
    if LARGE * batches <= size <= LONG * rows:
        return hop_sliced, SLICES * batches
    return hop_staged, batches


@blocks(Hop, block=WARP * SLICES, registers=128)
def hop_sliced(n: int, a: Arguments) -> None:
    """Note where the records of batches begin, ``n`` slices of them."""
    windows = address_of(shared_array(_ROOMS, np.uint8))
    known = address_of(shared_array(_PARTS, np.uint8))
    lane, own = thread_of_block() % WARP, thread_of_block() // WARP
    for b in range(block_of_grid(), n // SLICES, blocks_of_grid()):
        _hop_in_slices(b, lane, own, windows + own * ROOM, known, a)
        # What this batch was known by is not needed any more.
        wait_for_block()


@register_jitable
def _hop_in_slices(b: int, lane: int, own: int, window: int, known: int, a: Arguments) -> None:
    """Follow the chain of batch ``b``; the threads of a block together, of which a warp has slice ``own``."""
    buf, end = load64(a.payload + 8 * b), load64(a.size + 8 * b)
    layout, wrapped = field(a, b, table.LAYOUT), field(a, b, table.CODEC)
    at, until = _begin(end, own), _begin(end, own + 1)
    if has_varints(layout):
        if own > 0:
            at = _search(buf, at, min(until, at + _SEARCHED), until, end, lane, layouts.attribute_bytes(layout))
        rows, following, code = walk(layout, wrapped, buf, end, 0, _MOST_ROWS, at, until, lane, window, b, 0, 0)
        if lane == 0:
            store64(known + _PART * own, at)
            store64(known + _PART * own + 8, rows)
            store64(known + _PART * own + 16, following if code == _OK else -1)
    elif lane == 0:
        store64(known + _PART * own, -1)
    wait_for_block()
    row, stop, mine = _linked(known, end, load64(a.first + 8 * b), own)
    if row == load64(a.first + 8 * (b + 1)):
        if mine >= 0:
            walk(layout, wrapped, buf, end, mine, stop, at, until, lane, window, b, a.start, a.owner)
    elif own == 0:
        hop_in_window(b, lane, window, a)


@register_jitable
def _begin(end: int, number: int) -> int:
    """Where a slice of a payload begins."""
    return (end * number) >> _LOG_SLICES


@register_jitable
def _linked(known: int, end: int, row: int, own: int) -> tuple[int, int, int]:
    """The row after all, negative unless each slice ends where the next one begins; the row after slice ``own``, and its first, or -1."""
    at, stop, mine = 0, 0, -1
    for k in range(SLICES):
        # A record may be longer than a slice: nothing begins there.
        if at < _begin(end, k + 1):
            if load64(known + _PART * k) != at:
                return -1, 0, -1
            if k == own:
                mine = row
            row += load64(known + _PART * k + 8)
            at = load64(known + _PART * k + 16)
            if at < 0:
                return -1, 0, -1
            if k == own:
                stop = row
    return row if at == end else -1, stop, mine


@register_jitable
def _search(buf: int, at: int, last: int, until: int, end: int, lane: int, skip: int) -> int:
    """The first position in [at, last) at which a record seems to begin; ``until`` if there is none. All lanes return the same."""
    while at < last:
        right = at + lane < last and _seems_record(buf, at + lane, end, skip)
        found = votes(right)
        if found != 0:
            return at + ones((found & -found) - 1)
        at += WARP
    return until


@register_jitable
def _seems_record(buf: int, at: int, end: int, skip: int) -> bool:
    """Whether the fields of a record and of another one after it fit at ``at``."""
    fits, following, offset = _fits(buf, at, end, skip)
    if not fits or following == end:
        return fits
    fits, _, after = _fits(buf, following, end, skip)
    return fits and after > offset


@register_jitable
def _fits(buf: int, at: int, end: int, skip: int) -> tuple[bool, int, int]:
    """Whether a record fits at ``at`` whose attributes are 0, as those of all records are; the position after it, its offset delta."""
    _, body = varint.varint32(buf, at, end)
    if body < 0 or (skip != 0 and memory.load8(buf, body) != 0):
        return False, 0, 0
    one = v2.fields(buf, at, end, skip)
    return one.code == _OK and (one.header_count > 0 or one.headers == one.next), one.next, one.offset_delta
