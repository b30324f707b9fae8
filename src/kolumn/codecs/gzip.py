"""gzip members (RFC 1952) as Kafka reads them (``java.util.zip.GZIPInputStream``): one or more, then anything.

    1F 8B 08 | flags | time u32 | extra flags | system | [extra] | [name] | [comment] | [crc16] | deflate … | crc32 | size u32

CRC and size of every member are verified. Bytes behind a member that begin no other one are ignored, and so are up to 18 bytes,
too few for one.
"""

from kolumn.formats.memory import Buffer, load8

SMALLEST_HEADER = 10
TRAILER = 8
FEWEST_MORE = 19
"""Bytes behind a member in which Java looks for another one."""
LARGEST_RATIO = 1032
BAD = -1


def member(buf: Buffer, at: int, end: int) -> int:
    """Position of the deflate stream of the member at ``at``, or BAD where none begins."""
    if end - at < SMALLEST_HEADER or load8(buf, at) != 0x1F or load8(buf, at + 1) != 0x8B or load8(buf, at + 2) != 8:
        return BAD
    flags = load8(buf, at + 3)
    at += SMALLEST_HEADER
    if flags & 4:
        if end - at < 2:
            return BAD
        at += 2 + load8(buf, at) + (load8(buf, at + 1) << 8)
    for name in (8, 16):
        if flags & name:
            while at < end and load8(buf, at) != 0:
                at += 1
            at += 1
    if flags & 2:
        at += 2
    return at if at <= end else BAD
