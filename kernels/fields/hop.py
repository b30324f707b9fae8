"""Where each record begins: the only serial chain, kept as short as possible.

    payload   | length | record .............. | length | record ...... | length | ...
              start 0                          start 1                  start 2

`hop`: a thread per batch follows the lengths, one dependent load after the other; good where there are many batches. Bound: a sector of
32 bytes for each record, and its latency times the records of a batch.

`hop_staged`: a warp per batch, for few large ones. Its lanes load a window of the payload into shared memory together, then lane 0 hops
within it at the latency of shared memory, while the loads of the next window are on their way:

    window    |....| ...................................| 2048 bytes, from a multiple of 8 on; before them the last 32 of the window
              carry  lane 0 | lane 1 | ... | lane 0 | ...   before, in which a record's length may begin

Records are often as long as the one before. So all lanes guess first: lane k looks whether a record of that length begins k lengths on.
Those up to the first wrong guess are right, since each begins where the one before ends. Bound: the payload's bytes, read once; for each
record the latency of shared memory and of some ten instructions that wait for each other.

`hop_sliced`: a block per batch, for few large ones with many records. Each warp has a slice, guesses where the first record of it begins,
and hops to its end. A guess is a position from which two records follow each other, the second with a higher offset. Bytes inside of a
value may look like that too: the guesses are right if each chain ends where the next one begins. Then the warps know their row numbers,
and hop once more to write. Otherwise one warp hops through the whole batch.
"""

import numpy as np

from kolumn.core.deferred import register_jitable
from kolumn.core.errors import Code
from kolumn.formats import layouts, memory, table, v2, varint
from kolumn.formats.words import address_of, load64, store32, store64
from kolumn.kernels.machine import kernel
from kolumn.kernels.machine.kernel import WARP, Arguments, Batches, Kernel, arguments, blocks, field, ones, thread_per_item, votes

WINDOW, ROOM = 2048, 32 + 2048 + 8
"""Bytes of a window, and what a warp needs of shared memory for it."""
_OK = int(Code.OK)
_CARRY = 32
"""More bytes than a record's length has, and what precedes it in a message."""
_ROOMS, _LAST_BYTES = 2 * ROOM, WINDOW - _CARRY
_EVEN = 0x3FFE
"""Bits of the zig-zag varint of a length of one or two bytes: the lowest one is the sign."""
_VARINTS = sum(1 << number for number, layout in layouts.LAYOUTS.items() if layout.hop is v2.following)
"""A bit for each layout whose records begin with their length as a zig-zag varint."""
Hop = arguments(__name__, "Hop", Batches, "start", "owner")
"""Arguments of `hop`: those of `Batches`, and what is written for each row, int32. ``start`` is where the record begins in its payload, -1
where the chain is broken; ``owner`` is the number of its batch."""


@thread_per_item(Hop, block=64)
def hop(b: int, a: Arguments) -> None:
    """Note where the records of batch ``b`` begin."""
    row, stop = load64(a.first + 8 * b), load64(a.first + 8 * (b + 1))
    buf, end = load64(a.payload + 8 * b), load64(a.size + 8 * b)
    layout, wrapped = field(a, b, table.LAYOUT), field(a, b, table.CODEC)
    at, code = 0, _OK
    while row < stop:
        begin = at
        if code == _OK:
            code, at = layouts.hop(layout, buf, at, end, wrapped)
        store32(a.start + 4 * row, begin if code == _OK else -1)
        store32(a.owner + 4 * row, b)
        row += 1
    # After the messages of a wrapper, bytes may be left over.
    if code != _OK or (at != end and not layouts.holds_messages(layout)):
        store32(a.bad + 4 * b, 1)


@blocks(Hop, block=64, registers=88)
def hop_staged(n: int, a: Arguments) -> None:
    """The same for ``n`` batches, a warp each."""
    windows = address_of(kernel.shared_array(_ROOMS, np.uint8))
    lane, own = kernel.thread_of_block() % WARP, kernel.thread_of_block() // WARP
    for b in range(kernel.thread_of_grid() // WARP, n, kernel.threads_of_grid() // WARP):
        hop_in_window(b, lane, windows + own * ROOM, a)


@register_jitable
def _fetch(origin: int, last: int, lane: int) -> tuple[int, int, int, int, int, int, int, int]:
    """A lane's words of the window at ``origin``, in registers. Words after ``last`` do not matter; they are not loaded."""
    at = origin + 8 * lane
    if at + 1792 <= last:
        return (
            load64(at), load64(at + 256), load64(at + 512), load64(at + 768),
            load64(at + 1024), load64(at + 1280), load64(at + 1536), load64(at + 1792),
        )  # fmt: skip
    return (
        load64(min(at, last)), load64(min(at + 256, last)), load64(min(at + 512, last)), load64(min(at + 768, last)),
        load64(min(at + 1024, last)), load64(min(at + 1280, last)), load64(min(at + 1536, last)), load64(min(at + 1792, last)),
    )  # fmt: skip


@register_jitable
def _put(window: int, lane: int, words: tuple[int, int, int, int, int, int, int, int]) -> None:
    """Put a lane's words into the window."""
    at = window + _CARRY + 8 * lane
    store64(at, words[0])
    store64(at + 256, words[1])
    store64(at + 512, words[2])
    store64(at + 768, words[3])
    store64(at + 1024, words[4])
    store64(at + 1280, words[5])
    store64(at + 1536, words[6])
    store64(at + 1792, words[7])


@register_jitable
def hop_in_window(b: int, lane: int, window: int, a: Arguments) -> None:
    """Follow the chain of batch ``b``, a window at a time."""
    row, stop = load64(a.first + 8 * b), load64(a.first + 8 * (b + 1))
    buf, end = load64(a.payload + 8 * b), load64(a.size + 8 * b)
    layout, wrapped = field(a, b, table.LAYOUT), field(a, b, table.CODEC)
    row, at, code = walk(layout, wrapped, buf, end, row, stop, 0, end + 1, lane, window, b, a.start, a.owner)
    if code != _OK:
        for k in range(row + lane, stop, WARP):
            store32(a.start + 4 * k, -1)
            store32(a.owner + 4 * k, b)
    if lane == 0 and (code != _OK or (at != end and not layouts.holds_messages(layout))):
        store32(a.bad + 4 * b, 1)


@register_jitable
def has_varints(layout: int) -> bool:
    """Whether the records of a layout begin with their length as a zig-zag varint."""
    return (_VARINTS >> layout) & 1 != 0


@register_jitable
def walk(
    layout: int, wrapped: int, buf: int, end: int, row: int, stop: int, at: int, until: int, lane: int, window: int,
    b: int, start: int, owner: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Hop from the record at ``at``, of ``row``, until one begins at ``until`` or later; the lanes of a warp together.

    ``stop``: row after the last one.
    ``window``: shared memory of the warp.
    ``b``: number of the batch.
    ``start``, ``owner``: where positions and the number of the batch are written for each row; nothing is where ``start`` is 0.
    Returns ``row``, ``at``, ``code``: of the next record.
    """
    code, length, varints = _OK, 0, has_varints(layout)
    origin = (buf + at) & -8
    last = max((buf + end - 1) & -8, origin)
    words = _fetch(origin, last, lane)
    while row < stop and at < until and code == _OK:
        _put(window, lane, words)
        following = origin + WINDOW
        words = _fetch(following, last, lane)
        kernel.wait_for_warp()
        begin = row
        limit = min(end if following >= buf + end else origin - buf + _LAST_BYTES, until - 1)
        # Positions in the payload become places in the window.
        text = window + _CARRY + buf - origin
        if varints and length > 0:
            row, at = _guess(text, row, stop, at, limit, end, length, lane, start)
        if lane == 0:
            row, at, code, length = _hop_to(layout, wrapped, row, stop, at, limit, end, length, text, start)
        kernel.wait_for_warp()
        # Less than 2 GiB, so 32 bits do.
        row = kernel.from_lane(row, 0)
        at = kernel.from_lane(at, 0)
        code = kernel.from_lane(code, 0)
        length = kernel.from_lane(length, 0)
        if start != 0:
            for k in range(begin + lane, row, WARP):
                store32(owner + 4 * k, b)
        here = buf + at
        if following - _CARRY <= here < following + WINDOW:
            # Where the length begins in this window, the next one needs its last bytes.
            if lane < _CARRY // 8:
                store64(window + 8 * lane, load64(window + WINDOW + 8 * lane))
            origin = following
        elif row < stop:
            origin = here & -8
            words = _fetch(origin, last, lane)
        kernel.wait_for_warp()
    return row, at, code


@register_jitable
def _short(text: int, at: int) -> tuple[int, int]:
    """Where the record after the one at ``at`` begins, if its length has one or two bytes; and 0 if it has, and is not negative."""
    # Both bytes at once; the second may lie after the payload's end, and then it does not matter.
    low, high = memory.load8(text, at), memory.load8(text + 1, at)
    more = low >> 7
    raw = (low & 0x7F) | (high << 7 if more != 0 else 0)
    return at + 1 + more + (raw >> 1), raw & ~_EVEN


@register_jitable
def _guess(text: int, row: int, stop: int, at: int, limit: int, end: int, length: int, lane: int, start: int) -> tuple[int, int]:
    """Hop over the records that are as long as the one before, all lanes together; row and position of the next one."""
    right = WARP
    while right == WARP:
        mine, wrong = at + lane * length, 1
        if row + lane < stop and mine <= limit:
            following, wrong = _short(text, mine)
            if following > end or following != mine + length:
                wrong = 1
        found = votes(wrong == 0)
        right = ones(found & ~(found + 1))
        if lane < right and start != 0:
            store32(start + 4 * (row + lane), mine)
        row += right
        at += right * length
    return row, at


@register_jitable
def _hop_to(
    layout: int, wrapped: int, row: int, stop: int, at: int, limit: int, end: int, length: int, text: int, start: int
) -> tuple[int, int, int, int]:
    """Hop from the record at ``at``, of ``row``, until one begins after ``limit``.

    ``length``: of the record before.
    ``text``: where the byte at position 0 of the payload would be in the window.
    Returns ``row``, ``at``, ``code``, ``length``: of the next record, and the length of the one before it.
    """
    varints, code = has_varints(layout), _OK
    while row < stop and at <= limit:
        if varints:
            row, at, length = _hop_short(text, row, stop, at, limit, end, length, start)
            if row == stop or at > limit:
                break
        code, following = layouts.hop(layout, text, at, end, wrapped)
        if code != _OK:
            break
        if start != 0:
            store32(start + 4 * row, at)
        length = following - at
        at = following
        row += 1
    return row, at, code, length


@register_jitable
def _hop_short(text: int, row: int, stop: int, at: int, limit: int, end: int, length: int, start: int) -> tuple[int, int, int]:
    """Hop from record to record while lengths have one or two bytes and are right; returns as `_hop_to`."""
    to, last = start + 4 * row, start + 4 * stop
    while to < last and at <= limit:
        following, wrong = _short(text, at)
        if wrong != 0 or following > end:
            break
        if start != 0:
            store32(to, at)
        length = following - at
        at = following
        to += 4
    return (to - start) >> 2, at, length


SLICES = 16
FEW = 4096
"""With fewer batches than this, each gets a warp or more: fewer threads would leave most of a device idle."""
LARGE = 128 << 10
"""Bytes of a batch, on the average, from which on it is cut into slices."""
LONG = 2048
"""Bytes of a record, on the average, from which on guesses take longer than they save."""
_LOG_SLICES = SLICES.bit_length() - 1
_MOST_ROWS = 2**31 - 1
_SEARCHED = 4 * LONG
_PART = 24
"""Bytes of what a warp knows of its slice: where the first record begins, how many do, and where the first one after them begins."""
_ALL_ROOMS, _PARTS = SLICES * ROOM, SLICES * _PART


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
    windows = address_of(kernel.shared_array(_ALL_ROOMS, np.uint8))
    known = address_of(kernel.shared_array(_PARTS, np.uint8))
    lane, own = kernel.thread_of_block() % WARP, kernel.thread_of_block() // WARP
    for b in range(kernel.block_of_grid(), n // SLICES, kernel.blocks_of_grid()):
        _hop_in_slices(b, lane, own, windows + own * ROOM, known, a)
        # What this batch was known by is not needed any more.
        kernel.wait_for_block()


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
    kernel.wait_for_block()
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
    record = v2.fields(buf, at, end, skip)
    return record.code == _OK and (record.header_count > 0 or record.headers == record.next), record.next, record.offset_delta
