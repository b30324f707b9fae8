"""Checksums of entries: a warp for each, every byte read once, 128 bytes at a time.

    address    a & ~127                                                          end
               |........xxxx|xxxxxxxxxxxx|xxxxxxxxxxxx|xxxxxxxxxxxx|xxxxx.......|
    row         0            1            2            3            4
    lane l reads word l of each row, so a row is one transaction of 128 bytes; bytes outside of the entry count as zeros

A checksum is linear: that of the whole is the sum (XOR) of those of its words, each moved to its place. One step of a lane moves
its register over the 124 bytes of the other lanes and its own four, by four look-ups in shared memory; at the end lane l has
31 - l words less to its right, and the zeros after ``end`` are taken back by multiplying with a negative power of x. Leading
zeros change nothing, and the register's initial value, all ones, equals inverting the first four bytes.

Bound: the bytes of the entries, read once; four look-ups for four bytes.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.extending import register_jitable

from kolumn.formats import crc, layouts, table
from kolumn.kernels.machine.kernel import WARP, blocks
from kolumn.kernels.machine.words import load64, loadu32, store32

ROW = 4 * WARP
_STEPS, _LANES, _PADS = 4 * 256, WARP, ROW
WORDS = _STEPS + _LANES + _PADS
"""Words of the tables of one polynomial: the step, the place of each lane, and what undoes 0 to 127 zeros."""
_ALL_LANES, _LOG_ROW = 0xFFFFFFFF, 7
_ROW_BYTES, _ALL_WORDS, _ALL_STEPS = ROW, 2 * WORDS, 2 * _STEPS
_CASTAGNOLI, _IEEE = crc.CASTAGNOLI, crc.IEEE
_WIDTH, _POSITION, _SIZE, _CRC = table.WIDTH, table.POSITION, table.SIZE, table.CRC
_CRC_FROM, _LAYOUT = table.CRC_FROM, table.LAYOUT


@cache
def tables() -> Any:
    """The kernel's look-up tables: uint32 of 2 * `WORDS`, first for CRC-32C, then for CRC-32."""
    both: list[Any] = []
    for polynomial in (crc.CASTAGNOLI, crc.IEEE):
        lanes = [crc.power_of_x(32 * (WARP - lane), polynomial) for lane in range(WARP)]
        pads = [crc.power_of_x(-8 * zeros, polynomial) for zeros in range(ROW)]
        both += [crc.shift_tables(ROW, polynomial).ravel(), lanes, pads]
    return np.concatenate(both).astype(np.uint32)


class Check(NamedTuple):
    """Arguments of `check`; addresses.

    Attributes
    ----------
    rows : int
        The batch table, int64 of shape (n, `table.WIDTH`).
    source : int
        Where the byte at position 0 of the segment would be. The loaded bytes begin at a multiple of 128, and 128 bytes after the last
        entry may be read.
    tables : int
        `tables`.
    bad : int
        Out: int32 of n, 1 where the checksum is not that of the bytes.
    """

    rows: int
    source: int
    tables: int
    bad: int


@register_jitable
def lane_register(start: int, end: int, lane: int, steps: Any, first: int) -> int:
    """Register of one lane over bytes [start, end); ``steps[first:]`` are the tables of its step."""
    row = start & -_ROW_BYTES
    count = (end - row + _ROW_BYTES - 1) >> _LOG_ROW
    at = row + 4 * lane
    register: Any = 0
    for _ in range(count):
        word = loadu32(at)
        if at < start + 4 or at + 4 > end:
            word = _inside(word, at, start, end)
        register = word ^ (
            np.int64(steps[first + (register & 0xFF)])
            ^ np.int64(steps[first + 256 + ((register >> 8) & 0xFF)])
            ^ np.int64(steps[first + 512 + ((register >> 16) & 0xFF)])
            ^ np.int64(steps[first + 768 + ((register >> 24) & 0xFF)])
        )
        at += _ROW_BYTES
    return int(register)


@register_jitable
def _inside(word: int, at: int, start: int, end: int) -> int:
    """A word without its bytes outside of [start, end), and with those of the first four inverted."""
    kept = 0
    for k in range(4):
        byte = (word >> (8 * k)) & 0xFF
        place = at + k
        if start <= place < end:
            kept |= (byte ^ 0xFF if place < start + 4 else byte) << (8 * k)
    return kept


@register_jitable
def lane_share(a: Check, i: int, lane: int, steps: Any) -> int:
    """What one lane adds to the register of entry ``i``."""
    row = a.rows + 8 * _WIDTH * i
    position = a.source + load64(row + 8 * _POSITION)
    start, end = position + load64(row + 8 * _CRC_FROM), position + load64(row + 8 * _SIZE)
    if layouts.has_castagnoli(load64(row + 8 * _LAYOUT)):
        place = loadu32(a.tables + 4 * (_STEPS + lane))
        return crc.multiply(place, lane_register(start, end, lane, steps, 0), _CASTAGNOLI)
    place = loadu32(a.tables + 4 * (WORDS + _STEPS + lane))
    return crc.multiply(place, lane_register(start, end, lane, steps, _STEPS), _IEEE)


@register_jitable
def compare(a: Check, i: int, register: int) -> None:
    """Note whether the register of the whole entry equals its checksum."""
    row = a.rows + 8 * _WIDTH * i
    zeros = -(a.source + load64(row + 8 * _POSITION) + load64(row + 8 * _SIZE)) & (_ROW_BYTES - 1)
    if layouts.has_castagnoli(load64(row + 8 * _LAYOUT)):
        found = crc.multiply(loadu32(a.tables + 4 * (_STEPS + _LANES + zeros)), register, _CASTAGNOLI)
    else:
        found = crc.multiply(loadu32(a.tables + 4 * (WORDS + _STEPS + _LANES + zeros)), register, _IEEE)
    store32(a.bad + 4 * i, 0 if found ^ 0xFFFFFFFF == load64(row + 8 * _CRC) else 1)


@blocks(Check, registers=64)
def check(n: int, a: Check) -> None:
    """Compare the checksums of ``n`` entries."""
    steps = cuda.shared.array(_ALL_STEPS, np.uint32)
    thread = cuda.threadIdx.x
    for k in range(thread, _STEPS, cuda.blockDim.x):
        steps[k] = loadu32(a.tables + 4 * k)
        steps[_STEPS + k] = loadu32(a.tables + 4 * (WORDS + k))
    cuda.syncthreads()
    lane, at = thread % WARP, cuda.grid(1) // WARP
    for i in range(at, n, cuda.gridsize(1) // WARP):
        register = lane_share(a, i, lane, steps)
        for distance in (16, 8, 4, 2, 1):
            register ^= cuda.shfl_xor_sync(_ALL_LANES, register, distance)
        if lane == 0:
            compare(a, i, register)
