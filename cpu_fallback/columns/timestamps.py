"""Milliseconds of Kafka to microseconds of Arrow and Spark."""

from kolumn.cpu_fallback.machine.address import set_bit
from kolumn.cpu_fallback.machine.arrays import Constants, Int64s
from kolumn.cpu_fallback.machine.scalars import compiled

_NONE = -1
_LIMIT = (2**63 - 1) // 1000


@compiled
def microseconds(source: Constants, target: Int64s, valid: int) -> int:
    """Convert one int64 array into another; returns how many are null.

    -1, no timestamp, becomes null, and so does what microseconds in 64 bits can't hold. Nulls clear their
    bits in the bitmap at address ``valid``.
    """
    some = False
    for row in range(len(source)):
        ms = source[row]
        target[row] = ms * 1000
        some |= (ms == _NONE) | (ms > _LIMIT) | (ms < -_LIMIT)
    # By itself, and without a branch, the loop above becomes one over vectors.
    if not some:
        return 0
    nulls = 0
    for row in range(len(source)):
        ms = source[row]
        if ms == _NONE or ms > _LIMIT or ms < -_LIMIT:
            set_bit(valid, row, 0)
            nulls += 1
    return nulls
