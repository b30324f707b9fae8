"""Payloads move to their column: some neighbouring threads for each row. And the offsets and bitmaps of columns of bytes.

    source    ....xxxx|xxxxxxxx|xxxxxxxx|xxx......        anywhere
    target    .xxx|xxxx|xxxx|xxxx|xxxx|xx.........        whole words from the first multiple of their size on
               head  lane 0, lane 1, ...        tail

A lane stores whole words; each comes from the two aligned words of the source that its bytes are in, shifted together. Bytes before the
first whole word and after the last are stored one by one, since others write their neighbours; there are fewer of them than lanes.
`gather` has 8 lanes and words of 8 bytes, `gather_short` 4 and 4: a lane does little for a short payload, so few of them should.

Bound: every byte read once and written once.

    lengths   | 3 | -1 | 0 | 5 | ...     ends   | 0 | 3 | 3 | 3 | 8 | ...     after a running sum over `sizes`
                                         validity   0b..1101                  bit 0 first, 32 rows a word
"""

from dataclasses import dataclass

import numpy as np

import kolumn.values.wire.compiled  # noqa: F401 (`store_word` as a compiled function first)
from kolumn.core.arrays import Bytes
from kolumn.core.deferred import register_jitable
from kolumn.formats import memory
from kolumn.formats.words import load32, load64, loadu32, shifted, store8, store32, store64
from kolumn.kernels.fields.records import DevicePayloads, DeviceRecords, Headers, headers
from kolumn.kernels.machine.kernel import Arguments, arguments, thread_per_item, warp_per_item
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.values.wire.columns import store_word

SHORT = 24
"""Bytes of a row, on the average, up to which `gather_short` is faster."""
Gather = arguments(__name__, "Gather", "source ends target")
"""Arguments of `gather`; addresses. ``source`` (int64) says where each payload is, ``ends`` (int32 of n + 1) where it goes in ``target``.
Sources may be read up to eight bytes beyond either end, and within the multiples of eight around them."""


@warp_per_item(Gather, lanes=8)
def gather(i: int, lane: int, lanes: int, a: Arguments) -> None:
    """Copy the payload of row ``i``."""
    begin, end = load32(a.ends + 4 * i), load32(a.ends + 4 * (i + 1))
    _move(load64(a.source + 8 * i), a.target + begin, a.target + end, lane, lanes)


@warp_per_item(Gather, lanes=4)
def gather_short(i: int, lane: int, lanes: int, a: Arguments) -> None:
    """Copy the payload of row ``i``, which should be short."""
    begin, end = load32(a.ends + 4 * i), load32(a.ends + 4 * (i + 1))
    move_short(load64(a.source + 8 * i), a.target + begin, a.target + end, lane, lanes)


@register_jitable
def move_short(source: int, target: int, stop: int, lane: int, lanes: int) -> None:
    """Copy bytes to [target, stop) by words of four, with four lanes at least."""
    first = min((target + 3) & -4, stop)
    words_end, shift = max(stop & -4, first), source - target
    _edges(source, target, first, words_end, stop, lane)
    skew, at = (first + shift) & 3, first + 4 * lane
    while at < words_end:
        place = at + shift - skew
        store32(at, (loadu32(place) | (loadu32(place + 4) << 32)) >> (8 * skew))
        at += 4 * lanes


Copy = arguments(__name__, "Copy", "source target size")
"""Arguments of `copy`: addresses of int64 ``source`` and ``target`` addresses and sizes."""


@warp_per_item(Copy)
def copy(i: int, lane: int, lanes: int, a: Arguments) -> None:
    """Copy piece ``i``."""
    target = load64(a.target + 8 * i)
    _move(load64(a.source + 8 * i), target, target + load64(a.size + 8 * i), lane, lanes)


@register_jitable
def _move(source: int, target: int, stop: int, lane: int, lanes: int) -> None:
    """Copy bytes to [target, stop) by words of eight."""
    first = min((target + 7) & -8, stop)
    words_end, shift = max(stop & -8, first), source - target
    _edges(source, target, first, words_end, stop, lane)
    skew, at = (first + shift) & 7, first + 8 * lane
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


_NONE, _MOST_MS = -1, (2**63 - 1) // 1000
Sizes = arguments(__name__, "Sizes", "lengths ends")
"""Arguments of `sizes`: int32 ``lengths``, -1 for null, and ``ends``, int32 of n + 1: 0 and the bytes of each row."""


@thread_per_item(Sizes)
def sizes(i: int, a: Arguments) -> None:
    """Write the bytes of row ``i``, from which a running sum makes offsets."""
    if i == 0:
        store32(a.ends, 0)
    store32(a.ends + 4 * (i + 1), max(load32(a.lengths + 4 * i), 0))


Validity = arguments(__name__, "Validity", "lengths rows bitmap nulls")
"""Arguments of `validity`: int32 ``lengths`` of ``rows`` rows, the ``bitmap``, and ``nulls``, int32 of n, how many each word has."""


@thread_per_item(Validity)
def validity(word: int, a: Arguments) -> None:
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


Microseconds = arguments(__name__, "Microseconds", "milliseconds target lengths")
"""Arguments of `microseconds`: int64 ``milliseconds``, int64 ``target``, and int32 ``lengths`` for `validity`: -1 where null."""


@thread_per_item(Microseconds)
def microseconds(i: int, a: Arguments) -> None:
    """-1, no timestamp, becomes null, and so does what 64 bits of microseconds can't hold."""
    ms = load64(a.milliseconds + 8 * i)
    null = ms == _NONE or ms > _MOST_MS or ms < -_MOST_MS
    store64(a.target + 8 * i, 0 if null else ms * 1000)
    store32(a.lengths + 4 * i, -1 if null else 0)


Repeat = arguments(__name__, "Repeat", "source stride owner target width")
"""Arguments of `repeat`: an int64 of each batch at ``source``, ``stride`` bytes apart; int32 ``owner`` of each row. ``target`` has
``width`` bytes for each row."""


@thread_per_item(Repeat)
def repeat(i: int, a: Arguments) -> None:
    """Write a field of row ``i``'s batch."""
    value = load64(a.source + a.stride * load32(a.owner + 4 * i))
    store_word(a.target + a.width * i, value, a.width)


NotAscii = arguments(__name__, "NotAscii", "data size found")
"""Arguments of `not_ascii`: ``size`` bytes at ``data``, and ``found``, int32, zero before."""
_TOPS = -0x7F7F7F7F7F7F7F80


@thread_per_item(NotAscii)
def not_ascii(i: int, a: Arguments) -> None:
    """Note whether one of eight bytes is above 127. Bytes after the last one may be read."""
    word, left = load64(a.data + 8 * i), a.size - 8 * i
    if word & _TOPS != 0:
        for k in range(min(left, 8)):
            if (word >> (8 * k)) & 0x80 != 0:
                store32(a.found, 1)


@dataclass
class Binary:
    """A column of bytes on the device: ``ends`` (int32 of rows + 1), ``data``, and a validity bitmap in words of 32 rows."""

    ends: Memory
    data: Memory
    bitmap: Memory
    rows: int
    size: int
    nulls: int


@dataclass
class Measured:
    """A column of bytes before its payloads are moved: offsets and validity are being written, their sums are to be downloaded."""

    payloads: DevicePayloads
    ends: Memory
    bitmap: Memory
    nulls: Memory

    @property
    def wanted(self) -> list[tuple[Memory, int, int]]:
        """What to download: the bytes of the column, and how many rows are null."""
        rows = self.payloads.count
        return [(self.ends, 4, 4 * rows), (self.nulls, 4, 4 * max(_words(rows) - 1, 0))]


def _words(rows: int) -> int:
    return -(-rows // 32)


def number_of(downloaded: Bytes) -> int:
    return int(downloaded.view(np.int32)[0])


def measure(device: Runtime, payloads: DevicePayloads) -> Measured:
    """Begin a column of bytes; does not wait. The sum of the lengths is less than 2 GiB: the payloads of a run of batches are."""
    n = payloads.count
    ends, bitmap, nulls = device.pieces([4 * (n + 1), 4 * _words(n), max(4 * _words(n), 4)], zeros=not n)
    _write_ends(device, payloads.length, n, ends)
    _write_bitmap(device, payloads.length, n, bitmap, nulls)
    return Measured(payloads, ends, bitmap, nulls)


def moved(device: Runtime, measured: Measured, size: int, nulls: int) -> Binary:
    """Copy the payloads into the column that was begun, whose sums are ``size`` and ``nulls``."""
    payloads, data = measured.payloads, device.empty(size)
    faster = gather_short if size <= SHORT * payloads.count else gather
    device.launch(faster, payloads.count, Gather(payloads.at, measured.ends, data))
    return Binary(measured.ends, data, measured.bitmap, payloads.count, size, nulls)


def begin_ends(device: Runtime, lengths: Memory, rows: int) -> Memory:
    """Offsets of a column (int32 of rows + 1) by the lengths of its rows; does not wait. The last of them is the bytes of the column."""
    ends = device.empty(4 * (rows + 1)) if rows else device.zeros(4)
    _write_ends(device, lengths, rows, ends)
    return ends


def _write_ends(device: Runtime, lengths: Memory, rows: int, ends: Memory) -> None:
    device.launch(sizes, rows, Sizes(lengths, ends))
    device.running_sum(ends, rows + 1, 4)


def _write_bitmap(device: Runtime, lengths: Memory, rows: int, bitmap: Memory, nulls: Memory) -> None:
    words = _words(rows)
    device.launch(validity, words, Validity(lengths, rows, bitmap, nulls))
    if words:
        device.running_sum(nulls, words, 4)


def begin_bitmap(device: Runtime, lengths: Memory, rows: int) -> tuple[Memory, tuple[Memory, int, int]]:
    """Validity bitmap by the lengths of rows, and what to download: how many are null. Does not wait."""
    words = _words(rows)
    bitmap, nulls = device.pieces([4 * words, max(4 * words, 4)], zeros=not rows)
    _write_bitmap(device, lengths, rows, bitmap, nulls)
    return bitmap, (nulls, 4, 4 * max(words - 1, 0))


def headers_of(device: Runtime, records: DeviceRecords) -> tuple[Memory, DevicePayloads, DevicePayloads]:
    """List offsets of the headers' column (int32 of rows + 1), keys and values of the headers."""
    ends = begin_ends(device, records.headers, records.rows)
    return ends, *header_parts(device, records, ends, number_of(device.download(ends, 4, 4 * records.rows)))


def header_parts(device: Runtime, records: DeviceRecords, ends: Memory, total: int) -> tuple[DevicePayloads, DevicePayloads]:
    """Keys and values of the headers, whose list offsets are ``ends``; does not wait."""
    key, key_length, value, value_length = device.pieces([8 * total, 4 * total, 8 * total, 4 * total])
    device.launch(headers, records.rows if total else 0, Headers(records.header, ends, key, key_length, value, value_length))
    return DevicePayloads(key, key_length, total), DevicePayloads(value, value_length, total)
