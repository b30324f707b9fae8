"""Converts Kafka's milliseconds to the microseconds of Arrow and Spark."""

from kolumn.cpu_fallback.machine.address import load64, set_bit, store64
from kolumn.cpu_fallback.machine.arrays import Constants, Int64s
from kolumn.cpu_fallback.machine.scalars import compiled
from kolumn.machine_code.deferred import register_jitable

NO_TIME = -(2**63)
"""What `in_microseconds` writes for a record without a timestamp: no product with 1000."""
_NO_TIME = NO_TIME
_NONE = -1
_LIMIT = (2**63 - 1) // 1000


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
        some |= (ms == _NONE) | (ms > _LIMIT) | (ms < -_LIMIT)
    # The loop above is separate and has no branch, so that the compiler vectorises it.
    if not some:
        return 0
    nulls = 0
    for row in range(len(source)):
        ms = source[row]
        if ms == _NONE or ms > _LIMIT or ms < -_LIMIT:
            set_bit(valid, row, 0)
            nulls += 1
    return nulls


@register_jitable
def in_microseconds(timestamp: int, first: int, stop: int) -> bool:
    """Convert rows [first, stop) of the int64 column at an address; whether one of them is `NO_TIME` now, for the reasons above."""
    some = False
    for at in range(timestamp + 8 * first, timestamp + 8 * stop, 8):
        ms = load64(at)
        none = (ms == _NONE) | (ms > _LIMIT) | (ms < -_LIMIT)
        store64(at, _NO_TIME if none else ms * 1000)
        some |= none
    return some
