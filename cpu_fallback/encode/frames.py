"""Compresses payloads as lz4 frames by a C library, without a call of Python for each."""

from kolumn.cpu_fallback.machine.address import call, copy_padded, store32, store64
from kolumn.cpu_fallback.machine.arrays import Int64s
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats.codecs.lz4 import STORED_BIT

BLOCK = 64 << 10
"""Bytes of a block before compression."""
BOUND = BLOCK + BLOCK // 255 + 16
"""Most bytes that liblz4 writes for a block."""
HEADER, END = 7, 4


@compiled
def lz4_frames(source: Int64s, size: Int64s, gap: Int64s, header: int, function: int, target: int, made: Int64s) -> int:
    """Write frames of independent blocks, of which only the header has a checksum (``Lz4BlockOutputStream``); returns the bytes from
    ``target`` on.

    ``source`` and ``size`` are addresses and sizes of the payloads; ``gap`` bytes are left free before each frame; ``made`` gets the sizes
    of the frames. ``header`` has `HEADER` bytes, the first one lowest; ``function`` is the address of ``LZ4_compress_default``. At
    ``target`` there is memory for all gaps and frames, if no block gets smaller, and for `BOUND` more bytes."""
    to = target
    for b in range(source.shape[0]):
        to += gap[b]
        start = to
        store64(to, header)
        to += HEADER
        done = 0
        while done < size[b]:
            plain = min(size[b] - done, BLOCK)
            # The function returns an int, so the upper half of the word is undefined.
            packed = call(function, (source[b] + done, to + 4, plain, BOUND)) & 0xFFFFFFFF
            if packed == 0 or packed >= plain:
                copy_padded(to + 4, source[b] + done, plain)
                store32(to, plain | STORED_BIT)
                packed = plain
            else:
                store32(to, packed)
            to += 4 + packed
            done += plain
        store32(to, 0)
        to += END
        made[b] = to - start
    return to - target
