"""The tombstone flag of KIP-87, a draft: the message of format 1 with magic 2 and one more bit.

    attributes  bits 0-2 codec · 3 LogAppendTime · 5 tombstone (of the message itself, never of a wrapper)

Everything else is in `legacy`. A tombstone may have a value. A message without a value that is no tombstone must not be
written; it is read, and `kolumn.verify` reports it.
"""

MAGIC = 2
TOMBSTONE = 0x20
FLAGGED = 0x80
"""Added to the attributes that a decoder gives of a message with this magic: its bit decides, not its value."""


def should_retain(magic: int, value_is_null: bool, tombstone_bit: bool) -> bool:
    """Whether a message keeps its key alive in a compacted topic (``LogCleaner.shouldRetainMessage`` of the draft).

    The value decides for formats 0 and 1, the bit for magic 2.
    """
    return not (tombstone_bit if magic >= MAGIC else value_is_null)
