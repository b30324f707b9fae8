"""Checksums of entries: a warp for each, or for a slice of one, every byte read once, 128 bytes at a time.

    address    a & ~127                                                          end
               |........xxxx|xxxxxxxxxxxx|xxxxxxxxxxxx|xxxxxxxxxxxx|xxxxx.......|
    row         0            1            2            3            4
    lane l reads word l of each row, so a row is one transaction of 128 bytes; bytes outside of the entry count as zeros

A checksum is linear: that of the whole is the sum (XOR) of those of its words, each moved to its place. One step of a lane moves
its register over the 124 bytes of the other lanes and its own four, by four look-ups in shared memory; at the end lane l has
31 - l words less to its right, and the zeros after ``end`` are taken back by multiplying with a negative power of x. Leading
zeros change nothing, and the register's initial value, all ones, equals inverting the first four bytes; another one (`table.CRC_SEED`)
is added to them alike.

Few large entries would leave most of a device idle. So each is cut into slices of whole rows, and the register of a slice is moved
over the rows after it: multiplied by x^1024 for each, by digits of six bits, whose powers are in a table. `join` adds the slices up.

Bound: the bytes of the entries, read once; four look-ups for four bytes.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kolumn.core.deferred import register_jitable
from kolumn.formats import crc, layouts, table
from kolumn.formats.words import load64, loadu32, store32
from kolumn.kernels.machine import kernel
from kolumn.kernels.machine.kernel import WARP, Arguments, arguments, blocks, thread_per_item
from kolumn.kernels.machine.runtime import Memory, Runtime

LEAST = 4
"""No entry may have fewer bytes under its checksum."""
ROW = 4 * WARP
WARPS = 132 * 40
"""Warps that should have something to do: as many as run at once on the largest device that is known here."""
MOST_SLICES = 64
SLICE_ROWS = 128
"""Rows of a slice at least: 16 KiB, since each takes as long as some KiB do."""
_STEPS = 4 * 256
_DIGITS, _DIGIT_BITS = 4, 6
_MOVES = _DIGITS << _DIGIT_BITS
_LOW_DIGIT, _DIGIT_BYTES = (1 << _DIGIT_BITS) - 1, 4 << _DIGIT_BITS
WORDS = _STEPS + WARP + ROW + _MOVES
"""Words of the tables of one polynomial: the step, the place of each lane, what undoes 0 to 127 zeros, and what moves over rows."""
_ALL_LANES, _ONES, _LOG_ROW, _ALL_STEPS = 0xFFFFFFFF, 0xFFFFFFFF, 7, 2 * _STEPS
_Steps = NDArray[np.uint32]


@cache
def tables() -> Any:
    """The kernel's look-up tables: uint32 of 2 * `WORDS`, first for CRC-32C, then for CRC-32."""
    both: list[Any] = []
    for polynomial in (crc.CASTAGNOLI, crc.IEEE):
        lanes = [crc.power_of_x(32 * (WARP - lane), polynomial) for lane in range(WARP)]
        pads = [crc.power_of_x(-8 * zeros, polynomial) for zeros in range(ROW)]
        rows = [value << (_DIGIT_BITS * digit) for digit in range(_DIGITS) for value in range(1 << _DIGIT_BITS)]
        moves = [crc.power_of_x(8 * ROW * count, polynomial) for count in rows]
        both += [crc.shift_tables(ROW, polynomial).ravel(), lanes, pads, moves]
    return np.concatenate(both).astype(np.uint32)


Check = arguments(__name__, "Check", "rows source tables bad slices shares")
"""Arguments of `check`; addresses.

``rows``: the batch table, int64 of shape (n, `table.WIDTH`).
``source``: where the byte at position 0 of the segment would be. The loaded bytes begin at a multiple of 128, and 128 bytes after the
    last entry may be read.
``tables``: `tables`.
``bad``: out: int32 of n, 1 where the checksum is not that of the bytes.
``slices``: items for each entry, which small ones do not all need.
``shares``: out, if there are more slices than one: int32 for each item, what its slice adds to the register of the entry.
"""


def compare_checksums(device: Runtime, batches: Memory, count: int, source: int) -> Memory:
    """Launch what compares the checksums of entries; does not wait.

    ``batches``: the batch table, int64 of shape (count, `table.WIDTH`).
    ``count``: at least 1.
    ``source``: device address at which position 0 of the segment would be.
    Returns int32 of ``count``, not 0 where the checksum is wrong.
    """
    if "checksums" not in device.kept:
        # Never replaced: another thread may be using its address.
        device.kept.setdefault("checksums", device.upload(tables()))
    slices = min(-(-WARPS // count), MOST_SLICES)
    bad, shares = device.empty(4 * count), device.empty(4 * count * slices if slices > 1 else 0)
    args = Check(batches, source, device.kept["checksums"], bad, slices, shares)
    device.launch(check, count * slices, args)
    if slices > 1:
        device.launch(join, count, args)
    return bad


@register_jitable
def _step(steps: _Steps, first: int, register: int, word: int) -> int:
    """Register after one row."""
    moved = (
        np.int64(steps[first + (register & 0xFF)])
        ^ np.int64(steps[first + 256 + ((register >> 8) & 0xFF)])
        ^ np.int64(steps[first + 512 + ((register >> 16) & 0xFF)])
        ^ np.int64(steps[first + 768 + ((register >> 24) & 0xFF)])
    )
    return int(word ^ moved)


@register_jitable
def lane_register(start: int, end: int, begun: int, row: int, stop: int, lane: int, steps: _Steps, first: int) -> int:
    """Register of a lane over its words of the rows [row, stop) of an entry with bytes [start, end), for which the whole register is
    ``begun`` at first; ``steps[first:]`` are its tables."""
    register, at, inner, stop = 0, row + 4 * lane, min(stop, end) + 4 * lane, stop + 4 * lane
    # All lanes do the same number of rows in each loop, so that they stay together. First those with the bytes that are inverted.
    while at < stop and at < start + 4 + 4 * lane:
        register = _step(steps, first, register, _inside(loadu32(at), at, start, end, begun))
        at += ROW
    # Four loads before the first is used: each would wait for memory by itself.
    while at + 4 * ROW <= inner:
        w0, w1 = loadu32(at), loadu32(at + ROW)
        w2, w3 = loadu32(at + 2 * ROW), loadu32(at + 3 * ROW)
        register = _step(steps, first, register, w0)
        register = _step(steps, first, register, w1)
        register = _step(steps, first, register, w2)
        register = _step(steps, first, register, w3)
        at += 4 * ROW
    while at < stop:
        word = loadu32(at)
        if at + 4 > end:
            word = _inside(word, at, start, end, begun)
        register = _step(steps, first, register, word)
        at += ROW
    return int(register)


@register_jitable
def _inside(word: int, at: int, start: int, end: int, begun: int) -> int:
    """A word without its bytes outside of [start, end), and with the register at the beginning added to the first four."""
    kept = 0
    for k in range(4):
        byte = (word >> (8 * k)) & 0xFF
        place = at + k
        if start <= place < end:
            kept |= (byte ^ ((begun >> (8 * (place - start))) & 0xFF) if place < start + 4 else byte) << (8 * k)
    return kept


@register_jitable
def _covered(a: Arguments, i: int) -> tuple[int, int, int, int]:
    """Start and end of the bytes under the checksum of entry ``i``, the start of their first row, and the number of rows."""
    row = a.rows + 8 * table.WIDTH * i
    position = a.source + load64(row + 8 * table.POSITION)
    start, end = position + load64(row + 8 * table.CRC_FROM), position + load64(row + 8 * table.SIZE)
    first = start & -ROW
    return start, end, first, (end - first + ROW - 1) >> _LOG_ROW


@register_jitable
def _rows_of(a: Arguments, item: int, i: int, count: int) -> tuple[int, int]:
    """Which of the ``count`` rows of entry ``i`` an item is about: the first, and the one after the last."""
    if a.slices == 1:
        return 0, count
    number, slices = item - i * a.slices, max(min(count // SLICE_ROWS, a.slices), 1)
    if number >= slices:
        return count, count
    return count * number // slices, count * (number + 1) // slices


@register_jitable
def lane_share(a: Arguments, item: int, lane: int, steps: _Steps) -> int:
    """What one lane adds to the register of a slice."""
    i = item if a.slices == 1 else item // a.slices
    start, end, row, count = _covered(a, i)
    begin, stop = _rows_of(a, item, i, count)
    if begin == stop:
        return 0
    row, stop = row + (begin << _LOG_ROW), row + (stop << _LOG_ROW)
    entry = a.rows + 8 * table.WIDTH * i
    begun = load64(entry + 8 * table.CRC_SEED) ^ _ONES
    if layouts.has_castagnoli(load64(entry + 8 * table.LAYOUT)):
        place = loadu32(a.tables + 4 * (_STEPS + lane))
        return crc.multiply(place, lane_register(start, end, begun, row, stop, lane, steps, 0), crc.CASTAGNOLI)
    place = loadu32(a.tables + 4 * (WORDS + _STEPS + lane))
    return crc.multiply(place, lane_register(start, end, begun, row, stop, lane, steps, _STEPS), crc.IEEE)


@register_jitable
def compare(a: Arguments, item: int, register: int) -> None:
    """Note whether the register of an entry equals its checksum; of a slice, what it adds to the entry's."""
    if a.slices == 1:
        _judge(a, item, register)
        return
    i = item // a.slices
    _, _, _, count = _covered(a, i)
    _, stop = _rows_of(a, item, i, count)
    if layouts.has_castagnoli(load64(a.rows + 8 * (table.WIDTH * i + table.LAYOUT))):
        moved = _moved(a.tables, count - stop, register, crc.CASTAGNOLI)
    else:
        moved = _moved(a.tables + 4 * WORDS, count - stop, register, crc.IEEE)
    store32(a.shares + 4 * item, moved)


@register_jitable
def _moved(tables: int, rows: int, register: int, polynomial: int) -> int:
    """A register moved over some rows of zeros; ``tables`` are those of the polynomial."""
    digits = tables + 4 * (_STEPS + WARP + ROW)
    while rows != 0:
        digit = rows & _LOW_DIGIT
        if digit != 0:
            register = crc.multiply(loadu32(digits + 4 * digit), register, polynomial)
        rows >>= _DIGIT_BITS
        digits += _DIGIT_BYTES
    return register


@register_jitable
def _judge(a: Arguments, i: int, register: int) -> None:
    """Note whether the register of the whole entry equals its checksum."""
    row = a.rows + 8 * table.WIDTH * i
    zeros = -(a.source + load64(row + 8 * table.POSITION) + load64(row + 8 * table.SIZE)) & (ROW - 1)
    if layouts.has_castagnoli(load64(row + 8 * table.LAYOUT)):
        found = crc.multiply(loadu32(a.tables + 4 * (_STEPS + WARP + zeros)), register, crc.CASTAGNOLI)
    else:
        found = crc.multiply(loadu32(a.tables + 4 * (WORDS + _STEPS + WARP + zeros)), register, crc.IEEE)
    store32(a.bad + 4 * i, 0 if found ^ 0xFFFFFFFF == load64(row + 8 * table.CRC) else 1)


@blocks(Check, registers=64)
def check(n: int, a: Arguments) -> None:
    """Compare the checksums of entries, ``n`` slices of them."""
    steps = kernel.shared_array(_ALL_STEPS, np.uint32)
    thread = kernel.thread_of_block()
    for k in range(thread, _STEPS, kernel.threads_of_block()):
        steps[k] = loadu32(a.tables + 4 * k)
        steps[_STEPS + k] = loadu32(a.tables + 4 * (WORDS + k))
    kernel.wait_for_block()
    lane, item = thread % WARP, kernel.thread_of_grid() // WARP
    warps = kernel.threads_of_grid() // WARP
    while item < n:
        register = lane_share(a, item, lane, steps)
        for distance in (16, 8, 4, 2, 1):
            register ^= kernel.from_lane_xor(register, distance)
        if lane == 0:
            compare(a, item, register & _ALL_LANES)
        item += warps


@thread_per_item(Check)
def join(i: int, a: Arguments) -> None:
    """Compare the checksum of entry ``i``, of which each slice has been added up."""
    register = 0
    for item in range(i * a.slices, (i + 1) * a.slices):
        register ^= loadu32(a.shares + 4 * item)
    _judge(a, i, register)
