"""Finds the compressed blocks of payloads on the device, by the framing functions of `kolumn.formats.codecs`.

`frame`: a thread per payload follows its blocks, which have slots of its own, as many as it may need:

    payload i    | header | block | block | end |        slots     | block | block |    |    | payload i + 1 ...
                                                         count i   2, or -1: that is for the codecs of the CPU

`members`: a warp per payload looks for a second gzip header in it, since nvCOMP takes one member. Bound: a sector for each block header and
its latency; of gzip the bytes of the payloads, read once.
"""

from dataclasses import dataclass

import numpy as np

import kolumn.formats.codecs.known  # noqa: F401 (the framings as compiled functions first)
from kolumn.core.arrays import AnyArray, Bytes, Flags, Int64s
from kolumn.core.deferred import register_jitable
from kolumn.formats.codecs import DEFLATE, END, GZIP, ZSTD_FRAME, known
from kolumn.formats.codecs.gzip import LEAST_MEMBER
from kolumn.formats.memory import load8, u32_little_at
from kolumn.formats.words import load64, store32, store64
from kolumn.kernels.check import LEAST
from kolumn.kernels.machine.kernel import Arguments, arguments, thread_per_item, warp_per_item
from kolumn.kernels.machine.runtime import Memory, Runtime

BLOCK = np.dtype([(name, np.int64) for name in ("payload", "kind", "source", "stop", "bound", "more")])
"""A block: number of its payload, its codec, device addresses of its first byte and after its last, the most bytes that it
decompresses to, and of a gzip member the CRC-32 of these, of a zstd frame whether the bytes are exactly as many."""
SLOT_BYTES = 1024
"""Bytes of a payload for each of its slots after the first two. Clients write blocks of 32 KiB and more, which seldom become so small."""
_ROW = BLOCK.itemsize
_CHECKSUM, _SIZED = 0x04, 0xE0
"""Bits of a zstd frame's descriptor: it has a content checksum; it may have a content size."""
_ONES, _TOPS = 0x0101010101010101, -0x7F7F7F7F7F7F7F80
_EIGHT, _MAGIC = 0x08 * _ONES, 0x8B * _ONES - (1 << 64)
Frame = arguments(__name__, "Frame", "start size codec magic limit first blocks counts")
"""Arguments of `frame` and `members`: addresses.

``start``, ``size``, ``codec``, ``magic``, ``limit``: int64 of each payload: where it begins, bytes, codec, format of its entry, and how
    many bytes it may decompress to.
``first``: int64 of n + 1: number of the first slot of each.
``blocks``: out: a `BLOCK` for each slot.
``counts``: out: int32 of each payload: how many blocks it has, or -1.
"""


@thread_per_item(Frame, block=64)
def frame(i: int, a: Arguments) -> None:
    """List the blocks of payload ``i``."""
    at, codec, limit = load64(a.start + 8 * i), load64(a.codec + 8 * i), load64(a.limit + 8 * i)
    end, slot, last = at + load64(a.size + 8 * i), load64(a.first + 8 * i), load64(a.first + 8 * (i + 1))
    flaw, place, state = known.header(codec, 0, at, end, load64(a.magic + 8 * i))
    total, count = 0, 0
    while flaw == 0:
        flaw, place, source, stop, bound, kind = known.block(codec, 0, place, end, state)
        total += bound
        if flaw != 0 or kind == END:
            break
        more = 0
        if kind == ZSTD_FRAME:
            # nvCOMP does not compare the content checksum, and neither do we: hardly a client writes one.
            flaw, more = load8(0, source + 4) & _CHECKSUM, load8(0, source + 4) & _SIZED
        elif kind == DEFLATE:
            if end - at <= LEAST_MEMBER:
                flaw = 1
                break
            # A gzip member as a whole; the kernel for checksums takes no fewer bytes than that.
            source, bound, more = at, u32_little_at(0, end - 4), u32_little_at(0, end - 8)
            flaw = 1 if bound < LEAST or bound > limit else 0
        if flaw != 0 or total > limit or slot == last:
            flaw = 1
            break
        row = a.blocks + _ROW * slot
        store64(row, i)
        store64(row + 8, kind)
        store64(row + 16, source)
        store64(row + 24, stop)
        store64(row + 32, bound)
        store64(row + 40, more)
        slot += 1
        count += 1
        if known.is_whole(codec, state):
            break
    store32(a.counts + 4 * i, count if flaw == 0 else -1)


@warp_per_item(Frame)
def members(i: int, lane: int, lanes: int, a: Arguments) -> None:
    """Leave payload ``i`` to the CPU if another gzip header may begin in it."""
    if load64(a.codec + 8 * i) != GZIP:
        return
    first = load64(a.start + 8 * i) + 3
    end = first - 3 + load64(a.size + 8 * i)
    at = (first & -8) + 8 * lane
    while at < end:
        word = load64(at)
        # Bytes of 08 after one of 8B, in this word or before it; others than these may be called so, too.
        ends, before = _bytes_of(word, _EIGHT), _bytes_of(word, _MAGIC)
        if ends & (before << 8 | 0x80) != 0:
            for k in range(8):
                place = at + k
                if first + 2 <= place < end and load8(0, place) == 0x08 and load8(0, place - 1) == 0x8B and load8(0, place - 2) == 0x1F:
                    store32(a.counts + 4 * i, -1)
        at += 8 * lanes


@register_jitable
def _bytes_of(word: int, byte: int) -> int:
    """The top bit of each byte of a word that equals that of ``byte``, and of some above them."""
    other = word ^ byte
    return (other - _ONES) & ~other & _TOPS


@dataclass
class Framing:
    """Blocks that the device is listing; ``wanted`` is to be downloaded."""

    wanted: list[tuple[Memory, int, int]]
    first: Int64s

    @classmethod
    def begin(cls, device: Runtime, start: Int64s, size: Int64s, codec: Int64s, magic: Int64s, limit: Int64s) -> "Framing":
        """Launch it for payloads, by what `Frame` says of them; does not wait. Bytes after the last one may be read, fewer than 8."""
        n, first = len(start), np.concatenate([[0], np.cumsum(2 + size // SLOT_BYTES)])
        given = device.upload(np.concatenate([start, size, codec, magic, limit, first]).astype(np.int64))
        blocks, counts = device.pieces([_ROW * int(first[-1]), 4 * n])
        args = Frame(*(given.address + 8 * n * k for k in range(6)), blocks, counts)
        device.launch(frame, n, args)
        if (codec == GZIP).any():
            device.launch(members, n, args)
        return cls([(counts, counts.size, 0), (blocks, blocks.size, 0)], first)

    def finish(self, counts: Bytes, blocks: Bytes) -> tuple[AnyArray, Flags]:
        """What was downloaded as an array of `BLOCK`, and flags of the payloads that are for the CPU."""
        found = counts.view(np.int32).astype(np.int64)
        on_cpu, found = found < 0, np.maximum(found, 0)
        ends = np.cumsum(found)
        slots = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.first[:-1] - ends + found, found)
        return blocks.view(BLOCK)[slots], on_cpu
