"""The small steps between records and columns: a thread per row, or per word of a bitmap.

lengths     | 3 | -1 | 0 | 5 | ...          ends      | 0 | 3 | 3 | 3 | 8 | ...     after a running sum over `sizes`
                                            validity  0b..1101                      bit 0 first, 32 rows a word
"""

from typing import NamedTuple

from kolumn.kernels.machine.kernel import thread_per_item
from kolumn.machine_code.deferred import register_jitable
from kolumn.machine_code.words import load32, load64, store8, store16, store32, store64

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
