"""Milliseconds of Kafka to microseconds of Arrow and Spark."""

from kolumn.cpu_fallback.address import load64, set_bit, store64
from kolumn.cpu_fallback.scalars import compiled

_NONE = -1
_LIMIT = (2**63 - 1) // 1000


@compiled
def microseconds(source: int, rows: int, target: int, valid: int) -> int:
    """Convert ``rows`` int64 at address ``source`` into ``target``; returns how many are null.

    Null stands for -1, no timestamp, and for what microseconds in 64 bits can't hold. They clear their
    bits in the bitmap ``valid``.
    """
    nulls = 0
    for row in range(rows):
        ms = load64(source + 8 * row)
        store64(target + 8 * row, ms * 1000)
        if ms == _NONE or ms > _LIMIT or ms < -_LIMIT:
            set_bit(valid, row, 0)
            nulls += 1
    return nulls
