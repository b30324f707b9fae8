"""Converts Kafka's milliseconds to the microseconds of Arrow and Spark."""

from kolumn.cpu_fallback.fields.target import LARGEST
from kolumn.cpu_fallback.machine.address import set_bit
from kolumn.cpu_fallback.machine.arrays import Constants, Int64s
from kolumn.cpu_fallback.machine.compile import compiled

_NONE = -1


@compiled
def microseconds(source: Constants, target: Int64s, valid: int) -> int:
    """Convert one int64 array into another; returns how many are null.

    Null replaces -1, which means no timestamp, and times whose microseconds do not fit 64 bits. The bits of nulls are cleared in the
    bitmap at address ``valid``.
    """
    some = False
    for row in range(len(source)):
        ms = source[row]
        target[row] = ms * 1000
        some |= (ms == _NONE) | (ms > LARGEST) | (ms < -LARGEST)
    # The loop above is separate and has no branch, so that the compiler vectorises it.
    if not some:
        return 0
    nulls = 0
    for row in range(len(source)):
        ms = source[row]
        if ms == _NONE or ms > LARGEST or ms < -LARGEST:
            set_bit(valid, row, 0)
            nulls += 1
    return nulls
