"""Payloads move to their column: half a warp for each row.

    source    ....xxxx|xxxxxxxx|xxxxxxxx|xxx......        anywhere
    target    .xxx|xxxx|xxxx|xxxx|xxxx|xx.........        words of four bytes from the first multiple of four on
               head  lane 0, lane 1, ...        tail

A lane stores whole words; each comes from the two aligned words of the source that its bytes are in, shifted together. The bytes
before the first whole word of the target and after the last are stored one by one, since others write their neighbours.

Bound: every byte read once and written once.
"""

from typing import NamedTuple

from numba.extending import register_jitable

from kolumn.formats import memory
from kolumn.kernels.machine.kernel import warp_per_item
from kolumn.kernels.machine.words import load32, load64, loadu32, store8, store32


class Gather(NamedTuple):
    """Arguments of `gather`; addresses.

    ``source`` (int64) says where each payload is, ``ends`` (int32 of n + 1) where it goes in ``target``. Sources may be read up to
    seven bytes beyond either end, and within the multiples of four around them.
    """

    source: int
    ends: int
    target: int


@warp_per_item(Gather, lanes=16)
def gather(i: int, lane: int, lanes: int, a: Gather) -> None:
    """Copy the payload of row ``i``."""
    begin, end = load32(a.ends + 4 * i), load32(a.ends + 4 * (i + 1))
    _move(load64(a.source + 8 * i), a.target + begin, a.target + end, lane, lanes)


class Copy(NamedTuple):
    """Arguments of `copy`: addresses of int64 ``source`` and ``target`` addresses and sizes."""

    source: int
    target: int
    size: int


@warp_per_item(Copy)
def copy(i: int, lane: int, lanes: int, a: Copy) -> None:
    """Copy piece ``i``."""
    target = load64(a.target + 8 * i)
    _move(load64(a.source + 8 * i), target, target + load64(a.size + 8 * i), lane, lanes)


@register_jitable
def _move(source: int, target: int, stop: int, lane: int, lanes: int) -> None:
    words = min((target + 3) & -4, stop)
    behind = max(stop & -4, words)
    for at in range(target + lane, words, lanes):
        store8(at, memory.load8(source, at - target))
    shift = source - target
    for at in range(words + 4 * lane, behind, 4 * lanes):
        place = at + shift
        aligned = place & -4
        pair = loadu32(aligned)
        if place != aligned:
            pair |= loadu32(aligned + 4) << 32
        store32(at, pair >> (8 * (place - aligned)))
    for at in range(behind + lane, stop, lanes):
        store8(at, memory.load8(source, at - target))
