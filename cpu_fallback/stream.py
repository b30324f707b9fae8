"""Plain batches straight from the file to the columns, a block at a time, while the block is in the CPU's cache.

Reading a chunk whole, then checking it, then decoding it moves every byte through memory three times, and memory is what
limits plain data. Here one compiled call reads, checks and decodes some hundred KiB before it goes on:

    file  | batch | batch | batch | batch | batch | batch | batch |
          |<------ block ------->|<------ block ------->|           a block starts at a batch and ends where the buffer does
"""

from typing import Any

from numba import types

from kolumn.cpu_fallback.fields import ROWS, Target, batch_records
from kolumn.cpu_fallback.scalars import compiled
from kolumn.cpu_fallback.walk import HEADERS, fill
from kolumn.errors import Code
from kolumn.formats import crc, table, v2
from kolumn.formats.entry import entry, magic_at

BLOCK = 1 << 18
"""Bytes read at a time; a batch that is larger is left to the general path."""

_OK, _HEADER, _CRC_FROM = int(Code.OK), v2.HEADER, v2.CRC_FROM
_POSITION, _SIZE, _CRC, _COUNT = table.POSITION, table.SIZE, table.CRC, table.COUNT
_CODE, _CODEC = table.CODE, table.CODEC
_SMALLEST_RECORD = v2.SMALLEST_RECORD

_pread = types.ExternalFunction("pread", types.int64(types.int32, types.int64, types.int64, types.int64))
"""``ssize_t pread(int, void *, size_t, off_t)`` of the C library."""


@compiled
def hop(file: int, pos: int, stop: int, end: int, buf: int, rows: Any) -> tuple[int, int]:
    """Fill the batch table by reading headers alone, from ``pos`` to ``stop``, as long as entries are plain batches.

    ``end`` is where the file ends, ``buf`` the address of room for a header.

    Returns
    -------
    count, pos : int
        Rows filled, and where the walk stopped: the general walk says why.
    """
    count = 0
    while pos < stop and count < rows.shape[0] and pos + HEADERS <= end:
        if _pread(file, buf, HEADERS, pos) != HEADERS:
            break
        code, size = entry(buf - pos, pos, end)
        if code != _OK or magic_at(buf - pos, pos) != 2 or size > BLOCK:
            break
        fill(buf - pos, pos, size, rows[count])
        if rows[count, _CODE] != _OK or rows[count, _CODEC] != 0:
            break
        count += 1
        pos += size
    return count, pos


@compiled
def stream(file: int, rows: Any, wanted: Any, buf: int, check_crcs: bool, records: Any, to: Target, at: Any) -> bool:
    """Read, check and decode plain format 2 batches.

    Parameters
    ----------
    file : int
        Descriptor.
    rows : int64 array of shape (n, `table.WIDTH`)
        As `hop` fills them.
    wanted : bool array of n
        Which batches to decode; the checksums of the others are compared too.
    buf : int
        Address of `BLOCK` bytes and padding.
    records : int64 array of n
        Out: records of each batch.
    to, at
        As for `fields.fields`.

    Returns
    -------
    bool
        False where anything is wrong: nothing that was written counts then, and the general path finds out what it is.
    """
    start, loaded = 0, 0
    for b in range(rows.shape[0]):
        position, size, count = rows[b, _POSITION], rows[b, _SIZE], rows[b, _COUNT]
        records[b] = 0
        if position < start or position + size > loaded:
            room = min(BLOCK, rows[-1, _POSITION] + rows[-1, _SIZE] - position)
            if _pread(file, buf, room, position) != room:
                return False
            start, loaded = position, position + room
        at_batch = buf + position - start
        if check_crcs and crc.crc32c(at_batch, _CRC_FROM, size) != rows[b, _CRC]:
            return False
        if not wanted[b]:
            continue
        if count < 0 or count > (size - _HEADER) // _SMALLEST_RECORD:
            return False
        first = at[ROWS]
        code, _, _ = batch_records(rows[b], at_batch + _HEADER, size - _HEADER if count else 0, 0, 0, count, to, at)
        if code != _OK:
            return False
        records[b] = at[ROWS] - first
    return True
