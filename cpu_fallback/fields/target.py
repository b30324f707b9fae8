"""Memory of the columns to which compiled loops write decoded records.

Converts the timestamps of a batch to microseconds while they are in the cache.
"""

from typing import NamedTuple

from kolumn.cpu_fallback.fields.put import SKIP, PayloadColumn, begin, put
from kolumn.cpu_fallback.machine.address import load64, store32, store64
from kolumn.formats.machine_code.deferred import register_jitable

ROWS, KEY, VALUE, HEADERS, HEADER_KEY, HEADER_VALUE = range(6)
"""Write positions in the array ``at``: rows, bytes of keys and values, headers, bytes of their keys and values."""
HAS_NULL_KEYS, HAS_NULL_VALUES, HAS_NULL_HEADER_KEYS, HAS_NULL_HEADER_VALUES = range(6, 10)
"""Whether a column has had a null, in the same array. `PayloadColumn.has_null` are their addresses."""
POSITIONS = 10


class Target(NamedTuple):
    """Addresses of the columns of a run of batches.

    ``offset`` and ``timestamp`` are int64. Times are written in ms; with ``microseconds`` `stream` converts those of each batch.
    ``header_ends`` are the int32 list offsets, 0 if headers are not wanted. ``attributes`` are uint8 and initially zeros; formats whose
    messages have attributes of their own write them there. ``seconds`` (int64) are the timestamps of enriched messages. Both are 0 if
    they are not wanted. Where ``short`` is not set, the loops for short records are passed by (`kolumn.core.paths`).
    """

    offset: int
    timestamp: int
    key: PayloadColumn
    value: PayloadColumn
    header_ends: int
    header_key: PayloadColumn
    header_value: PayloadColumn
    attributes: int
    seconds: int
    microseconds: bool
    short: bool


@register_jitable
def begin_columns(to: Target) -> None:
    """Write what columns have before the first row. May be called again when rows were written."""
    begin(to.key)
    begin(to.value)
    if to.header_ends:
        store32(to.header_ends, 0)
        begin(to.header_key)
        begin(to.header_value)


@register_jitable(forceinline=True)
def put_record(
    to: Target,
    n: int,
    offset: int,
    timestamp: int,
    headers: int,
    buffer: int,
    moved: int,
    key_at: int,
    key_length: int,
    value_at: int,
    value_length: int,
    key: int,
    value: int,
) -> tuple[int, int]:
    """Write row ``n`` without its headers; returns the used bytes of keys and of values.

    Parameters
    ----------
    headers : int
        Number of headers up to and including those of this record.
    buffer, moved : int
        For views: number of the buffer that holds the payloads, and the difference between a position in it and an address.
    key_at, value_at : int
        Addresses; a negative length is null.
    key, value : int
        Used bytes of keys and of values before this row.
    """
    store64(to.offset + 8 * n, offset)
    store64(to.timestamp + 8 * n, timestamp)
    if to.key.mode != SKIP:
        key = put(to.key, key_at, buffer, key_at + moved, key_length, n, key)
    if to.value.mode != SKIP:
        value = put(to.value, value_at, buffer, value_at + moved, value_length, n, value)
    if to.header_ends:
        store32(to.header_ends + 4 * n + 4, headers)
    return key, value


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
