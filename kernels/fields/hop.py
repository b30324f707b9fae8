"""Where each record begins: the only serial chain, kept as short as possible.

    payload   | length | record .............. | length | record ...... | length | ...
              start 0                          start 1                  start 2

`hop`: a thread per batch follows the lengths, one dependent load after the other; good where there are many batches. Bound: a
sector of 32 bytes for each record, and its latency times the records of a batch.

`hop_staged`: a warp per batch, for few large ones. Its lanes load a window of the payload into shared memory together, 4 bytes a
lane, then lane 0 hops within the window at the latency of shared memory:

    window    |....................................| 4096 bytes, from a multiple of 4 on; the next one begins at the next record
              lane 0 | lane 1 | ... | lane 31 | lane 0 | ...

Bound: the bytes of the payload that records begin in, read once.
"""

from typing import NamedTuple

import numpy as np
from numba import cuda
from numba.extending import register_jitable

from kolumn.errors import Code
from kolumn.formats import layouts, table
from kolumn.kernels.machine.batches import field
from kolumn.kernels.machine.kernel import WARP, blocks, thread_per_item
from kolumn.kernels.machine.words import address_of, load32, load64, store32

WINDOW = 4096
_OK, _ALL_LANES = int(Code.OK), 0xFFFFFFFF
_LAYOUT, _CODEC = table.LAYOUT, table.CODEC
_WINDOW, _WINDOW_WORDS = WINDOW, WINDOW // 4
_LENGTH_BYTES = 32
"""Most bytes of a record's length and of what precedes it in a message."""


class Hop(NamedTuple):
    """Arguments of `hop`: those of `Batches`, and what is written for each row, int32.

    ``start`` is where the record begins in its payload, -1 where the chain is broken; ``owner`` is the number of its batch.
    """

    rows: int
    payload: int
    size: int
    first: int
    base: int
    bad: int
    format: int
    start: int
    owner: int


@register_jitable
def _must_end(layout: int) -> bool:
    """Whether the chain has to end where the payload does: after the messages of a wrapper, bytes may be left over."""
    return not layouts.holds_messages(layout)


@thread_per_item(Hop, block=64)
def hop(b: int, a: Hop) -> None:
    """Note where the records of batch ``b`` begin."""
    row, stop = load64(a.first + 8 * b), load64(a.first + 8 * (b + 1))
    buf, end = load64(a.payload + 8 * b), load64(a.size + 8 * b)
    layout, wrapped = field(a, b, _LAYOUT), field(a, b, _CODEC)
    at, code = 0, _OK
    empty = row == stop
    while row < stop:
        begin = at
        if code == _OK:
            code, at = layouts.hop(layout, buf, at, end, wrapped)
        store32(a.start + 4 * row, begin if code == _OK else -1)
        store32(a.owner + 4 * row, b)
        row += 1
    if code != _OK or (at != end and _must_end(layout) and not empty):
        store32(a.bad + 4 * b, 1)


@blocks(Hop, block=64, registers=80)
def hop_staged(n: int, a: Hop) -> None:
    """The same for ``n`` batches, a warp each."""
    windows = cuda.shared.array((2, _WINDOW_WORDS), np.int32)
    lane, own = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
    window = address_of(windows) + own * _WINDOW
    for b in range(cuda.grid(1) // WARP, n, cuda.gridsize(1) // WARP):
        _hop_in_window(b, lane, window, a)


@register_jitable
def _hop_in_window(b: int, lane: int, window: int, a: Hop) -> None:
    """Follow the chain of batch ``b``, a window at a time."""
    row, stop = load64(a.first + 8 * b), load64(a.first + 8 * (b + 1))
    buf, end = load64(a.payload + 8 * b), load64(a.size + 8 * b)
    layout, wrapped = field(a, b, _LAYOUT), field(a, b, _CODEC)
    at, code, empty = 0, _OK, row == stop
    while row < stop:
        # The payload begins anywhere, the window at the multiple of four below.
        origin = (buf + at) & -4
        room = min((buf + end + 3) & -4, origin + _WINDOW) - origin
        for k in range(4 * lane, room, 4 * WARP):
            store32(window + k, load32(origin + k))
        cuda.syncwarp()
        if lane == 0:
            shift = window - (origin - buf)
            whole = origin + room >= buf + end
            while row < stop:
                if not whole and at > origin - buf + room - _LENGTH_BYTES:
                    break
                begin = at
                if code == _OK:
                    code, at = layouts.hop(layout, shift, at, end, wrapped)
                store32(a.start + 4 * row, begin if code == _OK else -1)
                store32(a.owner + 4 * row, b)
                row += 1
                whole = whole or code != _OK
        cuda.syncwarp()
        row = cuda.shfl_sync(_ALL_LANES, row, 0)
        at = cuda.shfl_sync(_ALL_LANES, at, 0)
        code = cuda.shfl_sync(_ALL_LANES, code, 0)
    if lane == 0 and (code != _OK or (at != end and _must_end(layout) and not empty)):
        store32(a.bad + 4 * b, 1)
