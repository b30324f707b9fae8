"""Memory of the Arrow columns to which compiled loops write decoded records: payloads as copies or as views, timestamps in ms or in us."""

from typing import NamedTuple

from kolumn.core.deferred import register_jitable
from kolumn.cpu_fallback.machine.address import STEP, copy32, load64, prefetch, prefetch_read, set_bit, store32, store64
from kolumn.cpu_fallback.machine.arrays import Constants, Int64s
from kolumn.cpu_fallback.machine.compile import compiled

SKIP, COPY, VIEW = 0, 1, 2
"""Modes of a column: no payloads, copies, or views."""
_INLINE = 12
LINE = 64
"""Bytes of a cache line."""
AHEAD = 2048
"""Prefetch distance ahead of a write: the core need not wait for lines that it is about to overwrite."""
NEXT_BATCH = 1 << 15
"""Prefetch distance past a copied payload: if the segment is in memory, the next batch is in the cache when its checksum is compared."""
NEXT_BLOCK = 1 << 18
"""Prefetch distance past a viewed payload: the next bytes are read or decompressed to there."""


class PayloadColumn(NamedTuple):
    """Addresses of one binary column; 0 if the mode does not need one. ``ends`` has ``rows`` + 1 int32, ``views`` 16 bytes for each row.
    ``valid`` is a bitmap in which the bits of nulls are cleared. Most columns have none, so its ones are written before the first null, and
    ``has_null``, an int64, is 1 from then on."""

    mode: int
    arena: int = 0
    ends: int = 0
    valid: int = 0
    views: int = 0
    has_null: int = 0
    rows: int = 0


@register_jitable(forceinline=True)
def put(column: PayloadColumn, source: int, buffer: int, offset: int, length: int, row: int, used: int) -> int:
    """Append one payload as row ``row``; returns the used bytes of the arena. ``source``: address of the payload. ``buffer``, ``offset``:
    the same for a view: number of the buffer, and position in it. ``length``: bytes; negative for null."""
    if column.mode == COPY:
        if length > 0:
            _copy(column.arena + used, source, length)
            used += length
        elif length < 0:
            _null(column, row)
        store32(column.ends + 4 * row + 4, used)
    else:
        # Only two lines of a long payload are prefetched, because prefetching many at once costs more than it saves.
        prefetch(source + NEXT_BLOCK)
        if length > LINE:
            prefetch(source + NEXT_BLOCK + LINE)
        _view(column.views + 16 * row, source, buffer, offset, length)
        if length < 0:
            _null(column, row)
    return used


@register_jitable(forceinline=True)
def _null(column: PayloadColumn, row: int) -> None:
    """Clear the bit of a row. Nulls are not counted here: a record is decoded again if the loop for short ones cannot finish it."""
    if load64(column.has_null) == 0:
        _begin_nulls(column.valid, column.has_null, column.rows)
    set_bit(column.valid, row, 0)


@register_jitable
def _begin_nulls(valid: int, has_null: int, rows: int) -> None:
    for at in range(0, (rows + 7) >> 3, 8):
        store64(valid + at, -1)
    store64(has_null, 1)


@register_jitable(forceinline=True)
def _copy(to: int, source: int, length: int) -> None:
    """Copy a payload line by line; up to 63 bytes after it are read and written."""
    done = 0
    while done < length:
        prefetch(to + done + AHEAD)
        prefetch_read(source + done + NEXT_BATCH)
        copy32(to + done, source + done)
        copy32(to + done + STEP, source + done + STEP)
        done += LINE


@register_jitable(forceinline=True)
def _view(to: int, source: int, buffer: int, offset: int, length: int) -> None:
    """Write a view, 16 bytes, little-endian (Arrow's BinaryView).

    length i32 | up to twelve bytes of data, rest 0          up to 12 bytes
    length i32 | first four bytes | buffer i32 | offset i32  longer"""
    if length <= 0:
        store64(to, 0)
        store64(to + 8, 0)
        return
    low = load64(source)
    if length > _INLINE:
        store64(to, length | (low << 32))
        store64(to + 8, buffer | (offset << 32))
        return
    rest = 0
    if length < 4:
        low &= (1 << (8 * length)) - 1
    elif length > 4:
        rest = load64(source + 4)
        if length < _INLINE:
            rest &= (1 << (8 * (length - 4))) - 1
    store64(to, length | (low << 32))
    store64(to + 8, rest)


@register_jitable
def begin(column: PayloadColumn) -> None:
    """Write what stands before the first row."""
    if column.mode == COPY:
        store32(column.ends, 0)


@register_jitable
def forget(column: PayloadColumn, first: int, stop: int) -> None:
    """Undo the nulls of rows [first, stop), which are going to be overwritten. Nothing else needs to be undone."""
    if column.mode != SKIP and load64(column.has_null) > 0:
        for row in range(first, stop):
            set_bit(column.valid, row, 1)


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
    they are not wanted. Where ``short`` is not set, the loops for short records are passed by (`kolumn.core.paths`)."""

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
    to: Target, n: int, offset: int, timestamp: int, headers: int, buffer: int, moved: int, key_at: int, key_length: int, value_at: int,
    value_length: int, key: int, value: int,
) -> tuple[int, int]:  # fmt: skip
    """Write row ``n`` without its headers; returns the used bytes of keys and of values.

    ``headers``: number of headers up to and including those of this record.
    ``buffer``, ``moved``: for views: number of the buffer that holds the payloads, and the difference between a position in it and an
        address.
    ``key_at``, ``value_at``: addresses; a negative length is null.
    ``key``, ``value``: used bytes of keys and of values before this row.
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
    """Convert rows [first, stop) of the int64 column at an address; whether one of them is `NO_TIME` now. Those are -1, which means no
    timestamp, and times whose microseconds do not fit."""
    some = False
    for at in range(timestamp + 8 * first, timestamp + 8 * stop, 8):
        ms = load64(at)
        none = (ms == _NONE) | (ms > LARGEST) | (ms < -LARGEST)
        store64(at, NO_TIME if none else ms * 1000)
        some |= none
    return some


@compiled
def microseconds(source: Constants, target: Int64s, valid: int) -> int:
    """Convert one int64 array into another; returns how many are null. Null replaces -1, which means no timestamp, and times whose
    microseconds do not fit 64 bits. The bits of nulls are cleared in the bitmap at address ``valid``."""
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
