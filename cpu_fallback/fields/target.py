"""Memory of the columns to which compiled loops write decoded records."""

from typing import NamedTuple

from kolumn.cpu_fallback.fields.put import SKIP, PayloadColumn, begin, put
from kolumn.cpu_fallback.machine.address import store32, store64
from kolumn.machine_code.deferred import register_jitable

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
    they are not wanted. Where ``short`` is not set, the loops for short records are passed by (`kolumn.paths`).
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
