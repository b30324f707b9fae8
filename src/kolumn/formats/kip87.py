"""The tombstone flag of KIP-87, a draft: the message of format 1 with magic 2 and one more bit.

    attributes  bits 0-2 codec · 3 LogAppendTime · 5 tombstone (of the message itself, never of a wrapper)

Everything else is in `legacy`. A tombstone may have a value. A message without a value that is not a tombstone must not be
written; it is read all the same, and `kolumn.verify` reports it.
"""

from kolumn.formats import layout, legacy
from kolumn.formats.entry import Message
from kolumn.formats.layout import LZ4, Family, Format, Layout
from kolumn.formats.memory import Buffer, load8

MAGIC = 2
TOMBSTONE = 0x20
FLAGGED = 0x80
"""Added to the attributes of a message with this magic: its tombstone bit decides, not its value."""
_KNOWN_BITS = 0x3F
_LARGEST_CODEC = LZ4


def plausible(buf: Buffer, pos: int, size: int) -> bool:
    """Whether bits that no writer sets are clear in a message whose length field is ``size``."""
    attributes = load8(buf, pos + 17)
    return size >= legacy.SMALLEST_V1 and attributes <= _KNOWN_BITS and attributes & 7 <= _LARGEST_CODEC


def message(buf: Buffer, at: int, end: int, wrapped: int = 0, attributes: int = 0, base: int = 0, number: int = 0) -> Message:
    """See `kolumn.formats.layout.Layout.message`. `FLAGGED` is not added to wrapped messages of lower magics."""
    found = legacy.message(buf, at, end, wrapped, attributes, base, number)
    if load8(buf, at + 16) != MAGIC:
        return found
    flags = (load8(buf, at + 17) & TOMBSTONE) | FLAGGED
    return Message(
        found.code, found.where, found.offset, found.timestamp, found.dated, found.seconds, flags,
        found.key, found.key_length, found.value, found.value_length,
    )  # fmt: skip


LAYOUT = Layout(
    "flagged message", 6, Family.MESSAGES, legacy.SMALLEST_ENTRY, crc_at=12, crc_from=legacy.CRC_FROM, castagnoli=False,
    header=legacy.header, plausible=plausible, codec_code=legacy.codec_code,
    hop=legacy.following, message=message, wrapped=legacy.wrapped, inner_codec=legacy.inner_codec,
    flagged_bit=FLAGGED, tombstone_bit=TOMBSTONE,
    holds={MAGIC: frozenset({layout.TIMESTAMPS, layout.APPEND_TIMES, layout.DELETES, layout.TOMBSTONES})},
)  # fmt: skip
FORMAT = Format("kip87", {0: legacy.LAYOUT, 1: legacy.LAYOUT, 2: LAYOUT}, MAGIC)
