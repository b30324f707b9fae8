"""Payloads move to their column: some neighbouring threads for each row.

    source    ....xxxx|xxxxxxxx|xxxxxxxx|xxx......        anywhere
    target    .xxx|xxxx|xxxx|xxxx|xxxx|xx.........        whole words from the first multiple of their size on
               head  lane 0, lane 1, ...        tail

A lane stores whole words; each comes from the two aligned words of the source that its bytes are in, shifted together. Where the source
is aligned as the target is, the second one is loaded for nothing, which costs less than to ask. The bytes before the first whole word
of the target and after the last are stored one by one, since others write their neighbours; there are fewer of them than lanes.

`gather` has 8 lanes and words of 8 bytes, `gather_short` 4 and 4: a lane does little for a short payload, so few of them should.

Bound: every byte read once and written once.

The small steps between records and columns: a thread per row, or per word of a bitmap.

lengths     | 3 | -1 | 0 | 5 | ...          ends      | 0 | 3 | 3 | 3 | 8 | ...     after a running sum over `sizes`
                                            validity  0b..1101                      bit 0 first, 32 rows a word
"""

from typing import NamedTuple

from kolumn.formats import memory
from kolumn.formats.machine_code.deferred import register_jitable
from kolumn.formats.machine_code.words import load32, load64, loadu32, shifted, store8, store16, store32, store64
from kolumn.kernels.machine.kernel import Kernel, thread_per_item, warp_per_item

SHORT = 24
"""Bytes of a row, on the average, up to which `gather_short` is faster."""


class Gather(NamedTuple):
    """Arguments of `gather`; addresses.

    ``source`` (int64) says where each payload is, ``ends`` (int32 of n + 1) where it goes in ``target``. Sources may be read up to
    eight bytes beyond either end, and within the multiples of eight around them.
    """

    source: int
    ends: int
    target: int


@warp_per_item(Gather, lanes=8)
def gather(i: int, lane: int, lanes: int, a: Gather) -> None:
    """Copy the payload of row ``i``."""
    begin, end = load32(a.ends + 4 * i), load32(a.ends + 4 * (i + 1))
    _move(load64(a.source + 8 * i), a.target + begin, a.target + end, lane, lanes)


@warp_per_item(Gather, lanes=4)
def gather_short(i: int, lane: int, lanes: int, a: Gather) -> None:
    """Copy the payload of row ``i``, which should be short."""
    begin, end = load32(a.ends + 4 * i), load32(a.ends + 4 * (i + 1))
    move_short(load64(a.source + 8 * i), a.target + begin, a.target + end, lane, lanes)


@register_jitable
def move_short(source: int, target: int, stop: int, lane: int, lanes: int) -> None:
    """Copy bytes to [target, stop) by words of four, with four lanes at least."""
    first = min((target + 3) & -4, stop)
    words_end = max(stop & -4, first)
    _edges(source, target, first, words_end, stop, lane)
    shift = source - target
    skew = (first + shift) & 3
    at = first + 4 * lane
    while at < words_end:
        place = at + shift - skew
        store32(at, (loadu32(place) | (loadu32(place + 4) << 32)) >> (8 * skew))
        at += 4 * lanes


def gather_for(size: int, rows: int) -> Kernel:
    """The faster one of the two for a column of ``size`` bytes."""
    return gather_short if size <= SHORT * rows else gather


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
    """Copy bytes to [target, stop) by words of eight."""
    first = min((target + 7) & -8, stop)
    words_end = max(stop & -8, first)
    _edges(source, target, first, words_end, stop, lane)
    shift = source - target
    skew = (first + shift) & 7
    at = first + 8 * lane
    # No `range` with a step: its number of turns takes more instructions than most payloads do.
    while at < words_end:
        place = at + shift - skew
        store64(at, shifted(load64(place), load64(place + 8), 8 * skew))
        at += 8 * lanes


@register_jitable
def _edges(source: int, target: int, first: int, words_end: int, stop: int, lane: int) -> None:
    """Copy the bytes of [target, first) and [words_end, stop)."""
    at = target + lane
    if at < first:
        store8(at, memory.load8(source, at - target))
    at = words_end + lane
    if at < stop:
        store8(at, memory.load8(source, at - target))


_NONE = -1
_MOST_MS = (2**63 - 1) // 1000


class Sizes(NamedTuple):
    """Arguments of `sizes`: int32 ``lengths``, -1 for null, and ``ends``, int32 of n + 1: 0 and the bytes of each row."""

    lengths: int
    ends: int


@thread_per_item(Sizes)
def sizes(i: int, a: Sizes) -> None:
    """Write the bytes of row ``i``, from which a running sum makes offsets."""
    if i == 0:
        store32(a.ends, 0)
    store32(a.ends + 4 * (i + 1), max(load32(a.lengths + 4 * i), 0))


class Validity(NamedTuple):
    """Arguments of `validity`: int32 ``lengths`` of ``rows`` rows, the ``bitmap``, and ``nulls``, int32 of n, how many each word has."""

    lengths: int
    rows: int
    bitmap: int
    nulls: int


@thread_per_item(Validity)
def validity(word: int, a: Validity) -> None:
    """Write 32 bits: 1 where a length is not negative; 1 after the last row too."""
    bits, nulls = 0, 0
    for k in range(32):
        row = 32 * word + k
        if row < a.rows and load32(a.lengths + 4 * row) < 0:
            nulls += 1
        else:
            bits |= 1 << k
    store32(a.bitmap + 4 * word, bits)
    store32(a.nulls + 4 * word, nulls)


class Microseconds(NamedTuple):
    """Arguments of `microseconds`: int64 ``milliseconds``, int64 ``target``, and int32 ``lengths`` for `validity`: -1 where null."""

    milliseconds: int
    target: int
    lengths: int


@thread_per_item(Microseconds)
def microseconds(i: int, a: Microseconds) -> None:
    """-1, no timestamp, becomes null, and so does what 64 bits of microseconds can't hold."""
    ms = load64(a.milliseconds + 8 * i)
    null = ms == _NONE or ms > _MOST_MS or ms < -_MOST_MS
    store64(a.target + 8 * i, 0 if null else ms * 1000)
    store32(a.lengths + 4 * i, -1 if null else 0)


class Repeat(NamedTuple):
    """Arguments of `repeat`: an int64 of each batch at ``source``, ``stride`` bytes apart; int32 ``owner`` of each row.

    ``target`` has ``width`` bytes for each row.
    """

    source: int
    stride: int
    owner: int
    target: int
    width: int


@thread_per_item(Repeat)
def repeat(i: int, a: Repeat) -> None:
    """Write a field of row ``i``'s batch."""
    value = load64(a.source + a.stride * load32(a.owner + 4 * i))
    store_word(a.target + a.width * i, value, a.width)


@register_jitable
def store_word(address: int, value: int, width: int) -> None:
    """The low ``width`` bytes of a value."""
    if width == 8:
        store64(address, value)
    elif width == 4:
        store32(address, value)
    elif width == 2:
        store16(address, value)
    else:
        store8(address, value)
