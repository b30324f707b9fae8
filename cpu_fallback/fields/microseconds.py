"""Converts the timestamps of a batch to microseconds while they are in the cache."""

from kolumn.cpu_fallback.machine.address import load64, store64
from kolumn.machine_code.deferred import register_jitable

NO_TIME = -(2**63)
"""What `in_microseconds` writes for a record without a timestamp: no product with 1000."""
LARGEST = (2**63 - 1) // 1000
"""Largest number of milliseconds whose microseconds fit 64 bits; smaller ones than its negative do not fit either."""
_NONE = -1


@register_jitable
def in_microseconds(timestamp: int, first: int, stop: int) -> bool:
    """Convert rows [first, stop) of the int64 column at an address; whether one of them is `NO_TIME` now.

    Those are -1, which means no timestamp, and times whose microseconds do not fit.
    """
    some = False
    for at in range(timestamp + 8 * first, timestamp + 8 * stop, 8):
        ms = load64(at)
        none = (ms == _NONE) | (ms > LARGEST) | (ms < -LARGEST)
        store64(at, NO_TIME if none else ms * 1000)
        some |= none
    return some
