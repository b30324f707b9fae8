"""Looking for entries among damaged bytes."""

from numba.extending import register_jitable

from kolumn.cpu_fallback.scalars import compiled
from kolumn.formats import crc, legacy, memory, v2

_V2_SMALLEST, _V1_SMALLEST, _V0_SMALLEST = v2.SMALLEST, legacy.SMALLEST_V1, legacy.SMALLEST_V0
_CRC32C, _CRC32 = crc.CRC32C, crc.CRC32
_HEADER = v2.HEADER
_ZSTD, _LZ4 = 4, 3


@compiled
def candidate(buf: int, origin: int, at: int, stop: int, end: int, floor: int) -> int:
    """First position in [at, stop) whose bytes could be the header of an entry; ``stop`` where none could.

    61 bytes from each position on must be readable (padding will do). An entry must end by ``end``, its offset must be above
    ``floor``, and bits that no writer sets must be clear.
    """
    base = buf - origin
    while at < stop:
        magic = memory.load8(base, at + 16)
        if magic <= 2 and _plausible(base, at, end, floor, magic):
            return at
        at += 1
    return stop


@compiled
def plausible(buf: int, origin: int, at: int, end: int, floor: int) -> bool:
    """Whether the bytes at ``at`` could be the header of an entry that ends by ``end``."""
    magic = memory.load8(buf - origin, at + 16)
    return magic <= 2 and _plausible(buf - origin, at, end, floor, magic)


@register_jitable
def _plausible(base: int, at: int, end: int, floor: int, magic: int) -> bool:
    size = memory.i32_at(base, at + 8)
    if size < _V0_SMALLEST or size > end - at - 12 or memory.i64_at(base, at) <= floor:
        return False
    if magic < 2:
        attributes = memory.load8(base, at + 17)
        return attributes < 16 and attributes & 7 <= _LZ4 and (magic == 0 or size >= _V1_SMALLEST)
    count, last = memory.i32_at(base, at + 57), memory.i32_at(base, at + 23)
    attributes = memory.i16_at(base, at + 21)
    return size >= _V2_SMALLEST and 0 <= count <= last + 1 and 0 <= attributes < 128 and attributes & 7 <= _ZSTD


@compiled
def crc_match(buf: int, origin: int, at: int, stop: int, register: int, wanted: int, castagnoli: bool) -> tuple[int, int]:
    """Feed bytes from ``at`` on to a CRC register until the CRC of all so far is ``wanted``.

    Returns
    -------
    position : int
        Behind the byte that made it so, or -1.
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
