"""Writes one key, value or header payload to its Arrow column: as a copy in an arena, or as a view of the source."""

from typing import NamedTuple

from kolumn.cpu_fallback.machine.address import STEP, copy32, load64, prefetch, prefetch_read, set_bit, store32, store64
from kolumn.formats.machine_code.deferred import register_jitable

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
    """Addresses of one binary column; 0 if the mode does not need one.

    ``ends`` has ``rows`` + 1 int32, ``views`` 16 bytes for each row. ``valid`` is a bitmap in which the bits of nulls are cleared. Most
    columns have none, so its ones are written before the first null, and ``has_null``, an int64, is 1 from then on.
    """

    mode: int
    arena: int = 0
    ends: int = 0
    valid: int = 0
    views: int = 0
    has_null: int = 0
    rows: int = 0


@register_jitable(forceinline=True)
def put(column: PayloadColumn, source: int, buffer: int, offset: int, length: int, row: int, used: int) -> int:
    """Append one payload as row ``row``; returns the used bytes of the arena.

    Parameters
    ----------
    source : int
        Address of the payload.
    buffer, offset : int
        The same for a view: number of the buffer, and position in it.
    length : int
        Bytes; negative for null.
    """
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
    length i32 | first four bytes | buffer i32 | offset i32  longer
    """
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
