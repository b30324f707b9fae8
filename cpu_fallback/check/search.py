"""Looking for entries among damaged bytes."""

from numba.extending import register_jitable

from kolumn.codecs import LZ4, ZSTD
from kolumn.cpu_fallback.machine.scalars import compiled
from kolumn.formats import crc, enriched, entry, kip98_draft, layouts, legacy, memory, v2, v3_compact, varint

_V2_SMALLEST, _V1_SMALLEST, _V0_SMALLEST = v2.SMALLEST, legacy.SMALLEST_V1, legacy.SMALLEST_V0
_KIP98_SMALLEST, _ENRICHED_SMALLEST, _LAST_CONTROL = kip98_draft.SMALLEST, enriched.SMALLEST, enriched.LAST_CONTROL
_V3_FORMAT, _V2, _NONE, _LEGACY = layouts.V3_FORMAT, layouts.V2, layouts.NONE, layouts.LEGACY
_KIP98, _KIP87, _ENRICHED = layouts.KIP98, layouts.KIP87, layouts.ENRICHED
_LEGACY_HEADER = legacy.HEADER
_CRC32C, _CRC32 = crc.CRC32C, crc.CRC32
_OVERHEAD, _OK = entry.OVERHEAD, 0
_ZSTD, _LZ4 = ZSTD, LZ4
_TYPE_BITS, _KNOWN_BITS = 0x0F, 0x3F


@compiled
def candidate(
    buf: int, origin: int, at: int, stop: int, loaded: int, end: int, floor: int, ceiling: int, format: int, budget: int
) -> tuple[int, int]:
    """First position in [at, stop) whose bytes could be the header of an entry with the right checksum.

    `walk.HEADERS` bytes from each position on must be readable (padding will do). An entry must end by ``end``, its offset must
    be above ``floor`` and below ``ceiling``, and bits that no writer sets must be clear. Checksums of entries that end after ``loaded``,
    and where format 3 may be, are not compared here.

    Returns
    -------
    position : int
        ``stop`` if there is no such position.
    left : int
        Of the ``budget`` of bytes to be checksummed; entries larger than that are skipped.
    """
    base = buf - origin
    while at < stop:
        if _plausible(base, at, end, floor, format) and memory.i64_at(base, at) < ceiling:
            if format == _V3_FORMAT:
                return at, budget
            size = memory.i32_at(base, at + 8) + _OVERHEAD
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
    if layouts.has_castagnoli(layouts.layout_of(format, memory.load8(base, at + 16))):
        return crc.crc32c(base, at + v2.CRC_FROM, at + size) == memory.u32_at(base, at + 17)
    return crc.crc32(base, at + legacy.CRC_FROM, at + size) == memory.u32_at(base, at + 12)


@compiled
def plausible(buf: int, origin: int, at: int, end: int, floor: int, format: int) -> bool:
    """Whether the bytes at ``at`` could be the header of an entry that ends by ``end``."""
    return _plausible(buf - origin, at, end, floor, format)


@register_jitable
def _plausible(base: int, at: int, end: int, floor: int, format: int) -> bool:
    if format == _V3_FORMAT and v3_compact.entry(base, at, end)[0] == _OK:
        return memory.i64_at(base, at) > floor and _compact(base, at)
    magic = memory.load8(base, at + 16)
    if magic > 2:
        return False
    size = memory.i32_at(base, at + 8)
    if size < _V0_SMALLEST or size > end - at - _OVERHEAD or memory.i64_at(base, at) <= floor:
        return False
    layout = layouts.layout_of(format, magic)
    attributes = memory.load8(base, at + 17)
    if layout == _LEGACY:
        return attributes < 16 and attributes & 7 <= _LZ4 and (magic == 0 or size >= _V1_SMALLEST)
    if layout == _V2:
        attributes = memory.i16_at(base, at + 21)
        count, last = memory.i32_at(base, at + 57), memory.i32_at(base, at + 23)
        return size >= _V2_SMALLEST and 0 <= count <= last + 1 and 0 <= attributes < 128 and attributes & 7 <= _ZSTD
    if layout == _KIP98:
        attributes = memory.i16_at(base, at + 17)
        return size >= _KIP98_SMALLEST and 0 <= attributes < 32 and attributes & 7 <= _LZ4 and memory.i32_at(base, at + 19) > 0
    if layout == _ENRICHED:
        return size >= _ENRICHED_SMALLEST and attributes <= _KNOWN_BITS and attributes & _TYPE_BITS <= _LAST_CONTROL
    return layout == _KIP87 and size >= _V1_SMALLEST and attributes <= _KNOWN_BITS and attributes & 7 <= _LZ4


@register_jitable
def _compact(base: int, at: int) -> bool:
    """Whether the attributes of what is framed as format 3 could be a batch's."""
    _, behind = varint.uvarint32(base, at + 8, at + 13)
    attributes = memory.i16_at(base, behind + 9)
    return 0 <= attributes < 256 and attributes & 7 <= _ZSTD


@compiled
def wrapped(buf: int, origin: int, at: int, stop: int, floor: int, ceiling: int) -> int:
    """Highest offset, above ``floor`` and up to ``ceiling``, of what looks like the header of a wrapper of format 0 or 1 in [at, stop).

    Its checksum is not compared: the codec of a damaged wrapper may have stored its messages uncompressed, with right checksums.
    ``floor`` if there is no such header.
    """
    base, highest = buf - origin, floor
    while at < stop:
        offset, magic, attributes = memory.i64_at(base, at), memory.load8(base, at + 16), memory.load8(base, at + 17)
        if highest < offset <= ceiling and magic <= 1 and attributes < 16 and 0 < attributes & 7 <= _LZ4:
            key_at = at + _LEGACY_HEADER + 8 * magic
            if memory.i32_at(base, key_at) == -1 and memory.i32_at(base, key_at + 4) > 0:
                highest = offset
        at += 1
    return highest


@compiled
def crc_match(buf: int, origin: int, at: int, stop: int, register: int, wanted: int, castagnoli: bool) -> tuple[int, int]:
    """Feed bytes from ``at`` on to a CRC register until the CRC of all so far is ``wanted``.

    Returns
    -------
    position : int
        After the byte that made it so, or -1.
    register : int
        To go on with.
    """
    table = _CRC32C if castagnoli else _CRC32
    target = wanted ^ 0xFFFFFFFF
    while at < stop:
        register = table[0, (register ^ memory.load8(buf - origin, at)) & 0xFF] ^ (register >> 8)
        at += 1
        if register == target:
            return at, register
    return -1, register
