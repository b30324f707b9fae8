"""Gzip members (RFC 1952), as ``java.util.zip.GZIPInputStream`` (JDK 8 to 22) reads them. All integers are little-endian.

    u16  1F 8B;  u8  method 8;  u8  flags   bit 4 comment | 3 name | 2 extra | 1 header checksum | 0 text
    u32  time, u8 extra flags, u8 system: not read. Java writes 1F 8B 08 00 00000000 00 FF (system 00 up to JDK 15)
    u16  size of extra bytes and the bytes, name up to 00, comment up to 00, u16 low half of the header's CRC-32: if flagged
    deflate stream
    u32  CRC-32 of the decompressed bytes;  u32  their count modulo 2^32: both are compared

A payload may have several members. After a member, 18 bytes or fewer, or bytes that are not a whole header, are ignored. A whole
header whose member is malformed is an error. (JDK 23 and later also read the last 18 bytes, so for them a header there, which cannot
have a whole member, is an error. For Go's and Python's readers any other bytes after a member are an error.) Reserved flags are not
checked.
"""

from kolumn.formats.codecs import DEFLATE, END
from kolumn.formats.codecs.flaws import CUT, HEADER_CHECKSUM, MAGIC, METHOD, TRAILER
from kolumn.formats.crc import crc32
from kolumn.formats.memory import Buffer, load8, u32_little_at

FHCRC, FEXTRA, FNAME, FCOMMENT = 0x02, 0x04, 0x08, 0x10
LEAST_MEMBER = 18
"""Java ignores up to this many bytes after a member. It is the size of a header and a trailer together."""
MOST_PER_BYTE = 1032
"""Most bytes that one byte of a deflate stream can decompress to."""


def header(buf: Buffer, at: int, end: int, magic: int) -> tuple[int, int, int]:
    """Header of the member at ``at``; ``next`` is where its deflate stream begins."""
    if end - at < 10:
        return CUT, end, 0
    if load8(buf, at) != 0x1F or load8(buf, at + 1) != 0x8B:
        return MAGIC, at, 0
    if load8(buf, at + 2) != 8:
        return METHOD, at + 2, 0
    flags, place = load8(buf, at + 3), at + 10
    if flags & FEXTRA:
        if end - place < 2:
            return CUT, end, 0
        place += 2 + (load8(buf, place) | (load8(buf, place + 1) << 8))
    if flags & FNAME:
        place = after_zero(buf, place, end)
    if flags & FCOMMENT:
        place = after_zero(buf, place, end)
    if place > end:
        return CUT, end, 0
    if flags & FHCRC:
        if end - place < 2:
            return CUT, end, 0
        if (load8(buf, place) | (load8(buf, place + 1) << 8)) != crc32(buf, at, place) & 0xFFFF:
            return HEADER_CHECKSUM, place, 0
        place += 2
    return 0, place, 0


def block(buf: Buffer, at: int, end: int, state: int) -> tuple[int, int, int, int, int, int]:
    """Deflate stream at ``at``. Its end is known only after decompression, so ``stop`` is the payload's end."""
    if at >= end:
        return CUT, end, 0, 0, 0, END
    return 0, end, at, end, MOST_PER_BYTE * (end - at), DEFLATE


def following(buf: Buffer, at: int, end: int, crc: int, size: int) -> tuple[int, int]:
    """Trailer at ``at``, after a deflate stream that decompressed to ``size`` bytes with CRC-32 ``crc``. Returns the flaw, and the position
    of the next member's deflate stream, which is ``end`` if there is no next member."""
    if end - at < 8:
        return CUT, end
    if u32_little_at(buf, at) != crc or u32_little_at(buf, at + 4) != size & 0xFFFFFFFF:
        return TRAILER, at
    at += 8
    if end - at <= LEAST_MEMBER:
        return 0, end
    flaw, place, _ = header(buf, at, end, 0)
    if flaw != 0:
        return 0, end
    return (CUT, end) if place == end else (0, place)


def after_zero(buf: Buffer, at: int, end: int) -> int:
    """Position after the next zero byte; ``end + 1`` if there is no zero byte."""
    while at < end:
        if load8(buf, at) == 0:
            return at + 1
        at += 1
    return end + 1
