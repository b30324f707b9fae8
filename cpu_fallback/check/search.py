"""Searches damaged bytes for entries."""

from kolumn.cpu_fallback.check.checksums import checksum
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import crc, entry, layouts, legacy, memory
from kolumn.formats.codecs import LZ4
from kolumn.formats.machine_code.deferred import register_jitable

_OK = 0


@compiled
def candidate(
    buf: int, origin: int, at: int, stop: int, loaded: int, end: int, floor: int, ceiling: int, format: int, budget: int
) -> tuple[int, int]:
    """First position in [at, stop) whose bytes could be the header of an entry with the right checksum.

    `walk.HEADERS` bytes after each position must be readable; they may be padding. An entry must end at or before ``end``, its offset
    must be above ``floor`` and below ``ceiling``, and bits that no writer sets must be clear. The caller has to compare the checksums of
    entries that end after ``loaded``, and those of formats with frames of their own.

    Returns
    -------
    position : int
        ``stop`` if there is no such position.
    left : int
        Rest of ``budget``, the bytes that may be checksummed; entries that are larger than the rest are skipped.
    """
    base = buf - origin
    while at < stop:
        if is_plausible(base, at, end, floor, format) and memory.i64_at(base, at) < ceiling:
            if layouts.has_own_frame(format):
                return at, budget
            size = memory.i32_at(base, at + 8) + entry.OVERHEAD
            if size <= budget:
                if at + size > loaded:
                    return at, budget
                budget -= size
                if _intact(base, at, size, format):
                    return at, budget
        at += 1
    return stop, budget


@register_jitable
def _intact(base: int, at: int, size: int, format: int) -> bool:
    layout = layouts.layout_of(format, memory.load8(base, at + 16))
    stored = memory.u32_at(base, at + layouts.crc_at(layout))
    return checksum(layout, base, at + layouts.crc_from(layout), at + size) == stored


@compiled
def plausible(buf: int, origin: int, at: int, end: int, floor: int, format: int) -> bool:
    """Whether the bytes at ``at`` could be the header of an entry that ends at or before ``end`` and has an offset above ``floor``."""
    return is_plausible(buf - origin, at, end, floor, format)


@register_jitable
def is_plausible(base: int, at: int, end: int, floor: int, format: int) -> bool:
    """The same, with the address of the segment's first byte, for compiled code."""
    if layouts.has_own_frame(format):
        code, size = layouts.own_frame(format, base, at, end)
        if code == _OK:
            return memory.i64_at(base, at) > floor and layouts.plausible(layouts.own_layout(format), base, at, size)
    layout = layouts.layout_of(format, memory.load8(base, at + 16))
    if layout == layouts.NO_LAYOUT:
        return False
    size = memory.i32_at(base, at + 8)
    if size < legacy.SMALLEST_V0 or size > end - at - entry.OVERHEAD or memory.i64_at(base, at) <= floor:
        return False
    return layouts.plausible(layout, base, at, size)


@compiled
def wrapped(buf: int, origin: int, at: int, stop: int, floor: int, ceiling: int) -> int:
    """Highest offset, above ``floor`` and up to ``ceiling``, in bytes of [at, stop) that could be the header of a format 0 or 1 wrapper.

    ``floor`` if there is no such header. Its checksum is not compared, because this search is for damaged wrappers, whose codec may have
    stored messages uncompressed, with right checksums of their own.
    """
    base, highest = buf - origin, floor
    while at < stop:
        offset, magic, attributes = memory.i64_at(base, at), memory.load8(base, at + 16), memory.load8(base, at + 17)
        if highest < offset <= ceiling and magic <= 1 and attributes < 16 and 0 < attributes & 7 <= LZ4:
            key_at = at + legacy.HEADER + 8 * magic
            if memory.i32_at(base, key_at) == -1 and memory.i32_at(base, key_at + 4) > 0:
                highest = offset
        at += 1
    return highest


@compiled
def crc_match(buf: int, origin: int, at: int, stop: int, register: int, wanted: int, castagnoli: bool) -> tuple[int, int]:
    """Add bytes from ``at`` on to a CRC register until the CRC is ``wanted``.

    Returns
    -------
    position : int
        After the byte at which the CRC is ``wanted``, or -1 if there is no such byte before ``stop``.
    register : int
        To be passed to the next call.
    """
    table = crc.CRC32C if castagnoli else crc.CRC32
    target = wanted ^ 0xFFFFFFFF
    while at < stop:
        register = table[0, (register ^ memory.load8(buf - origin, at)) & 0xFF] ^ (register >> 8)
        at += 1
        if register == target:
            return at, register
    return -1, register
